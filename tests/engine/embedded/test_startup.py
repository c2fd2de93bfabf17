"""What goes wrong around the embedded node ends in one clear sentence. No server is needed: the faults come before it."""

from __future__ import annotations

import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from termweave.engine.embedded import artifacts, folders, node, process, startup
from termweave.engine.embedded import state as states
from termweave.engine.embedded.state import NodeProcess, NodeState
from termweave.errors import EngineUnreachable, TermweaveError, UsageError


@pytest.fixture
def home(open_tmp, monkeypatch):
    """A home that the server's user may enter, with an unpacked "server" of which only the configuration exists."""
    server = open_tmp / "server"
    (server / "config").mkdir(parents=True)
    monkeypatch.setattr(artifacts, "distribution", lambda *_, **__: server)
    place = open_tmp / "home"
    yield place
    node.stop(place)


def dying(make_java, only_these_javas, words, *, status=1):
    only_these_javas(make_java(run=f"echo '{words}'; exit {status}"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("java.nio.file.FileSystemException: No space left on device", "the disk is full"),
        ("Error occurred during initialization of VM: Could not reserve enough space for object heap", "not enough memory"),
        ("failed to obtain node locks, tried [[/x]]", "in use by another server"),
        (
            "failed to obtain node locks, tried [[/x]]\nCaused by: java.nio.file.AccessDeniedException: /x",
            "no permission to use one of its",
        ),
        ("failed to obtain node locks, tried [[/x]]\nCaused by: java.io.IOException: Mount point not found", "chroot"),
        (
            "JVM arguments [-XX:+ExitOnOutOfMemoryError]\njava.lang.IllegalArgumentException: unknown setting [foo]",
            r"unknown setting \[foo\]",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "heap is too small"),
        ("", "it logged no error"),
    ],
)
def test_a_server_that_dies_at_start_says_why(home, make_java, only_these_javas, words, sentence):
    dying(make_java, only_these_javas, words)
    with pytest.raises(TermweaveError, match=sentence) as caught:
        node.start(home=home)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert node.running(home) is None
    assert node.status(home).state == "stopped"


def test_a_start_that_lost_its_port_tries_others(home, make_java, only_these_javas, monkeypatch):
    drawn = iter(random.sample(startup._PORTS, len(startup._PORTS)))
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


def test_a_port_that_was_asked_for_and_is_busy(home, make_java, only_these_javas):
    only_these_javas(make_java())
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(TermweaveError, match=f"Port {port} is taken"):
            node.start(home=home, port=port)


def test_a_server_that_hangs_is_given_up_and_ended(home, make_java, only_these_javas):
    only_these_javas(make_java(run="trap 'kill $!; exit' TERM; sleep 60 & wait"))
    with pytest.raises(EngineUnreachable, match="did not become ready in 1 s"):
        node.start(home=home, patience=1)
    assert node.status(home).state == "stopped"
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(home) in " ".join(each.info["cmdline"] or ())]


def test_no_java_at_all(home, only_these_javas, no_network, monkeypatch, tmp_path):
    only_these_javas()
    monkeypatch.setattr(folders, "jdk_cache", lambda: tmp_path / "jdk")
    with pytest.raises(TermweaveError, match="JDK"):
        node.start(home=home)


def test_a_full_disk_is_said_before_anything_starts(make_java, only_these_javas, small_disk):
    only_these_javas(make_java())
    with pytest.raises(TermweaveError, match=r"MB free, and a node needs"):
        node.start(home=small_disk / "home")


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"nodes": 9}, {"heap": 10}])
def test_numbers_that_cannot_be(home, wrong):
    with pytest.raises(UsageError):
        node.start(home=home, **wrong)


def stale(home, pid, state="running"):
    home.mkdir(parents=True, exist_ok=True)
    states.write(home, NodeState("http://127.0.0.1:1", "3.6.0", (NodeProcess("node-1", pid, 1, 2),), state, str(home)))


def test_a_stale_pid_file_is_not_believed_and_its_new_owner_not_killed(home):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stale(home, stranger.pid)
        assert node.running(home) is None
        assert node.status(home).state == "dead"
        node.stop(home)
        assert stranger.poll() is None
        assert node.status(home).state == "stopped"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_that_was_never_started_is_no_other_child(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not process.Layout(tmp_path, "node-2").mine(NodeProcess("node-2", 0, 1, 2))
    assert child.wait() == 3


def test_a_pid_that_is_gone_is_dead(home):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stale(home, gone.pid)
    assert node.status(home).state == "dead"


def test_a_damaged_state_file_counts_as_none(home):
    home.mkdir()
    states.state_file(home).write_text('{"url": "http://')
    assert node.status(home) is None
    assert node.stop(home) is None


def test_data_of_a_cluster_are_not_started_with_fewer_processes(home):
    home.mkdir()
    nodes = tuple(NodeProcess(f"node-{number}", 999_999_9, number, number) for number in (1, 2, 3))
    states.write(home, NodeState("http://127.0.0.1:1", "3.6.0", nodes, "stopped", str(home)))
    (home / "data").mkdir()
    with pytest.raises(UsageError, match="cluster of 3 processes") as caught:
        node.start(home=home, nodes=1)
    assert "wipe" in caught.value.hint


HOLD = """
import sys, time
from pathlib import Path
from termweave.engine.embedded import state
with state.locked(Path(sys.argv[1]), purpose="start", patience=1, say=print):
    print("held", flush=True)
    time.sleep(60)
"""


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


def test_a_holder_that_has_not_yet_written_its_name_is_named_all_the_same(tmp_path):
    def name_yourself():
        time.sleep(0.5)
        (tmp_path / "lock").write_text("start (process 4711)")

    with (tmp_path / "lock").open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = []
        threading.Thread(target=name_yourself).start()

        def told(sentence):
            said.append(sentence)
            fcntl.flock(held, fcntl.LOCK_UN)

        with states.locked(tmp_path, purpose="stop", patience=60, say=told):
            pass
    assert said == ["Waiting for another command: start (process 4711)."]


def test_two_threads_exclude_each_other_too(tmp_path):
    held, let_go = threading.Event(), threading.Event()

    def hold():
        with states.locked(tmp_path, purpose="start", patience=1, say=print):
            held.set()
            let_go.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(60)
    impatient = states.locked(tmp_path, purpose="start", patience=0, say=lambda _: None)
    with pytest.raises(TermweaveError, match="busy"), impatient:
        pass
    # Whoever has patience is told of the holder, and has the lock when that lets go: the wait is real.
    with states.locked(tmp_path, purpose="start", patience=60, say=lambda _: let_go.set()):
        assert let_go.is_set()
    holder.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops its rights")
def test_roots_private_folders_are_left_for_ones_the_server_can_enter(tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert not folders.reachable(private / "node", folders.UNPRIVILEGED)
    elsewhere = folders.run_folder(private / "node")
    assert not elsewhere.is_relative_to(private)
    assert folders.reachable(elsewhere, folders.UNPRIVILEGED)


def test_the_tail_of_a_log_is_short_and_forgiving(tmp_path):
    log = tmp_path / "log"
    assert process.tail(log, 5) == ""
    log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(100_000)))
    assert process.tail(log, 2).splitlines()[-1].startswith("line 99999")
    assert len(process.tail(log, 2).splitlines()) == 2


def test_the_heap_of_the_last_start_is_kept(home, make_java, only_these_javas):
    only_these_javas(make_java(run='echo "$@"; exit 1'))
    for heap in (300, None):
        with pytest.raises(TermweaveError, match="ended while it started"):
            node.start(home=home, heap=heap)
        layout = process.Layout(folders.run_folder(home), "node-1")
        assert "-Xmx300m" in layout.output.read_text()
    node.wipe(home)
    with pytest.raises(TermweaveError, match="ended while it started"):
        node.start(home=home)
    assert "-Xmx300m" not in layout.output.read_text()


def test_a_start_of_three_that_fails_leaves_one_process_with_its_data(home, make_java, only_these_javas):
    """Only node-1 comes up, and never as a cluster of more."""
    only_these_javas(make_java(run="""case "$*" in *node-1*) trap 'kill $!; exit' TERM; sleep 60 & wait;; *) exit 1;; esac"""))
    home.mkdir()
    root = folders.run_folder(home)
    (root / "data" / "node-1").mkdir(parents=True)
    nodes = (NodeProcess("node-1", 9_999_999, 1, 2),)
    states.write(home, NodeState("http://127.0.0.1:1", "3.6.0", nodes, "stopped", str(root), heap=600))
    with pytest.raises(TermweaveError, match="ended while it started"):
        node.start(home=home, nodes=3)
    assert [each.name for each in node.status(home).nodes] == ["node-1"]
    with pytest.raises(EngineUnreachable, match=r"1 of 1|0 of 1"):
        node.start(home=home, nodes=1, patience=1)


def test_memory_is_checked_with_the_heap_of_the_last_start_too(monkeypatch):
    monkeypatch.setattr(startup, "total_and_available", lambda: (4 * 2**30, 10**9))
    assert startup.heap_size(1, 1024) == 1024
    assert startup.heap_size(3, 300) == 300  # asked for where there is little
    with pytest.raises(TermweaveError, match=r"3 server processes need 2\.1 GB"):
        startup.heap_size(3, 1024)


@pytest.mark.parametrize("version", [1, 2])
def test_the_page_cache_of_a_container_is_free(tmp_path, monkeypatch, version):
    stat = (
        "total_active_file 200\ntotal_inactive_file 500\nactive_file 1\n"
        if version == 1
        else "anon 90\nactive_file 200\ninactive_file 500\n"
    )
    files = [tmp_path / name for name in ("limit", "used", "stat")]
    for file, content in zip(files, ("1000\n", "990\n", stat), strict=True):
        file.write_text(content)
    monkeypatch.setattr(startup, "_GROUPS", (files,))
    assert startup.total_and_available() == (1000, 710)


def test_a_process_of_the_cluster_that_dies_while_another_starts_is_named_at_once(home, make_java, only_these_javas):
    only_these_javas(make_java(run="trap 'kill $!; exit' TERM; sleep 60 & wait"))
    first = process.Layout(folders.run_folder(home), "node-1")
    ours = ["-c", "import time; time.sleep(3)", f"-Dopensearch.path.conf={first.conf}"]
    running = subprocess.Popen([sys.executable, *ours])
    nodes = (NodeProcess("node-1", running.pid, 1, 2), NodeProcess("node-2", running.pid, 3, 4))
    home.mkdir()
    states.write(home, NodeState("http://127.0.0.1:1", "3.6.0", nodes, "running", str(folders.run_folder(home)), heap=300))
    assert node.status(home).state == "degraded"
    began = time.monotonic()
    with pytest.raises(TermweaveError, match="process node-1, which ran before, ended while the others started"):
        node.start(home=home, patience=60)
    assert time.monotonic() - began < 30
    running.wait()


def test_a_running_node_does_not_get_a_plugin(home):
    first = process.Layout(folders.run_folder(home), "node-1")
    running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)", f"-Dopensearch.path.conf={first.conf}"])
    home.mkdir()
    nodes = (NodeProcess("node-1", running.pid, 1, 2),)
    states.write(home, NodeState("http://127.0.0.1:1", "3.6.0", nodes, "running", str(folders.run_folder(home))))
    try:
        with pytest.raises(UsageError, match="running already, without ml-commons"):
            node.start(home=home, ml=True)
        assert node.start(home=home).ml is False
    finally:
        running.kill()
        running.wait()
