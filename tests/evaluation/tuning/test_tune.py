"""Tuning: trials rank as searches do; a profile is stored, used, and left alone by those who do not want it."""

from __future__ import annotations

import json
import random
import re
import uuid
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import jsonschema
import numpy as np
import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.profiles import check_name
from termweave.cli import run
from termweave.errors import InputError, UsageError
from termweave.evaluation import evaluate, per_query
from termweave.evaluation.tuning import tune as tuning
from termweave.evaluation.tuning.parameter_search import ParameterSearch
from termweave.evaluation.tuning.trial_ranker import TrialRanker
from termweave.indexer import BuildOptions, build
from termweave.records import Encoding, ModelInfo, Run
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import profiles
from termweave.search.ranking.order import order
from termweave.search.retrieval.candidates import Candidates
from termweave.signals import fusion, modes
from termweave.signals.dense import Dense
from termweave.signals.fusion import Ranked
from termweave.signals.lexical import Lexical
from termweave.signals.modes import Mode
from termweave.signals.weights import Weights
from tests.same_ranking import same_ranking

NEIGHBOURS = ("candidates", "k", "k_exp", "tau", "weight")
SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "tune.1.json"


def drawn(generator, cut=False, ties=False):
    """Candidates with ties, lists of different documents and length, one of them now and then empty.

    `cut`: in two passages each. `ties`: half of the documents have no text, so that with J = 0 their ties stay.
    """
    names = [f"d{number:02}" for number in range(60)]
    vectors = generator.normal(size=(61, 12)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lists = {}
    for signal in (Lexical(), Weights(), Dense(dimension=12)):
        chosen = generator.choice(60, size=int(generator.integers(0, 40)), replace=False)
        if signal.name == "dense":
            pairs = [(names[row], float(vectors[row] @ vectors[60])) for row in chosen]
        else:
            pairs = [(names[row], float(generator.integers(1, 12))) for row in chosen]
        passages = {document: int(generator.integers(1, 3)) for document, _ in pairs} if cut else None
        lists[signal.name] = Ranked.from_scores(pairs, 30, signal, passages)
    judged = {names[row]: int(generator.integers(0, 4)) for row in generator.choice(60, 15, replace=False)}
    stored = vectors[:60].astype(np.float16).astype(np.float32)  # as an index keeps them
    held = dict(zip(names, stored, strict=True))
    if ties:
        held = {name: held[name] for name in names[::2]}
    if cut:
        held = {f"{name}#{number}": held[name] * (1.0, -0.5)[number - 1] for name in held for number in (1, 2)}
    return Candidates(Encoding("q", vector=vectors[60]), lists, {}, held), judged


@pytest.mark.parametrize("measure", ["nDCG@10", "MRR@10"])
@pytest.mark.parametrize("method", fusion.METHODS)
@pytest.mark.parametrize("cut", [False, True])
def test_a_trial_ranks_as_a_search_does(method, measure, cut):
    generator = np.random.default_rng(7)
    found, judged = zip(*(drawn(generator, cut, ties=True) for _ in range(9)), strict=True)
    bench = TrialRanker(found, judged, 2, measure)
    ids = [str(number) for number in range(len(found))]
    qrels = dict(zip(ids, judged, strict=True))
    for weights in (
        {"dense": 0.5, "weights": 0.5},
        {"dense": 0.3, "lexical": 0.2, "weights": 0.5},
        {"dense": 1.0},
        {"weights": 0.4, "lexical": 0.6},
    ):
        for reranking in (
            None,
            ReciprocalNeighbours(),
            ReciprocalNeighbours(7, 3, 2, 0.5, 0.4),
            ReciprocalNeighbours(candidates=20, similarity="dense"),
        ):
            mode = Mode("tried", weights, method)
            ranked = [order(each, mode, None if reranking is None else Reranking((reranking,)))[:10] for each in found]
            # Scores by place: order alone decides.
            scores = {
                name: {place.id: 100.0 - rank for rank, place in enumerate(places)}
                for name, places in zip(ids, ranked, strict=True)
            }
            expected = per_query(Run("r", scores), qrels, ids, relevant_from=2, measures=[measure])[measure]
            np.testing.assert_allclose(bench.values(mode, reranking), expected, atol=1e-9)


def test_a_measure_that_it_cannot_go_by_is_named():
    with pytest.raises(UsageError, match="recall@100"):
        TrialRanker([], [], 1, "recall@100")


@pytest.mark.parametrize(
    "name", ["", "hybrid", "dense", "a b", "x@rrf", "a:1", "weights,dense", "BM25", "../x", ".x", "a\\b", "a\nb"]
)
def test_names_that_mean_something_else_are_refused(name):
    with pytest.raises(UsageError, match="cannot be called"):
        check_name(name, ["lexical", "dense"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty questions of the demo corpus, their judged entries and some others."""
    root = tmp_path_factory.mktemp("part")
    demo = corpora.open_dataset("demo")
    qrels = demo.qrels()
    queries = demo.queries()[:60]
    wanted = {document for query in queries for document in qrels[query.id]}
    kept = [each for number, each in enumerate(demo.documents()) if each.id in wanted or number % 40 == 0]
    lines = [{"_id": each.id, "title": each.title, "text": each.text} for each in kept]
    (root / "corpus.jsonl").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    (root / "queries.jsonl").write_bytes(b"\n".join(orjson.dumps({"_id": each.id, "text": each.text}) for each in queries))
    (root / "qrels").mkdir()
    for split, part in (("test", queries), ("dev", queries[:12])):
        judged = [f"{each.id}\t{document}\t{grade}" for each in part for document, grade in qrels[each.id].items()]
        (root / "qrels" / f"{split}.tsv").write_text("\n".join(judged) + "\n")
    return root


@contextmanager
def built(engine, folder, **options):
    name = f"test-{uuid.uuid4().hex[:10]}"
    build(engine, corpora.open_source(folder), name, BuildOptions(**options))
    try:
        yield name
    finally:
        engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture
def name(opensearch_engine, folder):
    with built(opensearch_engine, folder) as name:
        yield name


@pytest.fixture(scope="module")
def untouched(opensearch_engine, folder):
    """An index without a profile, of which none may be made."""
    with built(opensearch_engine, folder) as name:
        yield tw.connect(opensearch_engine.url).index(name)


def timeless(report):
    return replace(report, profile=replace(report.profile, fitted={**report.profile.fitted, "at": ""}))


@pytest.mark.engine
def test_tuned_proved_stored_and_used(opensearch_engine, folder, name, capsys, monkeypatch):
    index = tw.connect(opensearch_engine.url).index(name)
    dataset = corpora.open_dataset(folder)
    report = tuning.tune(index, dataset)
    assert timeless(tuning.tune(index, dataset)) == timeless(report)  # nothing is left to chance
    assert report.fitted + report.held_out == 60
    assert report.low <= report.gain <= report.high
    assert report.gain == pytest.approx(report.figures["tuned"] - report.figures["default"])
    assert report.trials > 30
    assert list(report.figures) == [*index.signals, "default", "hybrid+rNN", "tuned"]
    with pytest.raises(InputError, match="12 queries") as few:
        tuning.tune(index, corpora.open_dataset(f"{folder}:dev"))
    assert few.value.hint == "Judge more queries, or name another split: test."

    # What it says of itself is what an evaluation of that half finds.
    before = index.search("json", k=5)
    index.adopt(report.profile)
    assert tw.connect(opensearch_engine.url).index(name).lineage.profile == "tuned"
    mode, reranking = index.choose(None, None)
    assert (mode, reranking) == (profiles.mode_of(report.profile), reranking_of(report.profile))
    same_ranking(index.search("json", k=5, mode="hybrid", rerank="none"), before)
    same_ranking(index.search("json", k=5), index.search("json", k=5, mode="tuned"))
    with pytest.raises(UsageError, match="names its own fusion"):
        index.search("json", mode="tuned@rrf")
    assert index.choose(None, "none")[1] is None

    # The command decides by the held-out half, and says which way.
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    status = run(["tune", name, str(folder), "--profile", "again", "--json"])
    said = capsys.readouterr()
    data = json.loads(said.out)
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    assert data["gain"] == pytest.approx(report.gain)
    assert (status, data["adopted"], data["proposed"]) == (
        0 if report.proved else 3,
        report.proved,
        report.better > report.proved,
    )
    # A generation of the same models and signals inherits it; another one says that it does not.
    source = corpora.open_source(folder)
    again = build(opensearch_engine, source, name, BuildOptions(settings={"index.max_ngram_diff": 2}))
    assert not any("left behind" in note for note in again.warnings)
    kept = tw.connect(opensearch_engine.url).index(name).lineage
    assert kept.profile == ("again" if data["adopted"] else "tuned")
    assert "tuned" in kept.profiles
    run(["tune", name, str(folder), "--dry-run"])
    shown = capsys.readouterr().out
    assert f"{folder.name}:test, 30 held-out queries" in shown
    assert "┃" not in shown  # thin lines, as all tables
    assert run(["evaluate", name, str(folder), "--json", "--require", "nDCG@10>=.01"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert kept.profile in {row["system"] for row in told["rows"]}
    assert told["gates"][0]["reason"].startswith(f"{kept.profile}: nDCG@10")  # it is what search does now
    assert run(["evaluate", name, str(folder), "--mode", "hybrid", "--rerank", "rnn", "--rerank", "rnn@dense", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {(row["system"], row["reranker"]) for row in told["rows"]} == {
        ("hybrid+rNN", "rnn"),
        ("hybrid+rNN@dense", "rnn@dense"),
    }
    assert told["baseline"] == "hybrid+rNN"
    lexical = build(opensearch_engine, source, name, BuildOptions(signals=("lexical",)))
    assert any("left behind (tuned" in note for note in lexical.warnings)
    assert not tw.connect(opensearch_engine.url).index(name).lineage.profiles


@pytest.mark.engine
def test_the_default_to_beat_is_what_search_does_without_a_profile(untouched, folder):
    index = untouched
    dataset = corpora.open_dataset(folder)
    figures = tuning.tune(index, dataset).figures
    queries = dataset.queries()
    random.Random(0).shuffle(queries)  # all have a relevant document; the second half is the held-out one
    held_out = queries[len(queries) // 2 :]

    def mean(**options):
        found = {each.id: {hit.id: hit.score for hit in index.search(each.text, **options)} for each in held_out}
        run = Run("s", found)
        return per_query(run, dataset.qrels(), list(found), relevant_from=dataset.relevant_from)["nDCG@10"].mean()

    assert figures["default"] == pytest.approx(mean())
    assert figures["hybrid+rNN"] == pytest.approx(mean(rerank="rnn"))
    assert figures["default"] != figures["hybrid+rNN"]
    assert figures["dense"] == pytest.approx(mean(mode="dense"))


@pytest.mark.engine
def test_rules_and_rewriting_of_the_profile_in_use_are_kept_and_measured(opensearch_engine, folder, name, capsys, monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    dataset = corpora.open_dataset(folder)
    synonyms = folder / "synonyms.txt"
    synonyms.write_text("file => directory\nstring => buffer\n")
    pinned = next(each.id for each in dataset.documents())
    pins = folder / "pins.csv"
    pins.write_text("query,document,action\n" + "".join(f'"{each.text}",{pinned},pin\n' for each in dataset.queries()[:20]))
    rewrite = f"synonyms@{synonyms},pins@{pins}"
    save = ["profiles", name, "--save", "shop", "--mode", "hybrid", "--rerank", "diverse@0.6", "--rewrite", rewrite]
    assert run([*save, "--use", "shop"]) == 0
    index = tw.connect(opensearch_engine.url).index(name)
    report = tuning.tune(index, dataset)
    assert report.profile.rules == ["diverse@0.6"]
    assert profiles.rewriting_of(report.profile).synonyms == ("file => directory", "string => buffer")
    (note,) = [each for each in report.notes if each.startswith("Kept from the profile")]
    assert note == (
        "Kept from the profile 'shop': rules (diverse@0.6) and rewriting (2 rules of synonyms, pins of 20 queries). All figures are with them. "
        "Fusion and rNN were fitted without rules and pins."
    )
    queries = dataset.queries()
    random.Random(0).shuffle(queries)
    held_out = queries[len(queries) // 2 :]

    def mean(**options):
        found = {each.id: {hit.id: hit.score for hit in index.search(each.text, **options)} for each in held_out}
        return per_query(Run("s", found), dataset.qrels(), list(found), relevant_from=dataset.relevant_from)["nDCG@10"].mean()

    assert report.figures["in force"] == pytest.approx(mean())
    assert report.figures["default"] == pytest.approx(report.figures["in force"])
    assert report.figures["default"] != pytest.approx(mean(rerank="none"))
    assert report.figures["default"] != pytest.approx(mean(rewrite="none"))
    index.adopt(report.profile)
    assert report.figures["tuned"] == pytest.approx(mean())

    # Where no profile is in use, the profile of that name hands its rules on; four of them leave no place for rNN.
    assert run([*save[:6], "--rerank", "diverse@0.1>diverse@0.2>diverse@0.3>diverse@0.4", "--use", "hybrid"]) == 0
    capsys.readouterr()
    assert run(["tune", name, str(folder), "--profile", "shop", "--dry-run"]) == 2
    said = "The profile 'shop' has 4 rules, and tuning puts up to 1 before them: a chain has at most 4 rerankers."
    err = capsys.readouterr().err
    assert said in err
    assert "without --rerank" not in err


def judged_candidates(generator, count, relevant):
    """Candidates of several queries, and what `relevant` says is relevant among them."""
    found = [drawn(generator)[0] for _ in range(count)]
    return found, [dict.fromkeys(relevant(each), 1) for each in found]


def test_without_a_gain_from_neighbours_the_profile_does_not_rerank():
    def best_of_both(each):
        return [place.id for place in order(each, Mode("h", {"dense": 0.5, "weights": 0.5}))[:3]]

    bench = TrialRanker(*judged_candidates(np.random.default_rng(3), 40, best_of_both), 1, "nDCG@10")
    search = ParameterSearch(bench, ["lexical", "weights", "dense"], lambda *_: None)
    mode, reranking = search.choice(search.descend())
    assert reranking is None
    assert mode == Mode("tuned", {"dense": 0.5, "weights": 0.5}, fusion.DEFAULT)


def test_neighbours_are_found_where_their_default_parameters_lose():
    fitting = Reranking((ReciprocalNeighbours(k=4, candidates=20),))

    def reranked(each):
        return [place.id for place in order(each, Mode("h", {"dense": 0.5, "weights": 0.5}), fitting)[:1]]

    bench = TrialRanker(*judged_candidates(np.random.default_rng(7), 60, reranked), 1, "MRR@10")
    search = ParameterSearch(bench, ["lexical", "weights", "dense"], lambda *_: None)
    plain, usual = search.values(search.default), search.values({**search.default, "rerank": True})
    assert plain.mean() > usual.mean()
    best = search.descend()
    assert best["rerank"]
    assert search.values(best).mean() > plain.mean()


def test_the_better_of_two_starts_is_taken_even_if_the_difference_may_be_chance():
    halves = Mode("h", {"dense": 0.5, "weights": 0.5})
    numbers = iter(range(40))

    def now_the_one_now_the_other(each):
        reranking = ReciprocalNeighbours() if next(numbers) < 16 else None
        return [place.id for place in order(each, halves, None if reranking is None else Reranking((reranking,)))[:1]]

    bench = TrialRanker(*judged_candidates(np.random.default_rng(11), 40, now_the_one_now_the_other), 1, "MRR@10")
    search = ParameterSearch(bench, ["lexical", "weights", "dense"], lambda *_: None)
    neighbours = {**search.default, "rerank": True}
    difference = search.values(neighbours) - search.values(search.default)
    assert 0 < difference.mean() < difference.std() / len(difference) ** 0.5
    best = search.descend()
    assert best["rerank"]
    assert search.values(best).mean() >= search.values(neighbours).mean()


def test_a_gain_that_may_be_chance_and_a_better_signal_are_said():
    default = np.linspace(0.3, 0.5, 40)
    noise = np.tile([0.1, -0.1], 20)
    noisy, better = default + 0.005 + noise, default + 0.05 + noise / 20
    chance, alone = tuning._remarks({"dense": default + 0.2, "lexical": default}, default, noisy)
    assert "may be chance" in chance
    assert "dense alone is better than the tuned profile" in alone
    assert f"{default.mean() + 0.2:.4f} against {noisy.mean():.4f}" in alone
    assert alone.endswith("search with the mode dense.")
    above = default + 0.01 + np.roll(noise, 1)[::-1] * np.linspace(0, 2, 40)  # the interval of this difference holds 0
    (perhaps,) = tuning._remarks({"dense": above, "lexical": default}, default, default - 0.01)
    assert re.fullmatch(
        r"dense alone lies above the default, perhaps by chance: .* \(p .*, 95 % .* between -.* and \+.*\)\.", perhaps
    )
    assert list(tuning._remarks({"dense": default}, default, better)) == []
    assert list(tuning._remarks({"dense": better + 1e-6}, default, better)) == []  # shown, the two are equal
    (worse,) = tuning._remarks({"lexical": default + 0.01}, default, default - 0.01, "rules (diverse@0.1)")
    assert worse.startswith("BM25 alone is better than the default")
    assert worse.endswith("search with the mode lexical, with the same rules (diverse@0.1).")
    (reranked,) = tuning._remarks({"hybrid+rNN": default + 0.01}, default, default - 0.01)
    assert reranked.endswith("search with the mode hybrid and the reranker rnn.")
    (model,) = tuning._remarks({"hybrid+ranker@mine": default + 0.01, "hybrid+rNN": default}, default, default - 0.01)
    assert model.startswith("hybrid with untuned ranker@mine reranking is better")
    assert model.endswith("search with the mode hybrid and the reranker ranker@mine.")


@pytest.fixture
def knowing(folder, monkeypatch):
    """A ranker that knows the judgements: it gives relevant documents a high logit. Opening it takes no time of a pair."""
    dataset = corpora.open_dataset(folder)
    qrels, texts = dataset.qrels(), {each.id: each.content for each in dataset.documents()}
    relevant = {query.text: {texts[key] for key, grade in qrels[query.id].items() if grade > 0} for query in dataset.queries()}

    class Knowing:
        anchor: ClassVar[dict[str, float]] = {}
        info = ModelInfo("knowing", "0" * 16, None, None, 256, folder)

        def score(self, query, documents, *, windows=1):
            del windows
            return np.array([float(text in relevant.get(query, ())) for text in documents], dtype=np.float32)

        def score_within(self, query, documents, seconds, *, windows=1):
            return self.score(query, documents[: round(1000 * seconds)], windows=windows)

    monkeypatch.setattr("termweave.encoders.recorded_models.remember", lambda _: None)
    return CrossEncoderReranker("knowing", scorer=Knowing())


@pytest.mark.engine
def test_a_ranker_that_gains_is_tuned_measured_and_stored(untouched, folder, knowing):
    dataset = corpora.open_dataset(folder)
    report = tuning.tune(untouched, dataset, ranker=replace(knowing, budget=60_000.0))
    assert report.profile.ranker["model"] == "knowing"
    assert report.profile.ranker["candidates"] >= 10
    assert report.profile.ranker["budget"] == 60_000.0
    assert report.figures["tuned"] > report.figures["default"]
    assert report.figures["hybrid+ranker@knowing"] > report.figures["default"]
    without = tuning.tune(untouched, dataset, ranker=replace(knowing, budget=0.0))
    assert without.profile.ranker is None
    assert any("The ranker was left out" in note for note in without.notes)


@pytest.mark.engine
def test_what_has_nothing_to_fuse_and_no_vectors_cannot_be_tuned(opensearch_engine, folder):
    with (
        built(opensearch_engine, folder, signals=("lexical",)) as name,
        pytest.raises(UsageError, match="has BM25 alone: there is nothing to fuse, and there are no vectors to rerank by"),
    ):
        tuning.tune(tw.connect(opensearch_engine.url).index(name), corpora.open_dataset(folder))


@pytest.mark.engine
def test_vectors_alone_are_tuned_for_their_neighbours(opensearch_engine, folder):
    with built(opensearch_engine, folder, signals=("dense",)) as name:
        index = tw.connect(opensearch_engine.url).index(name)
        dataset = corpora.open_dataset(folder)
        report = tuning.tune(index, dataset)
        assert list(report.figures) == ["dense", "default", "dense+rNN", "tuned"]
        assert report.figures["default"] == report.figures["dense"] != report.figures["dense+rNN"]
        assert report.profile.weights == {"dense": 1.0}
        assert report.trials > 20
        rows = evaluate(index, dataset).rows
        assert [(row.system, row.mode, row.reranker) for row in rows] == [
            ("dense", "dense", "none"),
            ("dense+rNN", "dense", "rnn"),
        ]


@pytest.mark.parametrize(
    ("signals", "tuned"),
    [
        (["lexical", "weights", "dense"], {"fusion", "dense", "lexical", "rerank", *NEIGHBOURS}),
        (["lexical", "dense"], {"fusion", "dense", "rerank", *NEIGHBOURS}),
        (["dense"], {"fusion", "rerank", *NEIGHBOURS}),
        (["lexical", "weights"], {"fusion", "lexical"}),
    ],
)
def test_only_what_the_index_has_is_tuned_and_the_default_is_hybrid(signals, tuned):
    search = ParameterSearch(TrialRanker([], [], 1, "nDCG@10"), signals, lambda *_: None)
    assert {*search._space} == tuned
    mode, reranking = search.choice(search.default)
    assert (mode.weights, reranking) == (modes.parse("hybrid", signals).weights, None)


@pytest.mark.engine
def test_judgements_of_other_documents_are_no_table_of_zeros(untouched, folder, tmp_path):
    (tmp_path / "qrels").mkdir()
    for file in ("corpus.jsonl", "queries.jsonl"):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    judged = (folder / "qrels" / "test.tsv").read_text().splitlines()
    (tmp_path / "qrels" / "test.tsv").write_text("".join("{}\tother-{}\t{}\n".format(*line.split("\t")) for line in judged))
    with pytest.raises(InputError, match=rf"Not one judged document of {tmp_path.name} is in the index"):
        tuning.tune(untouched, corpora.open_dataset(tmp_path))
