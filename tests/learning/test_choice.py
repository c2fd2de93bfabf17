"""With few questions chance does not choose: what is in use, or the default, stays unless another search is better by more than chance."""

import time
from dataclasses import replace

import numpy as np
import pytest

from termweave import corpora
from termweave.catalog.profiles import Profile
from termweave.cli.verbs.learn import why_missed
from termweave.evaluation.tuning.parameter_search import beyond_noise
from termweave.indexer import BuildOptions, build
from termweave.learning import choice
from termweave.learning.report import Learned, short_of_time
from termweave.learning.training_rounds import Candidate, TrainedCandidate, TrainingRounds
from termweave.search import Index
from termweave.support.stopwatch import stopwatch
from tests.beir_folder import beir_folder

CODES = [f"{number * 7919 % 9973:04d}" for number in range(24)]
WORDS = 4 * "The weather in the mountains was cold and clear, the snow lay deep, and nobody had walked on the path for days. "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts of one topic that differ in a code, and 24 questions: by the code alone (test), or by nothing that anybody could know (chance)."""
    days = [f"Day {number} of {('rain', 'wind', 'fog', 'sun')[number % 4]}." for number in range(24)]
    # A model of vectors stops before the code.
    documents = {code: f"{day} {WORDS}Sheet {code}." for day, code in zip(days, CODES, strict=True)}
    asked = {f"q{number}": code for number, code in enumerate(CODES)}
    asked |= {f"c{number}": f"weather of day {number}: fog or sun?" for number in range(24)}
    chance = [(f"c{number}", CODES[place]) for number, place in enumerate(np.random.default_rng(3).integers(0, 24, 24))]
    test = [(f"q{number}", code) for number, code in enumerate(CODES)]
    return beir_folder(tmp_path_factory.mktemp("codes"), documents, asked, test=test, chance=chance)


def test_what_is_in_use_stays_unless_another_search_is_better_by_more_than_chance(opensearch_engine, name, folder, tmp_path):
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    index = Index.open(opensearch_engine, name)
    by_chance, by_code = (corpora.open_dataset(f"{folder}:{split}") for split in ("chance", "test"))

    def chosen(asked, former=None):
        profile = choice.choose(index, asked, lambda *_: None, tmp_path / "ltr", former).profile
        return dict(profile.weights), profile.fusion, profile.reranking

    usual = ({"dense": 0.5, "weights": 0.5}, "adaptive", None)
    assert chosen(by_chance) == usual
    former = Profile("own", {"dense": 0.3, "weights": 0.7}, "min-max", None)
    assert chosen(by_chance, former) == ({"dense": 0.3, "weights": 0.7}, "min-max", None)
    assert chosen(by_code, Profile("vectors", {"dense": 1.0}, "adaptive", None))[0] != {"dense": 1.0}


def test_few_questions_are_held_to_the_test_that_confirms():
    draw = np.random.default_rng(1)
    before = draw.random(24)
    after = before + np.where(np.arange(24) < 14, 0.1, -0.06)  # a mean gain of .033: 2.1 standard errors, p .06
    gain = after - before
    assert beyond_noise(gain)
    assert not choice._beyond_chance(after, before)
    assert choice._beyond_chance(np.tile(after, 5), np.tile(before, 5))
    assert choice._beyond_chance(before + 0.05, before)
    assert not choice._beyond_chance(before - 0.05, before)


def test_time_that_other_processes_had_does_not_count():
    seconds = stopwatch()
    time.sleep(0.3)  # as if the processors were given to others
    slept = seconds()
    begun = time.monotonic()
    while seconds() < 0.2:
        sum(range(1000))
    assert slept < 0.2
    assert time.monotonic() - begun >= 0.1


def test_what_the_time_was_too_short_for_is_said(tmp_path):
    rounds = TrainingRounds(tmp_path, tmp_path / "runs", 5, 0.0, None)
    tried = [rounds._run(Candidate(method, "dense", 0.1, 60, {}), "short", 60, 0.0) for method in ("dtr", "coder")]
    assert [each.dropped for each in tried] == ["no time is left"] * 2
    said = short_of_time(tried)
    assert said.startswith("The time was too short to train dtr and coder. The same command with about --minutes 10 ")
    assert short_of_time([TrainedCandidate(tried[0].candidate, 60, 12.0, dropped="it gains nothing")]) == ""
    made = Learned("docs", "mine", tmp_path, "", {"train": 60, "dev": 20, "test": 25}, tuple(tried), (), 0.5, 0.5)
    assert "More judged questions help most" in why_missed(made)[1]
    assert why_missed(replace(made, short_of_time=said))[1] == said  # nobody is told to judge more where nothing was trained
    built = replace(made, generation="docs-2", after=0.4, short_of_time=said)
    assert why_missed(built)[1] == said
    assert why_missed(replace(built, after=0.6, needed=90))[1].endswith(said)
