"""Ablations of the term-weight methods: what each part is worth, on pools, several seeds, Markdown tables.

    OMP_NUM_THREADS=1 python benchmarks/term_weights.py --data ../shared/data --results build/term-weights.jsonl

Trained on a part of squad's train split, searched exactly (sparse dot products, impacts in 8 bits) in other collections and in the
pool of squad's development questions; measured is the model of the last step. A run that is stopped goes on where it was: every
result is a line of --results. What was not run is not in the tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter

from termweave.encoders.manifest import digest
from termweave.encoders.term_weighting import BM25
from termweave.evaluation import randomisation_test
from termweave.training.data import teacher_scores
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Collection
from termweave.training.dev_measure import ranking_measure, stored
from termweave.training.methods import base
from termweave.training.mixture import DataPart
from termweave.training.setup import set_up
from termweave.training.term_weights import model as term_model
from termweave.training.term_weights.hidden_states import states
from termweave.training.term_weights.model import weigh
from termweave.training.trainer.trainer import Fit, fit

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.retrieval_figures import Pool, drawn, searched

if TYPE_CHECKING:
    from termweave.training.methods.parameters import TrainingParameters

#: The settings of a table; where layers are trained on one core, steps are few.
RECIPES = {
    "parts": ("documents=1500", "questions=3000", "dev=100", "steps=150", "every=150", "batch=24"),
    "layers": ("documents=600", "questions=1200", "dev=100", "steps=60", "every=60", "batch=12"),
}


@dataclass(frozen=True)
class Variant:
    """One line of a table."""

    changed: tuple[str, ...] = ()
    method: str = "fectek"
    recipe: str = "parts"

    def settings(self, *more: str) -> TrainingParameters:
        """All of the method's, those in `more` on top."""
        method = base.get(self.method)
        return method.settings(base.read_assignments((*RECIPES[self.recipe], *self.changed, *more))).fitted(made=False)


DISTILLED = ("teacher=minmax", "temperature=0.1", "teacher_weight=0.33")
PAPER = "preset=paper-frozen"
#: The head of the paper with this project's negatives (other questions' documents and one hard negative) and its learned scale from .3.
LINEAR = ("anchor=none", "hidden=0", "shared=true", "fcm=true", "tkgm=true")
VARIANTS = {
    "anchored on BM25": Variant(),
    "anchored on BM25, FCM": Variant(("fcm=true",)),
    "anchored on BM25, TKGM": Variant(("tkgm=true",)),
    "anchored on BM25, query weights one": Variant(("query=one",)),
    "anchored on BM25, vectors distilled": Variant(("teacher=dense", "temperature=0.05")),
    "anchored on BM25, BM25 + vectors distilled": Variant(("teacher=minmax", "temperature=0.1")),
    "anchored on BM25, 4 hard negatives": Variant(("drawn=4",)),
    "anchored between (tf_power 0.5)": Variant(("tf_power=0.5",)),
    "anchored between, BM25 + vectors distilled": Variant(("tf_power=0.5", *DISTILLED)),
    "the shipped settings: the same, 6 hard negatives, width 256": Variant(("tf_power=0.5", *DISTILLED, "drawn=6", "hidden=256")),
    "anchored on idf": Variant(("anchor=idf",)),
    "no anchor": Variant(("anchor=none",)),
    "no anchor, FCM": Variant(("anchor=none", "fcm=true")),
    "no anchor, TKGM": Variant(("anchor=none", "tkgm=true")),
    "no anchor, query weights idf": Variant(("anchor=none", "query=idf")),
    "no anchor, query weights one": Variant(("anchor=none", "query=one")),
    "FecTek as printed, on words": Variant((PAPER,)),
    "the same, neither FCM nor TKGM": Variant((PAPER, "fcm=false", "tkgm=false")),
    "the same, learned scale from .3": Variant((PAPER, "scale=0.3", "learn_scale=true")),
    "linear, shared, FCM, TKGM, in-batch negatives": Variant(LINEAR),
    "linear, shared, in-batch negatives": Variant(LINEAR[:3]),
    "BERT-Scorer as printed": Variant((PAPER,), "bert-scorer"),
    "BERT-Scorer, tf-idf": Variant((), "bert-scorer"),
    "BERT-Scorer, recall": Variant(("target=recall",), "bert-scorer"),
    "BERT-Scorer, recall, times idf": Variant(("target=recall", "anchor=idf"), "bert-scorer"),
    "word-pieces, anchored on BM25": Variant(("terms=piece",)),
    "word-pieces, anchored on idf": Variant(("terms=piece", "anchor=idf")),
    "word-pieces, no anchor": Variant(("terms=piece", "anchor=none")),
    "word-pieces, FecTek as printed": Variant((PAPER, "terms=piece")),
    "word-pieces, linear, shared, FCM, TKGM, in-batch negatives": Variant(("terms=piece", *LINEAR)),
    "frozen": Variant(recipe="layers"),
    "top 2 layers trained": Variant(("top_layers=2",), recipe="layers"),
    "all layers trained": Variant(("top_layers=-1",), recipe="layers"),
    "linear, shared, FCM, TKGM, in-batch negatives, frozen": Variant(LINEAR, recipe="layers"),
    "linear, shared, FCM, TKGM, in-batch negatives, all layers trained": Variant((*LINEAR, "top_layers=-1"), recipe="layers"),
    "FecTek as printed, frozen": Variant((PAPER,), recipe="layers"),
    "FecTek as printed, all layers trained": Variant((PAPER, "top_layers=-1"), recipe="layers"),
}
#: Numbers of a vector, the last ones of a state.
VECTOR = 384
POOLS = (
    Pool("cranfield"),
    Pool("stackfaq"),
    Pool("nfcorpus"),
    Pool("medquad", queries=200, hard=10),
    Pool("trec-dl-2019-2020", judged=True),
)


class Test:
    """One pool with its states, used by every variant."""

    def __init__(self, data, pool, analysis, tokenizer, bm25, model, identity) -> None:
        self.name = pool.name
        collection = Collection(data / pool.name)
        statistics = collection.statistics(analysis)
        queries, qrels = drawn(collection, pool)
        asked = bm25_weights([query.text for query in queries], analysis, statistics, bm25, "query")
        places = searched(
            collection,
            pool,
            qrels,
            lambda: (bm25_weights(collection.texts, analysis, statistics, bm25, "document"), asked),
        )
        position = {collection.ids[place]: index for index, place in enumerate(places)}
        texts = [collection.texts[place] for place in places]
        common = (analysis, tokenizer, statistics, bm25)
        self.documents = term_model.prepare(texts, *common, "document", 128)
        self.questions = term_model.prepare([query.text for query in queries], *common, "query", 128)
        self.gains = [{position[each]: grade for each, grade in qrels[query.id].items() if each in position} for query in queries]
        self.states = [states(model, identity, side.pieces, say=say) for side in (self.documents, self.questions)]
        vectors = teacher_scores.Vectors(*(teacher_scores.units(kept.means[:, -VECTOR:]) for kept in self.states))
        self.cosines = teacher_scores.minmax(vectors.every(np.arange(len(queries))))
        self.plain = self.measures(bm25_weights(texts, analysis, statistics, bm25, "document"), asked)

    def figures(self, model, form, seen) -> tuple[np.ndarray, np.ndarray]:
        """nDCG@10 of each query: of the weights, and of weights and vectors in equal parts after min-max scaling."""
        weights = []
        for side, kept, kind in zip((self.documents, self.questions), self.states, ("document", "query"), strict=True):
            formed = replace(side, anchors=[replace(anchor, form=form) for anchor in side.anchors], states=seen(kept))
            weights.append(weigh(model, formed, kind))
        return self.measures(stored(weights[0]), weights[1])

    def measures(self, documents, questions) -> tuple[np.ndarray, np.ndarray]:
        """nDCG@10 of each query by these weights, and by these weights and the vectors."""
        index = SparseIndex(documents)
        fused = teacher_scores.minmax(np.stack([index.scores(question) for question in questions])) + self.cosines
        best = [(row.argsort()[::-1][:10], np.sort(row)[::-1][:10]) for row in fused]
        return ranking_measure(SparseIndex(documents).rankings(questions, 10), self.gains), ranking_measure(best, self.gains)


class World:
    """What the variants of one recipe and one kind of term share: squad's part, and the pools."""

    def __init__(self, given, settings) -> None:
        self.setup = set_up(str(given.data / "squad"), settings, Path(), say)
        self.bm25 = BM25()
        method, part = base.get("fectek"), DataPart("squad", self.setup, settings)
        model = method.build(settings, self.setup.backbone)
        identity = digest(self.setup.backbone / "model.safetensors")
        common = (self.setup.analysis, self.setup.tokenizer, self.bm25, model, identity)
        self.tests = [Test(given.data, pool, *common) for pool in POOLS if pool.name in given.sets]
        self.inputs, self.development = (hook(part, model, say) for hook in (method.inputs, method.held_out))
        self.mined = {settings.negatives: self.inputs.negatives}

    def formed(self, form, seen, settings, width) -> tuple[term_model.TermWeightInputs, term_model.TermWeightDevelopment]:
        """What all variants share, as one of them sees it."""
        sides = [
            replace(side, anchors=[replace(anchor, form=form) for anchor in side.anchors], states=seen(side.states))
            for side in (self.inputs.documents, self.inputs.questions, self.development.questions)
        ]
        given, asked = self.inputs.documents.states, self.inputs.questions.states
        teacher, wanted = None, settings.teacher
        if wanted in teacher_scores.MADE:
            means = (given.means[:, -width:], asked.means[:, -width:])
            teacher = teacher_scores.vector_teacher(wanted, self.setup, *means)
        distilled = teacher and teacher_scores.Distilled(teacher, settings.teacher_weight, settings.temperature)
        mined = self.negatives(settings.negatives)
        material = replace(self.inputs, documents=sides[0], questions=sides[1], distilled=distilled, negatives=mined)
        return material, replace(self.development, documents=sides[0], questions=sides[2])

    def negatives(self, depth) -> list[np.ndarray]:
        """Hard negatives among BM25's best `depth` documents, mined once."""
        if depth and depth not in self.mined:
            self.mined[depth] = self.setup.hard_negatives(depth)
        return self.mined[depth] if depth else []


def say(line) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--sets", nargs="*", default=[pool.name for pool in POOLS])
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of every variant; repeatable")
    parser.add_argument("--table", action="store_true", help="print the tables of what there is, and run nothing")
    given = parser.parse_args()
    if not given.table:
        measure(given)
    rows = [json.loads(line) for line in given.results.read_text().splitlines()]
    print(
        "\n\n".join(table(rows, recipe) for recipe in RECIPES if any(VARIANTS[row["variant"]].recipe == recipe for row in rows))
    )


def measure(given) -> None:
    given.results.parent.mkdir(parents=True, exist_ok=True)
    done = (
        {(row["variant"], row["seed"]) for row in map(json.loads, given.results.read_text().splitlines())}
        if given.results.exists()
        else set()
    )
    worlds: dict[tuple[str, str], World] = {}
    for seed, name in itertools.product(given.seeds, given.variants):
        if (name, seed) in done:
            continue
        variant = VARIANTS[name]
        key = variant.recipe, variant.settings().terms
        if key not in worlds:
            worlds[key] = World(given, Variant(recipe=key[0]).settings(f"terms={key[1]}", *given.set))
        begun = time.monotonic()
        home = given.results.with_suffix(f".{list(VARIANTS).index(name)}-{seed}")
        row = one(name, variant.settings(f"seed={seed}", *given.set), worlds[key], home)
        with given.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shutil.rmtree(home)
        say(f"{name}, seed {seed}: {time.monotonic() - begun:.0f} s, {row['values']}")


def one(name, settings, world, home) -> dict[str, object]:
    """Train a variant with these settings, from the checkpoint in `home` where there is one, and search every pool."""
    method = base.get(VARIANTS[name].method)
    model, form = method.build(settings, world.setup.backbone), settings.form()
    width = model.backbone.config.hidden_size

    def seen(kept) -> object:
        """States as the heads see them; none where a pass is made each time."""
        return None if settings.top_layers else kept if model.shape.lower else replace(kept, values=kept.values[:, width:])

    material, development = world.formed(form, seen, settings, width)
    objective = Fit(method, model, [material], settings)
    begun = time.monotonic()
    fit(objective, time.time, home, say=say)  # later is better: the last step is kept
    seconds = time.monotonic() - begun
    values, plain, p = {}, {}, {}
    figures = {"squad dev": (development.figures(model)[0], development.bm25())}
    for test in world.tests:
        own = test.figures(model, form, seen)
        figures |= {test.name: (own[0], test.plain[0]), f"{test.name}, beside vectors": (own[1], test.plain[1])}
    for set_, (ndcg, bm25) in figures.items():
        values[set_], plain[set_] = round(float(ndcg.mean()), 4), round(float(bm25.mean()), 4)
        p[set_] = float(randomisation_test(ndcg, bm25))
    return {"variant": name, "seed": settings.seed, "values": values, "bm25": plain, "p": p, "seconds": round(seconds, 1)}


def table(rows, recipe) -> str:
    """Mean and half the range over seeds; one line a variant, one of BM25 for each kind of term."""
    rows = [row for row in rows if VARIANTS[row["variant"]].recipe == recipe]
    sets = list(rows[0]["values"])
    lines = [f"| variant | {' | '.join(sets)} | seeds |", "|---" * (len(sets) + 2) + "|"]
    told = set()
    for name, variant in VARIANTS.items():
        runs = [row for row in rows if row["variant"] == name]
        if not runs:
            continue
        if (terms := variant.settings().terms) not in told:
            told.add(terms)
            what = "stemmed words" if terms == "word" else "word-pieces"
            plain = [f"{runs[0]['bm25'][each]:.4f}" for each in sets]
            lines.append(f"| BM25, {what} | {' | '.join(plain)} | |")
        cells = []
        for each in sets:
            values = np.array([row["values"][each] for row in runs])
            cells.append(f"{values.mean():.4f} ± {np.ptp(values) / 2:.4f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {len(runs)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    enter(main)
