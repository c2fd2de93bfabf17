"""A ranker as teacher: its scores of pairs are what it gives, cached, and distilled by fectek and coder."""

import json

import numpy as np
import pytest

from termweave.encoders import Ranker
from termweave.training.methods import base as methods
from termweave.training.mixture import parts
from tests.training.conftest import SMALL, train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

RANKER = (
    "max_length=32",
    "training_length=32",
    "batch=2",
    "dev=6",
    "steps=2",
    "every=2",
    "reranked=5",
    "blocks=4",
    "candidates=6",
)


@pytest.fixture(scope="module")
def ranker(folder, complete, tmp_path_factory):
    """A ranker of two steps without an anchor."""
    from pathlib import Path

    from termweave.training import run

    method = methods.get("sir")
    given = dict(each.split("=") for each in (*RANKER, "candidates_from=bm25", "anchor=false"))
    out = Path(tmp_path_factory.mktemp("ranker")) / "out"
    run.train(method, str(folder), method.settings({"backbone": str(complete), **given}), out)
    return out


def test_the_scores_are_the_rankers_and_cached(folder, complete, ranker, tmp_path, monkeypatch):
    from termweave.training.ranker import teacher

    method = methods.get("sir")
    (part,) = parts(method, str(folder), method.settings({"backbone": str(complete)}), tmp_path / "out", lambda _: None)
    wanted = [[0, 3, 5]] * len(part.setup.train)
    written = teacher.teach(f"ranker:{ranker}", part.setup, wanted, lambda _: None)
    found = written.scores(np.array([1]), np.array([3, 5, 7]))
    texts = [part.setup.texts[document] for document in (3, 5)]
    assert found[0, :2] == pytest.approx(Ranker.load(ranker).score(part.setup.train.questions[1], texts), abs=1e-5)
    assert found[0, 2] == -np.inf
    monkeypatch.setattr(Ranker, "load", lambda *_, **__: pytest.fail("the scores are in the cache"))
    again = teacher.teach(f"ranker:{ranker}", part.setup, wanted, lambda _: None)
    assert np.array_equal(again.scores(np.array([1]), np.array([3, 5, 7])), found)


@pytest.mark.parametrize("alone", [False, True], ids=["judged", "corpus"])
def test_term_weights_learn_from_a_ranker(capsys, folder, base, ranker, tmp_path, alone):
    source = folder
    if alone:
        source = tmp_path / "corpus.jsonl"
        source.write_bytes((folder / "corpus.jsonl").read_bytes())
    settings = (*SMALL, f"teacher=ranker:{ranker}", "negatives=3", "steps=4", "every=4")
    train(capsys, source, base, tmp_path / "out", settings=settings)
    made = json.loads((tmp_path / "out" / "termweave.json").read_text())["training"]
    assert made["origin"] == ("corpus" if alone else "qrels")
    assert made["options"]["teacher_weight"] == (9.0 if alone else 1.0)


def test_a_dense_model_learns_the_rankers_distribution(capsys, folder, base, ranker, tmp_path):
    settings = ("max_length=32", "training_length=32", "batch=4", "dev=6", "steps=2", "every=2", "candidates=5")
    given = (*settings, f"teacher=ranker:{ranker}", "candidates_from=bm25")
    train(capsys, folder, base, tmp_path / "out", method="coder", settings=given)
    made = json.loads((tmp_path / "out" / "termweave.json").read_text())["training"]
    assert made["options"]["teacher"] == f"ranker:{ranker}"


def test_a_teacher_that_is_not_there_is_refused(capsys, folder, base, tmp_path):
    error = train(capsys, folder, base, tmp_path / "out", "--plan", settings=(*SMALL, "teacher=ranker:./nowhere"), status=2)
    assert "There is no model folder './nowhere'" in error
