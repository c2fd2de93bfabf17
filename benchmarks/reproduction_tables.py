"""The tables of `benchmarks/reproduction.py`: their sets, rows, settings and measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A backbone as it came, and with its top three layers initialised anew, which is nearer to the papers' plain BERT.
STARTS: dict[str, dict[str, object]] = {"as it came": {}, "top 3 anew": {"reinitialise": 3}}
#: What `--quick` changes in every table: the three top layers alone are trained, in bf16.
_QUICK: dict[str, object] = {"top_layers": 3, "precision": "bf16", "layers_rate": 2e-4}


@dataclass(frozen=True)
class PrintedTable:
    """One table of the papers' results.

    Attributes:
        method: Method that every row trains.
        sets: Sets that are trained on and tested.
        rows: Name of a row -> its settings.
        measures: Columns.
        against: Row that the others are compared with by a paired test.
        starts: Names of `STARTS`.
        common: Settings of every row.
        quick: What `--quick` sets in addition.
        of_set: Set -> settings of its rows.
        folds: Name of a split by question -> the shares of training, development and test questions; {}: the set's own splits.
        beside: Other sets that the models are tested on.
        reranked: Whether every model is tested with rNN, too.
        bm25: Whether the table has a row of BM25.
    """

    method: str
    sets: tuple[str, ...]
    rows: Mapping[str, Mapping[str, object]]
    measures: tuple[str, ...]
    against: str
    starts: tuple[str, ...] = ("as it came",)
    common: Mapping[str, object] = field(default_factory=dict)
    quick: Mapping[str, object] = field(default_factory=dict)
    of_set: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    folds: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    reranked: bool = False
    bm25: bool = False


#: Terms of Eq. 4.3 that the thesis leaves out of its simpler rows.
_PLAIN = {"weights": (1, 0, 0, 0)}

TABLES = {
    "le-bs": PrintedTable(
        method="le-bs",
        sets=("squad-dev-reqa", "cmrc2018-reqa"),
        rows={
            "LE-None": {"labels": "none"},
            "LE-Distill": {"labels": "distill"},
            "LE-TFIDF": {"labels": "tfidf"},
            "LE-BS": {"labels": "scorer"},
        },
        measures=("recall@1", "recall@5", "recall@10", "recall@20"),
        against="LE-None",
        starts=tuple(STARTS),
        common={"training_length": 64, "max_length": 64, "steps": 600, "every": 100, "layers_rate": 5e-5},
        quick={**_QUICK, "steps": 40, "every": 20, "dev": 40, "batch": 16, "training_length": 48, "max_length": 48},
        # No Chinese backbone is at hand: a small one with a vocabulary of the corpus's characters is trained from nothing.
        of_set={
            "cmrc2018-reqa": {
                "backbone": "scratch",
                "top_layers": -1,
                "layers_rate": 1e-3,
                "steps": 1500,
                "every": 500,
                "reinitialise": 0,
                "scorer": "paper",
            }
        },
        folds={"warm": (0.6, 0.2, 0.2), "cold start": (0.2, 0.2, 0.6)},
        bm25=True,
    ),
    "coder": PrintedTable(
        method="coder",
        sets=("stackfaq", "squad", "medquad"),
        rows={
            "hard": {"labels": "hard"},
            "uniform": {"labels": "uniform"},
            "evidence, reciprocal": {"labels": "evidence", "evidence_weight": 0.0},
            "evidence, mixed": {"labels": "evidence"},
        },
        measures=("nDCG@10",),
        against="base",
        common={"steps": 400, "every": 100, "training_length": 128},
        quick={
            **_QUICK,
            "steps": 40,
            "every": 40,
            "dev": 60,
            "documents": 700,
            "training_length": 64,
            "max_length": 64,
            "candidates": 100,
        },
        beside=("trec-dl-2019-2020", "nfcorpus"),
        reranked=True,
        bm25=True,
    ),
    "dtr": PrintedTable(
        method="dtr",
        sets=("banking77", "clinc150", "stackfaq", "twitter-airlines"),
        rows={
            "in-batch": {**_PLAIN, "sampling": "in-batch-query"},
            "random": {**_PLAIN, "sampling": "random"},
            "labelled": {**_PLAIN, "sampling": "labelled"},
            "Algorithm 4.1": _PLAIN,
            "+ expanded loss": {},
            "+ top-k": {"top": 4},
        },
        measures=("MRR@10", "recall@3"),
        against="in-batch",
        starts=tuple(STARTS),
        common={"steps": 600, "every": 100, "training_length": 96, "max_length": 96},
        quick={
            **_QUICK,
            "steps": 40,
            "every": 40,
            "dev": 60,
            "training_length": 48,
            "max_length": 48,
            "random_negatives": 2,
        },
    ),
}
