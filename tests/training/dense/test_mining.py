"""Candidates mined by a live index, and lists that are kept in the cache."""

import pytest

from termweave.cli import run
from termweave.errors import UsageError
from termweave.training.dense import list_targets
from termweave.training.dense.list_targets import NOTHING, mined
from tests.training.conftest import train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

SETTINGS = ("max_length=64", "training_length=64", "batch=12", "dev=8", "every=2", "steps=2", "candidates=10", "labels=hard")


def test_a_live_index_gives_candidates_and_the_models_own_are_kept(folder, base, tmp_path, name, opensearch_engine, monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    assert run(["index", str(folder / "corpus.jsonl"), name, "--signals", "lexical", "--quiet"]) == 0
    asked = []

    def noted(context, ranking, depth):
        asked.append((context, ranking, depth, lists := mined(context, ranking, depth)))
        return lists

    monkeypatch.setattr(list_targets, "mined", noted)
    data = train(folder, base, tmp_path / "out", method="coder", settings=(*SETTINGS, f"candidates_from=index:{name}"))
    assert data["history"]["steps"] == [0, 2]
    ((context, *wanted, lists),) = asked
    assert lists.shape == (72, 10)  # ten documents of each of 72 questions
    assert (lists != NOTHING).any(axis=1).all()
    # Another profile of the same generation finds other candidates.
    question, best = context.setup.train.questions[0], int(lists[0, 0])
    hidden = context.setup.examples.ids[context.setup.places[best]]
    (tmp_path / "pins.csv").write_text(f"query,document,action\n{question},{hidden},hide\n")
    saved = ["profiles", name, "--save", "shop", "--mode", "lexical", "--rewrite", f"pins@{tmp_path / 'pins.csv'}"]
    assert run([*saved, "--use", "shop", "--quiet"]) == 0
    again = mined(context, *wanted)
    assert best not in again[0]
    assert (again[1:] == lists[1:]).all()
    # An index of other documents finds none of these.
    (tmp_path / "other.jsonl").write_text('{"_id": "elsewhere", "text": "about granada and other towns"}\n')
    assert run(["index", str(tmp_path / "other.jsonl"), f"{name}-other", "--signals", "lexical", "--quiet"]) == 0
    with pytest.raises(UsageError, match=f"The index {name}-other.* found no training document"):
        mined(context, f"index:{name}-other", 10)
    # Lists of the model's own vectors are mined once.
    first = mined(context, "model", 10)
    monkeypatch.setattr(list_targets, "nearest", lambda *_: pytest.fail("mined again"))
    assert (mined(context, "model", 10) == first).all()
