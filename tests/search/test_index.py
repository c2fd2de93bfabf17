"""Searching from Python on a real server."""

import io
import pickle

import numpy as np
import orjson
import pytest

from termweave import cli
from termweave.errors import EngineError, UsageError
from termweave.search.results import explanation
from termweave.search.retrieval import execution
from tests.same_ranking import same_ranking
from tests.search.conftest import index_of


def test_hits_travel_between_processes(index):
    (hit,) = index.search("json functions", explain=True, k=1)
    assert pickle.loads(pickle.dumps(hit)) == hit
    (later,) = index.search("json functions", rerank="rnn", k=1)
    assert later.explanation is None
    far = pickle.loads(pickle.dumps(later))
    assert sum(part["share"] for part in far.explain()["parts"]) == pytest.approx(later.score, abs=1e-6)
    assert explanation.as_text(far.explain()).endswith("in all")
    assert {later, far} == {later}


def test_explaining_a_document_gives_the_same_as_finding_it(index):
    options = {"candidates": 15, "where": [{"prefix": {"id": {"value": "json"}}}], "rerank": "rnn"}
    hits = index.search("json functions", k=5, **options)
    assert len(hits) == 5
    for hit in hits:
        again = index.explain("json functions", hit.id, **options)
        assert (again.id, again.rank, again.score) == (hit.id, hit.rank, pytest.approx(hit.score, abs=1e-5))
        assert [part["name"] for part in again.explanation["parts"]] == [part["name"] for part in hit.explain()["parts"]]


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        (lambda index: index.search("x", mode="magic"), "no signal 'magic'"),
        (lambda index: index.search(None), "A query is text"),
        (lambda index: index.explain("x", "nothing"), "no document 'nothing'"),
        (lambda index: index.encode("json"), "encode takes .*texts, not one text"),
        (lambda index: index.run(["json"]), "id -> text, not list"),
        (lambda index: index.run({1: "json"}), "The id of a query is text, not int"),
    ],
)
def test_what_the_index_has_not_or_takes_otherwise_is_said(index, search, sentence):
    with pytest.raises(UsageError, match=sentence):
        search(index)


def test_a_filter_that_the_server_refuses_is_suspected(index):
    for clause in ({"term": {"id": []}}, {"term": {"passage": "first"}}):  # refused as a whole, and by a shard
        with pytest.raises(EngineError, match="If the filter caused this, correct it: it is a clause"):
            index.search("json", where=[clause])


def test_a_query_with_half_a_character_is_searched_without_it(index):
    hits = index.search("json caf\udce9 \ud83d", highlight=True)
    same_ranking(hits, index.search("json caf\ufffd \ufffd", highlight=True))
    assert hits[0].id.startswith("json")
    assert index.explain("json caf\udce9 \ud83d", hits[0].id).rank == 1
    assert orjson.dumps(index.requests("json caf\udce9"), option=orjson.OPT_SERIALIZE_NUMPY)


def test_bytes_on_standard_input_that_are_not_utf8_are_searched_without_them(index, monkeypatch, capsys):
    monkeypatch.setenv("OPENSEARCH_URL", index.engine.url)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"json caf\xe9\n"), encoding="utf-8"))
    assert cli.run(["search", index.name, "-", "--mode", "lexical", "--json"]) == 0
    said = orjson.loads(capsys.readouterr().out)
    assert said["query"] == "json caf\ufffd"
    assert said["hits"][0]["id"].startswith("json")


@pytest.fixture(scope="module")
def many(opensearch_engine):
    """Six hundred short texts, whose graph of vectors has few links: it misses documents, and others when it is asked for more."""
    random = np.random.default_rng(0)
    colours, things = ["red", "old", "late", "wet"], ["cat", "sea", "bus", "war"]
    texts = [f"{random.choice(colours)} {random.choice(things)} {n}" for n in range(600)]
    with index_of(opensearch_engine, [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)]) as index:
        yield index


@pytest.mark.parametrize(("mode", "rerank"), [("dense", "none"), ("hybrid", "rnn")])
def test_no_document_is_on_two_pages_or_on_none_where_the_search_is_approximate(many, mode, rerank):
    options = {"mode": mode, "rerank": rerank, "candidates": 30, "fields": ["title"]}
    pages = [hit for start in range(0, 150, 10) for hit in many.search("a red cat", k=10, start=start, **options)]
    assert [hit.rank for hit in pages] == list(range(1, 151))
    assert len({hit.id for hit in pages}) == 150
    whole = many.search("a red cat", k=150, **options)
    assert [(hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in pages] == [(hit.id, hit.score) for hit in whole]


def test_a_page_of_several_searches_is_of_one_generation(own_index, built, monkeypatch):
    """Another thread of the application follows the alias in the middle."""
    original, calls = execution.retrieve, []

    def moved(generation, target, queries, plan):
        calls.append(plan.depth)
        if len(calls) == 2:
            built([{"id": f"after-{n}", "text": f"json functions {n}"} for n in range(40)], weights="none", dense="none")
            monkeypatch.setattr(own_index, "_now", own_index._open())
        return original(generation, target, queries, plan)

    monkeypatch.setattr(execution, "retrieve", moved)
    found = own_index.search("json functions", k=30, candidates=10, mode="lexical")
    assert calls == [10, 100, 10, 100]
    assert {hit.id.partition("-")[0] for hit in found} == {"after"}
    assert len(found) == 30


def test_what_is_deleted_or_changed_and_not_refreshed_yet_is_answered_as_it_was(own_index):
    path = f"/{own_index.generation}/_doc"
    own_index.engine.request("PUT", f"/{own_index.generation}/_settings", body={"index.refresh_interval": "-1"})
    before = own_index.search("json functions", k=3, mode="weights", explain=True)
    own_index.engine.request("DELETE", f"{path}/{before[0].id}")
    own_index.engine.request("POST", f"/{own_index.generation}/_update/{before[1].id}", body={"doc": {"text": "something else"}})
    assert own_index.search("json functions", k=3, mode="weights", explain=True) == before
    own_index.engine.request("POST", f"/{own_index.generation}/_refresh")
    assert before[0].id not in {hit.id for hit in own_index.search("json functions", k=3, mode="weights")}


def test_a_hit_deleted_while_it_was_searched_is_searched_without(own_index, monkeypatch):
    request, gone = own_index.engine.request, []

    def meanwhile(method, path, **options):
        if path.endswith("/_mget") and not gone:
            gone.append(options["body"]["ids"][0])
            request("DELETE", f"/{own_index.generation}/_doc/{gone[0]}", params={"refresh": True})
        return request(method, path, **options)

    monkeypatch.setattr(own_index.engine, "request", meanwhile)
    found = own_index.search("json functions", k=4)
    assert [hit.rank for hit in found] == [1, 2, 3, 4]
    assert gone[0] not in {hit.id for hit in found}
    with pytest.raises(UsageError, match="has no document"):
        own_index.explain("json functions", gone[0])


@pytest.mark.parametrize("mode", ["lexical", "weights"])
def test_long_queries_leave_room_for_filters_and_explanations(index, mode):
    words = "json functions " + " ".join(f"word{number}" for number in range(1500))
    assert index.answer(words, mode=mode, where=[{"terms": {"metadata.kind": ["a", "b"]}}], explain=True).hits == []
    answer = index.answer(words, mode=mode, explain=True)
    assert answer.dropped
    assert index.requests(words, mode=mode)[0]["dropped"] == {mode: list(answer.dropped[mode])}
    assert list(answer.dropped[mode]) == answer.hits[0].explanation["parts"][0]["dropped"]
    for hit in answer.hits:
        (part,) = hit.explanation["parts"]
        assert sum(term["share"] for term in part["terms"]) == pytest.approx(hit.score, rel=1e-5)


@pytest.mark.parametrize("mode", ["lexical", "weights", "learned"])
def test_what_a_long_query_leaves_out_is_what_no_document_holds(built, mode):
    index = built([{"id": each, "text": f"a {each} in the wood"} for each in ("zebra", "owl")], dense="none", signals=[mode])
    invented = [f"word{number}" for number in range(1500)]
    answer = index.answer(" ".join([*invented, "zebra"]), mode=mode, explain=True)
    assert [hit.id for hit in answer.hits] == ["zebra"]
    assert set(answer.dropped[mode]) < set(invented)
    assert len(answer.dropped[mode]) == 1501 - (index.engine.capabilities.max_clause_count - 16)
    remark = f"{mode} left out {len(answer.dropped[mode]) - 1:,} terms of the query: the server allows no more."
    assert index.search(" ".join(invented), mode=mode).remarks == (remark,)
    emoji = ["\N{OWL}"] * 20  # the server counts each as two characters
    answer = index.answer(" ".join([*emoji, *invented[:1400], "zebra", *invented[1400:]]), mode=mode)
    assert [hit.id for hit in answer.hits] == ["zebra"]


def test_equal_scores_are_cut_off_by_id(built):
    index = built([{"id": f"t{number:04}", "text": "the same words"} for number in reversed(range(400))], dense="none")
    for mode in ("lexical", "weights"):
        assert [hit.id for hit in index.search("words", mode=mode, k=100)] == [f"t{number:04}" for number in range(100)]


def test_the_server_fuses_as_the_client_does_or_says_that_it_cannot(index):
    if not index.engine.capabilities.neural_sparse:
        with pytest.raises(UsageError, match="has no neural-search plugin"):
            index.search("json functions", server_fusion=True)
        return
    mine = index.search("json functions", mode="weights:0.7,dense:0.3@min-max", k=10, candidates=10)
    theirs = index.search("json functions", mode="weights:0.7,dense:0.3@min-max", k=10, candidates=10, server_fusion=True)
    # The server gives the last of a list .001 where the client gives 0; and in a list that is not full, where the client
    # knows that all others hold no word of the query, it takes the last for the lowest all the same.
    assert [hit.score for hit in theirs] == pytest.approx([hit.score for hit in mine], abs=1.1e-3)
    for mode, said in (("dense", "2 to 5"), ("hybrid@rrf", "min-max only")):
        with pytest.raises(UsageError, match=said):
            index.search("json", mode=mode, server_fusion=True)
    many = "json " + " ".join(f"word{number}" for number in range(700))  # fits one signal, not both in one query
    both = index.answer(many, mode="lexical,weights@min-max", server_fusion=True)
    assert (bool(both.hits), bool(both.dropped)) == (True, True)


def test_requests_refuse_and_name_what_termweave_does_itself(index, tmp_path):
    with pytest.raises(UsageError, match="cannot contain min_score: termweave applies it"):
        index.requests("json", min_score=0.5)
    (tmp_path / "pins.csv").write_text("query,document,action\njson,first,pin\n")
    search, fetch = index.requests("json", rerank="rnn", rewrite=f"pins@{tmp_path / 'pins.csv'}")
    assert search["left_out"] == ["the reranker rnn", "the pinned documents first"]
    assert "left_out" not in {*fetch, *index.requests("json", rerank="none", rewrite="none")[0]}


def test_a_pattern_of_names_stands_for_fields_of_the_source(index):
    """And for no others: numbers of the signals come only if they are named."""

    def read(*fields):
        answer = index.answer("json", k=1, fields=fields)
        assert answer.remarks == ()
        return answer.hits[0].fields.keys()

    assert [read(*each) for each in (["*"], ["ti*", "text"], ["t*"], ["*", "weights"])] == [
        *[{"title", "text"}] * 3,
        {"title", "text", "weights"},
    ]
    assert "have a field 'nope*'" in str(index.answer("json", k=1, fields=["nope*"]).remarks)
    assert "weights" in index.requests("json", fields=["*"])[1]["path"].partition("_source_excludes=")[2]


def test_an_answer_says_what_nobody_may_have_meant(index):
    def remarks(query, **options):
        return index.answer(query, k=3, **options).remarks

    assert remarks("json functions", fields=("title", "text", "metadata")) == ()
    assert remarks("zyzzyva") == ("No document contains a word of the query. These hits were found by vectors alone.",)
    assert remarks("zyzzyva", mode="dense") == ()  # nobody asked for words
    assert remarks("zyzzyva", mode="weights") == ()  # nothing found is answer enough
    (cut,) = remarks("json " * 400, mode="dense")
    assert cut == "The dense model reads only the first 256 of the 802 word-pieces of the query. Shorten the query."
    assert "of the 482 word-pieces" in str(remarks("한국어 " * 60, mode="dense"))  # fewer characters than 256
    assert remarks("json " * 400, mode="dense", like=["json-1"]) == ()  # its vector is a mean of two
    assert remarks("json " * 400, mode="weights") == ()
    (operators,) = remarks('"json functions" -timer well-known +"parse"')
    assert operators.startswith('Read as plain words: "json functions", -timer, +"parse".')
    assert remarks('json on a 5" or 27" screen, e-mail - c++') == ()
    only = [{"term": {"metadata.nofield": "3"}}, {"range": {"metadata.year": {"gte": "2020"}}}, {"ids": {"values": ["x"]}}]
    (nothing,) = remarks("json", where=only)
    assert nothing == "The filter matches nothing: no document has fields 'metadata.nofield', 'metadata.year'."
    last = remarks("json", where=[{"range": {"metadata.day": {"lt": "31.12.2024"}}}])[-1]
    assert last.startswith("Metadata are compared as text")
    ranges = [{"range": {"metadata.price": {"gte": 9, "boost": 1.0}}}, {"range": {"metadata.size": {"lt": "-2.5"}}}]
    assert "on 'metadata.price', 'metadata.size' may match" in str(remarks("json", where=[{"bool": {"must_not": ranges}}]))
    fine = {"metadata.year": {"gte": 2020}, "metadata.day": {"gte": "2020-01-01", "boost": 2.5}, "price": {"lt": 9}}
    assert remarks("json", where=[{"bool": {"must_not": [{"range": {name: said}} for name, said in fine.items()]}}]) == ()


def test_a_closed_index_says_how_it_is_opened(own_index, opensearch_engine):
    opensearch_engine.request("POST", f"/{own_index.generation}/_close")
    with pytest.raises(EngineError, match="could not search the signal 'weights': closed") as caught:
        own_index.search("json functions")
    assert "_open" in caught.value.hint
