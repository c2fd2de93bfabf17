"""Files of one host: written whole, private to their owner, locked by one process, and removed after a process that was killed."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from termweave.support import atomic_files, private_files
from termweave.support.file_locks import Held, noted, one_at_a_time

_READ = (
    "import time; from termweave.corpora import open_source; source = open_source('-'); print('read', flush=True); time.sleep(60)"
)
LINES = b'{"_id": "a", "text": "the text of a document"}\n'


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path):
    file = tmp_path / "kept.json"
    atomic_files.write(file, b"old")
    if os.geteuid():
        tmp_path.chmod(0o500)
    else:  # root may write everywhere: a folder cannot be replaced by a file
        file.unlink()
        file.mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match=r"kept\.json"):
        atomic_files.write(file, b"new")
    assert sorted(tmp_path.iterdir()) == before
    tmp_path.chmod(0o700)


def test_what_a_killed_writer_left_is_known_for_it(tmp_path, monkeypatch):
    file = tmp_path / "run.json"
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)  # as if it were killed there
    with pytest.raises(ZeroDivisionError):
        atomic_files.write(file, b"{}")
    (beside,) = tmp_path.iterdir()
    assert [atomic_files.left_over(file, other) for other in (beside, file, tmp_path / "notes.txt")] == [True, False, False]


def test_threads_may_write_one_file(tmp_path):
    file = tmp_path / "note.json"

    def write(letter):
        for _ in range(200):
            atomic_files.write(file, letter * 20_000)
            assert len(set(file.read_bytes())) == 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (b"a", b"b")))
    assert len(file.read_bytes()) == 20_000
    assert list(tmp_path.iterdir()) == [file]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous_umask")
def test_folders_and_files_are_made_for_their_owner_alone(tmp_path):
    folder = tmp_path / "above" / "private"
    private_files.make_folder(folder)
    private_files.make_file(folder / "file")
    atomic_files.write(folder / "whole", b"content", private=True)
    atomic_files.write(folder / "model.json", b"{}")
    made = (folder, *(folder / name for name in ("file", "whole", "model.json")))
    assert [mode(path) for path in made] == [0o700, 0o600, 0o600, 0o666]
    assert mode(folder.parent) == 0o777  # other things may lie there
    open_folder, shared = tmp_path / "folder", tmp_path / "shared"
    open_folder.mkdir()
    shared.write_text("before")
    for path in (tmp_path / "new", shared):
        with private_files.open_private(path, encoding="utf-8") as file:
            file.write("after")
    assert (mode(tmp_path / "new"), mode(shared)) == (0o600, 0o666)
    assert shared.read_text() == "after"
    private_files.make_folder(open_folder)
    private_files.make_file(shared)
    assert (mode(open_folder), mode(shared), shared.read_text()) == (0o700, 0o600, "after")
    with private_files.open_private(Path(os.devnull), "wb") as file:
        file.write(b"nothing")


def test_who_waited_for_a_file_that_was_removed_holds_the_one_that_is_there(tmp_path):
    """The first holder's file goes while the second waits for it; a third must not find another one free."""
    path, waits, holds, done = tmp_path / "lock", threading.Event(), threading.Event(), threading.Event()

    def second():
        with one_at_a_time(path, waits.set):
            holds.set()
            assert done.wait(60)

    with ThreadPoolExecutor(1) as threads:
        with one_at_a_time(path, lambda: None):
            run = threads.submit(second)
            assert waits.wait(60)
        assert holds.wait(60)
        try:
            with path.open("a") as third, pytest.raises(BlockingIOError):
                fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            done.set()
        run.result(60)
    assert not path.exists()


def test_a_lock_says_who_holds_it_and_nothing_of_those_who_did(tmp_path):
    path = tmp_path / "lock"
    for note in ("the first", "2nd"):
        with noted(path, note):
            for _ in range(2):  # whoever is refused leaves the note as it is
                with pytest.raises(Held) as caught, noted(path, "another"):
                    pytest.fail("two hold it")
                assert caught.value.note == note
        assert path.read_text() == ""


@pytest.fixture
def reading(tmp_path):
    """Start a process that reads its standard input into a copy, and holds the copy."""
    running = []

    def start():
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", _READ], env=environment, **pipes)
        running.append(process)
        process.stdin.write(LINES)
        process.stdin.close()
        assert process.stdout.readline() == b"read\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def copies(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_next_run_removes_what_a_killed_one_left(reading, tmp_path):
    killed, living = reading(), reading()
    assert [path.read_bytes() for path in copies(tmp_path)] == [LINES, LINES]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o700}
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(copies(tmp_path)) == 2
    reading()
    assert len(copies(tmp_path)) == 2  # of the living one and the new one
    assert living.poll() is None
    living.send_signal(signal.SIGINT)
    living.wait()
    assert len(copies(tmp_path)) == 1  # it cleaned up itself


def test_links_and_other_folders_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = tmp_path / "termweave-ml-1"
    others.mkdir()
    (tmp_path / "termweave-scratch-link").symlink_to(others)
    (tmp_path / "termweave-scratch-file").write_text("a file of somebody")
    (tmp_path / "termweave-scratch-abandoned").mkdir()
    home = private_files.scratch()
    assert private_files.scratch() == home
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"termweave-ml-1", "termweave-scratch-link", "termweave-scratch-file", home.name}
    home.rmdir()  # as somebody who empties the temporary folder
    assert private_files.scratch().is_dir()


def test_a_fork_leaves_the_folder_of_its_parent(tmp_path):
    code = (
        "import os; from termweave.support import private_files; home = private_files.scratch()\n"
        "if os.fork() == 0: raise SystemExit(private_files.scratch() == home)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]), home.is_dir())"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert done.stdout == b"0 True\n"
    assert not list(tmp_path.iterdir())
