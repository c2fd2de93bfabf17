"""Documents that something else wrote into the index, or changed: searches show them as well as they can, and do not end."""

import pytest

from termweave.errors import UsageError


def test_what_something_else_wrote_into_the_index_does_not_end_a_search(own_index):
    index = own_index
    body = {"text": "json functions", "title": ["json", "functions"]}
    index.engine.request("PUT", f"/{index.generation}/_doc/foreign", body=body)
    other = {"doc": {"title": 7, "text": ["json functions", "and more"]}}
    index.engine.request("POST", f"/{index.generation}/_update/json-0", params={"refresh": True}, body=other)
    for options in ({"mode": "lexical"}, {"mode": "hybrid", "rerank": "rnn"}):
        found = {hit.id for hit in index.search("json functions", k=8, highlight=True, explain=True, **options)}
        assert {"json-0", "json-1"} <= found
        assert len(found) == 8
    assert len(index.search(like=["json-0"], k=3)) == 3


def test_values_of_another_kind_are_passed_over(own_index):
    path = f"/{own_index.generation}/_doc/foreign"
    for written in (
        {"metadata": [{"kind": "list"}, {"kind": "of objects"}]},
        {"metadata_long": "text"},
        {"passage": 1},
        {"passage": [1, 2], "passage_start": [0, 5], "passage_end": 7},
        {"weights": [{"json": 30}, {"function": 20}]},
        {"weights": {"json": "30"}},
    ):
        body = {"id": "foreign", "text": "json functions", "content": "json functions", **written}
        own_index.engine.request("PUT", path, params={"refresh": True}, body=body)
        for mode in ("lexical", "weights", "hybrid"):
            for hit in own_index.search("json functions", mode=mode, k=100, explain=True, highlight=True):
                assert hit.passage is None, written
                assert sum(part["share"] for part in hit.explain()["parts"]) == pytest.approx(hit.score, abs=1e-5), written
        shown = own_index.explain("json functions", "foreign", mode="lexical")
        assert (shown.fields.get("metadata"), shown.fields["text"]) == (None, "json functions"), written
        assert len(own_index.search(like=["foreign", "json-0"], k=3)) == 3, written
    nameless = path.replace("foreign", "nameless")
    own_index.engine.request("PUT", nameless, params={"refresh": True}, body={"text": "json"})
    with pytest.raises(UsageError, match="has no document 'nameless'"):
        own_index.explain("json", "nameless")


def test_an_id_that_was_written_twice_keeps_the_place_of_the_better_one(own_index):
    """Scores of the words move, there is one document more; those of the weights do not."""
    index = own_index
    before = index.search("json functions", mode="weights", k=100)
    path = f"/{index.generation}/_doc"
    stored = index.engine.request("GET", f"{path}/{before[0].id}")["_source"]
    index.engine.request("PUT", f"{path}/again", params={"refresh": True}, body=stored | {"weights": {"json": 1}, "text": "json"})
    after = index.search("json functions", mode="weights", k=100)
    assert [(hit.id, hit.score) for hit in after] == [(hit.id, hit.score) for hit in before]
    for hit in index.search("json functions", k=100, explain=True):
        assert 0 <= hit.score <= 1
