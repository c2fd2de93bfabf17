"""pytest fixtures with a real OpenSearch, for this project and other projects (entry point `pytest11: opensearch_node`).

The server is $OPENSEARCH_URL, else a container if Docker runs and pytest-docker is installed, else the embedded node. Without any of
them the tests are skipped, with the reason. If $TERMWEAVE_REQUIRE_ENGINE is set, as in a CI that promises a server, the tests fail instead;
if it is "container", they fail without a container. Every pytest run imports this file, so it imports as little as possible.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from termweave.engine.client.connection import Engine

#: Beginning of the name of a test node's folder; the process id of the session that owns the node comes next.
_HOME = "termweave-tests-"

#: Why there is no container although Docker runs.
_NO_CONTAINER = pytest.StashKey[str]()

#: Removes a container in a process of its own, which outlives a session that is killed. A line says that the session has ended; without
#: one it was killed, and `up` may still be busy.
_REMOVE = "read -r _ || for _ in 1 2; do docker compose down -v; sleep 3; done; docker compose down -v"


@pytest.fixture(scope="session")
def opensearch_node(pytestconfig: pytest.Config) -> Iterator[str]:
    """Address of an OpenSearch server for the tests of this session.

    Example:
        >>> def test_it_answers(opensearch_node):  # doctest: +SKIP
        ...     assert urlopen(opensearch_node).status == 200
    """
    if url := os.environ.get("OPENSEARCH_URL"):
        yield url
        return
    reason = docker_missing()
    with contextlib.ExitStack() as stack:
        if not reason:
            try:
                url = stack.enter_context(_container())
            except Exception as error:  # noqa: BLE001 - what pytest-docker raises
                reason = _last_line(str(error))
                pytestconfig.stash[_NO_CONTAINER] = reason
        if reason and os.environ.get("TERMWEAVE_REQUIRE_ENGINE") == "container":
            pytest.fail(f"no container with OpenSearch for the tests: {reason}", pytrace=False)
        yield url or stack.enter_context(_embedded())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the end of a test run why the tests did not use a container."""
    if reason := config.stash.get(_NO_CONTAINER, ""):
        terminalreporter.write_line(f"The tests used the embedded node, because no container started: {reason}", yellow=True)


@pytest.fixture(scope="session")
def opensearch_engine(opensearch_node: str) -> Iterator[Engine]:
    """A connected `termweave.engine.Engine` on `opensearch_node`."""
    from termweave.engine.client.connection import connect  # noqa: PLC0415
    from termweave.settings import load  # noqa: PLC0415

    with connect(load(url=opensearch_node)) as engine:
        yield engine


@contextlib.contextmanager
def _embedded() -> Iterator[str]:
    """Start a node in a temporary folder: tests must not see the indices of the user's node."""
    from termweave.engine.embedded import node  # noqa: PLC0415

    _remove_abandoned_nodes()
    home = Path(tempfile.mkdtemp(prefix=f"{_HOME}{os.getpid()}-"))
    home.chmod(0o711)  # for root: the server's unprivileged user must be able to enter
    try:
        try:
            state = node.start(home=home)
        except TermweaveError as error:
            give_up = pytest.fail if os.environ.get("TERMWEAVE_REQUIRE_ENGINE") else pytest.skip
            give_up(f"no OpenSearch for the tests: {error}")
        yield state.url
    finally:
        node.wipe(home)
        shutil.rmtree(home, ignore_errors=True)


def _remove_abandoned_nodes() -> None:
    """Stop and remove the nodes of test sessions that were killed: each takes 600 MB of memory."""
    import psutil  # noqa: PLC0415

    from termweave.engine.embedded import node  # noqa: PLC0415

    for home in Path(tempfile.gettempdir()).glob(f"{_HOME}*-*"):
        owner = home.name.removeprefix(_HOME).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another session removed it just now
            if owner.isdigit() and not psutil.pid_exists(int(owner)) and home.stat().st_uid == os.geteuid():
                node.wipe(home)
                shutil.rmtree(home, ignore_errors=True)


def docker_missing() -> str:
    """Say why the tests cannot use a container; "": they can, as Docker with compose runs and pytest-docker is installed."""
    docker = shutil.which("docker")
    if docker is None:
        return "The program docker is not installed. Install Docker Engine."
    if importlib.util.find_spec("pytest_docker") is None:
        return "The package pytest-docker is not installed."
    for command, advice in (
        (("info",), "Docker's engine does not answer. Start it, or set DOCKER_HOST to its address."),
        (("compose", "version"), "Docker's plugin compose is not installed."),
    ):
        try:
            subprocess.run([docker, *command], capture_output=True, timeout=20, check=True)  # noqa: S603 - a fixed command
        except (OSError, subprocess.SubprocessError):
            return advice
    return ""


@contextlib.contextmanager
def _container() -> Iterator[str]:
    """Start a container and wait until Docker calls its server healthy; yield the server's address. However the session ends, nothing is left."""
    from pytest_docker.plugin import get_docker_services  # noqa: PLC0415

    # Port 0: Docker takes a free one. pytest-docker's own fixtures are not used: they are for the containers of the tested project.
    os.environ.setdefault("OPENSEARCH_PORT", "0")
    # `docker/` lies beside `engine/`, in the repository and in an installed package.
    file, project = str(Path(__file__).parents[1] / "docker" / "one-node.yml"), f"termweave-tests-{os.getpid()}"
    start = ["pull --policy missing", "up --wait --pull never"]
    remover = subprocess.Popen(  # noqa: S603 - the script above
        ["sh", "-c", _REMOVE],  # noqa: S607 - every system's own
        env=os.environ | {"COMPOSE_FILE": file, "COMPOSE_PROJECT_NAME": project},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal must not reach it
    )
    ended = b"\n"
    try:
        with get_docker_services("docker compose", file, project, start, []) as services:
            yield f"http://127.0.0.1:{services.port_for('opensearch', 9200)}"
    except KeyboardInterrupt:
        ended = b""
        raise
    finally:
        remover.communicate(ended)


def _last_line(text: str) -> str:
    """The last line of Docker's output, which says why Docker gave up."""
    lines = [line for each in text.splitlines() if (line := each.strip(' ."'))]
    return f"{lines[-1]}." if lines else "Docker does not say why."
