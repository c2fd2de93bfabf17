"""One step of the measurement on a GPU; `run.py` runs each in a process of its own, and says in how much time.

    python steps.py devices|parity|speed|training|learn --device cuda|cpu --home DIR --out FILE [--small]

DIR is the unpacked pack. FILE is written again after each figure. With `--device cpu` the code of the GPU runs on the processor: batches,
pooling in the graph, preparation beside it.
"""

# A script's functions need no types.
# ruff: noqa: ANN002, ANN201, ANN202, D102
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from encoding import base_model, texts_of
from entry_point import enter
from training_speed import Clock

from termweave import corpora
from termweave.encoders import load
from termweave.encoders.kinds.anchored import AnchoredModel
from termweave.encoders.onnx import runtime
from termweave.encoders.term_weighting import Anchored
from termweave.errors import ModelError, TermweaveError
from termweave.statistics import StatisticsCounter

#: Model -> the data set of its texts.
MODELS = {"fast": "nfcorpus", "small": "nfcorpus", "chinese": "drcd-reqa"}
METHODS = {
    "coder": {"candidates": 4},
    "fectek": {"preset": "default"},
    "dtr": {"sampling": "in-batch-query"},
    "sir": {"blocks": (4, 3, 2), "candidates": 12},
}
TEN = 10


class Results:
    """Figures that are on the disk as soon as they are known."""

    def __init__(self, file: Path, **about) -> None:
        self.file, self.figures = file, about

    def add(self, **figures) -> None:
        self.figures |= figures
        self.file.write_text(json.dumps(self.figures, indent=1, ensure_ascii=False) + "\n")
        print(f"  {json.dumps(figures, ensure_ascii=False)[:200]}", flush=True)


def place(device: str) -> None:
    """Make the models that are opened next run there: on the GPU, on the CPU, or as on a GPU but on the CPU ("as-gpu")."""
    runtime.cuda_usable = lambda: device != "cpu"
    if device == "as-gpu":
        runtime.CUDA = runtime.CPU


def opened(weights: str, dense: str, precision: str | None, device: str):
    """An encoder whose graph is open; None where the folder has no graph of this precision."""
    place(device)
    try:
        encoder = load(weights, dense, precision=precision)
        encoder.encode(["a text"], kind="query")
    except ModelError:
        return None
    on_gpu = (encoder._dense or encoder._weights).on_gpu  # noqa: SLF001
    if on_gpu != (device != "cpu"):
        raise TermweaveError(f"{dense or weights} runs on the CPU and not on the GPU.", "Read devices.json.")
    return encoder


def statistics_of(encoder, texts):
    counter = StatisticsCounter(encoder.analysis)
    for terms in encoder.analyse(texts):
        counter.add(terms)
    return counter.result()


def devices(given, results) -> None:
    """The GPU is used; nodes that run elsewhere; the tests marked `gpu`."""
    if given.device == "as-gpu":
        place("as-gpu")
    elif problem := runtime.cuda_problem():
        raise TermweaveError(problem)
    else:
        import torch

        about = torch.cuda.get_device_properties(0)
        results.add(card=about.name, memory=about.total_memory, torch=torch.__version__, cuda=torch.version.cuda)
    onnxruntime = runtime.onnx_runtime()
    results.add(onnxruntime=onnxruntime.__version__, python=sys.version.split()[0])
    for name, data in MODELS.items():
        model = opened(name, name, None, given.device)._weights  # noqa: SLF001
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(given.work / name)
        session = onnxruntime.InferenceSession(str(model.graph._graph), options, providers=list(runtime.CUDA))  # noqa: SLF001
        model.graph._session = session  # noqa: SLF001
        texts = texts_of(given.data, data, 64)
        model.weigh(texts, "document", statistics_of(load(name, ""), texts), vectors=True)
        events = json.loads(Path(session.end_profiling()).read_text())
        nodes = {
            (event["args"].get("node_index"), event["args"]["op_name"]): event["args"]["provider"]
            for event in events
            if event.get("cat") == "Node" and event.get("args", {}).get("provider")
        }
        elsewhere = Counter(operator for (_, operator), provider in nodes.items() if provider != session.get_providers()[0])
        results.add(**{name: {"providers": session.get_providers(), "nodes": len(nodes), "elsewhere": dict(elsewhere)}})
    marked = [file for file in (given.home / "tests").rglob("test_*.py") if "pytest.mark.gpu" in file.read_text()]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider", *marked]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=given.home)
    results.add(
        tests=ended.stdout.strip().splitlines()[-1] if ended.stdout else ended.stderr[-300:], tests_status=ended.returncode
    )


def parity(given, results) -> None:
    """Vectors and weights of the GPU against those of the CPU; a CPU's index asked with queries of the GPU."""
    for name, data in MODELS.items():
        texts = texts_of(given.data, data, given.texts)
        questions = [query.text for query in corpora.open_dataset(str(given.data / data)).queries()][: given.texts // 10]
        encoder = opened(name, name, None, given.device)
        statistics = statistics_of(encoder, texts)

        def encoded(encoder, texts, kind, statistics=statistics):
            return encoder.encode(texts, kind=kind, statistics=statistics)

        here, asked = encoded(encoder, texts, "document"), encoded(encoder, questions, "query")
        rows = {}
        for precision in ("int8", "dequantised", "fp32"):
            if (other := opened(name, name, precision, "cpu")) is None:
                rows[precision] = "the model has no such graph"
                continue
            there, asked_there = encoded(other, texts, "document"), encoded(other, questions, "query")
            rows[precision] = compared(here, there) | changed(there, asked_there, asked)
            results.add(**{name: rows})
        results.add(**{name: {"texts": len(texts), "questions": len(questions), **rows}})


def compared(here, there) -> dict[str, float]:
    """Of two encodings of the same texts: smallest and mean cosine, the largest differences, and documents with other terms."""
    cosines = [float(one.vector @ other.vector) for one, other in zip(here, there, strict=True)]
    return {
        "cosine_min": min(cosines),
        "cosine_mean": float(np.mean(cosines)),
        "vector_difference": max(float(np.abs(a.vector - b.vector).max()) for a, b in zip(here, there, strict=True)),
        "weight_difference": max(
            float(np.abs(a.weights.weights - b.weights.weights).max(initial=0))
            for a, b in zip(here, there, strict=True)
            if a.weights.terms == b.weights.terms
        ),
        "other_terms": sum(a.weights.terms != b.weights.terms for a, b in zip(here, there, strict=True)),
    }


def changed(documents, asked, asked_elsewhere) -> dict[str, float]:
    """Of an index of documents: the mean number of places among ten that hold another document where queries come from elsewhere."""
    from termweave.training.data.bm25_index import SparseIndex

    index, vectors = SparseIndex(each.weights for each in documents), np.stack([each.vector for each in documents])
    sparse = [
        sum(a != b for a, b in zip(*(index.search(each.weights, TEN)[0].tolist() for each in pair), strict=False))
        for pair in zip(asked, asked_elsewhere, strict=True)
    ]
    dense = [
        sum(
            a != b
            for a, b in zip(*(np.argsort(-(vectors @ each.vector), kind="stable")[:TEN].tolist() for each in pair), strict=True)
        )
        for pair in zip(asked, asked_elsewhere, strict=True)
    ]
    return {"places_changed_weights": float(np.mean(sparse)), "places_changed_vectors": float(np.mean(dense))}


def speed(given, results) -> None:
    """Texts a second at several batch sizes, beside sentence-transformers in fp16; and where the time goes."""
    import torch
    from sentence_transformers import SentenceTransformer

    base, texts = base_model(), texts_of(given.data, "nfcorpus", given.texts // 2)
    made = {
        "weights and vectors": opened("fast", "fast", None, given.device),
        "vectors": opened("", "fast", None, given.device),
        "vectors of the same model, pooled by termweave": opened("", str(base), "fp32", given.device),
    }
    whole = made["weights and vectors"]
    statistics = statistics_of(whole, texts)
    theirs = SentenceTransformer(str(base), device="cpu" if given.device == "as-gpu" else "cuda")
    theirs.max_seq_length = whole._dense.manifest.max_length  # noqa: SLF001
    if given.device == "cuda":
        theirs.half()

    def timed(call) -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    rates: dict[str, dict[int, float]] = {}
    for size in given.sizes:
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        calls = {
            name: lambda encoder=encoder, parts=parts: [
                encoder.encode(part, kind="document", statistics=statistics if encoder.analysis else None) for part in parts
            ]
            for name, encoder in made.items()
        }
        calls["sentence-transformers"] = lambda size=size: theirs.encode(texts, batch_size=size, show_progress_bar=False)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(given.rounds):
            for name, call in calls.items():
                times[name].append(timed(call))
        for name, seconds in times.items():
            rates.setdefault(name, {})[size] = round(len(texts) / median(seconds), 1)
        results.add(rates=rates)
    best = {name: max(rate.values()) for name, rate in rates.items()}
    results.add(ratio={name: round(best[name] / best["sentence-transformers"], 2) for name in made}, precision=str(theirs.dtype))
    results.add(torch_threads=torch.get_num_threads(), processors=os.cpu_count())
    results.add(seconds_of_parts=parts_of(whole, texts, statistics, given.device))


def parts_of(encoder, texts, statistics, device) -> dict[str, float]:
    """Seconds of the parts of one pass. The graph runs beside the preparation of later texts, so they add up to more than `all`.

    `copying` is what a run takes longer than one whose inputs and outputs lie on the GPU.
    """
    model = encoder._weights  # noqa: SLF001
    seconds: Counter[str] = Counter()
    session, fed = model.graph._session, []  # noqa: SLF001

    def watch(owner, name, label):
        original = getattr(owner, name)

        def watched(*arguments, **named):
            started = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                seconds[label] += time.perf_counter() - started

        setattr(owner, name, watched)
        return lambda: setattr(owner, name, original)

    class Watched:
        def run(self, names, feed, *options):
            fed.append((names, feed))
            return session.run(names, feed, *options)

    undo = [
        watch(model.analysis, "words", "words and terms"),
        watch(model.tokenizer, "encode", "tokenising"),
        watch(Anchored, "weights", "top words"),
        watch(model.graph, "_compute", "graph"),
        watch(AnchoredModel, "weigh", "all"),
    ]
    model.graph._session = Watched()  # noqa: SLF001
    model.weigh(texts, "document", statistics, vectors=True)
    model.graph._session = session  # noqa: SLF001
    for each in undo[2:]:
        each()
    for owner, name in ((model.analysis, "words"), (model.tokenizer, "encode"), (model.graph, "_compute")):
        vars(owner).pop(name, None)
    seconds["copying"] = max(0.0, seconds["graph"] - on_device(session, fed, "cuda" if device == "cuda" else "cpu"))
    return {name: round(value, 4) for name, value in seconds.items()}


def on_device(session, fed, device: str) -> float:
    """Seconds that the runs take where inputs and outputs lie on the device."""
    values = runtime.onnx_runtime().OrtValue
    bound = []
    for names, feed in fed:
        binding = session.io_binding()
        for name, array in feed.items():
            binding.bind_ortvalue_input(name, values.ortvalue_from_numpy(array, device, 0))
        for name in names:
            binding.bind_output(name, device)
        bound.append(binding)
    started = time.perf_counter()
    for binding in bound:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
    return time.perf_counter() - started


def training(given, results) -> None:
    """A few training steps of each method in fp32 and bf16, and in fp32 on the CPU: seconds, memory, losses."""
    base = given.work / "base"
    shutil.copytree(base_model(), base)
    config = json.loads((base / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # two devices draw different random numbers
    (base / "config.json").write_text(json.dumps(config))
    device = "cuda" if given.device == "cuda" else "cpu"
    failed = []
    for method in METHODS:
        rows = {}
        for name, precisions, hidden in (("cpu", ["fp32"], {"CUDA_VISIBLE_DEVICES": ""}), (given.device, ["fp32", "bf16"], {})):
            file = given.work / f"{method}-{name}.json"
            command = [
                sys.executable,
                __file__,
                "fit",
                "--device",
                device,
                "--home",
                given.home,
                "--out",
                file,
                "--method",
                method,
            ]
            command += ["--base", base, "--precision", *precisions, *(["--small"] if given.small else [])]
            ended = subprocess.run(command, env=os.environ | hidden, capture_output=True, text=True, check=False)
            if ended.returncode:
                rows[name] = (ended.stderr.strip().splitlines() or ["no output"])[-1]
                failed.append(method)
            else:
                rows[name] = {precision: json.loads(file.read_text())[precision] for precision in precisions}
        if method not in failed:
            losses = [rows[name]["fp32"]["losses"][0] for name in ("cpu", given.device)]
            rows["loss_difference"] = abs(losses[0] - losses[1])
        results.add(**{method: rows})
    if failed:
        raise TermweaveError(f"Training failed: {', '.join(failed)}.", f"Read {results.file}.")


def fit(given, results) -> None:
    """The training steps of one method; a process of its own, because torch sees the GPU or does not."""
    import torch

    from termweave.training.methods import base
    from termweave.training.mixture import parts
    from termweave.training.trainer import trainer
    from termweave.training.trainer.trainer import Fit

    method = base.get(given.method)
    steps = 2 if given.small else 12
    common = {
        "backbone": str(given.base),
        "steps": steps,
        "every": steps,
        "batch": 4 if given.small else 16,
        "training_length": 128,
    }
    for precision in given.precision:
        settings = method.settings({**common, **METHODS[given.method], "precision": precision})
        work = given.work / precision
        part = parts(str(given.data / "stackfaq"), settings, work, lambda _: None)[0]
        model = method.build(settings, part.setup.backbone)
        inputs = method.inputs(part, model, lambda _: None)
        trainable, clock = Fit(method, model, [inputs], settings), Clock()
        losses: list[float] = []
        trainable.register_forward_hook(lambda *called, losses=losses: losses.append(float(called[-1]["loss"].detach())))
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        clock.start()
        trainer.fit(trainable, lambda: 0.0, work / "fit", progress=lambda *_, clock=clock, **__: clock.tick())
        memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
        results.add(**{precision: {"losses": losses, "seconds_a_step": median(clock.wall), "gpu_bytes": memory}})


def learn(given, results) -> None:
    """`termweave learn` from beginning to end, on a server."""
    if not (given.home / "jdk").is_dir() and "OPENSEARCH_URL" not in os.environ:
        raise TermweaveError("The pack holds no server, which `learn` needs.", "Pack again with --jdk and --archives.")
    termweave = [sys.executable, "-m", "termweave"]
    own = dict(os.environ)
    if "OPENSEARCH_URL" not in own:
        started = subprocess.run([*termweave, "node", "start", "--json"], capture_output=True, text=True, check=False)
        if started.returncode:
            raise TermweaveError(
                f"The server did not start: {started.stderr.strip()[-300:]}", "Read the log that is named there."
            )
        own["OPENSEARCH_URL"] = json.loads(started.stdout)["url"]
    script = [sys.executable, given.home / "benchmarks" / "learning.py", "--data", given.data, "--work", given.work / "learning"]
    command = [*script, "--sets", "stackfaq", "--minutes", "1"]
    begun = time.monotonic()
    try:
        ended = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
        row = next(iter((given.work / "learning").glob("*.json")), None)
        results.add(seconds=round(time.monotonic() - begun), row=json.loads(row.read_text()) if row else ended.stderr[-300:])
        if ended.returncode:
            raise TermweaveError(f"learn failed: {ended.stderr.strip().splitlines()[-1]}")
    finally:
        if "OPENSEARCH_URL" not in os.environ:
            subprocess.run([*termweave, "node", "stop"], capture_output=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = {each.__name__: each for each in (devices, parity, speed, training, learn, fit)}
    parser.add_argument("step", choices=steps)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--home", type=Path, required=True, help="the unpacked pack")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    parser.add_argument("--small", action="store_true", help="few texts and steps")
    parser.add_argument("--method", choices=METHODS, help="of fit, with")
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), help="and")
    parser.add_argument("--base", type=Path, help="the backbone")
    given = parser.parse_args()
    results = Results(given.out, step=given.step, device=given.device, tried_small=given.small)
    given.device = "as-gpu" if given.device == "cpu" else "cuda"
    given.data = given.home / "data"
    given.texts, given.rounds = (40, 1) if given.small else (2000, 2)
    given.sizes = (8, 32) if given.small else (32, 64, 128, 256, 512, 1024)
    with tempfile.TemporaryDirectory() as work:
        given.work = Path(work)
        try:
            steps[given.step](given, results)
        except TermweaveError as error:
            results.add(failed=f"{error.message} {error.hint}".strip())
            raise
    results.add(finished=True)


if __name__ == "__main__":
    enter(main)
