"""`encode --on ray` on a local cluster: the same bytes, and a worker that is killed costs its shard alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import QUICK, texts
from .test_encode import files

pytest.importorskip("ray", reason="the extra 'ray' is not installed")

#: Encodes on a cluster of this host. Where KILL is set, the first worker that begins the second shard kills itself, once.
PROGRAM = """
import os
from termweave.cli import main
from termweave.indexer.shards import on_ray

class KilledOnce(on_ray._Actor):
    def __call__(self, batch):
        import os, pathlib, signal
        mark = pathlib.Path(os.environ["KILL"])
        if batch["file"][0] == "shard-000001.parquet" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)

if __name__ == "__main__":
    if os.environ.get("KILL"):
        on_ray._Actor = KilledOnce
    main()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("killed", [False, True])
def test_shards_have_the_same_bytes_on_a_cluster(write, encode, tmp_path, monkeypatch, killed):
    monkeypatch.undo()
    path, program, mark = write(texts(4_000)), tmp_path / "program.py", tmp_path / "killed"
    encode(path, tmp_path / "here", "--workers", "1")
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "encode", str(path), "--out", str(tmp_path / "ray"), *QUICK, "--on", "ray"]
    environment = {**os.environ, "KILL": str(mark) if killed else "", "PYTHONWARNINGS": "ignore"}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert mark.exists() == killed
    assert files(tmp_path / "ray") == files(tmp_path / "here")
