"""Fits one after the other, and the development measure that was asked for."""

import json

import numpy as np
import pytest

from termweave.encoders.kinds import read_folder
from termweave.training import mixture
from termweave.training.data.sampler import BatchSampler
from termweave.training.dev_measure import DevelopmentSet
from termweave.training.methods import base as methods
from termweave.training.methods.fectek import Fectek
from tests.training.conftest import SMALL, train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = pytest.mark.usefixtures("own_cache")


class TwoFits(Fectek):
    """First the usual fit, then one that begins with what the first one learned."""

    between = None

    def fits(self, trainer):
        trainer.fit("first", steps=10)
        TwoFits.between = trainer.model.heads.document.outer.weight.detach().clone()
        trainer.fit("second", trainer.inputs, steps=20, seed=1)


def test_fits_follow_each_other_and_are_resumed(folder, base, tmp_path, monkeypatch):
    method = TwoFits()
    settings = method.settings(methods.read_assignments((*SMALL, f"backbone={base}")))
    data = mixture.parts(str(folder), settings, tmp_path, lambda _: None)

    def learn(home):
        model = mixture.learn(method, settings, data, tmp_path / home)
        return model, model.model.heads.document.outer.weight.detach().clone()

    whole, weight = learn("whole")
    between = TwoFits.between
    assert np.abs((weight - between).numpy()).max() > 0
    assert whole.history.steps == [0, 10, 20]
    assert whole.history.values[0] > 0.5  # begins with what the first fit learned
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"first", "second", "start.f64", "data.hash", "named.json"}
    assert whole.start.mean() < 0.5  # of the first fit

    draw, stopped = BatchSampler.draw, []

    def stops(self, number):
        if self._settings.seed == 1 and number == 12 and not stopped:
            stopped.append(number)
            raise RuntimeError
        return draw(self, number)

    monkeypatch.setattr(BatchSampler, "draw", stops)
    with pytest.raises(RuntimeError):
        learn("stopped")
    _, resumed = learn("stopped")
    assert np.array_equal(resumed.numpy(), weight.numpy())


def test_titles_of_another_data_set_are_not_learned_where_they_are_held_out(folder, base, tmp_path):
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    documents = [
        {"_id": str(n), "title": json.loads(line)["text"], "text": "filler padding " * 9} for n, line in enumerate(lines)
    ]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, documents)))
    sets = (*SMALL, f"backbone={base}", f"beside={corpus}", "views=title")
    settings = methods.get("fectek").settings(methods.read_assignments(sets))
    judged, made = (part.setup for part in mixture.parts(str(folder), settings, tmp_path, lambda _: None))
    assert made.made
    assert not {*judged.dev.questions} & {*judged.train.questions, *made.train.questions}


def test_the_measure_is_the_one_that_was_asked_for(capsys, folder, base, tmp_path, monkeypatch):
    sets = (*SMALL, "steps=10", "measure=MRR@10")
    bm25, asked = DevelopmentSet.bm25, []

    def noted(self):
        asked.append(self.measure)
        return bm25(self)

    monkeypatch.setattr(DevelopmentSet, "bm25", noted)
    data = train(capsys, folder, base, tmp_path / "out", settings=sets)
    assert set(asked) == {"MRR@10"}
    other = train(capsys, folder, base, tmp_path / "other", settings=(*SMALL, "steps=10"))
    assert data["bm25"] != other["bm25"]
    assert read_folder(tmp_path / "out").manifest.metrics["train"]["measure"] == "MRR@10"
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "MRR@10 of 8 held-out questions" in card
    assert json.loads((tmp_path / "out" / "run.json").read_text())["settings"]["measure"] == "MRR@10"
