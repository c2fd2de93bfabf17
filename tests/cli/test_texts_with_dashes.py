"""Texts and ids that begin with a dash are no options, and ids of any characters lead to their documents."""

from __future__ import annotations

import json

import pytest

import termweave as tw
from termweave.cli import run
from tests.conftest import SHARED
from tests.ui.conftest import client_of

pytestmark = pytest.mark.engine
CASE = SHARED / "cases" / "odd-ids" / "docs.jsonl"
FURTHER = [
    "+1",
    "a#b",
    "x?y",
    "%2F",
    " lead",
    "日本語",
    "e\u0301",
    "a/b/../c",
    "a\\b",
    "<script>",
    "-5 degrees",
    "tab\tid",
    "ü" * 300,
]


@pytest.fixture
def odd(opensearch_engine, name):
    """An index of documents with odd ids, and the ids."""
    ids = [*(json.loads(line)["id"] for line in (CASE.read_text().splitlines() if CASE.exists() else ())), *FURTHER]
    documents = [{"id": each, "text": f"Water at minus five degrees {number}."} for number, each in enumerate(ids)]
    tw.index(documents, name, connection=tw.connect(opensearch_engine.url), dense="none")
    return name, ids


def test_ids_of_any_characters(odd, opensearch_engine, capsys):
    name, ids = odd
    client = client_of(opensearch_engine, index=name)

    def found(*words):
        assert run([*words[:1], name, *words[1:], "--json", "--url", opensearch_engine.url]) == 0, words
        return json.loads(capsys.readouterr().out)

    for each in ids:
        assert found("explain", "five degrees", each)["hit"]["id"] == each
        assert found("search", "water", "--pin", each, "-k", "1")["hits"][0]["id"] == each
        assert each not in [hit["id"] for hit in found("search", "--like", each)["hits"]]
        assert client.get("/api/search", params={"q": "water", "pin": each}).json()["hits"][0]["id"] == each
        assert each not in [hit["id"] for hit in client.get("/api/search", params={"like": each}).json()["hits"]]
        assert client.get("/api/explain", params={"q": "water", "id": each}).json()["hit"]["id"] == each


@pytest.mark.parametrize(
    "query", ["-5 degrees", "-5", "-.5", "-°C", "--5 degrees", "-quiet five", "--force five", "- five", "+5 degrees"]
)
def test_a_query_that_begins_with_a_dash_is_searched(odd, opensearch_engine, capsys, query):
    for words in (
        ["search", odd[0], query, "-k", "3"],
        ["search", "-k", "3", odd[0], query],
        ["explain", odd[0], query, "-5 degrees"],
    ):
        assert run([*words, "--json", "--url", opensearch_engine.url]) == 0, words
        assert json.loads(capsys.readouterr().out)["query"] == query


def test_a_word_that_may_be_an_option_is_told_to_stand_behind_two_dashes(odd, opensearch_engine, capsys):
    assert run(["search", odd[0], "-vegan", "--url", opensearch_engine.url]) == 2
    assert "stands behind '--', after all options" in capsys.readouterr().err
    assert run(["search", "--url", opensearch_engine.url, odd[0], "--", "-vegan"]) == 0
    capsys.readouterr()
    assert run(["search", odd[0], "water", "--filtre", "a=b"]) == 2
    assert "--filter" in capsys.readouterr().err
