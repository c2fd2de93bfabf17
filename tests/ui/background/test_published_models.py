"""What a training may publish and delete: nothing is published without a comparison, and no model goes that a generation needs."""

from __future__ import annotations

import json
import shutil

import pytest

from termweave import corpora, settings
from termweave.errors import TermweaveError, UsageError
from termweave.evaluation.book.reader import HELD_OUT, BookDataset, half_of
from termweave.evaluation.book.store import INDEX, JudgementBook
from termweave.evaluation.publication_gate import PublicationGate
from termweave.indexer import BuildOptions, NotPublished, build
from termweave.indexer.generations import generations, option_compatibility
from termweave.records import Query
from termweave.search.catalog.models import encoder_of
from termweave.ui.background import training_places
from termweave.ui.background.training_process import TrainingProcess
from tests.ui.conftest import DOCUMENTS

KEYS = ("timer", "json", "path", "csv", "random", "sched")


@pytest.fixture
def source(tmp_path):
    """A corpus of the documents of these tests."""
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f"{json.dumps({'_id': key, 'text': DOCUMENTS[key][1]})}\n" for key in KEYS))
    return path


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("what is json", "What is JSON?"),
        ("parse json", "JSON: parse"),
        ("naïve café", "nai\u0308ve  CAFE"),
        ("don't wait", "don\u2019t wait!"),
        ("\u681e", "\u681e\u3002"),
    ],
)
def test_a_query_in_another_spelling_stays_in_its_half(query, same):
    """Otherwise a model would learn from a query that then measures it."""
    assert half_of(query) == half_of(same)


def test_both_halves_get_their_share_of_any_script():
    for form in ("query {}", "\u6587 {}", "\u0431\u0443\u043a\u0432\u0430 {}", "\u0928\u092e {}"):
        learned = sum(half_of(form.format(number)) == "train" for number in range(1_000))
        assert 400 < learned < 600
    assert len({half_of("?" * length) for length in range(1, 50)}) == 2  # a query without words has a half, too


def test_a_deleted_index_does_not_come_back_from_its_training(opensearch_engine, name, source):
    """The name is deleted while a generation is built for hours: there is nothing to compare with, so nothing goes live."""
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions())
    held_out = [f"query {number}" for number in range(40) if half_of(f"query {number}") == HELD_OUT]
    book = JudgementBook(opensearch_engine, name)
    try:
        book.import_qrels("file", [Query(text, text) for text in held_out], {text: {"json": 3} for text in held_out})
        judged = BookDataset(f"book:{name}", book, HELD_OUT)
        for first in (False, True):
            gate = PublicationGate(opensearch_engine, name, {}, judged, within=0.01, first=first)

            def deleted_first(generation, gate=gate):
                opensearch_engine.request("DELETE", f"/_all/_alias/{name}")
                gate(generation)

            if first:  # `termweave index --within`, whose user names the index now
                built = build(opensearch_engine, corpora.open_source(source), name, BuildOptions(shards=3), gate=gate)
                assert generations.live(opensearch_engine, name) == built.index
            else:
                with pytest.raises(NotPublished, match="has no live generation any more"):
                    build(opensearch_engine, corpora.open_source(source), name, BuildOptions(shards=2), gate=deleted_first)
                assert generations.live(opensearch_engine, name) is None
    finally:
        body = {"query": {"term": {"book": name}}}
        opensearch_engine.request("POST", f"/{INDEX}/_delete_by_query", params={"refresh": True}, body=body)


def test_training_anew_keeps_the_model_that_is_live(opensearch_engine, name, source):
    """A run that was killed after its generation went live counts as stopped; its model must not go with it."""
    pytest.importorskip("torch")
    from termweave.ui.background import book_training

    build(opensearch_engine, corpora.open_source(source), name, BuildOptions())
    live = generations.find_live(opensearch_engine, name)
    folder = encoder_of(live.lineage, name, {}).models["weights"].folder
    home = training_places.home(name)
    published, stopped = home / "20260101000000", home / "20260102000000"
    for run in (published, stopped):
        (run / "model").mkdir(parents=True)
        (run / "model" / "run.json").write_text("{}")
    shutil.copy(folder / "termweave.json", published / "model")
    assert training_places.unfinished(name) == stopped
    book_training._delete_stopped(opensearch_engine, name)
    assert (published / "model" / "termweave.json").is_file()
    assert not stopped.exists()
    assert training_places.unfinished(name) is None


def test_a_process_that_dies_at_once_is_a_sentence(monkeypatch):
    task = training_places.TrainingTask(
        settings.load(url="http://127.0.0.1:9"), "docs", "x" * 1_000_000
    )  # more than a pipe holds
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(TermweaveError, match=r"ended without a result \(status 1\)"):
        TrainingProcess(task).run(lambda *_: None, lambda _: None)


def test_byte_vectors_stay_bytes_and_a_similarity_of_ones_own_is_refused(opensearch_engine, name, source):
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions(vectors="byte"))
    options = option_compatibility.options_of(opensearch_engine, generations.find_live(opensearch_engine, name), {})
    assert options.vectors == "byte"
    own = {"index.similarity.default.type": "BM25", "index.similarity.default.k1": "0.3"}
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions(settings=own))
    with pytest.raises(UsageError, match="built with settings"):
        option_compatibility.options_of(opensearch_engine, generations.find_live(opensearch_engine, name), {})
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions(signals=("lexical", "term_frequency")))
    made = option_compatibility.options_of(opensearch_engine, generations.find_live(opensearch_engine, name), {})
    assert made.signals == ("lexical", "term_frequency")
