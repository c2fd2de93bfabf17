"""What comes from elsewhere is pinned: actions by commit, packages by hash."""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lock():
    return tomllib.loads((ROOT / "uv.lock").read_text())


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


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


def test_the_lock_knows_what_pyproject_asks_for(lock, project):
    """`uv lock` brings the two together again."""
    (own,) = (package for package in lock["package"] if package["name"] == project["project"]["name"])
    assert own["version"] == project["project"]["version"]
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *(each for extra in extras.values() for each in extra)]
    assert {_parts(each) for each in asked} == {
        (each["name"], _sorted(each["specifier"])) for each in own["metadata"]["requires-dist"]
    }
    groups = {name: {_parts(each) for each in group} for name, group in project["dependency-groups"].items()}
    locked = {
        name: {(each["name"], _sorted(each["specifier"])) for each in group}
        for name, group in own["metadata"]["requires-dev"].items()
    }
    assert groups == locked


def _parts(requirement):
    """Name and bounds of a requirement, as the lock writes them."""
    name, bounds = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", requirement).groups()
    return re.sub(r"[._-]+", "-", name).lower(), _sorted(bounds)


def _sorted(bounds):
    return tuple(sorted(bounds.strip().replace(" ", "").split(",")))
