"""Model folders: names, missing files, altered files."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import MANIFEST, Manifest, digests, write_manifest
from termweave.encoders.model_lookup import resolve, resolve_local
from termweave.errors import ModelError, UsageError
from termweave.support import paths

SHIPPED = resolve("shipped")


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped model."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "copy"))


def test_names(folder, tmp_path, monkeypatch):
    name = read_folder(SHIPPED).manifest.name
    assert resolve(name) == SHIPPED
    assert resolve(str(folder)) == folder.resolve()
    monkeypatch.setattr(paths, "models", lambda: tmp_path / "models")
    shutil.copytree(folder, tmp_path / "models" / "mine")
    assert resolve("mine") == tmp_path / "models" / "mine"


def test_a_folder_of_the_working_folder_answers_only_to_a_path(folder, tmp_path, monkeypatch):
    """What lies in the working folder may be a download: a bare name is never one of its folders."""
    shutil.copytree(folder, tmp_path / "here" / "shipped")
    shutil.copytree(folder, tmp_path / "here" / "own")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend("")  # as in an interactive Python
    assert resolve("shipped") == SHIPPED
    assert resolve("./shipped") == resolve(Path("shipped")) == (tmp_path / "here" / "shipped").resolve()
    assert load(None, "none").models["weights"].folder == SHIPPED
    with pytest.raises(UsageError, match=r"no model named 'own'") as refused:
        resolve("own")
    assert "./own" in refused.value.hint
    with pytest.raises(UsageError, match="no model folder"):
        resolve("./none")


def test_a_package_can_ship_a_model_and_none_is_run(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "site" / "some_model" / "model")
    shutil.copytree(folder, tmp_path / "site" / "outer_model" / "inner")
    for each in ("some_model", "outer_model", "outer_model/inner"):
        (tmp_path / "site" / each / "__init__.py").write_text("raise RuntimeError('found, never run')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert resolve("some-model") == tmp_path / "site" / "some_model" / "model"
    assert load("some_model", "none").models["weights"].folder == tmp_path / "site" / "some_model" / "model"
    assert resolve("outer-model.inner") == tmp_path / "site" / "outer_model" / "inner"
    assert "outer_model" not in sys.modules


def test_what_a_name_from_elsewhere_may_open(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "models", lambda: tmp_path / "models")
    mine = shutil.copytree(folder, tmp_path / "models" / "mine")
    shutil.copytree(folder, tmp_path / "beside")
    site = tmp_path / "site"
    for package in ("installed_model", "only_a_folder"):
        shutil.copytree(folder, site / package / "model")
    (site / "installed_model-1.dist-info").mkdir()
    (site / "installed_model-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-model\nVersion: 1\n")
    (site / "installed_model-1.dist-info" / "top_level.txt").write_text("installed_model\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    assert resolve_local("mine") == mine
    assert resolve_local(SHIPPED.name) == SHIPPED
    assert resolve_local("installed-model") == site / "installed_model" / "model"
    elsewhere = ["only-a-folder", "beside", "./beside", "../models/mine", "~/mine", str(folder), "..", "", "none", "a.b", "mine/"]
    assert [name for name in elsewhere if resolve_local(name)] == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nope", "Known: shipped"),
        ("./nope", "no model folder"),
        ("~no-such-user/m", "There is no model folder '~no-such-user/m'"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(UsageError, match=message):
        resolve(name)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.int8.onnx", "statistics.bin"])
def test_missing_and_altered_files_are_named(folder, name):
    file = folder / name
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelError, match=f"altered: .*{name}"):
        load(str(folder))
    file.unlink()
    with pytest.raises(ModelError, match=f"incomplete: .*{name}"):
        load(str(folder))


WHOLE = {"schema": 1, "name": "x", "kind": "anchored", "outputs": ["weights"], "hash": "0123456789abcdef", "max_length": 64}


@pytest.mark.parametrize(
    "content",
    [
        *(None, [], {}, {"schema": 1, "name": "x"}, {"schema": 1, "outputs": 7}),
        *(WHOLE | change for change in ({"max_length": "x"}, {"heads": None}, {"name": 7})),
        # A hash names files of the state folder; files lie in the folder.
        *(WHOLE | change for change in ({"hash": "../../notes"}, {"hash": ""}, {"files": {"../copy/config.json": ""}})),
    ],
    ids=str,
)
def test_broken_descriptions(folder, content):
    (folder / MANIFEST).write_text("" if content is None else json.dumps(content))
    with pytest.raises(ModelError, match="not the description of a model"):
        load(str(folder))


def test_no_model_a_later_schema_and_another_analysis_are_refused(folder, tmp_path):
    with pytest.raises(ModelError, match="not a model folder"):
        load(str(tmp_path))
    write_manifest(folder, replace(read_folder(folder).manifest, analysis="later"))
    with pytest.raises(ModelError, match="'later'"):
        load(str(folder))
    (folder / MANIFEST).write_text('{"schema": 99}')
    with pytest.raises(ModelError, match="schema 99"):
        load(str(folder))


def test_damaged_files_that_match_their_digest(folder):
    """Somebody exported garbage: still one sentence."""
    manifest = read_folder(folder).manifest
    (folder / "model.int8.onnx").write_bytes(b"no graph")
    write_manifest(folder, replace(manifest, files=digests(folder)))
    with pytest.raises(ModelError, match="cannot be run"):
        load(str(folder)).encode(["a"], kind="query")
    (folder / "tokenizer.json").write_text("{}")
    write_manifest(folder, replace(manifest, files=digests(folder)))
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        load(str(folder))


def test_without_a_default_table_statistics_must_be_given(folder, statistics):
    (folder / "statistics.bin").unlink()
    write_manifest(folder, replace(read_folder(folder, check=False).manifest, files=digests(folder)))
    encoder = load(str(folder), str(folder))
    with pytest.raises(ModelError, match="brings no statistics"):
        encoder.encode(["a"], kind="query")
    assert encoder.encode(["cat"], kind="query", statistics=statistics)


def test_what_is_shipped_is_small_and_whole():
    files = {file.name: file.stat().st_size for file in SHIPPED.iterdir()}
    assert sum(files.values()) <= 30e6
    assert "model.onnx" not in files
    assert {"model.int8.onnx", "model.dequantised.onnx", "tokenizer.json", "statistics.bin", "README.md", MANIFEST} <= set(files)
    manifest = read_folder(SHIPPED).manifest
    assert manifest.quantisation["parity"]["fp32_difference"] <= 1e-4
    assert Manifest.from_bytes(manifest.to_bytes(), Path("x")) == manifest
