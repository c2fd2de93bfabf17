"""The options of a search are declared once: records, keyword arguments and their checks."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

import pytest

from termweave.errors import UsageError
from termweave.search import options
from termweave.search.options import (
    RankingKeywords,
    RankingOptions,
    RunKeywords,
    RunOptions,
    SearchKeywords,
    SearchOptions,
)
from termweave.search.ranking.rerankers import Reranker, Reranking


@pytest.mark.parametrize(
    ("record", "keywords"),
    [(RankingOptions, RankingKeywords), (SearchOptions, SearchKeywords), (RunOptions, RunKeywords)],
)
def test_keyword_arguments_are_the_fields_of_the_record(record, keywords, monkeypatch):
    for kind in (Reranker, Reranking):  # imported for type checkers only
        monkeypatch.setattr(options, kind.__name__, kind, raising=False)
    hints = get_type_hints(record)
    assert {each.name: hints[each.name] for each in fields(record)} == get_type_hints(keywords)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": 0}, "k and candidates begin at 1"),
        ({"candidates": 20_000}, "at most 10,000 candidates, not 20,000"),
        ({"k": 10_000, "start": 1}, "Hit 10,001 cannot be reached"),
        ({"server_fusion": True, "explain": True}, "which cannot be explained"),
        ({"where": {"kind": "class"}}, 'As an expression it is "kind=class"'),
        ({"like": "a"}, "like is a list of ids"),
        ({"mode": 3}, "mode is a text, not int"),
    ],
)
def test_values_that_cannot_be_used_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        SearchOptions(**given)


@pytest.mark.parametrize("workers", [0, 65, "2", 1.5])
def test_workers_out_of_range_are_refused(workers):
    with pytest.raises(UsageError, match="workers is a whole number from 1 on, at most 64"):
        RunOptions(workers=workers)


def test_what_can_be_read_only_once_is_kept_as_a_list():
    assert SearchOptions(where={"term": {"id": "a"}}).where == [{"term": {"id": "a"}}]  # one filter needs no list
    kept = SearchOptions(where=iter([{"term": {"id": "a"}}]), like=iter(["a"]), fields=iter(["title"]))
    assert (kept.where, kept.like, kept.fields) == ([{"term": {"id": "a"}}], ["a"], ["title"])
