"""`encode --on ray` on a local cluster of two workers: the same bytes, and a worker that is killed costs its shard alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import QUICK, texts
from .test_encode import files

pytest.importorskip("ray", reason="the extra 'ray' is not installed")

#: Encodes on a cluster of two workers. Where KILL is set, the first worker that begins shard 1 kills itself, once.
PROGRAM = """
import os, sys
from unittest import mock
from termweave.cli import main
from termweave.indexer.shards import on_ray

def killed_once(content):
    import os, pathlib, signal
    from termweave.indexer.shards.worker import Task
    task, mark = Task.from_json(content), pathlib.Path(os.environ["KILL"])
    if task.what == "encode" and 1 in task.shards and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return on_ray_performed(content)

if __name__ == "__main__":
    import ray, ray.cloudpickle
    if os.environ.get("KILL"):
        on_ray_performed = on_ray._performed
        on_ray._performed = killed_once
    once = on_ray.RayCluster.__init__
    on_ray.RayCluster.__init__ = lambda self: once(self, workers=2)
    main()
"""


def encoded(folder, path, tmp_path, *, kill=""):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "encode", str(path), "--out", str(folder), "--shards", "4", *QUICK, "--on", "ray"]
    environment = {**os.environ, "KILL": kill, "PYTHONWARNINGS": "ignore"}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 shards, 1,500 documents" in done.stdout
    return done.stderr


@pytest.mark.exhaustive
def test_shards_have_the_same_bytes_on_a_cluster(write, encode, tmp_path, monkeypatch):
    monkeypatch.undo()
    path = write(texts(1_500))
    encode(path, tmp_path / "here", "--shards", "4", "--processes", "1")
    encoded(tmp_path / "ray", path, tmp_path)
    assert files(tmp_path / "ray", "") == files(tmp_path / "here", "")


@pytest.mark.exhaustive
def test_a_worker_that_is_killed_costs_its_shard_alone(write, encode, tmp_path, monkeypatch):
    monkeypatch.undo()
    path, mark = write(texts(1_500)), tmp_path / "killed"
    encode(path, tmp_path / "here", "--shards", "4", "--processes", "1")
    encoded(tmp_path / "ray", path, tmp_path, kill=str(mark))
    assert mark.exists()
    assert files(tmp_path / "ray", "") == files(tmp_path / "here", "")
