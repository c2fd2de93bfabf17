"""Queries that are documents: their own hit counts nowhere, and nothing else is left out, whatever way leads to a figure or a run."""

import json

import pytest

from termweave import corpora
from termweave.cli import run as command
from termweave.evaluation import evaluate, gates, runs, systems
from termweave.evaluation.experiment import runs_of
from termweave.evaluation.tuning.tune import tune
from termweave.indexer import BuildOptions, build
from termweave.indexer.options import Window
from termweave.learning import choice
from termweave.records import Document, Query, Run
from termweave.search import Index
from termweave.training.data import dataset
from termweave.training.methods import base
from tests.conftest import SHARED
from tests.evaluation.conftest import write_set

CASE = SHARED / "cases" / "self-match"
THINGS = """
    bicycle kettle umbrella window hammer pillow ladder carpet basket candle mirror bucket
    blanket pencil bottle curtain drawer engine saddle needle button helmet lantern whistle
""".split()  # noqa: SIM905 - reads better than 24 quoted strings
SIDES = {
    "pro": "People should buy a {} because it is useful every day and lasts for years.",
    "con": "Nobody needs a {}: it takes much room and costs more money than it is worth.",
}


@pytest.fixture
def arguments(tmp_path):
    """Arguments, for each of which the counter-argument is looked for."""
    documents = {f"{thing}-{side}": text.format(thing) for thing in THINGS for side, text in SIDES.items()}
    queries = {f"{thing}-pro": documents[f"{thing}-pro"] for thing in THINGS}
    return write_set(tmp_path / "arguments", documents, queries, {f"{thing}-pro": {f"{thing}-con": 1} for thing in THINGS})


@pytest.fixture
def built(opensearch_engine, name):
    def make(folder, **options):
        build(opensearch_engine, corpora.open_source(folder), name, BuildOptions(**options))
        return Index.open(opensearch_engine, name)

    return make


def figures(index, folder):
    experiment = evaluate(index, corpora.open_dataset(folder))
    return {row.system: row.values["nDCG@10"] for row in experiment.rows}, experiment


@pytest.mark.skipif(not CASE.is_dir(), reason="the cases stand beside the project and are not here")
def test_every_system_finds_the_other_argument_first(built):
    found, experiment = figures(built(CASE), CASE)
    assert found == dict.fromkeys(found, 1.0)
    assert len(found) == 5
    assert "4 queries are documents of the index: the hit with the query's own id does not count." in experiment.notes


def test_no_place_is_lost_and_saved_runs_are_read_alike(built, arguments, tmp_path, capsys):
    index = built(arguments, signals=("lexical",))
    asked = corpora.open_dataset(arguments)
    texts = {query.id: query.text for query in asked.queries()}
    ours = index.run({**texts, "lamp": "a lamp"}, k=5)
    assert set(ours.self_matches) == set(texts)
    assert {len(ranked) for query, ranked in ours.scores.items() if query in texts} == {5}
    assert not any(query in ranked for query, ranked in ours.scores.items())
    foreign = tmp_path / "foreign.trec"  # a program that finds each query first, then the answer
    runs.write(Run("foreign", {query: {query: 2.0, query.replace("pro", "con"): 1.0} for query in texts}), foreign)
    experiment = evaluate(index, asked, baseline=str(foreign))
    assert next(row for row in experiment.rows if row.system == "foreign").values["nDCG@10"] == 1.0
    verdict = gates.verdict(gates.parse(f"BM25:nDCG@10 within .01 of {foreign}"), experiment, asked)
    assert f"{experiment.values['BM25']['nDCG@10'].mean() - 1:+.4f}" in verdict.reason  # against 1, not .6309
    out = tmp_path / "out.trec"
    assert command(["search", index.name, "--queries", str(arguments), "--run", str(out), "--url", index.engine.url]) == 0
    assert f"{len(texts)} queries are documents of the index" in capsys.readouterr().err
    assert not any(query in ranked for query, ranked in runs.read(out).scores.items())


def test_tuning_and_the_choice_of_learning_see_no_own_document(built, arguments, tmp_path):
    index = built(arguments)
    asked = corpora.open_dataset(arguments)
    report = tune(index, asked)
    assert report.figures["default"] > 0.7  # with the own document first it would be at most .64
    assert f"{len(THINGS)} queries are documents of the index" in " ".join(report.notes)
    index.adopt(choice.choose(index, asked, lambda *_: None, tmp_path / "ltr").profile)
    assert figures(index, arguments)[0]["trained"] > 0.7


def test_ids_that_are_equal_by_chance_and_answers_that_are_known_stay(built, tmp_path):
    documents = {str(number): f"All about the {thing} and its parts." for number, thing in enumerate(THINGS)}
    queries = {str(number): f"{thing} parts" for number, thing in enumerate(THINGS)}  # 3 is both a query and a document
    judged = {number: {number: 1} for number in documents}  # as known items are
    sets = {name: write_set(tmp_path / name, documents, of, judged) for name, of in (("chance", queries), ("known", documents))}
    index = built(sets["chance"], signals=("lexical",))
    for folder in sets.values():
        found, experiment = figures(index, folder)
        assert found == {"BM25": 1.0}
        assert not any("are documents" in note for note in experiment.notes)
    ranked = index.run({**queries, "1": documents["1"]}, k=3)
    assert [query for query, each in ranked.scores.items() if query not in each] == list(ranked.self_matches) == ["1"]


@pytest.mark.parametrize("words", [4, 30])
def test_long_documents_and_titles_are_recognised(built, tmp_path, words):
    pairs = [(thing, side) for thing in THINGS[:4] for side in SIDES]
    long = {f"{thing}-{side}": (thing, " ".join([SIDES[side].format(thing)] * 20)) for thing, side in pairs}
    queries = {f"{THINGS[0]}-pro": long[f"{THINGS[0]}-pro"][1], f"{THINGS[1]}-pro": THINGS[1].upper()}
    folder = write_set(tmp_path / "long", long, queries, {query: {query.replace("pro", "con"): 1} for query in queries})
    index = built(folder, passages=Window(words, words // 2), signals=("lexical",))
    _, experiment = figures(index, folder)
    assert "2 queries are documents of the index" in " ".join(experiment.notes)
    assert not any(query in ranked for query, ranked in experiment.runs["BM25"].scores.items())
    system = [systems.system_of("lexical", None, index)]
    made, _ = runs_of(index, [Query(key, text) for key, text in queries.items()], system, lambda *_: None, 3)
    assert [len(ranked) for ranked in made["BM25"].scores.values()] == [3, 1]  # one more document holds the word


@pytest.mark.parametrize(
    ("query", "title", "text", "same"),
    [
        ("Café\u00a0au lait", "", "Cafe\u0301 au  lait.", True),
        ("coffee", "Coffee", "A drink made of beans.", True),
        ("Coffee. A drink made of beans", "Coffee", "A drink made of beans.", True),
        ("coffee beans", "", "coffee", False),
        ("coffee", "", "coffee beans", False),
        ("", "", "", False),
        ("...", "", "!", False),
        ("A drink that is made of beans, which are roasted and ground", "", "A drink that is made of beans, which are roasted. It is hot.", False),
        ("A drink that is made of beans, which are roasted and ground", "", "A drink that is made of beans, which are roasted and ground. Hot.", True),
    ],
)  # fmt: skip
def test_a_document_is_told_by_its_letters(query, title, text, same):
    assert Query("1", query).is_document(Document("1", text, title)) == same
    assert not Query("2", query).is_document(Document("1", text, title))


def test_training_takes_the_own_document_for_no_wrong_answer(arguments):
    (arguments / "qrels" / "test.tsv").rename(arguments / "qrels" / "train.tsv")
    read = dataset.read(str(arguments), base.get("fectek").settings({"dev": 5}))
    for pairs in (read.train, read.dev):
        assert [{read.ids[place] for place in spared} for spared in pairs.spared] == [
            {next(key for key, text in read.queries.items() if text == question)} for question in pairs.questions
        ]
    assert json.loads((arguments / "corpus.jsonl").read_text().splitlines()[0])["_id"] == read.ids[0]
