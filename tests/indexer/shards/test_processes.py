"""Processes of one host: an encoding that is stopped or killed goes on where it was, and leaves nothing half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from .conftest import QUICK, texts
from .test_encode import files

#: `termweave` with small shards, and with Ctrl-C, which is ignored in what a script starts in the background.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from termweave.indexer.preparation import corpus_pass
from termweave.indexer.shards import corpus_encoding
corpus_pass._BLOCK_DOCUMENTS, corpus_encoding._SHARD = 50, 100
if __name__ == "__main__":
    from termweave.cli import main
    main()
"""


@pytest.fixture
def long_corpus(write):
    """Six shards, each of which takes a process some tenths of a second."""
    return write([{**each, "text": 30 * f"{each['text']} "} for each in texts(600)])


@contextmanager
def encoding(path, folder, tmp_path, *, until):
    """Run `termweave encode` in two processes; the body runs as soon as `until(folder)` is true."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "encode", str(path), "--out", str(folder), *QUICK, "--workers", "2"]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while not (folder.exists() and until(folder)):
        assert time.monotonic() < end
        assert child.poll() is None, child.communicate()
        time.sleep(0.005)
    yield child
    child.communicate(timeout=60)


def half_written(folder):
    return list(files(folder, ".shard-"))


@pytest.mark.parametrize("whom", ["command", "all"])
def test_an_encoding_that_is_killed_goes_on_where_it_was_and_cleans_up(encode, tmp_path, monkeypatch, long_corpus, whom):
    """`kill -9` of the command, whose processes then end by themselves, or of everything; a shard is half written at that time."""
    monkeypatch.undo()
    folder = tmp_path / "shards"
    with encoding(long_corpus, folder, tmp_path, until=lambda folder: files(folder, "shard-") and half_written(folder)) as child:
        workers = psutil.Process(child.pid).children(recursive=True)
        os.kill(child.pid, signal.SIGKILL) if whom == "command" else os.killpg(child.pid, signal.SIGKILL)
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert half_written(folder)
    whole = len(files(folder, "shard-"))
    monkeypatch.setattr("termweave.indexer.preparation.corpus_pass._BLOCK_DOCUMENTS", 50)
    monkeypatch.setattr("termweave.indexer.shards.corpus_encoding._SHARD", 100)
    said = encode(long_corpus, folder, "--workers", "1")
    assert said["encoded"]["shards"] == 6 - whole
    encode(long_corpus, tmp_path / "at-once", "--workers", "1")
    assert files(folder) == files(tmp_path / "at-once")


def test_ctrl_c_ends_the_processes_without_a_traceback_and_they_leave_nothing_half_written(tmp_path, long_corpus):
    folder = tmp_path / "shards"
    with encoding(long_corpus, folder, tmp_path, until=half_written) as child:
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all
        said, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Stopped." in said
    assert "Traceback" not in said
    assert half_written(folder) == []


def test_a_process_that_is_killed_ends_the_command_with_a_sentence(tmp_path, long_corpus):
    folder = tmp_path / "shards"
    with encoding(long_corpus, folder, tmp_path, until=half_written) as child:
        workers = [each for each in psutil.Process(child.pid).children() if "spawn_main" in " ".join(each.cmdline())]
        workers[0].kill()
        said, _ = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "A process that encodes was killed." in said
    assert "Traceback" not in said
    assert half_written(folder) == []


def test_two_commands_do_not_encode_to_one_folder(encode, tmp_path, long_corpus):
    folder = tmp_path / "shards"
    with encoding(long_corpus, folder, tmp_path, until=half_written) as child:
        assert "Another command encodes to" in encode(long_corpus, folder, status=2)
        os.killpg(child.pid, signal.SIGKILL)
