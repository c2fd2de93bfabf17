"""Runs of `termweave train` that were stopped, killed, resumed or refused."""

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from termweave.errors import InputError
from termweave.support import file_locks
from termweave.training import backbone_model
from termweave.training import run as running
from termweave.training.data.sampler import BatchSampler
from termweave.training.methods import base as methods
from termweave.training.trainer import checkpoints
from tests.training.conftest import SMALL, train

pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(("steps=35", "start={first}", "keep=0.3"), marks=pytest.mark.nightly),
        ("epochs=1", "every=5", "top_layers=2", "batch=6", "anchor=none", "hidden=0", "shared=true"),
    ],
    ids=["frozen", "layers"],
)
def test_stopped_and_resumed_is_the_same_model(capsys, folder, base, tmp_path, monkeypatch, sets):
    train(capsys, folder, base, tmp_path / "first", settings=(*SMALL, "steps=5", "seed=7"))
    sets = [each.format(first=tmp_path / "first") for each in (*SMALL, *sets)]
    whole = train(capsys, folder, base, tmp_path / "whole", settings=sets)

    draw, at = BatchSampler.draw, {}

    def dies(self, step):
        if step == at.get("dies"):
            raise RuntimeError("the machine went away")
        if step == at.get("asked"):
            os.kill(os.getpid(), signal.SIGINT)
        return draw(self, step)

    monkeypatch.setattr(BatchSampler, "draw", dies)
    out = tmp_path / "out"
    at["dies"] = 8  # after a look at the frozen one's start only, or after a checkpoint
    assert "the machine went away" in train(capsys, folder, base, out, settings=sets, status=1)
    at.clear()
    at["asked"] = 10  # Ctrl-C; the data loader draws one batch ahead
    train(capsys, folder, base, out, "--resume", settings=sets, status=130)
    assert checkpoints.latest(out / "checkpoints").name == "checkpoint-10"
    (out / "checkpoints" / "checkpoint-11").mkdir()  # half written
    at.clear()
    at["dies"] = 11
    assert "the machine went away" in train(capsys, folder, base, out, "--resume", settings=sets, status=1)
    at.clear()
    resumed = train(capsys, folder, base, out, "--resume", settings=sets)
    assert resumed["hash"] == whole["hash"]
    assert resumed["history"] == whole["history"]
    for name in ("heads.safetensors", "model.safetensors", "model.onnx", "model.int8.onnx"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@contextmanager
def dying_at_step_3(monkeypatch):
    """Let a training of this block end before its third step."""
    draw = BatchSampler.draw

    def dies(self, step):
        if step == 3:
            raise RuntimeError("the machine went away")
        return draw(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(BatchSampler, "draw", dies)
        yield


def test_a_run_is_not_resumed_on_other_data(capsys, folder, base, tmp_path, monkeypatch):
    data, out, sets = shutil.copytree(folder, tmp_path / "data"), tmp_path / "out", (*SMALL, "steps=4", "every=2")
    with dying_at_step_3(monkeypatch):
        assert "the machine went away" in train(capsys, data, base, out, settings=sets, status=1)
    qrels = (data / "qrels" / "train.tsv").read_text()
    (data / "qrels" / "train.tsv").write_text(qrels.partition("\n")[2])
    said = train(capsys, data, base, out, "--resume", settings=sets, status=1)
    assert "The data have changed since this run began" in said
    (data / "qrels" / "train.tsv").write_text(qrels)
    assert train(capsys, data, base, out, "--resume", settings=sets)["history"]["steps"] == [0, 2, 4]


def test_a_run_is_not_resumed_with_other_weights_or_files_behind_the_same_names(capsys, folder, base, tmp_path, monkeypatch):
    model, scores, out = shutil.copytree(base, tmp_path / "model"), tmp_path / "scores.tsv", tmp_path / "out"
    weights, changed = model / "model.safetensors", shutil.copytree(base, tmp_path / "changed") / "model.safetensors"
    tensors = load_file(weights)
    save_file({**tensors, "embeddings.LayerNorm.bias": tensors["embeddings.LayerNorm.bias"] + 0.01}, changed, {"format": "pt"})
    query, document, _ = (folder / "qrels" / "train.tsv").read_text().splitlines()[1].split("\t")
    rows = f"{query}\t{document}\t0.5\n"
    scores.write_text(rows)
    sets = (*SMALL, "steps=4", "every=2", f"teacher={scores}")
    with dying_at_step_3(monkeypatch):
        train(capsys, folder, model, out, settings=sets, status=1)
    scores.write_text(rows.replace("0.5", "0.9"))
    whole = shutil.copyfile(weights, tmp_path / "whole")
    shutil.copyfile(changed, weights)
    said = train(capsys, folder, model, out, "--resume", settings=sets, status=1)
    assert "has changed since it began, under the same name: backbone or start, teacher." in said
    shutil.copyfile(whole, weights)
    assert "under the same name: teacher." in train(capsys, folder, model, out, "--resume", settings=sets, status=1)
    scores.write_text(rows)
    (out / "checkpoints" / "named.json").unlink()  # as a version that stored none left it
    assert train(capsys, folder, model, out, "--resume", settings=sets)["history"]["steps"] == [0, 2, 4]


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_system(capsys, folder, base, tmp_path, monkeypatch):
    """As on a full disk, but with the system's limit for the size of files."""
    save, limits = transformers.Trainer._save_checkpoint, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(*given):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        try:
            return save(*given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(transformers.Trainer, "_save_checkpoint", limited)
    said = train(capsys, folder, base, tmp_path / "out", settings=(*SMALL, "steps=2", "every=2"), status=1)
    assert f"The system says: {os.strerror(errno.EFBIG)}" in said
    for write in (save_torch, torch.save):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)), checkpoints.system_errors(tmp_path):
                write({"weights": torch.zeros(100_000)}, tmp_path / "weights")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("seed", [3])
def test_killed_and_resumed_is_the_same_model(capsys, folder, base, tmp_path, seed):
    """kill -9 of a real process, some instant after some checkpoint: in a step, a look, or half-way through a checkpoint."""
    generator = random.Random(seed)
    sets = (*SMALL, "steps=120", "every=4", "patience=99")
    whole = train(capsys, folder, base, tmp_path / "whole", settings=sets)

    out = tmp_path / "out"
    words = ["train", "fectek", str(folder), "--out", str(out), "--set", f"backbone={base}"]
    words += [part for each in sets for part in ("--set", each)]
    child = subprocess.Popen(
        [sys.executable, "-m", "termweave", *words],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wanted = 4 * generator.randint(1, 20)
    while child.poll() is None and all(int(each.name[11:]) < wanted for each in (out / "checkpoints").glob("checkpoint-*[0-9]")):
        time.sleep(0.001)
    time.sleep(generator.uniform(0, 0.05))
    child.kill()
    _, said = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, said
    assert not (out / "termweave.json").exists()

    resumed = train(capsys, folder, base, out, "--resume", settings=sets)
    assert (resumed["hash"], resumed["history"]) == (whole["hash"], whole["history"])
    for name in ("heads.safetensors", "model.onnx", "model.int8.onnx"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_mistakes(capsys, folder, base, tmp_path):
    """The plan says what the run says; and a run that ended before it began leaves its folder to the next one."""
    scores, out = tmp_path / "scores.tsv", tmp_path / "out"
    scores.write_text("nobody\td1\t1.0\n")

    def refused(*settings, status=2, base=base, **given):
        given.update(settings=(*SMALL, *settings), status=status)
        planned = train(capsys, folder, base, out, "--plan", **given)
        assert not out.exists() or not any(out.iterdir())
        said = train(capsys, folder, base, out, **given)
        assert said.endswith(planned)  # what was done until then goes before
        return planned

    assert "no method 'fektek'" in refused(method="fektek")
    assert "tokenizer.json is missing" in refused(base=tmp_path)
    assert "names none of the" in refused(f"teacher={scores}", status=1)
    assert "another shape" in refused("start=shipped")
    assert not out.exists()
    out.mkdir()
    assert "has 3 layers" in refused("top_layers=7")
    assert "no model named 'foo'" in refused("start=foo")
    assert "no file of scores" in refused("teacher=/nope")
    assert "above 0" in refused("scale=0")
    assert "no-such-set" in refused("beside=no-such-set")
    train(capsys, folder, base, out, settings=(*SMALL, "steps=1"))
    assert "already contains a run" in train(capsys, folder, base, out, "--plan", status=2)
    train(capsys, folder, base, out, "--resume", settings=(*SMALL, "steps=1"))
    begun = json.loads((out / "run.json").read_text())
    begun["settings"]["ema"] = 0.0  # by a version that had it
    (out / "run.json").write_text(json.dumps(begun))
    other = train(capsys, folder, base, out, "--resume", settings=(*SMALL, "steps=1"), status=2)
    assert "a run of another version of termweave" in other
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine.txt").write_text("x")
    assert "does not contain a run" in train(capsys, folder, base, tmp_path / "d", status=2)


def test_one_process_trains_in_a_folder(capsys, folder, base, tmp_path):
    with file_locks.one_at_a_time(tmp_path / ".out.lock", lambda: pytest.fail("nobody trains here")):
        assert "Another process is training in" in train(capsys, folder, base, tmp_path / "out", status=2)
        assert "Another process is training in" in train(capsys, folder, base, tmp_path / "out", "--resume", status=2)
    assert not any(tmp_path.iterdir())


def test_stopped_before_its_first_checkpoint_a_run_can_be_begun_otherwise(capsys, folder, base, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchSampler, "draw", stopped)
    train(capsys, folder, base, tmp_path / "out", settings=(*SMALL, "steps=3"), status=130)
    assert not (tmp_path / "out").exists()
    said = train(capsys, folder, base, tmp_path / "out", "--resume", settings=(*SMALL, "steps=3"), status=130)
    assert "holds no run to resume: a new one begins." in said
    assert "Stopped before the first checkpoint:" in said


def test_killed_before_or_while_it_was_written_down(tmp_path, monkeypatch):
    (tmp_path / ".run.json.4711").write_text("{")
    assert not running.holds(tmp_path, methods.get("fectek"), "docs", {}, resume=True)
    for damaged in ("{", "[]", "{}", '{"method": "fectek", "dataset": "docs", "settings": 1}'):
        (tmp_path / "run.json").write_text(damaged)
        with pytest.raises(InputError, match="is damaged"):
            running.holds(tmp_path, methods.get("fectek"), "docs", {}, resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            backbone_model.make(["granada"], tmp_path / "backbone", 64, 0)
    assert (backbone_model.make(["granada"], tmp_path / "backbone", 64, 0) / "tokenizer.json").stat().st_size > 0
