"""The embedded node itself: a genuine server, started as a user starts it, and mistreated."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import jsonschema
import psutil
import pytest

from termweave.cli import run
from termweave.engine import connect
from termweave.engine.embedded import node
from termweave.settings import load

pytestmark = pytest.mark.engine
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.fixture(scope="module")
def world(shared_open_tmp):
    """Environment and home of a user of our own."""
    root = shared_open_tmp
    environment = dict(os.environ) | {"XDG_STATE_HOME": str(root / "state")}
    environment.pop("OPENSEARCH_URL", None)
    home = root / "state" / "termweave" / "node"
    yield environment, home
    node.wipe(home)


def termweave(world, *arguments):
    """Run a verb in this process as the user of this world; returns its status, output and errors."""
    _, home = world
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        patch.setattr("termweave.support.paths.state", lambda: home.parent)
        patch.setattr(sys, "stdin", StringIO())
        patch.delenv("OPENSEARCH_URL", raising=False)
        status = run(list(arguments))
    return status, output.getvalue(), errors.getvalue()


def valid(text, schema):
    """What a command printed, held to its schema."""
    data = json.loads(text)
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.1.json").read_text()))
    return data


def started(world):
    """Start the node by a command of its own; returns its state, and what was said."""
    environment, _ = world
    command = [sys.executable, "-m", "termweave", "node", "start", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def two_starts(world):
    """Two users' commands at the same moment."""
    with ThreadPoolExecutor(2) as pool:
        return [each.result() for each in [pool.submit(started, world) for _ in range(2)]]


def test_two_starts_at_once_give_one_node_and_tell_the_second(world, two_starts):
    (one, said_one), (other, said_other) = two_starts
    assert one["url"] == other["url"]
    assert one["nodes"][0]["pid"] == other["nodes"][0]["pid"]
    assert sum("Waiting for another command: start (process" in said for said in (said_one, said_other)) == 1
    assert sum("answers at" in said for said in (said_one, said_other)) == 1


def test_it_is_the_genuine_server_on_loopback_and_outlives_the_command(world, two_starts):
    _, home = world
    state = node.running(home)
    assert state.state == "running"
    with connect(load(url=state.url)) as engine:
        can = engine.capabilities
        assert (can.version, can.knn, can.neural_sparse) == ("3.6.0", True, True)
    process = psutil.Process(state.pid)
    listening = {each.laddr.ip for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    if os.name == "posix":
        assert process.uids().real != 0


def test_status_and_logs_say_so(world, two_starts):
    _, stdout, _ = termweave(world, "node", "status", "--json")
    assert valid(stdout, "node")["state"] == "running"
    assert "running at" in termweave(world, "node", "status")[1]
    assert "started" in termweave(world, "node", "logs", "-n", "50")[1]
    assert len(valid(termweave(world, "node", "logs", "-n", "5", "--json")[1], "node-logs")["lines"]) == 5


def document(url):
    with connect(load(url=url)) as engine:
        return engine.request("GET", "/kept/_doc/1")["_source"]


@pytest.mark.nightly
def test_a_killed_node_comes_back_at_its_port_and_a_stopped_one_beside_a_taken_port_with_its_data(world, two_starts):
    _, home = world
    state = node.running(home)
    with connect(load(url=state.url)) as engine:
        engine.request("PUT", "/kept/_doc/1", body={"text": "it stays"}, params={"refresh": True})
    os.kill(state.pid, signal.SIGKILL)
    until = time.monotonic() + 5
    while node.running(home) is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert node.status(home).state == "dead"
    assert "ended without being stopped" in termweave(world, "node", "status")[1]
    again, said = started(world)
    assert "ended without being stopped" in said
    assert again["url"] == state.url
    assert document(again["url"]) == {"text": "it stays"}
    assert termweave(world, "node", "stop")[:2] == (0, "Stopped; its data are kept.\n")
    assert termweave(world, "node", "stop")[1] == "It was not running.\n"
    with socket.create_server(("127.0.0.1", state.port)):  # the port is left for another
        again, _ = started(world)
    assert again["url"] != state.url
    assert document(again["url"]) == {"text": "it stays"}


def test_wipe_asks_and_then_removes_everything(world, two_starts):
    _, home = world
    folder = Path(node.status(home).folder)
    code, _, stderr = termweave(world, "node", "wipe")  # no answer on standard input
    assert code == 2
    assert "Remove every index" in stderr
    assert "--yes" in stderr
    assert node.running(home) is not None
    assert valid(termweave(world, "node", "wipe", "--yes", "--json")[1], "node-wipe")["bytes"] > 0
    assert node.status(home) is None
    assert not (folder / "data").exists()
