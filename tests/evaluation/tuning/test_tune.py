"""Tuning: trials rank as searches do; a profile is stored, used, and left alone by those who do not want it."""

import json
import random
import re
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import ClassVar

import jsonschema
import numpy as np
import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.profiles import Profile, check_name
from termweave.cli import run
from termweave.errors import InputError, UsageError
from termweave.evaluation import evaluate, per_query
from termweave.evaluation.tuning import tune as tuning
from termweave.evaluation.tuning.parameter_search import ParameterSearch, TrialRanker
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
from tests.evaluation.conftest import Known, write_set
from tests.same_ranking import same_ranking

NEIGHBOURS = ("candidates", "k", "k_exp", "tau", "weight")
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


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
        dense = signal.name == "dense"
        pairs = [(names[row], float(vectors[row] @ vectors[60] if dense else generator.integers(1, 12))) for row in chosen]
        passages = {document: int(generator.integers(1, 3)) for document, _ in pairs} if cut else None
        lists[signal.name] = Ranked.from_scores(pairs, 30, signal, passages)
    judged = {names[row]: int(generator.integers(0, 4)) for row in generator.choice(60, 15, replace=False)}
    stored = vectors[:60].astype(np.float16).astype(np.float32)  # as an index keeps them
    held = dict(list(zip(names, stored, strict=True))[:: 2 if ties else 1])
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
    other, vectors = ReciprocalNeighbours(7, 3, 2, 0.5, 0.4), ReciprocalNeighbours(candidates=20, similarity="dense")
    shares = [(0.5, 0.0, 0.5), (0.3, 0.2, 0.5), (1.0, 0.0, 0.0), (0.0, 0.6, 0.4)]
    for share, reranking in product(shares, (None, ReciprocalNeighbours(), other, vectors)):
        weights = {name: each for name, each in zip(("dense", "lexical", "weights"), share, strict=True) if each}
        mode = Mode("tried", weights, method)
        ranked = [order(each, mode, None if reranking is None else Reranking((reranking,)))[:10] for each in found]
        by_place = [{place.id: 100.0 - rank for rank, place in enumerate(places)} for places in ranked]  # order alone decides
        run = Run("r", dict(zip(ids, by_place, strict=True)))
        expected = per_query(run, qrels, ids, relevant_from=2, measures=[measure])[measure]
        np.testing.assert_allclose(bench.values(mode, reranking), expected, atol=1e-9)


def test_measures_and_names_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="recall@100"):
        TrialRanker([], [], 1, "recall@100")
    for name in ("", "hybrid", "dense", "a b", "x@rrf", "a:1", "weights,dense", "BM25", "../x", ".x", "a\\b", "a\nb"):
        with pytest.raises(UsageError, match="cannot be called"):
            check_name(name, ["lexical", "dense"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty questions of the demo corpus, their judged entries and some others."""
    root = tmp_path_factory.mktemp("part")
    demo = corpora.open_dataset("demo")
    qrels, queries = demo.qrels(), demo.queries()[:60]
    judged = {document for query in queries for document in qrels[query.id]}
    documents = [each for number, each in enumerate(demo.documents()) if each.id in judged or number % 150 == 0]
    write_set(root, {each.id: (each.title, each.text) for each in documents}, {each.id: each.text for each in queries}, qrels)
    rows = [f"{each.id}\t{document}\t{grade}" for each in queries[:12] for document, grade in qrels[each.id].items()]
    (root / "qrels" / "dev.tsv").write_text("\n".join(rows) + "\n")
    return root


@pytest.fixture(scope="module")
def report(shared_index, folder):
    return tuning.tune(shared_index, corpora.open_dataset(folder))


@pytest.fixture
def index(shared_index, forget_profiles, opensearch_engine, monkeypatch):
    """The index; a profile that a test makes is gone afterwards."""
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    forget_profiles(shared_index)
    return shared_index


def held_out_mean(index, dataset):
    """A function that searches with some options: the mean nDCG@10 of the held-out half."""
    queries = dataset.queries()
    random.Random(0).shuffle(queries)  # all have a relevant document; the second half is the held-out one

    def mean(**options):
        hits = {each.id: index.search(each.text, **options) for each in queries[len(queries) // 2 :]}
        found = Run("s", {query: {hit.id: hit.score for hit in of} for query, of in hits.items()})
        return per_query(found, dataset.qrels(), list(hits), relevant_from=dataset.relevant_from)["nDCG@10"].mean()

    return mean


def test_tuned_proved_stored_and_used(report, folder, index, capsys, monkeypatch):
    assert report.fitted + report.held_out == 60
    assert report.low <= report.gain <= report.high
    assert report.gain == pytest.approx(report.figures["tuned"] - report.figures["default"])
    assert report.trials > 30
    assert list(report.figures) == [*index.signals, "default", "hybrid+rNN", "tuned"]
    with pytest.raises(InputError, match="12 queries") as few:
        tuning.tune(index, corpora.open_dataset(f"{folder}:dev"))
    assert few.value.hint == "Judge more queries, or name another split: test."

    # The command finds the same, decides by the held-out half, and says which way.
    status = run(["tune", index.name, str(folder), "--json"])
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, json.loads((SCHEMAS / "tune.1.json").read_text()))
    decided = {"adopted": report.proved, "proposed": report.better and not report.proved}
    expected = {**decided, **orjson.loads(orjson.dumps(asdict(report)))}
    assert status == (0 if report.proved else 3)
    for each in (data, expected):  # nothing is left to chance
        each["profile"]["fitted"].pop("at")
    assert data == {"schema": "termweave.tune/1", **expected}
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: report)
    run(["tune", index.name, str(folder), "--dry-run"])
    shown = capsys.readouterr().out
    assert (f"{folder.name}:test, 30 held-out queries" in shown, "┃" in shown) == (True, False)  # thin lines, as all tables

    # A profile in use is what a search does.
    before = index.search("json", k=5, mode="hybrid")
    index.adopt(report.profile)
    assert tw.connect(index.engine.url).index(index.name).lineage.profile == "tuned"
    assert index.choose(None, None) == (profiles.mode_of(report.profile), reranking_of(report.profile))
    same_ranking(index.search("json", k=5, mode="hybrid", rerank="none"), before)
    same_ranking(index.search("json", k=5), index.search("json", k=5, mode="tuned"))
    with pytest.raises(UsageError, match="names a fusion, but the profile"):
        index.search("json", mode="tuned@rrf")
    assert index.choose(None, "none")[1] is None
    assert run(["evaluate", index.name, str(folder), "--json", "--require", "nDCG@10>=.01"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "tuned" in {row["system"] for row in told["rows"]}
    assert told["gates"][0]["reason"].startswith("tuned: nDCG@10")  # it is what search does now


def test_the_default_to_beat_is_what_search_does_without_a_profile(report, index, folder):
    figures, mean = report.figures, held_out_mean(index, corpora.open_dataset(folder))
    assert figures["default"] == pytest.approx(mean())
    assert figures["hybrid+rNN"] == pytest.approx(mean(rerank="rnn"))
    assert figures["default"] != figures["hybrid+rNN"]
    assert figures["dense"] == pytest.approx(mean(mode="dense"))


def test_rules_and_rewriting_of_the_profile_in_use_are_kept_and_measured(folder, index, capsys, tmp_path):
    dataset = corpora.open_dataset(folder)
    synonyms, pins = tmp_path / "synonyms.txt", tmp_path / "pins.csv"
    synonyms.write_text("file => directory\nstring => buffer\n")
    pinned = next(each.id for each in dataset.documents())
    pins.write_text("query,document,action\n" + "".join(f'"{each.text}",{pinned},pin\n' for each in dataset.queries()[:20]))
    rewrite = f"synonyms@{synonyms},pins@{pins}"
    save = ["profiles", index.name, "--save", "shop", "--mode", "hybrid", "--rerank", "diverse@0.6", "--rewrite", rewrite]
    assert run([*save, "--use", "shop"]) == 0
    opened = tw.connect(index.engine.url).index(index.name)
    report = tuning.tune(opened, dataset)
    assert report.profile.rules == ["diverse@0.6"]
    assert profiles.rewriting_of(report.profile).synonyms == ("file => directory", "string => buffer")
    (note,) = [each for each in report.notes if each.startswith("Kept from the profile")]
    assert (
        "'shop': rules (diverse@0.6) and rewriting (2 rules of synonyms, pins of 20 queries). All figures are measured with"
        in note
    )
    assert note.endswith("Fusion and rNN were fitted without rules and pins.")
    mean = held_out_mean(opened, dataset)
    assert [report.figures[name] for name in ("in force", "default")] == pytest.approx([mean()] * 2)
    assert report.figures["default"] != pytest.approx(mean(rerank="none"))
    assert report.figures["default"] != pytest.approx(mean(rewrite="none"))
    opened.adopt(report.profile)
    assert report.figures["tuned"] == pytest.approx(mean())

    # Where no profile is in use, the profile of that name hands its rules on; four of them leave no place for rNN.
    assert run([*save[:6], "--rerank", "diverse@0.1>diverse@0.2>diverse@0.3>diverse@0.4", "--use", "hybrid"]) == 0
    assert run(["tune", index.name, str(folder), "--profile", "shop", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "The profile 'shop' has 4 rules, and tuning adds up to 1 reranker: a chain has at most 4 rerankers." in err
    assert "without --rerank" not in err


HALVES = Mode("h", {"dense": 0.5, "weights": 0.5})


def search_of(seed, count, best, reranking, measure):
    """A search on queries whose relevant documents are the `best` first ones of each ranking by HALVES and a reranking."""
    generator = np.random.default_rng(seed)
    found = [drawn(generator)[0] for _ in range(count)]
    stages = [reranking(number) for number in range(count)]
    ranked = [order(each, HALVES, stage and Reranking((stage,)))[:best] for each, stage in zip(found, stages, strict=True)]
    judged = [dict.fromkeys((place.id for place in places), 1) for places in ranked]
    return ParameterSearch(TrialRanker(found, judged, 1, measure), ["lexical", "weights", "dense"], lambda *_: None)


def test_without_a_gain_from_neighbours_the_profile_does_not_rerank():
    search = search_of(3, 40, 3, lambda _: None, "nDCG@10")
    mode, reranking = search.choice(search.descend())
    assert reranking is None
    assert mode == Mode("tuned", HALVES.weights, fusion.DEFAULT)


def test_neighbours_are_found_where_their_default_parameters_lose():
    search = search_of(7, 60, 1, lambda _: ReciprocalNeighbours(k=4, candidates=20), "MRR@10")
    plain, usual = search.values(search.default), search.values({**search.default, "rerank": True})
    assert plain.mean() > usual.mean()
    best = search.descend()
    assert best["rerank"]
    assert search.values(best).mean() > plain.mean()


def test_the_better_of_two_starts_is_taken_even_if_the_difference_may_be_chance():
    search = search_of(11, 40, 1, lambda number: ReciprocalNeighbours() if number < 16 else None, "MRR@10")
    neighbours = {**search.default, "rerank": True}
    difference = search.values(neighbours) - search.values(search.default)
    assert 0 < difference.mean() < difference.std() / len(difference) ** 0.5
    best = search.descend()
    assert best["rerank"]
    assert search.values(best).mean() >= search.values(neighbours).mean()


DEFAULT = np.linspace(0.3, 0.5, 40)
NOISE = np.tile([0.1, -0.1], 20)
NOISY, BETTER = DEFAULT + 0.005 + NOISE, DEFAULT + 0.05 + NOISE / 20
ABOVE = DEFAULT + 0.01 + np.roll(NOISE, 1)[::-1] * np.linspace(0, 2, 40)  # the interval of its difference to the default holds 0


@pytest.mark.parametrize(
    ("untuned", "tuned", "remarks"),
    [
        ({"dense": DEFAULT + 0.2, "lexical": DEFAULT}, NOISY,
         [r"The gain may be chance .*", r"dense alone is better than the tuned profile, 0\.6000 against 0\.4050 .*search with the mode dense\."]),
        ({"dense": ABOVE, "lexical": DEFAULT}, DEFAULT - 0.01,
         [r"dense alone lies above the default, perhaps by chance: .* \(p .*, 95 % .* between -.* and \+.*\)\."]),
        ({"dense": BETTER + 1e-6}, BETTER, []),  # shown, the two are equal
        ({"lexical": DEFAULT + 0.01}, DEFAULT - 0.01, [r"BM25 alone is better than the default, .*search with the mode lexical, with the same rules \(x\)\."]),
        ({"hybrid+ranker@mine": DEFAULT + 0.01, "hybrid+rNN": DEFAULT}, DEFAULT - 0.01,
         [r"hybrid with untuned ranker@mine reranking is better .* mode hybrid and the reranker ranker@mine, with the same rules \(x\)\."]),
    ],
)  # fmt: skip
def test_a_gain_that_may_be_chance_and_a_better_signal_are_said(untuned, tuned, remarks):
    shared = "" if "dense" in untuned else "rules (x)"
    said = list(tuning._remarks(untuned, DEFAULT, tuned, shared))
    assert len(said) == len(remarks)
    assert all(map(re.fullmatch, remarks, said)), said


class Judge:
    """A ranker with a function of query and text for its logits, else with the number in a text; it counts the pairs that it reads."""

    anchor: ClassVar[dict[str, float]] = {}
    info = ModelInfo("judge", "0123456789abcdef", None, None, 64, Path("/nowhere"))

    def __init__(self, logit=lambda _, text: float(text)):
        self.read, self.logit = [], logit

    def score(self, query, documents, *, windows=1):
        self.read += [(query, text, windows) for text in documents]
        return np.array([self.logit(query, text) for text in documents], dtype=np.float32)

    def score_within(self, query, documents, seconds, *, windows=1):
        return self.score(query, documents[: round(1000 * seconds)], windows=windows)


def test_a_ranker_that_gains_is_tuned_measured_and_stored(index, folder, monkeypatch):
    """It knows the judgements. Opening it takes no time of a pair."""
    monkeypatch.setattr("termweave.encoders.recorded_models.remember", lambda _: None)
    monkeypatch.setattr(tuning, "_DEPTHS", (10, 20))
    monkeypatch.setattr(tuning, "_RANKER_WEIGHTS", (0.3, 0.6, 0.9))
    dataset = corpora.open_dataset(folder)
    qrels, texts = dataset.qrels(), {each.id: each.content for each in dataset.documents()}
    relevant = {(query.text, texts[key]) for query in dataset.queries() for key, grade in qrels[query.id].items() if grade > 0}
    knowing = CrossEncoderReranker("knowing", scorer=Judge(lambda *pair: float(pair in relevant)))
    report = tuning.tune(index, dataset, ranker=replace(knowing, budget=60_000.0), depth=30)
    assert (report.profile.ranker["model"], report.profile.ranker["budget"]) == ("judge", 60_000.0)
    assert report.profile.ranker["candidates"] >= 10
    assert min(report.figures["tuned"], report.figures["hybrid+ranker@knowing"]) > report.figures["default"]
    without = tuning.tune(index, dataset, ranker=replace(knowing, budget=0.0), depth=10)
    assert without.profile.ranker is None
    assert any("The ranker was left out" in note for note in without.notes)


def test_vectors_alone_are_tuned_for_their_neighbours(index, folder, monkeypatch):
    monkeypatch.setattr(type(index), "signals", ["dense"])
    dataset = corpora.open_dataset(folder)
    report = tuning.tune(index, dataset, depth=40)
    assert list(report.figures) == ["dense", "default", "dense+rNN", "tuned"]
    assert report.figures["default"] == report.figures["dense"] != report.figures["dense+rNN"]
    assert report.profile.weights == {"dense": 1.0}
    assert report.trials > 20
    rows = evaluate(index, dataset).rows
    assert [(row.system, row.mode, row.reranker) for row in rows] == [("dense", "dense", "none"), ("dense+rNN", "dense", "rnn")]


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


def test_neither_bm25_alone_nor_judgements_of_other_documents_are_tuned(index, folder, monkeypatch):
    dataset = corpora.open_dataset(folder)
    with pytest.raises(UsageError, match="has BM25 alone: there is nothing to fuse, and no vectors to rerank by"):
        tuning.tune(Known("lexical"), dataset)
    qrels = {query: {f"other-{document}": grade for document, grade in of.items()} for query, of in dataset.qrels().items()}
    monkeypatch.setattr(dataset, "qrels", lambda: qrels)
    with pytest.raises(InputError, match=rf"Not one judged document of {folder.name} is in the index"):
        tuning.tune(index, dataset)


MODE = Mode("dense", {"dense": 1.0})


def queries(useful):
    """Queries for a useful ranker: the 15th document is relevant and has the highest logit; for another: the first, with any logit."""
    generator, ids = np.random.default_rng(3), [f"d{place:02}" for place in range(40)]
    lists = {"dense": Ranked.from_scores([(each, 1.0 - place / 40) for place, each in enumerate(ids)])}
    found = []
    for number in range(12):
        texts = {each: f"{value:.9f}" for each, value in zip(ids, generator.normal(size=40), strict=True)}
        found.append(Candidates(Encoding(f"q{number}"), lists, {}, texts=texts | ({"d14": "9.0"} if useful else {})))
    return tuning.RankedQueries(found, [{"d14" if useful else "d00": 1}] * len(found), 1, "nDCG@10")


def test_a_useful_ranker_is_chosen_with_a_depth_that_reaches_the_relevant_documents_and_another_left_out(monkeypatch):
    monkeypatch.setattr(tuning, "_RANKER_WEIGHTS", (0.2, 0.6, 1.0))
    monkeypatch.setattr(tuning, "_DEPTHS", (10, 20, 50))
    judge, progress, fitted = Judge(), [], queries(useful=True)
    recorded = tuning.RecordedLogits(judge)
    ranker = CrossEncoderReranker("m", scorer=recorded)
    chosen = tuning.choose(fitted, MODE, [], ranker, recorded, lambda *step: progress.append(step))
    assert chosen.candidates >= 20
    assert chosen.weight >= 0.5
    assert fitted.values(MODE, [chosen]).mean() > fitted.values(MODE, []).mean() + 0.5
    assert len(judge.read) == len(set(judge.read)) == 12 * 40  # no pair is read twice, whatever is tried
    assert progress[-1] == ("trying the ranker", 9, 9)
    assert tuning.choose(queries(useful=False), MODE, [], ranker, recorded, lambda *_: None) is None


def test_a_budget_limits_the_depth_and_one_without_time_for_any_leaves_the_ranker_out(monkeypatch):
    monkeypatch.setattr(tuning.RecordedLogits, "milliseconds", 2.0)
    tried, recorded = [], tuning.RecordedLogits(Judge())

    def values(self, mode, stages):
        assert (self.measure, mode) == ("nDCG@10", MODE)
        tried.extend(stages)
        return np.arange(3.0) * len(stages)

    monkeypatch.setattr(tuning.RankedQueries, "values", values)
    ranker = CrossEncoderReranker("m", scorer=recorded, budget=70.0)
    chosen = tuning.choose(queries(useful=True), MODE, [], ranker, recorded, lambda *_: None)
    assert {each.candidates for each in tried} == {10, 20, 30}  # 100 ms would be too much for 50
    assert all(each.budget is None for each in tried)  # the clock of tuning is not that of searches
    assert chosen is None or chosen.budget == 70.0
    assert tuning.choose(queries(useful=True), MODE, [], replace(ranker, budget=5.0), recorded, lambda *_: None) is None
    monkeypatch.setattr(tuning.RankedQueries, "values", lambda _, __, stages: np.array([0.3, -0.2, 0.0]) * len(stages))
    assert tuning.choose(queries(useful=True), MODE, [], ranker, recorded, lambda *_: None) is None  # the gain may be noise
    said = "The ranker was left out: reranking 10 documents takes 20 ms, and its budget is 5 ms."
    assert [tuning.too_short(budget, recorded) for budget in (5.0, 20.0, None)] == [[said], [], []]


def test_a_profile_holds_rnn_and_a_ranker():
    parameters = {"model": "mine", "hash": "0" * 16, "candidates": 20, "weight": 0.3, "budget": 80.0}
    profile = Profile("p", {"dense": 1.0}, "adaptive", {"k": 5}, {}, parameters)
    assert reranking_of(profile).name == "rnn>ranker@mine"
    assert reranking_of(profile).stages[1] == CrossEncoderReranker("mine", 20, 0.3, 80.0, "0" * 16)
    listed = {"schema": "termweave.profiles/1", "name": "x", "in_force": "p", "profiles": [{"name": "p", **profile.as_meta()}]}
    jsonschema.validate(json.loads(json.dumps(listed)), json.loads((SCHEMAS / "profiles.1.json").read_text()))
    assert "ranker" not in Profile("p", {"dense": 1.0}, "adaptive", None).as_meta()  # an older version reads it
