"""Fits one after the other, and the development measure that was asked for."""

import pytest

from termweave.encoders.kinds import read_folder
from termweave.training import mixture
from termweave.training.dev_measure import DevelopmentSet
from termweave.training.methods import base as methods
from termweave.training.methods.fectek import Fectek
from tests.training.conftest import SMALL, train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = pytest.mark.usefixtures("own_cache")


class TwoFits(Fectek):
    """First the usual fit, then one that begins with what the first one learned."""

    def fits(self, trainer):
        trainer.fit("first", steps=10)
        trainer.fit("second", trainer.inputs, steps=2, seed=1)


def test_fits_follow_each_other_and_the_start_is_that_of_the_first(folder, base, tmp_path):
    method = TwoFits()
    settings = method.settings(methods.read_assignments((*SMALL, f"backbone={base}", "rate=0.01")))
    data = mixture.parts(str(folder), settings, tmp_path, lambda _: None)
    ended = mixture.learn(method, settings, data, tmp_path / "whole")
    assert ended.history.steps == [0, 2]
    assert ended.history.values[0] > ended.start.mean()  # begins with what the first fit learned
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"first", "second", "start.f64", "data.hash", "named.json"}


def test_the_measure_is_the_one_that_was_asked_for(folder, base, tmp_path, monkeypatch):
    bm25, asked = DevelopmentSet.bm25, []
    monkeypatch.setattr(DevelopmentSet, "bm25", lambda self: asked.append(self.measure) or bm25(self))
    train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=1", "measure=MRR@10"))
    assert set(asked) == {"MRR@10"}
    assert read_folder(tmp_path / "out").manifest.metrics["train"]["measure"] == "MRR@10"
    assert "MRR@10 of 8 held-out questions" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
