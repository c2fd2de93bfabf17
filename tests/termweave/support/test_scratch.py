"""What a killed process leaves in the temporary folder is removed by the next one; what a living one works with stays."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile

import pytest

from termweave.support import private_files

_READ = (
    "import time; from termweave.corpora import open_source; source = open_source('-'); print('read', flush=True); time.sleep(60)"
)
LINES = b'{"_id": "a", "text": "the text of a document"}\n'


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
