"""Model folders: names, missing files, altered files."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from termweave import places
from termweave.encoders import load
from termweave.encoders.folder import MANIFEST, Manifest, ModelFolder, digests, resolve, write_manifest
from termweave.errors import ModelError, UsageError

SHIPPED = resolve("shipped")


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped model."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "copy"))


def test_names(folder, tmp_path, monkeypatch):
    name = ModelFolder.read(SHIPPED).manifest.name
    assert resolve(name) == SHIPPED
    assert resolve(str(folder)) == folder.resolve()
    monkeypatch.setattr(places, "models", lambda: tmp_path / "models")
    shutil.copytree(folder, tmp_path / "models" / "mine")
    assert resolve("mine") == tmp_path / "models" / "mine"


def test_an_installed_package_can_ship_a_model(folder, tmp_path, monkeypatch):
    package = tmp_path / "site" / "some_model"
    shutil.copytree(folder, package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('found, never run')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert resolve("some-model") == package / "model"
    assert load("some_model", "none").models["weights"].folder == package / "model"


@pytest.mark.parametrize(
    ("name", "says"),
    [("nope", "Known: shipped"), ("./nope", "no model folder"), ("json", "Known")],
)
def test_names_that_mean_nothing(name, says):
    with pytest.raises(UsageError, match=says):
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


def test_folders_that_are_none(tmp_path):
    with pytest.raises(ModelError, match="not a model folder"):
        load(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="transformers model, not yet"):
        load(str(tmp_path))


WHOLE = '"schema": 1, "name": "x", "kind": "anchored", "outputs": ["weights"], "hash": ""'


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"schema": 1, "name": "x"}', '{"schema": 1, "outputs": 7}'),
        f'{{{WHOLE}, "max_length": "x"}}',
        f'{{{WHOLE}, "max_length": 64, "heads": null}}',
    ],
)
def test_broken_descriptions(folder, text):
    (folder / MANIFEST).write_text(text)
    with pytest.raises(ModelError, match="not the description of a model"):
        load(str(folder))


def test_a_later_schema_is_refused(folder):
    (folder / MANIFEST).write_text('{"schema": 99}')
    with pytest.raises(ModelError, match="schema 99"):
        load(str(folder))


def test_damaged_files_that_match_their_digest(folder):
    """Somebody exported garbage: still one sentence."""
    manifest = ModelFolder.read(folder).manifest
    (folder / "model.int8.onnx").write_bytes(b"no graph")
    write_manifest(folder, replace(manifest, files=digests(folder)))
    with pytest.raises(ModelError, match="cannot be run"):
        load(str(folder)).encode(["a"], kind="query")
    (folder / "tokenizer.json").write_text("{}")
    write_manifest(folder, replace(manifest, files=digests(folder)))
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        load(str(folder))


def test_a_runtime_that_gives_no_reason(folder, monkeypatch):
    """A bare exception of ONNX Runtime's is still one sentence."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("onnxruntime.InferenceSession", refuse)
    with pytest.raises(ModelError, match="cannot be run: RuntimeError"):
        load(str(folder)).encode(["a"], kind="query")


def test_an_output_that_a_model_lacks(folder):
    manifest = ModelFolder.read(folder).manifest
    write_manifest(folder, replace(manifest, outputs=("dense",)))
    with pytest.raises(ModelError, match="gives dense, not weights"):
        load(weights=str(folder), dense="none")
    assert load(weights="none", dense=str(folder)).dimension == 384


def test_another_analysis_is_refused(folder):
    write_manifest(folder, replace(ModelFolder.read(folder).manifest, analysis="later"))
    with pytest.raises(ModelError, match="'later'"):
        load(str(folder))


def test_without_a_default_table_statistics_must_be_given(folder, statistics):
    (folder / "statistics.bin").unlink()
    write_manifest(folder, replace(ModelFolder.read(folder, check=False).manifest, files=digests(folder)))
    encoder = load(str(folder), str(folder))
    with pytest.raises(ModelError, match="no default statistics"):
        encoder.encode(["a"], kind="query")
    assert encoder.encode(["cat"], kind="query", statistics=statistics)


def test_manifest_round_trip():
    manifest = ModelFolder.read(SHIPPED).manifest
    assert Manifest.from_bytes(manifest.to_bytes(), Path("x")) == manifest


def test_what_is_shipped_is_small_and_whole():
    files = {file.name: file.stat().st_size for file in SHIPPED.iterdir()}
    assert sum(files.values()) <= 30e6
    assert "model.onnx" not in files
    assert {"model.int8.onnx", "model.dequantised.onnx", "tokenizer.json", "statistics.bin", "README.md", MANIFEST} <= set(files)
    manifest = ModelFolder.read(SHIPPED).manifest
    assert manifest.quantisation["parity"]["fp32_difference"] <= 1e-4
