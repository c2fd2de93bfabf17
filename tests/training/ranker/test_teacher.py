"""A ranker as teacher: its scores of pairs are what it gives, cached, and distilled by fectek and coder."""

import json

import numpy as np
import pytest

from termweave.encoders import Ranker
from termweave.errors import UsageError
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


@pytest.fixture(params=["judged", "corpus"])
def source(request, folder, tmp_path):
    """The data set, and its corpus alone."""
    if request.param == "judged":
        return folder
    alone = tmp_path / "corpus.jsonl"
    alone.write_bytes((folder / "corpus.jsonl").read_bytes())
    return alone


def test_the_scores_are_the_rankers_and_cached(folder, complete, ranker, tmp_path, monkeypatch):
    from termweave.training.ranker import teacher

    method = methods.get("sir")
    (part,) = parts(str(folder), method.settings({"backbone": str(complete)}), tmp_path / "out", lambda _: None)
    wanted = [[0, 3, 5]] * len(part.setup.train)
    written = teacher.teach(f"ranker:{ranker}", part.setup, wanted, lambda _: None)
    found = written.scores(np.array([1]), np.array([3, 5, 7]))
    texts = [part.setup.texts[document] for document in (3, 5)]
    assert found[0, :2] == pytest.approx(Ranker.load(ranker).score(part.setup.train.questions[1], texts), abs=1e-5)
    assert found[0, 2] == -np.inf
    monkeypatch.setattr(Ranker, "load", lambda *_, **__: pytest.fail("the scores are in the cache"))
    again = teacher.teach(f"ranker:{ranker}", part.setup, wanted, lambda _: None)
    assert np.array_equal(again.scores(np.array([1]), np.array([3, 5, 7])), found)


def test_an_anchored_teacher_reads_the_first_stage_that_it_was_trained_on(folder, complete, tmp_path, monkeypatch):
    from termweave.training import run
    from termweave.training.ranker import teacher
    from termweave.training.ranker.first_stage import first_stage

    method = methods.get("sir")
    given = dict(each.split("=") for each in (*RANKER, "candidates_from=bm25"))
    out = tmp_path / "anchored"
    run.train(method, str(folder), method.settings({"backbone": str(complete), **given}), out)
    ranker = Ranker.load(out)
    assert set(ranker.anchor) == {"score"}
    (part,) = parts(str(folder), method.settings({"backbone": str(complete)}), tmp_path / "data", lambda _: None)
    setup = part.setup
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


def test_term_weights_learn_from_a_ranker(capsys, base, ranker, tmp_path, source):
    settings = (*SMALL, f"teacher=ranker:{ranker}", "negatives=3", "steps=4", "every=4")
    train(capsys, source, base, tmp_path / "out", settings=settings)
    made = json.loads((tmp_path / "out" / "termweave.json").read_text())["training"]
    assert made["origin"] == ("qrels" if source.is_dir() else "corpus")
    assert made["options"]["teacher_weight"] == (1.0 if source.is_dir() else 9.0)


def test_a_dense_model_learns_the_rankers_distribution(capsys, base, ranker, tmp_path, source):
    settings = ("max_length=32", "training_length=32", "batch=4", "dev=6", "steps=2", "every=2", "candidates=5")
    given = (*settings, f"teacher=ranker:{ranker}", "candidates_from=bm25")
    train(capsys, source, base, tmp_path / "out", method="coder", settings=given)
    made = json.loads((tmp_path / "out" / "termweave.json").read_text())["training"]
    assert made["origin"] == ("qrels" if source.is_dir() else "corpus")
    assert made["options"]["teacher"] == f"ranker:{ranker}"


@pytest.mark.parametrize("method", ["fectek", "coder"])
def test_a_teacher_that_is_not_there_is_refused(capsys, folder, base, tmp_path, method):
    settings = (*(SMALL if method == "fectek" else ()), "teacher=ranker:./nowhere")
    error = train(capsys, folder, base, tmp_path / "out", "--plan", method=method, settings=settings, status=2)
    assert "There is no model folder './nowhere'" in error
