"""The unit of a dense model: measured once, noted with the model, and the same for the same model."""

import json
import shutil

import pytest

from termweave import encoders
from termweave.contracts.signal import Fitting
from termweave.encoders import calibration
from termweave.encoders.model_lookup import resolve
from termweave.records import Capabilities
from termweave.signals.weights import Weights
from termweave.support import paths


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "calibration"


def test_the_texts_answer_their_questions_once():
    for language, count in (("english", 240), ("chinese", 100)):
        questions, texts = calibration.questions_and_texts(language)
        assert len(questions) == len(texts) == len(set(questions)) == len(set(texts)) == count


def test_the_shipped_model_brings_the_figure_that_is_measured(encoder, own_cache):
    assert encoder.dense_spread() == pytest.approx(calibration._measured(encoder), rel=0.02)
    assert not own_cache.exists()  # nothing was measured


def test_a_model_without_a_figure_is_measured_once_and_noted(tmp_path, own_cache, monkeypatch):
    folder = shutil.copytree(resolve("shipped"), tmp_path / "model", ignore=shutil.ignore_patterns(calibration.NOTE))
    copied = encoders.load(weights="none", dense=folder)
    monkeypatch.setattr(calibration, "questions_and_texts", lambda _: (["parse json", "bake bread"], ["json.loads", "an oven"]))
    spread = copied.dense_spread()
    (note,) = own_cache.iterdir()
    assert json.loads(note.read_bytes())["dense_spread"] == spread > 0
    monkeypatch.setattr(calibration, "_measured", lambda _: pytest.fail("measured again"))
    assert encoders.load(weights="none", dense=folder).dense_spread() == spread


@pytest.mark.parametrize("damage", ["", "{", '{"dense_spread": 9, "models": ["0"], "version": 1}', "[]"])
def test_a_note_of_another_model_or_a_damaged_one_does_not_count(tmp_path, own_cache, monkeypatch, damage):
    folder = shutil.copytree(resolve("shipped"), tmp_path / "model")
    (folder / calibration.NOTE).write_text(damage)
    monkeypatch.setattr(calibration, "_measured", lambda _: 0.5)
    assert encoders.load(weights="none", dense=folder).dense_spread() == 0.5


def test_weights_that_are_multiples_of_bm25_need_no_unit(encoder):
    assert encoder.weights_spread() == encoder.only({"weights"}).dense_spread() == 0.0
    assert calibration._measured_weights(encoder) > 0.99  # exact words: the hundredth text has none of them


def test_the_scores_of_a_sparse_model_of_others_are_measured_in_their_own_unit():
    expanding = Weights.fit(Fitting(Capabilities(""), weights_spread=0.5))
    anchored = Weights.fit(Fitting(Capabilities("")))
    assert expanding.spread(5.0, 10.0) == 2 * anchored.spread(5.0, 10.0) == 1.0
    assert (expanding.parameters()["unit"], anchored.parameters()["unit"]) == (0.5, 1.0)
