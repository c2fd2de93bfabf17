"""A ranker as teacher: its scores of pairs are what it gives, cached, and distilled by fectek and coder."""

import json
import shutil

import numpy as np
import pytest

from termweave.encoders import Ranker
from termweave.errors import UsageError
from termweave.training.methods import base as methods
from termweave.training.mixture import parts
from termweave.training.ranker import teacher
from termweave.training.ranker.first_stage import first_stage
from tests.training.conftest import SMALL, train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

SHORT = ("max_length=32", "training_length=32", "batch=2", "dev=6", "steps=2", "every=2")
RANKER = (*SHORT, "reranked=5", "blocks=4", "candidates=6", "candidates_from=bm25")


@pytest.fixture
def ranker(trained):
    """A ranker of two steps without an anchor."""
    return trained("sir", (*RANKER, "anchor=false"))[0]


@pytest.fixture
def part(folder, complete, tmp_path):
    """The toy collection as a ranker is trained on it."""
    settings = methods.get("sir").settings({"backbone": str(complete)})
    return parts(str(folder), settings, tmp_path / "data", lambda _: None)[0]


def test_the_scores_are_the_rankers_and_cached(part, ranker, monkeypatch):
    wanted = [[0, 3, 5]] * len(part.setup.train)
    written = teacher.teach(f"ranker:{ranker}", part.setup, wanted, lambda _: None)
    found = written.scores(np.array([1]), np.array([3, 5, 7]))
    texts = [part.setup.texts[document] for document in (3, 5)]
    assert found[0, :2] == pytest.approx(Ranker.load(ranker).score(part.setup.train.questions[1], texts), abs=1e-5)
    assert found[0, 2] == -np.inf
    monkeypatch.setattr(Ranker, "load", lambda *_, **__: pytest.fail("the scores are in the cache"))
    again = teacher.teach(f"ranker:{ranker}", part.setup, wanted, lambda _: None)
    assert np.array_equal(again.scores(np.array([1]), np.array([3, 5, 7])), found)


def test_an_anchored_teacher_reads_the_first_stage_that_it_was_trained_on(trained, part, tmp_path, monkeypatch):
    out, _ = trained("sir", RANKER)
    ranker, setup = Ranker.load(out), part.setup
    assert set(ranker.anchor) == {"score"}
    (features,) = first_stage("bm25", setup, print).rank(setup.train.questions[:1], setup.train.spared[:1], 100)
    best = list(features)[:3]
    wanted = [best, *([best[0]] for _ in setup.train.questions[1:])]
    found = teacher.teach(f"ranker:{out}", setup, wanted, lambda _: None).scores(np.array([0]), np.array(best))[0]
    residual = ranker.score(setup.train.questions[0], [setup.texts[document] for document in best])
    assert found == pytest.approx(residual + [ranker.anchor["score"] * features[document][0] for document in best], abs=1e-4)

    # A ranker of a live index or a run file reads that, and its scores are not kept: both may change.
    run_file = tmp_path / "run.trec"
    names = {question: name for name, question in setup.examples.queries.items()}
    run_file.write_text(f"{names[setup.train.questions[0]]} Q0 {setup.examples.ids[setup.places[best[1]]]} 1 0.25 x\n")
    monkeypatch.setattr(teacher, "_stage", lambda _: str(run_file))
    for score in (0.25, 0.5):
        run_file.write_text(run_file.read_text().replace("0.25", str(score)))
        again = teacher.teach(f"ranker:{out}", setup, wanted, lambda _: None).scores(np.array([0]), np.array(best))[0]
        assert again[1] == pytest.approx(residual[1] + ranker.anchor["score"] * score, abs=1e-4)
    run_file.unlink()
    with pytest.raises(UsageError, match="There is no run file"):
        teacher.check(f"ranker:{out}")


LEARNERS = {
    "fectek": (*SMALL, "negatives=3", "steps=2", "every=2"),
    "coder": (*SHORT, "candidates=5", "candidates_from=bm25"),
}


@pytest.mark.parametrize("method", LEARNERS)
def test_models_learn_from_a_ranker(folder, base, ranker, tmp_path, method):
    """From its scores of judged pairs, and of pairs that are made of the corpus, whose teacher weighs more."""
    source = folder if method == "coder" else shutil.copy(folder / "corpus.jsonl", tmp_path)
    nowhere = train(source, base, tmp_path / "out", "--plan", method=method, settings=("teacher=ranker:./nowhere",), status=2)
    assert "There is no model folder './nowhere'" in nowhere
    train(source, base, tmp_path / "out", method=method, settings=(*LEARNERS[method], f"teacher=ranker:{ranker}"))
    options = json.loads((tmp_path / "out" / "termweave.json").read_text())["training"]["options"]
    assert options["teacher"] == f"ranker:{ranker}"
    assert options.get("teacher_weight", 9.0) == 9.0
