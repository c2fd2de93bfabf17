"""Packages that bring models: built and installed from models/, found by their entry point, checked by their digests."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from termweave.encoders.model_lookup import PACKAGES, SHORT, resolve
from termweave.errors import UsageError

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
