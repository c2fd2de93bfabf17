"""Results for Python and other tools: short reprs, a table for notebooks, DataFrames, searches to await, files of features."""

import asyncio
import doctest
import sys
from dataclasses import replace

import numpy as np
import pytest

from termweave import errors
from termweave.errors import UsageError
from termweave.search.features.facets import FacetValue
from termweave.search.results import feature_log
from tests.same_ranking import same_ranking


def test_hits_show_themselves_briefly_and_as_a_table(index):
    hits = index.search("json functions", k=3)
    assert repr(hits[0]).startswith(f"<Hit 1: {hits[0].id!r}, ")
    assert len(repr(hits[0])) < 120
    assert [line.split()[:1] for line in repr(hits).splitlines()] == [["1"], ["2"], ["3"]]
    assert repr(index.search("json", where="exists(kind)")).splitlines() == ["<no hits>", "No document has a field 'kind'."]
    assert "<table>" in hits[:1]._repr_html_()
    table = hits._repr_html_()
    assert table.count("<tr>") == 4
    assert "background:rgba(" in table  # the words that matched are shaded
    answer = index.answer("zyzzyva <b>", k=1)
    assert "These hits were found by vectors alone." in answer._repr_html_()
    assert repr(answer).splitlines() == [repr(answer.hits), *answer.remarks]
    counted = replace(answer, parts={"facets": {"kind <i>": (FacetValue("a&b", 1200, 'kind="a&b"'),)}})
    assert "<p>kind &lt;i&gt;, among the listed documents: a&amp;b 1,200</p>" in counted._repr_html_()


def test_hits_become_a_data_frame(index, monkeypatch):
    pytest.importorskip("pandas")
    frame = index.answer("json functions", k=3).to_pandas()
    assert list(frame["rank"]) == [1, 2, 3]
    assert {"id", "score", "text", "share.weights", "share.dense"} <= set(frame.columns)
    assert frame["share.weights"].fillna(0)[0] + frame["share.dense"].fillna(0)[0] == pytest.approx(frame["score"][0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        index.search("json").to_pandas()


def test_many_searches_are_awaited_at_once(index):
    async def ask():
        return await asyncio.gather(*(index.asearch(f"{word} functions", k=2) for word in ("json", "timer", "queue")))

    for word, hits in zip(("json", "timer", "queue"), asyncio.run(ask()), strict=True):
        same_ranking(hits, index.search(f"{word} functions", k=2))


def test_errors_name_the_arguments_of_python(index):
    assert doctest.testmod(errors).failed == 0
    with pytest.raises(UsageError, match="A search has no option 'rerrank'"):
        index.search("json", rerrank="rnn")
    with pytest.raises(UsageError, match="takes its options by name"):
        index.search("json", 5)
    with pytest.raises(UsageError) as refused:
        index.search("json", server_fusion=True, explain=True)
    assert str(refused.value) == (
        "With server_fusion the server returns only the final score, which cannot be explained. Remove server_fusion or explain."
    )
    assert "--server-fusion" in refused.value.message  # the command line prints the flag


def test_a_line_end_in_an_id_or_a_value_does_not_break_a_line_of_features(tmp_path):
    path = tmp_path / "features.txt"
    with feature_log.created(path, ["score", "metadata.brand=two\nlines"]) as log:
        log.add("a\nquery", feature_log.CandidateFeatures(["d\n1", "d2"], np.array([[0.5, np.nan], [0.25, 1.0]])))
    lines = ["# 1 score", "# 2 metadata.brand=two lines", "0 qid:1 1:0.5 # a query d 1", "0 qid:1 1:0.25 2:1 # a query d2"]
    assert path.read_text().splitlines() == lines
