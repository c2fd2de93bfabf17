"""Faster encoding: models of fewer layers, and layers that stay in fp32 while the others are int8.

    python -m termweave.training.recipes.fewer_layers --data ../shared/data --layers 2,3,6 --out runs/three
    python benchmarks/faster_models.py --data ../shared/data models --model runs/three
    python benchmarks/faster_models.py --data ../shared/data precision

`models` compares the shipped model and the folders that are named with sentence-transformers (fp32, all-MiniLM-L6-v2, the better of two batch
sizes) and measures the cosine between their vectors and the shipped model's; how well they rank is measured by `retrieval.py --model`. `precision`
keeps each layer of the shipped model in fp32 in turn. Every ratio is within one interleaved run, on one thread, of times of the processor. With
`--quick` little is measured, and its figures mean nothing.
"""

# A script's functions need no types.
# ruff: noqa: ANN201
from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from encoding import MAX_LENGTH, base_model, texts_of
from entry_point import enter

from termweave.encoders import load
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.manifest import GRAPHS, TOKENIZER, Manifest, ModelFolder
from termweave.encoders.onnx.graph_writer import attention_heads, write_fp32
from termweave.encoders.onnx.quantisation import write_int8
from termweave.encoders.onnx.runtime import OnnxModel
from termweave.statistics import StatisticsCounter
from termweave.training.recipes.fewer_layers import teacher_of

SETS = ("nfcorpus", "squad", "stackfaq")
BATCHES = (8, 32)


def timed(call):
    """What a call gives, and its seconds of the processor."""
    began = time.process_time()
    given = call()
    return given, time.process_time() - began


def cosines(one, other):
    return np.einsum("ij,ij->i", one, other)


def models(given, count: int, rounds: int) -> None:
    """Speed against sentence-transformers, cosine to the shipped model, of each model."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(given.base or base_model()), device="cpu")
    theirs.max_seq_length = MAX_LENGTH
    ours = {name: load(name, name, threads=1, precision="int8") for name in ("shipped", *given.model)}
    print("| model | texts | texts a second of the processor | against sentence-transformers, fp32 | cosine, mean | least |")
    print("|---|---|---:|---:|---:|---:|")
    for name in given.sets:
        print_set(name, texts_of(given.data, name, count), theirs, ours, rounds)


def print_set(name, texts, theirs, ours, rounds) -> None:
    """The rows of one set."""
    counter = StatisticsCounter(ours["shipped"].analysis)
    for terms in ours["shipped"].analyse(texts):
        counter.add(terms)
    statistics = counter.result()
    times: dict[str, list[float]] = {model: [] for model in ("theirs", *ours)}
    vectors = {}
    for turn in range(rounds + 1):
        taken = {"theirs": min(timed(lambda size=size: theirs.encode(texts, batch_size=size))[1] for size in BATCHES)}
        for model, encoder in ours.items():
            encoded, taken[model] = timed(lambda e=encoder: e.encode(texts, kind="document", statistics=statistics))
            vectors[model] = np.stack([each.vector for each in encoded])
        if turn:  # the first one warms up
            for model, seconds in taken.items():
                times[model].append(seconds)
    for model in ours:
        ratio = median(a / b for a, b in zip(times["theirs"], times[model], strict=True))
        rate = len(texts) / median(times[model])
        alike = vectors[model].shape == vectors["shipped"].shape  # a model of another width has no cosine to it
        near = cosines(vectors[model], vectors["shipped"]) if alike else np.full(1, np.nan)
        print(f"| {Path(model).name} | {name} | {rate:.1f} | {ratio:.2f} | {near.mean():.4f} | {near.min():.4f} |", flush=True)


def precision(given, count: int, rounds: int) -> None:
    """Cosine of vectors and correlation of logits to fp32, and time, with each layer left in fp32."""
    model, manifest, path = teacher_of(given.model[0] if given.model else "shipped")
    layers = int(model.backbone.config.num_hidden_layers)
    texts = [text for name in given.sets for text in texts_of(given.data, name, count)]
    ids = [pieces.ids for pieces in PieceTokenizer(path / TOKENIZER).encode(texts, MAX_LENGTH)]
    features = [np.random.default_rng(0).uniform(0, 1, (len(each), 2)).astype(np.float32) for each in ids]
    variants = {"all int8": (), **{f"layer {layer + 1} in fp32": (f"/layer.{layer}/",) for layer in range(layers)}}
    variants |= {
        "attentions in fp32": ("/attention/",),
        "the last two in fp32": tuple(f"/layer.{layer}/" for layer in range(layers - 2, layers)),
    }
    with tempfile.TemporaryDirectory() as work:
        write_fp32(model, Path(work) / GRAPHS["fp32"], ["document", "query", "dense"])
        graphs = {"fp32": opened(Path(work), manifest, "fp32")}
        for number, (name, kept) in enumerate(variants.items()):
            home = Path(work) / str(number)
            home.mkdir()
            write_int8(Path(work) / GRAPHS["fp32"], home / GRAPHS["int8"], heads=attention_heads(model), keep=("/heads/", *kept))
            graphs[name] = opened(home, manifest, "int8")
        times: dict[str, list[float]] = {name: [] for name in graphs}
        outputs = {}
        for _ in range(rounds):
            for name, graph in graphs.items():
                outputs[name], seconds = timed(lambda g=graph: list(g.run(ids, features, ["document", "dense"])))
                times[name].append(seconds)
        print("| graph | time against all int8 | cosine, mean | least | correlation of the logits |\n|---|---:|---:|---:|---:|")
        vectors = {name: unit(np.stack([each[1] for each in found])) for name, found in outputs.items()}
        logits = {name: np.concatenate([each[0] for each in found]) for name, found in outputs.items()}
        for name in graphs:
            ratio = median(a / b for a, b in zip(times[name], times["all int8"], strict=True))
            near = cosines(vectors[name], vectors["fp32"])
            alike = np.corrcoef(logits[name], logits["fp32"])[0, 1]
            print(f"| {name} | {ratio:.2f} | {near.mean():.4f} | {near.min():.4f} | {alike:.4f} |", flush=True)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def opened(home: Path, manifest: Manifest, precision: str) -> OnnxModel:
    return OnnxModel(ModelFolder(home, manifest, {precision: home / GRAPHS[precision]}), precision=precision, threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=("models", "precision"))
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument(
        "--model", nargs="+", default=[], help="`models`: folders beside the shipped model; `precision`: one in its place"
    )
    parser.add_argument("--base", type=Path, help="model of sentence-transformers  [default: all-MiniLM-L6-v2 of its package]")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--count", type=int, default=48, help="texts of each set")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    count, rounds = (2, 1) if given.quick else (given.count, given.rounds)
    for part in dict.fromkeys(given.parts):
        {"models": models, "precision": precision}[part](given, count, rounds)


if __name__ == "__main__":
    enter(main)
