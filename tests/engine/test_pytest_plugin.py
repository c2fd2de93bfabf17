"""The pytest plugin in another project: a server, or a skip (a failure, where one is required) that says why."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.programs import require_docker

TEST = """
from urllib.request import urlopen

def test_it_answers(opensearch_node, opensearch_engine):
    with urlopen(opensearch_node) as answer:
        assert answer.status == 200
    assert opensearch_engine.request("GET", "/_cluster/health")["status"] in {"green", "yellow"}
"""

#: No Java: the embedded node cannot start either.
NOTHING = """
import termweave.engine.embedded.folders
import termweave.engine.embedded.java
from pathlib import Path
termweave.engine.embedded.java._places = lambda: iter(())
termweave.engine.embedded.folders.jdk_cache = lambda: Path(__file__).parent
"""


@pytest.fixture
def project(tmp_path):
    """A folder with a test that needs a server."""
    (tmp_path / "test_other.py").write_text(TEST)
    return tmp_path


def start(folder, **environment):
    inherited = {name: value for name, value in os.environ.items() if name not in {"OPENSEARCH_URL", "OPENSEARCH_PORT"}}
    options = ("-q", "-rs", "-W", "error", "-p", "no:cacheprovider", f"--rootdir={folder}", str(folder))
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=inherited | environment)


def run(folder, **environment):
    session = start(folder, **environment)
    return SimpleNamespace(pid=session.pid, stdout=session.communicate()[0])


def test_another_project_gets_the_named_server(project, opensearch_node):
    assert "1 passed" in run(project, OPENSEARCH_URL=opensearch_node).stdout


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("1", "1 error")])
def test_where_no_server_can_be_had_tests_say_why(project, no_network, required, outcome):
    (project / "conftest.py").write_text(NOTHING)
    done = run(project, PATH=str(Path(sys.executable).parent), TERMWEAVE_REQUIRE_ENGINE=required)  # no docker either
    assert outcome in done.stdout, done.stdout
    assert "no OpenSearch for the tests" in done.stdout
    assert "there is no network" in done.stdout


@pytest.fixture
def docker():
    """Run docker; returns what it prints."""
    require_docker()
    return lambda *arguments: subprocess.run(["docker", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def left_of(docker, session):
    """Containers and networks of a session."""
    mine = f"label=com.docker.compose.project=termweave-tests-{session.pid}"
    return docker("ps", "--all", "--quiet", "--filter", mine) + docker("network", "ls", "--quiet", "--filter", mine)


def test_another_project_gets_a_container_and_nothing_is_left_of_it(project, docker):
    done = run(project, TERMWEAVE_REQUIRE_ENGINE="container")
    assert "1 passed" in done.stdout, done.stdout
    assert left_of(docker, done) == ""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_session_that_is_ended_while_its_container_starts(project, docker, sent):
    with start(project, TERMWEAVE_REQUIRE_ENGINE="container") as session:
        while not docker("ps", "--quiet", "--filter", f"name=termweave-tests-{session.pid}-opensearch"):
            assert session.poll() is None, session.stdout.read()
            time.sleep(0.2)
        session.send_signal(sent)
        session.stdout.read()
    until = time.monotonic() + 60
    while left_of(docker, session):
        assert time.monotonic() < until
        time.sleep(0.5)
    time.sleep(5)  # nor does it come back
    assert left_of(docker, session) == ""


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": str(Path(sys.executable).parent)}, "The program docker is not installed."),
        ({"DOCKER_HOST": "unix:///nowhere"}, "Docker's engine does not answer."),
        ({"DOCKER_CONFIG": "/nowhere"}, "Docker's plugin compose is not installed."),
        ({"OPENSEARCH_VERSION": "0.0.0"}, "Error response from daemon: "),
        ({"OPENSEARCH_PORT": "{taken}"}, "port is already allocated"),
        ({"OPENSEARCH_HEAP": "1m"}, "exited (1)"),
    ],
)
def test_where_no_container_starts_it_says_why_in_one_sentence(project, docker, opensearch_node, environment, reason):
    environment = {name: value.format(taken=opensearch_node.rpartition(":")[2]) for name, value in environment.items()}
    done = run(project, TERMWEAVE_REQUIRE_ENGINE="container", **environment)
    assert "1 error" in done.stdout, done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("no container with OpenSearch for the tests: "))
    assert reason in line
    assert "Traceback" not in done.stdout
    assert left_of(docker, done) == ""


def test_an_image_that_cannot_be_pulled_leaves_the_embedded_node(project, docker, no_network):
    (project / "conftest.py").write_text(NOTHING)
    done = run(project, OPENSEARCH_VERSION="0.0.0", TERMWEAVE_REQUIRE_ENGINE="")
    assert "The tests used the embedded node, because no container started: Error response from daemon: " in done.stdout
    assert "1 skipped" in done.stdout


@pytest.mark.parametrize("name", ["one-node.yml", "three-nodes.yml", "secured.yml", "termweave.yml"])
def test_the_compose_files_are_valid(docker, monkeypatch, name):
    monkeypatch.setenv("OPENSEARCH_PASSWORD_FILE", __file__)
    monkeypatch.setenv("TERMWEAVE_TOKEN", "sixteen characters")
    docker("compose", "-f", str(Path(__file__).parents[2] / "docker" / name), "config", "--quiet")
