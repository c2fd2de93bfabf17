"""What goes wrong around the embedded node ends in one clear sentence. No server is needed: the faults come before it."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from termweave.engine.embedded import artifacts, folders, node, process
from termweave.engine.embedded import state as states
from termweave.engine.embedded.state import NodeState
from termweave.errors import EngineUnreachable, TermweaveError, UsageError

LOCKS = "failed to obtain node locks, tried [[/x]]"
HOLD = """
import sys, time
from pathlib import Path
from termweave.engine.embedded import state
with state.locked(Path(sys.argv[1]), purpose="start", patience=1, say=print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def home(open_tmp, monkeypatch):
    """A home that the server's user may enter, with an unpacked "server" of which only the configuration exists."""
    server = open_tmp / "server"
    (server / "config").mkdir(parents=True)
    monkeypatch.setattr(artifacts, "distribution", lambda *_, **__: server)
    place = open_tmp / "home"
    yield place
    node.stop(place)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("java.nio.file.FileSystemException: No space left on device", "the disk is full"),
        ("Error occurred during initialization of VM: Could not reserve enough space for object heap", "not enough memory"),
        (LOCKS, "another server uses its data folder"),
        (f"{LOCKS}\nCaused by: java.nio.file.AccessDeniedException: /x", "no permission to use one of its"),
        (f"{LOCKS}\nCaused by: java.io.IOException: Mount point not found", "chroot"),
        ("JVM arguments [-XX:+ExitOnOutOfMemoryError]\nIllegalArgumentException: unknown setting [foo]", r"setting \[foo\]"),
        ("java.lang.OutOfMemoryError: Java heap space", "heap is too small"),
        ("", "it logged no error"),
    ],
)
def test_a_server_that_dies_at_start_says_why(home, make_java, only_these_javas, words, sentence):
    only_these_javas(make_java(run=f"echo '{words}'; exit 1"))
    with pytest.raises(TermweaveError, match=sentence) as caught:
        node.start(home=home)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert node.running(home) is None
    assert node.status(home).state == "stopped"


def test_a_start_that_lost_its_port_tries_others(home, make_java, only_these_javas, monkeypatch):
    drawn = iter(random.sample(node._PORTS, len(node._PORTS)))
    monkeypatch.setattr(random, "sample", lambda *_: drawn)  # each port once: by chance two tries could draw the same
    taken = 'cat "$OPENSEARCH_PATH_CONF/opensearch.yml" >> "$OPENSEARCH_PATH_CONF/../../logs/tried"'
    only_these_javas(make_java(run=f"{taken}; echo 'java.net.BindException: Address already in use'; exit 1"))
    for _ in range(2):
        with pytest.raises(TermweaveError, match="port is taken"):
            node.start(home=home)
    ports = re.findall(r"^(?:http|transport)\.port: (\d+)$", (home / "logs" / "tried").read_text(), re.MULTILINE)
    assert len(ports) == 12  # two starts of three tries, two ports each
    # The second start begins with the ports of the first one's last try. Two tries may draw the same port, but hardly twice.
    assert len(set(ports)) in {9, 10}
    assert all(20_000 <= int(port) < 32_768 for port in ports)


def test_a_busy_port_is_refused_and_a_server_that_hangs_is_given_up_and_ended(home, make_java, only_these_javas):
    only_these_javas(make_java(run="trap 'kill $!; exit' TERM; sleep 60 & wait"))
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(TermweaveError, match=f"Port {port} is taken"):
            node.start(home=home, port=port)
    with pytest.raises(EngineUnreachable, match="did not become ready in 1 s"):
        node.start(home=home, patience=1)
    assert node.status(home).state == "stopped"
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(home) in " ".join(each.info["cmdline"] or ())]


def test_a_full_disk_is_said_before_anything_starts(make_java, only_these_javas, small_disk):
    only_these_javas(make_java())
    with pytest.raises(TermweaveError, match=r"MB free, and a node needs"):
        node.start(home=small_disk / "home")


@contextmanager
def noted(home, *arguments):
    """A process with these arguments, of which the state file says that it is that of a running node."""
    home.mkdir()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *arguments])
    try:
        states.write(home, NodeState("3.6.0", process.pid, 2, 3, "running", str(folders.run_folder(home)), heap=512))
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_stale_pid_file_is_not_believed_and_its_new_owner_not_killed(home):
    with noted(home) as stranger:
        assert node.running(home) is None
        assert node.status(home).state == "dead"
        node.stop(home)
        assert stranger.poll() is None
        assert node.status(home).state == "stopped"
    for damaged in ('{"url": "http://', '{"nodes": []}'):
        states.state_file(home).write_text(damaged)
        assert node.status(home) is None
        assert node.stop(home) is None


def test_a_second_start_waits_is_told_who_and_goes_on_when_the_first_is_killed(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        said = []
        impatient = states.locked(tmp_path, purpose="stop", patience=0.3, say=said.append)
        with pytest.raises(TermweaveError, match=rf"start \(process {holder.pid}\)"), impatient:
            pass
        assert str(holder.pid) in said[0]
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with states.locked(tmp_path, purpose="start", patience=5, say=said.append):
            assert "start" in (tmp_path / "lock").read_text()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops its rights")
def test_roots_private_folders_are_left_for_ones_the_server_can_enter(tmp_path):
    (tmp_path / "private").mkdir(mode=0o700)
    private, elsewhere = (place(tmp_path / "private" / "node") for place in (Path, folders.run_folder))
    assert [folders.reachable(each, folders.UNPRIVILEGED) for each in (private, elsewhere)] == [False, True]


def test_the_heap_of_the_last_start_is_kept(home, make_java, only_these_javas):
    only_these_javas(make_java(run='echo "$@"; exit 1'))
    for heap in (300, None):
        with pytest.raises(TermweaveError, match="ended while it started"):
            node.start(home=home, heap=heap)
        layout = process.Layout(folders.run_folder(home))
        assert "-Xmx300m" in layout.output.read_text()
    node.wipe(home)
    with pytest.raises(TermweaveError, match="ended while it started"):
        node.start(home=home)
    assert "-Xmx300m" not in layout.output.read_text()


def test_memory_is_checked_with_the_heap_of_the_last_start_too(monkeypatch):
    monkeypatch.setattr(node, "total_and_available", lambda: (4 * 2**30, 10**9))
    assert node.heap_size(1024) == 1024
    monkeypatch.setattr(node, "total_and_available", lambda: (4 * 2**30, 10**8))
    assert node.heap_size(300) == 300  # asked for where there is little
    with pytest.raises(TermweaveError, match=r"the server needs 700 MB"):
        node.heap_size(1024)


@pytest.mark.parametrize(
    "stat",
    ["total_active_file 200\ntotal_inactive_file 500\nactive_file 1\n", "anon 90\nactive_file 200\ninactive_file 500\n"],
    ids=["version 1", "version 2"],
)
def test_the_page_cache_of_a_container_is_free(tmp_path, monkeypatch, stat):
    files = [tmp_path / name for name in ("limit", "used", "stat")]
    for file, content in zip(files, ("1000\n", "990\n", stat), strict=True):
        file.write_text(content)
    monkeypatch.setattr(node, "_GROUPS", (files,))
    assert node.total_and_available() == (1000, 710)


def test_a_running_node_stays_as_it_is(home):
    with noted(home, f"-Dopensearch.path.conf={process.Layout(folders.run_folder(home)).conf}"):
        for other, difference in (({"ml": True}, "without ml-commons"), ({"port": 1}, "at http"), ({"heap": 300}, "with 512 MB")):
            with pytest.raises(UsageError, match=f"running already, {difference}"):
                node.start(home=home, **other)
        with pytest.raises(UsageError, match="10 MB of heap"):
            node.start(home=home, heap=10)
        assert node.start(home=home).ml is False
