"""`termweave learn` on data sets with a training split: nDCG@10 of their test questions, through the index, before and after.

    python benchmarks/learning.py --data ../shared/data --work build/learning --sets stackfaq banking77 --minutes 20
    python benchmarks/learning.py --data ../shared/data --work build/learning --sets banking77 --minutes 4 --curve docs/results/learning-curves.json
    python benchmarks/learning.py --draw docs/results/learning-curves.json docs/images/learning-curves.svg

Each set is indexed with the shipped model as `learn-SET`, unless that index is there. Learning sees the training split alone; of the test split at
most 1,000 questions are asked. With `--curve` it learns from 10, 30, 100, 300 and 1,000 questions of the training split, drawn three times, and
writes the gains to a file, of which `--draw` makes a picture. What was measured is kept in the folder `--work`, so that the command can be stopped and
goes on.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.errors import InputError
from termweave.evaluation import evaluate, randomisation_test
from termweave.evaluation.measures import holm
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations import deletion
from termweave.learning.preparation import LearningTask, Reports
from termweave.learning.run import learn
from termweave.search import Index

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.corpora import Dataset
    from termweave.records import Qrels, Query

SETS = ("banking77", "clinc150", "twitter-airlines", "stackfaq", "nfcorpus", "scifact", "wikiqa", "squad", "medquad")
SIZES, DRAWS = (10, 30, 100, 300, 1000), 3
MEASURE = "nDCG@10"
#: Most test questions that are asked.
ASKED = 1000


@dataclass(frozen=True)
class QuestionSample:
    """Some of the questions of a data set, as a data set."""

    whole: Dataset
    most: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)

    def queries(self) -> list[Query]:
        """The same questions every time, in the order of the data set."""
        every = self.whole.queries()
        chosen = set(random.Random(0).sample(range(len(every)), min(self.most, len(every))))
        return [query for number, query in enumerate(every) if number in chosen]

    def qrels(self) -> Qrels:
        """Their judgements."""
        every = self.whole.qrels()
        return {query.id: every[query.id] for query in self.queries()}


@dataclass(frozen=True)
class Bench:
    """A server, and where figures are kept.

    Attributes:
        server: The server.
        work: Folder of the figures.
        minutes: The budget of learning.
    """

    server: engine.Engine
    work: Path
    minutes: float

    def kept(self, name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The figures of a name, measured once."""
        file = self.work / f"{name}-{self.minutes:g}.json"
        if not file.is_file():
            print(f"{name} ...", flush=True)
            figures = measure()
            self.work.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(figures, indent=1))
        figures = json.loads(file.read_text())
        print(f"{name}: {json.dumps(figures)}", flush=True)
        return figures

    def learned(self, folder: Path, questions: Path, asked: int = ASKED) -> dict[str, Any]:
        """Learn on one set, and measure its test questions before and after.

        Args:
            folder: The data set.
            questions: What is learned from.
            asked: Most test questions.
        """
        name, test = f"learn-{folder.name}", QuestionSample(corpora.open_dataset(f"{folder}:test"), asked)
        if generations.find_live(self.server, name) is None:
            build(self.server, corpora.open_source(folder), name, BuildOptions())
        started = time.monotonic()
        learned = learn(
            self.server,
            LearningTask(name, str(questions), self.minutes),
            Reports(say=lambda line: print(f"  {line}", flush=True)),
        )
        before, old = self.searched(name, test)
        row: dict[str, Any] = {
            "set": folder.name,
            "seconds": round(time.monotonic() - started),
            "parts": dict(learned.parts),
            "tried": [
                f"{each.candidate.method} {each.steps}: {each.before:.4f} -> {each.after:.4f} {each.dropped}".strip()
                for each in learned.tried
            ],
            "test_part": [learned.before, learned.after, learned.p],
            "confirmed": learned.confirmed,
            "encoded": learned.encoded,
            "asked": len(old),
            "before": before,
        }
        if learned.generation is None:
            return row
        after, new = self.searched(learned.generation, test)
        figures = {"after": after, "learned": float(new.mean()), "p_value": randomisation_test(new, old)}
        return row | figures | {"generation": learned.generation, "profile": learned.profile}

    def searched(self, index: str, test: Dataset) -> tuple[dict[str, float], NDArray[np.float64]]:
        """The mean of every search of an index, and the figures of its default search by question."""
        table = evaluate(Index.open(self.server, index), test)
        means = {system: float(values[MEASURE].mean()) for system, values in table.values.items()}
        return means, table.values[table.default or "hybrid"][MEASURE]

    def drawn(self, folder: Path, size: int, draw: int) -> dict[str, Any]:
        """Learn from some questions of the training split."""
        train, log = corpora.open_dataset(f"{folder}:train"), self.work / f"{folder.name}-{size}-{draw}.tsv"
        queries, qrels = train.queries(), train.qrels()
        chosen = random.Random(draw).sample(queries, min(size, len(queries)))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(
            "".join(
                f"{' '.join(query.text.split())}\t{document}\t1\n"
                for query in chosen
                for document, grade in qrels[query.id].items()
                if grade > 0
            )
        )
        point = {"set": folder.name, "questions": size, "draw": draw, "minutes": self.minutes}
        try:
            row = self.learned(folder, log, asked=500)
        except InputError as refused:
            return point | {"gain": 0.0, "confirmed": False, "refused": refused.message}
        if generation := row.get("generation"):
            deletion.remove_generation(self.server, generation)
        gain = row.get("learned", row["before"]["hybrid"]) - row["before"]["hybrid"]
        return point | {"gain": gain if row["confirmed"] else 0.0, "unproved": gain, "confirmed": row["confirmed"]}


def table(rows: Iterable[dict[str, Any]]) -> list[list[str]]:
    """The figures as a table; a gain that is not confirmed changes nothing, and its row says so."""
    rows = list(rows)
    corrected = holm([row.get("p_value", 1.0) for row in rows])
    lines = [["nDCG@10", "questions", "before: hybrid", "learned", "gain", "p", "best signal alone", "adopted"]]
    gains = []
    for row, p in zip(rows, corrected, strict=True):
        old, new = row["before"]["hybrid"], row.get("learned", row["before"]["hybrid"])
        alone = {name: value for name, value in row.get("after", row["before"]).items() if name in {"weights", "dense"}}
        best = max(alone, key=lambda name: alone[name])
        gains.append(new - old if row["confirmed"] else 0.0)
        mark = "▲" if p < 0.05 and new > old else "▼" if p < 0.05 else ""
        lines.append(
            [
                row["set"],
                f"{sum(row['parts'].values()):,}",
                f"{old:.3f}",
                f"{new:.3f}{mark}",
                f"{new - old:+.3f}",
                f"{p:.2g}",
                f"{best} {alone[best]:.3f}",
                "yes" if row["confirmed"] else "no",
            ]
        )
    print(f"Mean gain of what was adopted: {fmean(gains):+.3f}\n")
    return lines


def draw(points: list[dict[str, Any]], file: Path) -> None:
    """Draw the gain by the number of questions: a line through the means of the draws, and a point for each draw."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(point["set"] for point in points))
    figure = Figure(figsize=(3.4 * len(names), 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False, sharey=True)[0], names, strict=True):
        own = [point for point in points if point["set"] == name]
        sizes = sorted({point["questions"] for point in own})
        axes.plot(sizes, [fmean(point["gain"] for point in own if point["questions"] == size) for size in sizes], color="0.6")
        for confirmed, face in ((True, "C0"), (False, "white")):
            some = [point for point in own if point["confirmed"] == confirmed]
            x, y = [point["questions"] for point in some], [point["gain"] for point in some]
            axes.scatter(x, y, facecolor=face, edgecolor="C0", zorder=2)
        axes.set(xscale="log", title=name, xlabel="questions")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
    figure.axes[0].set_ylabel("gain in nDCG@10")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Measure the sets, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--work", type=Path, default=Path("build/learning"), help="folder of what was measured")
    parser.add_argument("--sets", nargs="+", default=SETS, help="names of folders in the data")
    parser.add_argument("--minutes", type=float, default=20.0, help="budget for each run")
    parser.add_argument("--curve", type=Path, metavar="JSON", help="learn from few questions, and write the gains to this file")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="numbers of questions, with --curve")
    parser.add_argument("--draw", nargs=2, type=Path, metavar=("JSON", "SVG"), help="draw these gains")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(json.loads(arguments.draw[0].read_text())["points"], arguments.draw[1])
        return
    with engine.connect(settings.load(), pool_maxsize=6) as server:
        bench = Bench(server, arguments.work, arguments.minutes)
        folders = [arguments.data / name for name in arguments.sets]
        if arguments.curve:
            points = [
                bench.kept(f"{folder.name}-{size}-{draw}", lambda f=folder, s=size, d=draw: bench.drawn(f, s, d))  # type: ignore[misc]
                for folder in folders
                for size in arguments.sizes
                for draw in range(DRAWS)
            ]
            arguments.curve.write_text(json.dumps({"points": points}, indent=1) + "\n")
            return
        rows = [bench.kept(folder.name, lambda f=folder: bench.learned(f, f)) for folder in folders]  # type: ignore[misc]
    head, *lines = table(rows)
    for line in (head, ["---"] * len(head), *lines):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    enter(main)
