"""The pytest plugin in another project: a server, or a skip (a failure, where one is required) that says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
from urllib.request import urlopen

def test_it_answers(opensearch_node, opensearch_engine):
    with urlopen(opensearch_node) as answer:
        assert answer.status == 200
    assert opensearch_engine.request("GET", "/_cluster/health")["status"] in {"green", "yellow"}
"""

NOTHING = """
import termweave.engine.embedded.folders
import termweave.engine.embedded.java
from pathlib import Path
termweave.engine.embedded.java._places = lambda: iter(())
termweave.engine.embedded.folders.jdk_cache = lambda: Path(__file__).parent
"""


def run(folder, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "OPENSEARCH_URL"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        f"--rootdir={folder}",
        str(folder),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=kept | environment, check=False)


@pytest.mark.engine
def test_another_project_gets_the_named_server(tmp_path, opensearch_node):
    (tmp_path / "test_other.py").write_text(TEST)
    done = run(tmp_path, OPENSEARCH_URL=opensearch_node)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("1", "1 error")])
def test_where_no_server_can_be_had_tests_say_why(tmp_path, no_network, required, outcome):
    (tmp_path / "test_other.py").write_text(TEST)
    (tmp_path / "conftest.py").write_text(NOTHING)
    done = run(tmp_path, PATH=str(Path(sys.executable).parent), TERMWEAVE_REQUIRE_ENGINE=required)  # no docker either
    assert outcome in done.stdout, done.stdout
    assert "no OpenSearch for the tests" in done.stdout
    assert "there is no network" in done.stdout


def compose(*arguments):
    return subprocess.run(["docker", "compose", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["one-node.yml", "three-nodes.yml"])
def test_the_compose_files_are_valid(name):
    try:
        present = compose("version").returncode == 0
    except OSError:
        present = False
    if not present:
        pytest.skip("docker compose is not here")
    done = compose("-f", str(Path(__file__).parents[2] / "docker" / name), "config", "--quiet")
    assert done.returncode == 0, done.stderr
