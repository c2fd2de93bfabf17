"""Ablations of the term-weight methods: what each part is worth, on pools, several seeds, one Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/term_weights.py --data ../shared/data --results build/term-weights.jsonl

Trained on a part of squad's train split, searched exactly (sparse dot products, impacts in 8 bits) in other collections and in the
pool of squad's development questions. A run that is stopped goes on where it was: every result is a line of --results. What was not
run is not in the table.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from termweave.encoders.folder import digest
from termweave.evaluation import randomisation_test
from termweave.training import learning, making, materials, methods, prospect, scoring, teachers
from termweave.training.loop import fit
from termweave.training.measure import Pool, drawn, searched
from termweave.training.pairs import Collection
from termweave.training.sparse import bm25_weights
from termweave.training.states import States, states

SMALL = ("documents=1500", "questions=3000", "dev=100", "steps=150", "every=150", "batch=24")
VARIANTS = {
    "anchored on BM25": ("fectek", ()),
    "anchored on BM25, FCM": ("fectek", ("fcm=true",)),
    "anchored on BM25, TKGM": ("fectek", ("tkgm=true",)),
    "anchored on BM25, query weights one": ("fectek", ("query=one",)),
    "anchored on BM25, vectors distilled": ("fectek", ("teacher=dense", "temperature=0.05")),
    "anchored on idf": ("fectek", ("anchor=idf",)),
    "no anchor": ("fectek", ("anchor=none",)),
    "no anchor, FCM": ("fectek", ("anchor=none", "fcm=true")),
    "no anchor, TKGM": ("fectek", ("anchor=none", "tkgm=true")),
    "no anchor, query weights idf": ("fectek", ("anchor=none", "query=idf")),
    "no anchor, query weights one": ("fectek", ("anchor=none", "query=one")),
    "FecTek as printed, on words: linear, shared, FCM, TKGM": (
        "fectek",
        ("anchor=none", "hidden=0", "shared=true", "fcm=true", "tkgm=true"),
    ),
    "the same, neither FCM nor TKGM": ("fectek", ("anchor=none", "hidden=0", "shared=true")),
    "BERT-Scorer, tf-idf": ("bert-scorer", ()),
    "BERT-Scorer, recall": ("bert-scorer", ("target=recall",)),
    "BERT-Scorer, recall, times idf": ("bert-scorer", ("target=recall", "anchor=idf")),
}
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
            queries,
            qrels,
            lambda: (bm25_weights(collection.texts, analysis, statistics, bm25, "document"), asked),
        )
        position = {collection.ids[place]: index for index, place in enumerate(places)}
        texts = [collection.texts[place] for place in places]
        common = (analysis, tokenizer, statistics, bm25)
        self.documents = materials.prepare(texts, *common, "document", 128)
        self.questions = materials.prepare([query.text for query in queries], *common, "query", 128)
        self.gains = [{position[each]: grade for each, grade in qrels[query.id].items() if each in position} for query in queries]
        self.states = [states(model, identity, side.pieces, say=say) for side in (self.documents, self.questions)]
        self.plain = scoring.ndcg(bm25_weights(texts, analysis, statistics, bm25, "document"), asked, self.gains)

    def figures(self, model, form) -> np.ndarray:
        """nDCG@10 of each query."""
        found = []
        for side, kept, kind in zip((self.documents, self.questions), self.states, ("document", "query"), strict=True):
            formed = replace(side, anchors=[replace(anchor, form=form) for anchor in side.anchors])
            cut = kept if model.shape.lower else scoring.last_layer(kept, model.backbone.config.hidden_size)
            found.append(scoring.weigh(model, formed, cut, kind))
        return scoring.ndcg(scoring.stored(found[0], 8), found[1], self.gains)


def say(line) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=[pool.name for pool in POOLS])
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--table", action="store_true", help="print the table of what there is, and run nothing")
    given = parser.parse_args()
    if not given.table:
        measure(given)
    print(table([json.loads(line) for line in given.results.read_text().splitlines()]))


def measure(given) -> None:
    given.results.parent.mkdir(parents=True, exist_ok=True)
    done = (
        {(row["variant"], row["seed"]) for row in map(json.loads, given.results.read_text().splitlines())}
        if given.results.exists()
        else set()
    )
    spec = str(given.data / "squad")
    base = methods.get("fectek").settings(methods.given(SMALL, None))
    ahead = prospect.prospect(spec, base, Path(), say)
    model = making.make_model(methods.get("fectek"), base, ahead.backbone)
    common = (ahead.analysis, ahead.tokenizer, ahead.bm25, model, digest(ahead.backbone / "model.safetensors"))
    tests = [Test(given.data, pool, *common) for pool in POOLS if pool.name in given.sets]
    shared = learning.prepared(methods.get("fectek"), learning.Part("squad", ahead, base), model, say)
    for seed in range(given.seeds):
        for name in given.variants:
            if (name, seed) not in done:
                begun = time.monotonic()
                row = one(name, seed, ahead, shared, tests)
                with given.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                say(f"{name}, seed {seed}: {time.monotonic() - begun:.0f} s, {row['values']}")


def formed(shared, form, model, settings, ahead) -> tuple[materials.Material, scoring.Development]:
    """What all variants share, as one of them sees it."""
    material, development = shared
    width = model.backbone.config.hidden_size

    def side(prepared) -> object:
        return replace(prepared, anchors=[replace(anchor, form=form) for anchor in prepared.anchors])

    def cut(kept) -> States:
        return kept if model.shape.lower else scoring.last_layer(kept, width)

    teacher = None
    if settings.get("teacher"):
        states_ = (material.document_states, material.question_states)
        teacher = teachers.of(settings["teacher"], ahead, *states_, width)
    documents = side(material.documents)
    given, asked = cut(material.document_states), cut(material.question_states)
    return (
        replace(
            material,
            documents=documents,
            questions=side(material.questions),
            document_states=given,
            question_states=asked,
            negatives=material.negatives if settings.get("negatives") else [],
            teacher=teacher,
        ),
        replace(
            development,
            documents=documents,
            questions=side(development.questions),
            document_states=given,
            question_states=cut(development.question_states),
        ),
    )


def one(name, seed, ahead, shared, tests) -> dict[str, object]:
    """Train a variant and search every pool."""
    method_name, changed = VARIANTS[name]
    method = methods.get(method_name)
    settings = {**method.settings(methods.given((*SMALL, *changed), None)), "seed": seed}
    model = making.make_model(method, settings, ahead.backbone)
    form = method.form(settings)
    material, development = formed(shared, form, model, settings, ahead)
    lesson = method.lesson_class()(model, [material], settings)
    with tempfile.TemporaryDirectory() as home:
        begun = time.monotonic()
        history = fit(lesson, lambda: float(development.figures(model).mean()), settings, Path(home))
        seconds = time.monotonic() - begun
    values, plain, p = {"squad dev": history.values[-1]}, {"squad dev": float(development.bm25().mean())}, {}
    for test in tests:
        found = test.figures(model, form)
        values[test.name], plain[test.name] = round(float(found.mean()), 4), round(float(test.plain.mean()), 4)
        p[test.name] = float(randomisation_test(found, test.plain))
    return {"variant": name, "seed": seed, "values": values, "bm25": plain, "p": p, "seconds": round(seconds, 1)}


def table(rows) -> str:
    """Mean and range over seeds; one line a variant."""
    sets = list(rows[0]["values"])
    lines = [f"| variant | {' | '.join(sets)} | seeds |", "|---" * (len(sets) + 2) + "|"]
    plain = " | ".join(f"{rows[0]['bm25'][each]:.4f}" for each in sets)
    lines.append(f"| BM25, stemmed words | {plain} | |")
    for name in VARIANTS:
        found = [row for row in rows if row["variant"] == name]
        if found:
            cells = []
            for each in sets:
                values = np.array([row["values"][each] for row in found])
                cells.append(f"{values.mean():.4f} ± {np.ptp(values) / 2:.4f}")
            lines.append(f"| {name} | {' | '.join(cells)} | {len(found)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
