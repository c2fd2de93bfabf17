"""What a training may publish and delete: nothing is published without a comparison, and no model goes that a generation needs."""

import json

import pytest

from termweave import corpora
from termweave.catalog import generations
from termweave.contracts.signal import Pruning
from termweave.errors import UsageError
from termweave.evaluation.book.reader import HELD_OUT, TRAIN, BookDataset, half_of
from termweave.evaluation.book.store import BookQuery, JudgementBook
from termweave.evaluation.index_comparison import PublicationGate
from termweave.indexer import BuildOptions, build, rebuild_options
from termweave.indexer.options import Window
from termweave.records import Query
from tests.ui.conftest import DOCUMENTS, remove_book

KEYS = ("timer", "json", "path", "csv", "random", "sched")


@pytest.fixture
def source(tmp_path):
    """A corpus of the documents of these tests."""
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f"{json.dumps({'_id': key, 'text': DOCUMENTS[key][1]})}\n" for key in KEYS))
    return path


def test_halves_are_equal_in_any_script_and_another_spelling_stays_in_its_half():
    """Otherwise a model would learn from a query that then measures it."""
    for form, same in (
        ("query {}", "Query: {}?"),
        ("{} naïve café", "nai\u0308ve  CAFE {}"),
        ("don't wait {}", "don\u2019t wait {}!"),
        ("\u6587 {}", "\u6587 {}\u3002"),
        ("\u0928\u092e {}", "\u0928\u092e  {}"),
    ):
        halves = [half_of(form.format(number)) for number in range(1_000)]
        assert 400 < halves.count(TRAIN) < 600
        assert [half_of(same.format(number)) for number in range(1_000)] == halves
    assert len({half_of("?" * length) for length in range(1, 50)}) == 2  # a query without words has a half, too


def test_where_nothing_is_live_there_is_nothing_to_compare_with(opensearch_engine, name, source):
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions())
    held_out = [f"query {number}" for number in range(40) if half_of(f"query {number}") == HELD_OUT]
    book = JudgementBook(opensearch_engine, name)
    try:
        book.import_qrels("file", [Query(text, text) for text in held_out], {text: {"json": 3} for text in held_out})
        judged = BookDataset(f"book:{name}", book, HELD_OUT)
        gate = PublicationGate(opensearch_engine, name, judged, within=0.01)

        def deleted_first(generation):
            opensearch_engine.request("DELETE", f"/_all/_alias/{name}")
            return gate(generation)

        built = build(opensearch_engine, corpora.open_source(source), name, BuildOptions(shards=3), gate=deleted_first)
        assert generations.live(opensearch_engine, name) == built.index
    finally:
        remove_book(opensearch_engine, name)


def test_a_generation_is_made_again_with_the_options_that_it_has(opensearch_engine, name, source):
    similarity = {"index.similarity.default.type": "BM25", "index.similarity.default.k1": "0.3"}
    for options in (
        {"vectors": "byte", "settings": similarity},
        {"signals": ("learned", "lexical")},
        {"dense": "none", "signals": ("lexical", "weights"), "analyzer": "standard", "shards": 2}
        | {"passages": Window(12, 9), "prune": Pruning(below=0.1)},
    ):
        build(opensearch_engine, corpora.open_source(source), name, BuildOptions(**options))
        live = generations.find_live(opensearch_engine, name)
        taken = rebuild_options.options_of(opensearch_engine, live, {})
        assert {option: getattr(taken, option) for option in options if option != "dense"} == {
            option: value for option, value in options.items() if option != "dense"
        }
    assert rebuild_options.options_of(opensearch_engine, live, {"dense": "none"}) == BuildOptions(**options, replicas=0)


def test_the_halves_of_a_book_are_disjoint_and_stay_as_they_are(opensearch_engine, name):
    book = JudgementBook(opensearch_engine, name)
    texts = [f"query about subject {number}" for number in range(60)]
    book.import_qrels("file", [Query(text, text) for text in texts], {text: {"json": 3} for text in texts})
    halves = {split: BookDataset(f"book:{name}", book, split) for split in (TRAIN, HELD_OUT)}
    ids = {split: {query.id for query in half.queries()} for split, half in halves.items()}
    assert ids[TRAIN] | ids[HELD_OUT] == {query.id for query in book.queries()}
    assert not ids[TRAIN] & ids[HELD_OUT]
    assert min(map(len, ids.values())) > 15
    queries = [(query, split) for split, half in halves.items() for query in half.queries()]
    assert all(half_of(query.text) == split == half_of(f" {query.text.upper()} ") for query, split in queries)
    assert set(halves[TRAIN].qrels()) == ids[TRAIN]
    book.add([BookQuery("later", "a query that is added later", ("json",))])
    assert {query.id for query in BookDataset(f"book:{name}", book, TRAIN).queries()} == ids[TRAIN]
    opened = corpora.open_dataset(f"book:{name}:{HELD_OUT}")
    assert (opened.split, opened.splits()) == (HELD_OUT, ["test", HELD_OUT, TRAIN])
    with pytest.raises(UsageError, match="has no split 'dev'"):
        corpora.open_dataset(f"book:{name}:dev")
