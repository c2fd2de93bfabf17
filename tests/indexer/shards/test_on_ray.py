"""Shards on a Ray cluster of this host: the bytes are those of one process, and what is killed costs its shards alone."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from .conftest import QUICK, texts
from .test_encode import files

pytest.importorskip("ray", reason="the extra 'ray' is not installed")

#: `termweave` with small shards that take a while. Where KILL is set, the first worker that begins the second shard kills itself, once.
PROGRAM = """
from termweave.cli import main
from termweave.indexer.preparation import corpus_pass
from termweave.indexer.shards import corpus_encoding

class Slow(corpus_encoding.ShardEncoder):
    def __call__(self, batch):
        import os, pathlib, signal, time
        time.sleep(0.3)
        mark = pathlib.Path(os.environ["KILL"])
        if mark.name and batch["file"][0] == "shard-000001.parquet" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)

if __name__ == "__main__":
    corpus_pass._BLOCK_DOCUMENTS, corpus_encoding._SHARD, corpus_encoding.ShardEncoder = 8, 16, Slow
    main()
"""


@contextmanager
def encoding(path, folder, tmp_path, *, kill=""):
    """Run `termweave encode`."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "encode", str(path), "--out", str(folder), *QUICK]
    environment = {**os.environ, "KILL": str(kill), "PYTHONWARNINGS": "ignore"}
    environment.pop("RAY_ADDRESS", None)
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, start_new_session=True, env=environment, **output) as child:
        yield child


def until(condition, child):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)


def test_a_worker_that_is_killed_costs_its_shard_alone(write, encode, tmp_path):
    path, mark = write(texts(100)), tmp_path / "killed"
    encode(path, tmp_path / "here")
    with encoding(path, tmp_path / "ray", tmp_path, kill=mark) as child:
        said, _ = child.communicate(timeout=200)
    assert child.returncode == 0, said
    assert mark.exists()
    assert files(tmp_path / "ray") == files(tmp_path / "here")


def test_an_encoding_that_is_killed_ends_its_processes_and_goes_on_where_it_was(write, encode, tmp_path):
    path, folder = write(texts(160)), tmp_path / "shards"
    with encoding(path, folder, tmp_path) as child:
        until(lambda: files(folder, "shard-") if folder.exists() else (), child)
        assert "Another command encodes to" in encode(path, folder, status=2)
        # Ray's agents look for their cluster for a minute before they end.
        started = [each for each in psutil.Process(child.pid).children(recursive=True) if "Agent" not in each.name()]
        child.kill()
        child.communicate(timeout=100)
    assert psutil.wait_procs(started, timeout=60)[1] == []
    whole = len(files(folder, "shard-"))
    assert 0 < whole < 10
    assert encode(path, folder)["encoded"]["shards"] == 10 - whole
    encode(path, tmp_path / "at-once")
    assert files(folder) == files(tmp_path / "at-once")
