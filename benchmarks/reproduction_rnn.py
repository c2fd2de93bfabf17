"""Table 1 of the rNN paper: what reranking by reciprocal neighbours adds to vectors and to hybrid search; nothing is trained.

Candidates are those of `fusion.py`, which says how collections are cut. Over vectors s is the inner product, as the paper prints it; over hybrid search it is
the fused score. lambda is that of the paper's Table 5 (with its k 21), the default (.9, k 10), or chosen as the paper chooses it: on other questions
of the same collection, here on one half for the other (k 10, N 60).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fusion
import numpy as np
from reproduction_runs import RERANKED, SHARES, chosen_on_halves, digest_of, finished, measured

from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import interval
from termweave.evaluation.tuning.parameter_search import TrialRanker
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.signals.modes import Mode

SETS = ("stackfaq", "cranfield", "nfcorpus", "wikiqa", "trec-dl-2019-2020", "scifact")
MODELS = {"all-MiniLM-L6-v2": "shipped", "bge-small-en": "bge-small-en", "e5-small": "e5-small"}
#: Row -> the row that it reranks.
ROWS = {
    "dense": "",
    "+ rNN, Table 5": "dense",
    "+ rNN, chosen": "dense",
    "hybrid": "",
    "+ rNN, default": "hybrid",
    "hybrid + rNN, chosen": "hybrid",
}


def show(given: argparse.Namespace) -> None:
    """Compute what is missing, and print the table, the chosen lambdas and what the figures were made with."""
    models = [each for each in MODELS if not given.backbones or each in given.backbones]
    records: dict[str, dict[str, Any]] = {label: {} for label in models}  # label -> set -> record
    for name in given.sets or SETS:
        for label in models:
            file = given.work / "rnn" / "rows" / f"{MODELS[label]}-{name}.json"
            compute = partial(_figures, given, name, MODELS[label])
            if record := finished(file) if given.finished else measured(file, compute):
                records[label][name] = record
    names = list(dict.fromkeys(name for by_set in records.values() for name in by_set))
    lines = [f"| backbone | nDCG@10 | {' | '.join(names)} | gain, mean of sets |", "|---" * (len(names) + 3) + "|"]
    shares = [f"| backbone | lambda over | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for label, by_set in records.items():
        for row, before in ROWS.items():
            values = {name: np.array(record["figures"][row]) for name, record in by_set.items()}
            others = {name: np.array(record["figures"][before]) for name, record in by_set.items() if before}
            cells = [_cell(values[name], others.get(name)) if name in values else "" for name in names]
            title = f"{before} {row}" if row.startswith("+") else row
            lines.append(f"| {label} | {title} | {' | '.join(cells)} | {_gain(values, others)} |")
        for over in ("dense", "hybrid"):
            cells = [
                ", ".join(f"{share:g}" for share in by_set[name]["shares"][over]) if name in by_set else "" for name in names
            ]
            shares.append(f"| {label} | {over} | {' | '.join(cells)} |")
    done = [(label, name, record) for label, by_set in records.items() for name, record in by_set.items()]
    facts = {
        "rows": f"{len(done)} of {len(models) * len(given.sets or SETS)} pairs of backbone and set",
        "commits": sorted({record["commit"] for *_, record in done}),
        "models": {label: record["models"] for label, _, record in done},
        "questions": {name: record["questions"] for _, name, record in done},
        "documents": {name: record["documents"] for _, name, record in done},
        "digests": {f"{label}, {name}": digest_of(record["figures"].values()) for label, name, record in done},
    }
    print("\n".join(lines), "\n".join(shares), json.dumps(facts), sep="\n\n", flush=True)


def _figures(given: argparse.Namespace, name: str, model: str, home: Path) -> dict[str, Any]:
    """nDCG@10 of each question for each row, and the shares that were chosen."""
    del home
    place = argparse.Namespace(work=given.work / "rnn", data=given.data)
    held, candidates, _ = fusion.candidates_of(place, name, model, fusion.encoded(place, name, "shipped"))
    ranker = TrialRanker(candidates, [held.judged[question] for question in held.questions], 1, "nDCG@10")
    dense, hybrid = Mode("dense", {"dense": 1.0}), Mode("hybrid", {"weights": 0.5, "dense": 0.5})
    inner = ReciprocalNeighbours(candidates=RERANKED, similarity="dense")
    chosen, shares = {}, {}
    for mode, rnn in ((dense, inner), (hybrid, ReciprocalNeighbours())):
        by_share = {share: ranker.values(mode, replace(rnn, weight=share)) for share in SHARES}
        chosen[mode.name], shares[mode.name] = chosen_on_halves(by_share)
    figures = {
        "dense": ranker.values(dense, None),
        "+ rNN, Table 5": ranker.values(dense, ReciprocalNeighbours(k=21, weight=0.451, similarity="dense")),
        "+ rNN, chosen": chosen["dense"],
        "hybrid": ranker.values(hybrid, None),
        "+ rNN, default": ranker.values(hybrid, ReciprocalNeighbours()),
        "hybrid + rNN, chosen": chosen["hybrid"],
    }
    models = {output: each.hash for output, each in fusion.encoder_of(place, model).models.items()}
    return {"figures": figures, "shares": shares, "models": models, "questions": len(held.questions), "documents": len(held.ids)}


def _cell(values: np.ndarray, others: np.ndarray | None) -> str:
    mean = f"{values.mean():.3f}".removeprefix("0")
    return mean if others is None else f"{mean} ({randomisation_test(values, others):.1g})".replace("(0.", "(.")


def _gain(values: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> str:
    """Mean difference over the sets, from four sets on with its 95 % interval."""
    if not others:
        return ""
    means = np.array([float((values[name] - others[name]).mean()) for name in others])
    bounds = f" [{', '.join(f'{each:+.3f}' for each in interval(means))}]" if len(means) > 3 else ""
    return f"{means.mean():+.3f}{bounds}".replace("0.", ".")
