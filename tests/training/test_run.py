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
from tests.training.conftest import SMALL, set_options, train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


@contextmanager
def interrupted(monkeypatch, *deaths, asked=0):
    """Let a run of this block die where it draws one of these batches of its fits, counted from 0; `asked`: Ctrl-C is pressed there."""
    draw, drawn = BatchSampler.draw, []

    def dies(self, step):
        drawn.append(step)
        if len(drawn) - 1 in deaths:
            raise RuntimeError("the machine went away")
        if asked and step == asked:
            os.kill(os.getpid(), signal.SIGINT)
        return draw(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(BatchSampler, "draw", dies)
        yield


DENSE = ("max_length=64", "training_length=64", "batch=12", "layers_rate=0.002", "dev=8", "chunk=8", "steps=14", "every=4")
SIR = ("max_length=32", "training_length=32", "batch=3", "dev=6", "steps=6", "every=2", "reranked=10", "candidates_from=bm25")
FROZEN = (*SMALL, "steps=35", "start={first}", "keep=0.3")
CODER = (*DENSE, "candidates=40", "context=20", "k=5")
LAYERS = (*SMALL, "epochs=1", "every=5", "top_layers=2", "batch=6", "anchor=none", "hidden=0", "shared=true")


@pytest.mark.parametrize(
    ("method", "sets", "death", "files"),
    [
        ("fectek", LAYERS, 8, ("heads.safetensors", "model.safetensors", "model.onnx", "model.int8.onnx")),
        pytest.param("fectek", FROZEN, 12, ("heads.safetensors",), marks=pytest.mark.nightly),
        ("le-bs", (*DENSE, "labels=distill", "alpha=0.5"), 20, ("model.safetensors",)),
        pytest.param("coder", CODER, 7, ("model.safetensors",), marks=pytest.mark.nightly),
        ("sir", (*SIR, "blocks=9,5,3", "candidates=12", "variant=v2"), 12, ("model.safetensors",)),
    ],
    ids=["layers", "frozen", "two-fits", "coder", "three-fits"],
)
def test_stopped_and_resumed_is_the_same_model(folder, complete, tmp_path, monkeypatch, method, sets, death, files):
    """A run that dies after a look, or in a later fit, and is resumed makes the model of a run that does not."""
    out, first = tmp_path / "out", tmp_path / "first"
    if sets == FROZEN:
        train(folder, complete, first, settings=(*SMALL, "steps=5", "seed=7"))
    settings = [each.format(first=first) for each in sets]

    def again(out, *more, **given):
        return train(folder, complete, out, *more, method=method, settings=settings, **given)

    whole = again(tmp_path / "whole")
    with interrupted(monkeypatch, death):
        assert "the machine went away" in again(out, status=1)
    assert any((out / "checkpoints").rglob(checkpoints.HISTORY))
    if sets == LAYERS:
        with interrupted(monkeypatch, asked=10):  # Ctrl-C; the data loader draws one batch ahead
            again(out, "--resume", status=130)
        assert checkpoints.latest(out / "checkpoints").name == "checkpoint-10"
        (out / "checkpoints" / "checkpoint-11").mkdir()  # half written
    resumed = again(out, "--resume")
    assert (resumed["hash"], resumed["history"]) == (whole["hash"], whole["history"])
    for name in files:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_is_not_resumed_with_other_data_weights_or_files_behind_the_same_names(folder, base, tmp_path, monkeypatch):
    folder, model = shutil.copytree(folder, tmp_path / "data"), shutil.copytree(base, tmp_path / "model")
    scores, out = tmp_path / "scores.tsv", tmp_path / "out"
    weights, changed = model / "model.safetensors", shutil.copytree(base, tmp_path / "changed") / "model.safetensors"
    tensors = load_file(weights)
    save_file({**tensors, "embeddings.LayerNorm.bias": tensors["embeddings.LayerNorm.bias"] + 0.01}, changed, {"format": "pt"})
    qrels = (folder / "qrels" / "train.tsv").read_text()
    query, document, _ = qrels.splitlines()[1].split("\t")
    rows = f"{query}\t{document}\t0.5\n"
    scores.write_text(rows)
    sets = (*SMALL, "steps=4", "every=2", f"teacher={scores}")
    with interrupted(monkeypatch, 3):
        train(folder, model, out, settings=sets, status=1)
    scores.write_text(rows.replace("0.5", "0.9"))
    whole = shutil.copyfile(weights, tmp_path / "whole")
    shutil.copyfile(changed, weights)
    said = train(folder, model, out, "--resume", settings=sets, status=1)
    assert "The files of backbone or start, teacher have changed" in said
    shutil.copyfile(whole, weights)
    assert "The files of teacher have changed" in train(folder, model, out, "--resume", settings=sets, status=1)
    scores.write_text(rows)
    (folder / "qrels" / "train.tsv").write_text("\n".join(qrels.splitlines()[:-1]))
    said = train(folder, model, out, "--resume", settings=sets, status=1)
    assert "documents have changed since this run began" in said
    (folder / "qrels" / "train.tsv").write_text(qrels)
    (out / "checkpoints" / "named.json").unlink()  # as a version that stored none left it
    assert train(folder, model, out, "--resume", settings=sets)["history"]["steps"] == [0, 2, 4]


def test_a_checkpoint_that_cannot_be_written_is_an_error_of_the_system(folder, base, tmp_path, monkeypatch):
    """As on a full disk, but with the system's limit for the size of files."""
    save, limits = transformers.Trainer._save_checkpoint, resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(*given):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        try:
            return save(*given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(transformers.Trainer, "_save_checkpoint", limited)
    said = train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=2", "every=2"), status=1)
    assert os.strerror(errno.EFBIG) in said
    for write in (save_torch, torch.save):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)), checkpoints.system_errors(tmp_path):
                write({"weights": torch.zeros(100_000)}, tmp_path / "weights")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_killed_and_resumed_is_the_same_model(folder, base, tmp_path):
    """kill -9 of a real process, some instant after some checkpoint: in a step, a look, or half-way through a checkpoint."""
    generator = random.Random(3)
    sets = (*SMALL, "steps=80", "every=4", "patience=99")
    whole = train(folder, base, tmp_path / "whole", settings=sets)

    out = tmp_path / "out"
    command = [sys.executable, "-m", "termweave", "train", "fectek", str(folder), "--out", str(out)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen([*command, *set_options(f"backbone={base}", *sets)], env=environment, **said)
    wanted = 4 * generator.randint(1, 12)
    while child.poll() is None and all(int(each.name[11:]) < wanted for each in (out / "checkpoints").glob("checkpoint-*[0-9]")):
        time.sleep(0.001)
    time.sleep(generator.uniform(0, 0.05))
    child.kill()
    _, said = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, said
    assert not (out / "termweave.json").exists()

    resumed = train(folder, base, out, "--resume", settings=sets)
    assert (resumed["hash"], resumed["history"]) == (whole["hash"], whole["history"])
    for name in ("heads.safetensors", "model.onnx", "model.int8.onnx"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


MISTAKES = [  # settings, exit status, words
    (("backbone={empty}",), 2, "tokenizer.json is missing"),
    (("teacher={scores}",), 1, "names none of the"),
    (("start=shipped",), 2, "do not fit"),
    (("top_layers=7",), 2, "has 3 layers"),
    (("teacher=/nope",), 2, "no file of scores"),
    (("beside=no-such-set",), 2, "no-such-set"),
]


def test_a_plan_says_what_the_run_says_and_both_leave_the_folder_as_it_was(folder, base, tmp_path):
    scores, out = tmp_path / "scores.tsv", tmp_path / "out"
    scores.write_text("nobody\td1\t1.0\n")
    for place, (sets, status, words) in enumerate(MISTAKES):
        if place == len(MISTAKES) // 2:
            out.mkdir()
        settings = (*SMALL, *(each.format(scores=scores, empty=tmp_path) for each in sets))
        given = {"settings": settings, "status": status}
        planned = train(folder, base, out, "--plan", **given)
        assert words in planned
        assert train(folder, base, out, **given).endswith(planned)  # what was done until then goes before
        assert out.exists() == (place >= len(MISTAKES) // 2)
        assert not out.exists() or not any(out.iterdir())


def test_a_folder_with_another_run_is_refused(folder, base, tmp_path):
    out, settings = tmp_path / "out", (*SMALL, "steps=1")
    train(folder, base, out, settings=settings)
    assert "already contains a run" in train(folder, base, out, "--plan", status=2)
    begun = json.loads((out / "run.json").read_text())
    begun["settings"]["ema"] = 0.0  # by a version that had it
    (out / "run.json").write_text(json.dumps(begun))
    other = train(folder, base, out, "--resume", settings=settings, status=2)
    assert "a run of another version of termweave" in other
    (tmp_path / "mine.txt").write_text("x")
    assert "does not contain a run" in train(folder, base, tmp_path, status=2)


def test_one_process_trains_in_a_folder(folder, base, tmp_path):
    with file_locks.one_at_a_time(tmp_path / ".out.lock", lambda: pytest.fail("nobody trains here")):
        assert "Another process is training in" in train(folder, base, tmp_path / "out", status=2)
        assert "Another process is training in" in train(folder, base, tmp_path / "out", "--resume", status=2)
    assert not any(tmp_path.iterdir())


def test_stopped_before_its_first_checkpoint_a_run_can_be_begun_otherwise(folder, base, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchSampler, "draw", stopped)
    train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=3"), status=130)
    assert not (tmp_path / "out").exists()
    said = train(folder, base, tmp_path / "out", "--resume", settings=(*SMALL, "steps=3"), status=130)
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
