"""Steps of dense training against sentence-transformers' Trainer, and the time of evidence labels for 10,000 questions.

    python benchmarks/training_speed.py steps --data ../shared/data/stackfaq
    python benchmarks/training_speed.py labels

`steps`: the same loss (in-batch negatives, scale 20), backbone, questions with one right answer each, batch and padding limit, in turns
in one process. Times are those of the processor between the ends of two steps, so that other programs count little; evaluation and
checkpoints are left out. `labels`: random unit vectors, computed by all processors.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from entry_point import enter

from termweave.errors import UsageError


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("steps", "labels"))
    parser.add_argument("--data", type=Path, help="BEIR folder with a split train")
    parser.add_argument("--backbone", default="", help="folder in sentence-transformers' layout  [default: all-MiniLM-L6-v2]")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128, help="word-pieces of a text")
    parser.add_argument("--steps", type=int, default=6, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=1000)
    given = parser.parse_args()
    if given.what == "steps" and given.data is None:
        raise UsageError("steps needs a data set.", "Name it: --data DIR.")
    (steps if given.what == "steps" else labels)(given)


class Clock:
    """Processor and wall seconds between the ends of steps; the first step of a round warms up."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self._last: tuple[float, float] | None = None

    def start(self) -> None:
        """Begin a round."""
        self._last = None

    def tick(self) -> None:
        """A step has ended."""
        now = (time.process_time(), time.monotonic())
        if self._last is not None:
            self.cpu.append(now[0] - self._last[0])
            self.wall.append(now[1] - self._last[1])
        self._last = now


def steps(given: argparse.Namespace) -> None:
    """Both trainers in turns."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch

    from termweave.training.methods import base
    from termweave.training.mixture import parts

    settings = base.get("dtr").settings(
        {
            "backbone": given.backbone,
            "sampling": "in-batch-query",
            "weights": (1, 0, 0, 0),
            "batch": given.batch,
            "training_length": given.length,
            "dev": 5,
            "documents": 10**6,
            "steps": given.steps,
            "every": given.steps,
            "precision": "fp32",
        }
    )
    ours, theirs = Clock(), Clock()
    with tempfile.TemporaryDirectory() as work:
        part = parts(str(given.data), settings, Path(work), lambda _: None)[0]
        for number in range(given.rounds):
            _ours(part, settings, Path(work) / f"ours{number}", ours)
            _theirs(part, given, Path(work) / f"theirs{number}", theirs)
    print(
        f"{torch.__version__=} threads {torch.get_num_threads()}, batch {given.batch}, {given.length} word-pieces, {given.data.name}"
    )
    print("| | processor s a step, median | wall s a step, median | steps |\n|---|---|---|---|")
    for name, clock in (("termweave", ours), ("sentence-transformers", theirs)):
        print(f"| {name} | {statistics.median(clock.cpu):.3f} | {statistics.median(clock.wall):.3f} | {len(clock.cpu)} |")
    ratio = [
        statistics.median(theirs.cpu) / statistics.median(ours.cpu),
        statistics.median(theirs.wall) / statistics.median(ours.wall),
    ]
    print(f"sentence-transformers / termweave: processor {ratio[0]:.2f}, wall {ratio[1]:.2f}")


def _ours(part: Any, settings: dict[str, Any], home: Path, clock: Clock) -> None:
    """One round of termweave's loop."""
    from termweave.training.methods import base
    from termweave.training.trainer.trainer import Fit, fit

    method = base.get("dtr")
    model = method.build(settings, part.setup.backbone)
    inputs = method.inputs(part, model, lambda _: None)
    clock.start()
    fit(Fit(method, model, [inputs], settings), lambda: 0.0, home, progress=lambda *_, **__: clock.tick())


def _theirs(part: Any, given: argparse.Namespace, home: Path, clock: Clock) -> None:
    """One round of sentence-transformers' Trainer, with its own defaults elsewhere."""
    import warnings

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    class Ends(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    warnings.simplefilter("ignore")
    model = SentenceTransformer(str(part.setup.backbone), device="cpu")
    model.max_seq_length = given.length
    generator, seen = np.random.default_rng(0), set[int]()
    questions, answers = [], []
    texts = part.setup.texts
    for row in generator.permutation(len(part.setup.train)).tolist():
        answer = min(part.setup.train.relevant[row])
        if len(seen) % given.batch == 0:
            seen.clear()  # as our sampler: a batch holds every answer once
        if answer not in seen:
            seen.add(answer)
            questions.append(part.setup.train.questions[row])
            answers.append(texts[answer])
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(home),
        max_steps=given.steps,
        per_device_train_batch_size=given.batch,
        learning_rate=3e-5,
        save_strategy="no",
        logging_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"anchor": questions, "positive": answers}),
        loss=MultipleNegativesRankingLoss(model, scale=20.0),
        callbacks=[Ends()],
    )
    clock.start()
    trainer.train()


def labels(given: argparse.Namespace) -> None:
    """Evidence of every candidate of every question."""
    from termweave.training.dense.list_targets import EvidenceSettings, evidence_scores

    generator = np.random.default_rng(0)
    documents = _unit(generator.standard_normal((max(20_000, given.candidates), 384), dtype=np.float32))
    queries = _unit(generator.standard_normal((given.questions, 384), dtype=np.float32))
    lists = np.stack([generator.choice(len(documents), given.candidates, replace=False) for _ in range(given.questions)])
    relevant = [frozenset({int(own[0])}) for own in lists]
    for name, context in (("N_r 60, the default", 60), (f"N_r {given.candidates}, all candidates", 0)):
        with tempfile.TemporaryDirectory() as work:
            begun = time.monotonic()
            evidence_scores(queries, documents, lists, relevant, EvidenceSettings(0.75, context), Path(work))
            seconds = time.monotonic() - begun
        print(
            f"| {given.questions:,} x {given.candidates:,} | {name} | {os.cpu_count()} processors | {seconds / 60:.2f} minutes |",
            flush=True,
        )


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    enter(main)
