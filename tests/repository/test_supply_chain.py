"""What comes from elsewhere is pinned: actions by commit, packages by hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lock():
    return tomllib.loads((ROOT / "uv.lock").read_text())


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_name_their_version(workflow):
    used = re.findall(r"uses: (.+)", workflow.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_every_locked_file_has_a_hash_and_comes_from_the_default_registry(lock):
    packages = [package for package in lock["package"] if "registry" in package["source"]]
    assert {urlsplit(package["source"]["registry"]).netloc for package in packages} == {"pypi.org"}
    files = [file for package in packages for file in (*package.get("wheels", []), *filter(None, [package.get("sdist")]))]
    assert {urlsplit(file["url"]).netloc for file in files} == {"files.pythonhosted.org"}
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"]) for file in files)
    assert all(package.get("wheels") or package.get("sdist") for package in packages)
