"""Processes of one host: one that dies costs its shard, and an encoding that is killed goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from .conftest import QUICK, texts
from .test_encode import files

#: Waits before the shard of that number is renamed, so that a process can be killed in the middle of it.
HOLDS = """
import os, pathlib, signal, sys, time
from termweave.indexer.shards import worker, shard_encoding
encode = shard_encoding.encode
def dies(job, shard, report):
    mark = pathlib.Path(os.environ["MARK"])
    if shard == 1 and not mark.exists():
        def at_once(_):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return encode(job, shard, at_once)
    return encode(job, shard, report)
shard_encoding.encode = dies
sys.exit(worker.main())
"""


def test_a_process_that_dies_costs_its_shard_which_is_tried_again(write, encode, tmp_path, monkeypatch):
    monkeypatch.undo()
    path = write(texts(1_000))
    encode(path, tmp_path / "whole", "--shards", "3", "--processes", "1")
    mark = tmp_path / "killed"
    program = tmp_path / "dying.py"
    program.write_text(HOLDS)
    monkeypatch.setenv("MARK", str(mark))
    started = subprocess.Popen

    def dying(command, **options):
        return started([command[0], str(program)], **options)

    monkeypatch.setattr("termweave.indexer.shards.processes.subprocess.Popen", dying)
    said = encode(path, tmp_path / "shards", "--shards", "3", "--processes", "1")
    assert mark.exists()
    assert said["finished"] == 3
    left = {name: content for name, content in files(tmp_path / "shards", "").items() if not name.startswith(".")}
    assert left == files(tmp_path / "whole", "")


def test_a_process_that_dies_always_is_reported_and_the_others_finish(write, encode, tmp_path, monkeypatch):
    monkeypatch.undo()
    path = write(texts(1_000))
    program = tmp_path / "dying.py"
    program.write_text(HOLDS.replace(" and not mark.exists()", ""))
    monkeypatch.setenv("MARK", str(tmp_path / "killed"))
    started = subprocess.Popen
    monkeypatch.setattr(
        "termweave.indexer.shards.processes.subprocess.Popen",
        lambda command, **options: started([command[0], str(program)], **options),
    )
    said = encode(path, tmp_path / "shards", "--shards", "3", "--processes", "1", status=1)
    assert "1 task of 3 failed (encode 00001): A process was killed by signal 9." in said
    assert "Run the same command again" in said
    assert sorted(name for name in files(tmp_path / "shards", "shard-")) == ["shard-00000.parquet", "shard-00002.parquet"]


def test_an_encoding_that_is_killed_goes_on_where_it_was(write, encode, tmp_path, monkeypatch):
    """The command and its processes are killed as soon as the first shard is whole."""
    monkeypatch.undo()
    path, folder = write(texts(2_500)), tmp_path / "shards"
    encode(path, tmp_path / "whole", "--shards", "5", "--processes", "1")
    command = [sys.executable, "-m", "termweave", "encode", str(path), "--out", str(folder), "--shards", "5", *QUICK]
    child = subprocess.Popen(
        [*command, "--processes", "2"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not files(folder, "shard-") if folder.exists() else True:
        assert time.monotonic() < until
        assert child.poll() is None
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    there = len(files(folder, "shard-"))
    said = encode(path, folder, "--shards", "5", "--processes", "1")
    assert said["encoded"]["shards"] == 5 - there
    left = {name: content for name, content in files(folder, "").items() if not name.startswith(".")}
    assert left == files(tmp_path / "whole", "")


#: `termweave` where Ctrl-C is not ignored, as it is for what a script starts in the background.
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from termweave.cli import main; main()"


def test_ctrl_c_ends_the_processes_without_a_traceback_and_they_leave_nothing_half_written(write, tmp_path):
    path, folder = write([{**each, "text": each["text"] * 40} for each in texts(20_000)]), tmp_path / "shards"
    command = [sys.executable, "-c", INTERRUPTIBLE, "encode", str(path), "--out", str(folder), "--shards", "2", *QUICK]
    child = subprocess.Popen(
        [*command, "--processes", "2"], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until = time.monotonic() + 120
    while not files(folder, ".entries") if folder.exists() else True:  # both read the corpus
        assert time.monotonic() < until
        assert child.poll() is None
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Stopped." in said
    assert "Traceback" not in said
    assert files(folder, ".") == {}
