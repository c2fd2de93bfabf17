"""Tuning of a ranker: depth, weight and budget; what it chooses is stored with the index and used."""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import jsonschema
import numpy as np

from termweave.catalog.profiles import Profile
from termweave.evaluation.tuning import tune as tuning
from termweave.evaluation.tuning.tune import RankedQueries, RecordedLogits, choose
from termweave.records import Encoding, ModelInfo
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search.retrieval.candidates import Candidates
from termweave.signals.fusion import Ranked
from termweave.signals.modes import Mode

MODE = Mode("dense", {"dense": 1.0})
SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "profiles.1.json"


class Judge:
    """A ranker whose logit is the number in the text; it counts the pairs that it reads."""

    anchor: ClassVar[dict[str, float]] = {}

    def __init__(self):
        self.read = []
        self.info = ModelInfo("judge", "0123456789abcdef", None, None, 64, Path("/nowhere"))

    def score(self, query, documents, *, windows=1):
        self.read += [(query, text, windows) for text in documents]
        return np.array([float(text) for text in documents], dtype=np.float32)


def queries(useful, count=12):
    """Queries for a useful ranker: the 15th document is relevant and has the highest logit; for another: the first, with any logit."""
    generator = np.random.default_rng(3)
    found, judged = [], []
    for number in range(count):
        ids = [f"d{place:02}" for place in range(40)]
        texts = {each: f"{value:.9f}" for each, value in zip(ids, generator.normal(size=40), strict=True)}
        if useful:
            texts["d14"] = "9.0"
        lists = {"dense": Ranked.from_scores([(each, 1.0 - place / 40) for place, each in enumerate(ids)])}
        found.append(Candidates(Encoding(f"q{number}"), lists, {}, texts=texts))
        judged.append({"d14" if useful else "d00": 1})
    return RankedQueries(found, judged, 1, "nDCG@10")


def test_a_useful_ranker_is_chosen_with_a_depth_that_reaches_the_relevant_documents(monkeypatch):
    monkeypatch.setattr(tuning, "_RANKER_WEIGHTS", (0.2, 0.6, 1.0))
    monkeypatch.setattr(tuning, "_DEPTHS", (10, 20, 50))
    judge, progress = Judge(), []
    recorded = RecordedLogits(judge)
    ranker = CrossEncoderReranker("m", scorer=recorded)
    fitted = queries(useful=True)
    chosen = choose(fitted, MODE, [], ranker, recorded, lambda *step: progress.append(step))
    assert chosen.candidates >= 20
    assert chosen.weight >= 0.5
    assert fitted.values(MODE, [chosen]).mean() > fitted.values(MODE, []).mean() + 0.5
    assert len(judge.read) == len(set(judge.read)) == 12 * 40  # no pair is read twice, whatever is tried
    assert progress[-1] == ("trying the ranker", 9, 9)


def test_a_ranker_that_gains_nothing_is_left_out():
    recorded = RecordedLogits(Judge())
    assert choose(queries(useful=False), MODE, [], CrossEncoderReranker("m", scorer=recorded), recorded, lambda *_: None) is None


def test_a_budget_limits_the_depth_and_one_without_time_for_any_leaves_the_ranker_out(monkeypatch):
    monkeypatch.setattr(RecordedLogits, "milliseconds", 2.0)
    tried, recorded = [], RecordedLogits(Judge())

    def values(self, mode, stages):
        assert (self.measure, mode) == ("nDCG@10", MODE)
        tried.extend(stages)
        return np.arange(3.0) * len(stages)

    monkeypatch.setattr(RankedQueries, "values", values)
    ranker = CrossEncoderReranker("m", scorer=recorded, budget=70.0)
    chosen = choose(queries(useful=True), MODE, [], ranker, recorded, lambda *_: None)
    assert {each.candidates for each in tried} == {10, 20, 30}  # 100 ms would be too much for 50
    assert all(each.budget is None for each in tried)  # the clock of tuning is not that of searches
    assert chosen is None or chosen.budget == 70.0
    assert choose(queries(useful=True), MODE, [], replace(ranker, budget=5.0), recorded, lambda *_: None) is None
    said = "The ranker was left out: reranking 10 documents takes 20 ms, and its budget is 5 ms."
    assert [tuning.too_short(budget, recorded) for budget in (5.0, 20.0, None)] == [[said], [], []]


def test_a_profile_holds_rnn_and_a_ranker():
    parameters = {"model": "mine", "hash": "0" * 16, "candidates": 20, "weight": 0.3, "budget": 80.0}
    profile = Profile("p", {"dense": 1.0}, "adaptive", {"k": 5}, {}, parameters)
    assert reranking_of(profile).name == "rnn>ranker@mine"
    assert reranking_of(profile).stages[1] == CrossEncoderReranker("mine", 20, 0.3, 80.0, "0" * 16)
    listed = {"schema": "termweave.profiles/1", "name": "x", "in_force": "p", "profiles": [{"name": "p", **profile.as_meta()}]}
    jsonschema.validate(json.loads(json.dumps(listed)), json.loads(SCHEMA.read_text()))
    assert "ranker" not in Profile("p", {"dense": 1.0}, "adaptive", None).as_meta()  # an older version reads it
