"""The recipe of the shipped models, and the figures on their cards."""

import json
import shutil

import pytest

from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.model_lookup import resolve
from termweave.errors import InputError
from tests.training.conftest import SMALL
from tools import shipped_model
from tools.retrieval_figures import Pool, PoolFigures, measure, tables
from tools.shipped_model import RecipeData


@pytest.mark.parametrize(
    ("more", "lacking"),
    [([], "medquad, stackfaq"), (["--set", "backbone=bge-small-zh"], "cmrc2018, cmrc2018-reqa, drcd-reqa.")],
)
def test_what_the_recipe_lacks_is_named(tmp_path, capsys, more, lacking):
    (tmp_path / "squad").mkdir()
    assert shipped_model.main(["--data", str(tmp_path), "--out", str(tmp_path / "out"), *more]) == InputError.exit_status
    assert f"lacks the data sets {lacking}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_the_recipe_of_the_shipped_model(capsys, folder, base, tmp_path, monkeypatch):
    """On two small collections; one of them alone where the other is left out."""
    shutil.copytree(folder, folder.parent / "other", dirs_exist_ok=True)
    small = {"documents": 100, "questions": 60}
    monkeypatch.setattr(
        shipped_model, "SOURCES", (RecipeData("toy", 3, "MIT", small), RecipeData("other", 1, "CC0", {**small, "negatives": 3}))
    )
    monkeypatch.setattr(shipped_model, "DEVELOPMENT", (Pool("toy", "train"), Pool("other", "train")))
    sets = [part for each in (*SMALL, "steps=20", "teacher=minmax", f"backbone={base}") for part in ("--set", each)]
    given = ["--data", str(folder.parent), "--out", str(tmp_path / "out"), "--keep", str(tmp_path / "keep"), *sets]
    assert shipped_model.main(given) == 0, capsys.readouterr().err
    read = read_folder(tmp_path / "out")
    assert [row["set"] for row in read.manifest.metrics["development"]] == ["toy train", "other train"]
    assert all(row["weights"] > row["bm25"] + 0.1 for row in read.manifest.metrics["development"])
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "teacher=minmax" in card
    assert "| other | 100 documents, 60 questions (qrels), share 1 | CC0 |" in card
    assert load(str(read.path), str(read.path)).encode(["about granada"], kind="document")[0].weights is not None
    assert shipped_model.main([*given, "--without", "other"]) == 0
    assert "CC0" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "pool", [Pool("tiny"), Pool("tiny", hard=1), Pool("tiny", others=1), Pool("tiny", queries=1, judged=True)]
)
def test_measuring_the_shipped_model(collection, pool):
    row = measure(load(threads=2), collection, pool)
    assert row.bm25 == row.weights == pytest.approx(1.0)
    assert row.documents <= 4
    assert "| tiny test |" in tables([row])


def test_the_card_says_what_was_measured():
    shipped = resolve("shipped")
    text = (shipped / "README.md").read_text()
    manifest = json.loads((shipped / "termweave.json").read_bytes())
    assert manifest["metrics"]["development"]
    for rows in manifest["metrics"].values():
        for row in rows:
            assert str(PoolFigures(**row)) in text
    for word in ("CC BY-SA 4.0", "CC BY 4.0", "MIT", "Zero-shot", manifest["hash"], "tools.shipped_model"):
        assert word in text
