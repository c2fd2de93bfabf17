"""What weights of terms are trained on: a side of a batch, vectorised in torch, against the encoder, text by text in numpy; hidden states."""

import errno
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.models.joint_model import HeadShape, JointModel, load_backbone, masked_mean
from termweave.encoders.term_weighting import Form, place_tags
from termweave.training.data.teacher_scores import units
from termweave.training.term_weights import hidden_states
from termweave.training.term_weights.batch import BatchSide, vocabulary_of
from termweave.training.term_weights.hidden_states import states
from termweave.training.term_weights.model import prepare, weigh
from tests.encoders.exact_scores import dot
from tests.training.conftest import randomised, read_by

FORMS = [
    Form("bm25"),
    Form("idf"),
    Form("none", "log"),
    Form("none", "linear", "sum"),
    Form("none", "log", beyond="none"),
    Form("idf", "softplus", "max", "one"),
    Form("none", "log", "max", "idf"),
    Form(tf_power=0.5),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("shape", "pooling", "prompt"),
    [(HeadShape(1, 16), "mean", ""), (HeadShape(1, 0, 0, gate=1, shared=1), "cls", "about granada: ")],
    ids=["deep", "linear-gated-prompt"],
)
def test_a_batch_scores_as_the_encoder_weighs(form, shape, pooling, prompt, texts, base, tmp_path):
    """Torch, vectorised, against numpy, text by text; cached states against whole passes."""
    torch.manual_seed(0)
    model = randomised(JointModel(load_backbone(base), shape, pooling))
    documents, questions = texts(form, prompt)
    vocabulary = vocabulary_of(questions, np.arange(6))
    sides = [BatchSide(questions, np.arange(6), vocabulary, "query"), BatchSide(documents, np.arange(12), vocabulary, "document")]
    found = []
    with torch.no_grad():
        for side in sides:
            ids, mask, features = side.padded()
            lower, last = model.states(ids, mask, features)
            seen = side.live(torch.cat((lower, last), dim=-1), masked_mean(torch.cat((lower, last), dim=-1), mask))
            head = model.heads.head(side.kind)
            found.append(side.weights(head.outer(side.inner(head, seen)).squeeze(-1)))
    scores = (found[0] @ found[1].T).numpy()
    given, asked = weigh(model, documents, "document"), weigh(model, questions, "query")
    expected = np.array([[dot(query, document) for document in given] for query in asked])
    assert scores == pytest.approx(expected, abs=1e-3, rel=1e-4)
    kept = states(model, "toy", documents.pieces, home=tmp_path)
    width = model.backbone.config.hidden_size
    with torch.no_grad():
        made = model(*sides[1].padded())[2].numpy()
    cosines = {each: float((units(kept.pooled(each)[:, -width:]) * made).sum(axis=1).mean()) for each in ("mean", "cls")}
    assert cosines.pop(pooling) > max(0.9, *(cosine + 0.05 for cosine in cosines.values()))
    cached = weigh(model, replace(documents, states=kept), "document")
    pairs = [(w, other.as_dict().get(t, 0.0)) for one, other in zip(given, cached, strict=True) for t, w in one.as_dict().items()]
    assert np.corrcoef(np.array(pairs).T)[0, 1] > 0.95  # the cache comes from the int8 graph


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_text_that_was_cut_weighs_as_the_encoder_weighs_it(form, everything, toy, base):
    """Occurrences, whole terms and dropped words beyond the model's sight, on both sides; some texts fit."""
    documents, questions, _ = toy
    common = read_by(base, documents)
    asked = [f"the {a} {b} about {a} the xyzzy {b} {a} the" for a, b in zip(questions[:6], questions[6:12], strict=True)]
    generator = np.random.default_rng(0)
    for kind, given, length in (("document", [*documents[:8], *questions[:2]], 9), ("query", [*asked, "about"], 8)):
        prepared = prepare(given, *common, kind, length, form)
        assert {
            anchor.term_of_piece(each.words).max() + 1 < len(anchor.terms)
            for anchor, each in zip(prepared.anchors, prepared.pieces, strict=True)
        } == {True, False}
        places = np.arange(len(given))
        vocabulary = {term: column for column, term in enumerate(list(vocabulary_of(prepared, places))[::2])}
        logits = [generator.normal(size=len(each.ids)).astype(np.float32) for each in prepared.pieces]
        side = BatchSide(prepared, places, vocabulary, kind, everything=everything)
        found = side.weights(torch.tensor([logits[row][place] for row, place in zip(side.row, side.place, strict=True)]))
        expected = np.zeros(side.shape)
        for row, (anchor, pieces, z) in enumerate(zip(prepared.anchors, prepared.pieces, logits, strict=True)):
            for term, weight in anchor.weights(z, pieces.words, kind).as_dict().items():
                if term in vocabulary:
                    expected[row, vocabulary[term]] = weight
        assert found.numpy() == pytest.approx(expected, abs=1e-5, rel=1e-5)


def test_place_tags():
    assert place_tags(np.array([-1, 0, 0, 1, 2, 2, 2, -1])).tolist() == [0, 1, 3, 4, 1, 2, 3, 0]


# -- The folder of hidden states does not grow without end, runs share it, and a full disk is an error, not a dead process

DAY = 86_400


def kept(home, name, size, age):
    """States of so many bytes, last used so many seconds ago."""
    folder = home / name
    folder.mkdir()
    (folder / "states.f16").write_bytes(os.urandom(size))
    (folder / hidden_states.DONE).write_text("{}")
    os.utime(folder / hidden_states.DONE, (time.time() - age,) * 2)
    return folder


def test_states_used_longest_ago_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(hidden_states, "MOST", 1_000_000)
    old, older, young = (kept(tmp_path, name, 400_000, age) for name, age in (("a", 2 * DAY), ("b", 3 * DAY), ("c", DAY)))
    said = []
    hidden_states.make_room(tmp_path, 150_000, said.append)
    assert [old.exists(), older.exists(), young.exists()] == [True, False, True]
    assert "Removed the hidden states of 1 older run (0.0 GB)" in said[0]
    assert str(tmp_path) in said[0]


def test_states_in_use_stay_and_those_of_a_run_that_stopped_days_ago_go(tmp_path, monkeypatch):
    monkeypatch.setattr(hidden_states, "MOST", 1_000)
    mine, others = kept(tmp_path, "mine", 50_000, 0), kept(tmp_path, "others", 50_000, 600)
    for name, age in {"now": 0, "stopped": 3 * DAY}.items():
        (tmp_path / f"{name}.partial").mkdir()
        (tmp_path / f"{name}.partial" / "states.f16").write_bytes(b"1" * 50_000)
        (tmp_path / f"{name}.partial" / "states.texts").write_text("512")
        os.utime(tmp_path / f"{name}.partial" / "states.texts", (time.time() - age,) * 2)
    hidden_states.make_room(tmp_path, 50_000, lambda _: None)
    assert {each.name for each in tmp_path.iterdir()} == {mine.name, others.name, "now.partial"}


@pytest.mark.parametrize("step", ["_last_use", "_size"])
def test_two_runs_make_room_at_once(tmp_path, monkeypatch, step):
    """What the other one removes while this one looks is no error."""
    monkeypatch.setattr(hidden_states, "MOST", 1_000)
    old, older = (kept(tmp_path, name, 50_000, age) for name, age in (("a", 2 * DAY), ("b", 3 * DAY)))
    look = getattr(hidden_states, step)

    def removed(folder):
        if folder == older:
            shutil.rmtree(folder)
        return look(folder)

    monkeypatch.setattr(hidden_states, step, removed)
    hidden_states.make_room(tmp_path, 0, lambda _: None)
    assert not old.exists()


def test_a_killed_pass_leaves_nothing_but_the_states(model, base, tmp_path, monkeypatch):
    """The folder as kill -9 leaves it while the graph is in use; the next pass removes the graph, and so does its own end."""
    pieces = PieceTokenizer(base / "tokenizer.json").encode([f"about {'granada ' * (n % 7)}" for n in range(20)], 64)
    monkeypatch.setattr("termweave.training.term_weights.hidden_states._BLOCK", 8)
    flush, killed = np.memmap.flush, tmp_path / "killed"

    def seen(mapped):
        flush(mapped)
        if list(tmp_path.glob("home/*.partial/*.texts")) and not killed.exists():
            shutil.copytree(tmp_path / "home", killed)

    monkeypatch.setattr(np.memmap, "flush", seen)
    whole = states(model, "toy", pieces, home=tmp_path / "home").values
    assert list(killed.glob("*.partial/*/model.onnx"))
    assert (states(model, "toy", pieces, home=killed).values == whole).all()
    for home in (tmp_path / "home", killed):
        (folder,) = (each for each in home.iterdir() if each.is_dir())
        assert {each.name for each in folder.iterdir()} == {hidden_states.DONE, "states.f16", "states.texts"}


def test_reading_states_is_a_use_of_them(model, base, tmp_path, monkeypatch):
    pieces = PieceTokenizer(base / "tokenizer.json").encode(["about granada", "mortar"], 64)
    states(model, "toy", pieces, home=tmp_path)
    (done,) = tmp_path.glob(f"*/{hidden_states.DONE}")
    os.utime(done, (time.time() - 9 * DAY,) * 2)
    states(model, "toy", pieces, home=tmp_path)
    assert time.time() - done.stat().st_mtime < 60
    monkeypatch.setattr(hidden_states, "MOST", 0)
    states(model, "another", pieces, home=tmp_path)
    assert done.exists()


def test_no_room_on_the_disk_is_said_before_it_is_filled(tmp_path):
    with pytest.raises(OSError, match=r"Hidden states need .* GB and .* GB are free") as caught:
        hidden_states.allocate(tmp_path / "states.f16", shutil.disk_usage(tmp_path).total + 1)
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())
    hidden_states.allocate(tmp_path / "states.f16", 1_000_000)
    assert (tmp_path / "states.f16").stat().st_blocks * 512 >= 1_000_000  # the room is really there


def test_a_pass_that_failed_leaves_no_lock(model, base, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    pieces = PieceTokenizer(base / "tokenizer.json").encode(["about granada"], 64)
    with pytest.raises(OSError, match="Hidden states need"):
        states(model, "toy", pieces, home=tmp_path)
    assert [each.suffix for each in tmp_path.iterdir()] == [".partial"]


def test_two_runs_that_want_the_same_states_share_the_work(model, base, tmp_path, monkeypatch):
    pieces = PieceTokenizer(base / "tokenizer.json").encode(["about granada", "mortar"], 64)
    compute, calls, waiting = hidden_states._compute, [], threading.Event()

    def slowly(*given):
        calls.append(given)
        assert waiting.wait(60)
        compute(*given)

    monkeypatch.setattr(hidden_states, "_compute", slowly)
    with ThreadPoolExecutor(2) as runs:
        both = [runs.submit(states, model, "toy", pieces, home=tmp_path, say=lambda _: waiting.set()) for _ in range(2)]
        first, second = (run.result() for run in both)
    assert len(calls) == 1
    assert np.array_equal(first.values, second.values)
    assert [each.name for each in tmp_path.iterdir()] == [next(tmp_path.glob("*/done.json")).parent.name]
