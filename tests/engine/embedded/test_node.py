"""The embedded node itself: a genuine server, started as a user starts it, and mistreated."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import jsonschema
import psutil
import pytest

from termweave.engine import connect
from termweave.engine.embedded import node
from termweave.settings import load
from tests.engine.conftest import enterable

pytestmark = pytest.mark.engine
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.fixture(scope="module")
def world():
    """Environment and home of a user of our own."""
    with enterable() as root:
        environment = dict(os.environ) | {"XDG_STATE_HOME": str(root / "state")}
        environment.pop("OPENSEARCH_URL", None)
        home = root / "state" / "termweave" / "node"
        yield environment, home
        node.wipe(home)


@pytest.fixture
def termweave(world, termweave, monkeypatch):
    """Run a verb in this process as the user of this world."""
    monkeypatch.setattr("termweave.support.paths.state", lambda: world[1].parent)
    monkeypatch.setattr(sys, "stdin", StringIO())
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    return termweave


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


def test_status_and_logs_say_so(termweave, two_starts):
    assert valid(termweave("node", "status", "--json"), "node")["state"] == "running"
    assert "running at" in termweave("node", "status")
    assert "started" in termweave("node", "logs", "-n", "50")
    assert len(valid(termweave("node", "logs", "-n", "5", "--json"), "node-logs")["lines"]) == 5


def document(url):
    with connect(load(url=url)) as engine:
        return engine.request("GET", "/kept/_doc/1")["_source"]


@pytest.mark.nightly
def test_a_killed_node_comes_back_at_its_port_and_a_stopped_one_beside_a_taken_port_with_its_data(world, two_starts, termweave):
    _, home = world
    state = node.running(home)
    with connect(load(url=state.url)) as engine:
        engine.request("PUT", "/kept/_doc/1", body={"text": "it stays"}, params={"refresh": True})
    os.kill(state.pid, signal.SIGKILL)
    until = time.monotonic() + 5
    while node.running(home) is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert node.status(home).state == "dead"
    assert "ended without being stopped" in termweave("node", "status")
    again, said = started(world)
    assert "ended without being stopped" in said
    assert again["url"] == state.url
    assert document(again["url"]) == {"text": "it stays"}
    assert termweave("node", "stop") == "Stopped; its data are kept.\n"
    assert termweave("node", "stop") == "It was not running.\n"
    with socket.create_server(("127.0.0.1", state.port)):  # the port is left for another
        again, _ = started(world)
    assert again["url"] != state.url
    assert document(again["url"]) == {"text": "it stays"}


def test_wipe_asks_and_then_removes_everything(world, two_starts, termweave):
    _, home = world
    folder = Path(node.status(home).folder)
    said = termweave("node", "wipe", status=2)  # no answer on standard input
    assert "Remove every index" in said
    assert "--yes" in said
    assert node.running(home) is not None
    assert valid(termweave("node", "wipe", "--yes", "--json"), "node-wipe")["bytes"] > 0
    assert node.status(home) is None
    assert not (folder / "data").exists()
