"""Texts and ids that begin with a dash are no options, and ids of any characters lead to their documents."""

import json
import uuid

import pytest

import termweave as tw
from tests.conftest import SHARED
from tests.ui.conftest import client_of

CASE = SHARED / "cases" / "odd-ids" / "docs.jsonl"
FURTHER = ["+1", "a#b", "x?y", "%2F", " lead", "日本語", "e\u0301", "a/b/../c"]
FURTHER += ["a\\b", "<script>", "-5 degrees", "tab\tid", "ü" * 300]


@pytest.fixture(scope="module")
def odd(opensearch_engine):
    """An index of documents with odd ids, and the ids."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    ids = [*(json.loads(line)["id"] for line in (CASE.read_text().splitlines() if CASE.exists() else ())), *FURTHER]
    documents = [{"id": each, "text": f"Water at minus five degrees {number}."} for number, each in enumerate(ids)]
    tw.index(documents, name, connection=tw.connect(opensearch_engine.url), dense="none")
    yield name, ids
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


def test_ids_of_any_characters(odd, opensearch_engine, termweave):
    name, ids = odd
    client = client_of(opensearch_engine, index=name)
    for each in ids:
        assert json.loads(termweave("explain", name, "five degrees", each, "--json").stdout)["hit"]["id"] == each
        assert client.get("/api/search", params={"q": "water", "pin": each}).json()["hits"][0]["id"] == each
        assert each not in [hit["id"] for hit in client.get("/api/search", params={"like": each}).json()["hits"]]
        assert client.get("/api/explain", params={"q": "water", "id": each}).json()["hit"]["id"] == each
    for options, first in ((["water", "--pin", "-5 degrees"], True), (["--like", "-5 degrees"], False)):
        hits = json.loads(termweave("search", name, *options, "--json").stdout)["hits"]
        assert (hits[0]["id"] == "-5 degrees") == ("-5 degrees" in [hit["id"] for hit in hits]) == first


@pytest.mark.parametrize("query", ["-5 degrees", "-5", "-.5", "-°C", "--5 degrees", "-quiet five", "--force five", "- five"])
def test_a_query_that_begins_with_a_dash_is_searched(odd, termweave, query):
    name, _ = odd
    for words in (["search", name, query, "-k", "3"], ["search", "-k", "3", name, query], ["explain", name, query, "-5 degrees"]):
        assert json.loads(termweave(*words, "--json").stdout)["query"] == query


def test_a_word_that_may_be_an_option_is_told_to_stand_behind_two_dashes(odd, termweave):
    name, _ = odd
    assert "stands behind '--', after all options" in termweave("search", name, "-vegan", status=2).stderr
    termweave("search", name, "--", "-vegan")
    assert "--filter" in termweave("search", name, "water", "--filtre", "a=b", status=2).stderr
