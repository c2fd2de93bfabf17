"""The tables of `benchmarks/reproduction.py`: their sets, rows, settings and measures. What they reduce is said in `note`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The installed package of all-MiniLM-L6-v2, as the parameter `backbone` names it.
MINILM = ""
#: After the name of a test set: the ranking after rNN.
WITH_RNN = " + rNN"
_AS_IT_CAME: Mapping[str, Mapping[str, object]] = {"as it came": {}}
#: Two processors have no time for more: backbones compute in bf16 in training, losses and everything that is measured in fp32.
COMMON: Mapping[str, object] = {"precision": "bf16"}


@dataclass(frozen=True)
class PrintedTable:
    """One table of the papers' results.

    Attributes:
        method: Method that a row trains, unless its settings name another.
        trained: Backbone and set of each group of rows.
        rows: Name of a row -> its settings.
        measures: The first one is compared by a paired test; of models other than dense ones, the only one.
        against: Row that the others are compared with beside their own start; "": BM25.
        common: Settings of every row.
        variants: Name -> settings: each row is trained with each.
        of_backbone: Backbone -> settings of its rows.
        of_set: Set -> settings of its rows.
        only: Set, split or variant -> its rows, if not all: two processors have no time for every combination.
        splits: Name of a split by question -> shares of training, development and test questions; {}: the set's own splits.
        part: Documents and training questions of the part of a larger set that is trained on.
        beside: Other sets that the models are tested on.
        questions: Test questions at most.
        pool: Documents at most that they are searched in, if their judged ones are no more.
        reranked: Whether every model is tested with rNN, too.
        seeds: Seeds of every row.
        one_seed: Rows and variants that have the first seed only.
        note: What was reduced.
    """

    method: str
    trained: tuple[tuple[str, str], ...]
    rows: Mapping[str, Mapping[str, object]]
    measures: tuple[str, ...]
    against: str
    common: Mapping[str, object]
    variants: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: _AS_IT_CAME)
    of_backbone: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    of_set: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    splits: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    part: tuple[int, int] = (1500, 2000)
    beside: tuple[str, ...] = ()
    questions: int = 300
    pool: int = 2000
    reranked: bool = False
    seeds: int = 1
    one_seed: tuple[str, ...] = ()
    note: str = ""


#: Terms of Eq. 4.3 that the thesis leaves out of its simpler rows.
_PLAIN = {"weights": (1, 0, 0, 0)}
#: FecTek's model without the two modules.
_LINEAR = {"fcm": False, "tkgm": False}

TABLES = {
    "coder": PrintedTable(
        method="coder",
        trained=tuple((backbone, name) for backbone in (MINILM, "bge-small-en", "e5-small") for name in ("stackfaq", "medquad")),
        rows={
            "hard": {"labels": "hard"},
            "uniform": {"labels": "uniform"},
            "geometric": {"labels": "evidence", "evidence_weight": 1.0},
            "evidence, algorithm": {"labels": "evidence"},
            "evidence, program": {"labels": "evidence", "label_path": "program"},
        },
        measures=("nDCG@10",),
        against="hard",
        common={"steps": 200, "every": 50, "dev": 150, "training_length": 128, "max_length": 128, "chunk": 0},
        # T begins as the models' own training had it.
        of_backbone={"bge-small-en": {"temperature": 0.02}, "e5-small": {"temperature": 0.01}},
        beside=("trec-dl-2019-2020", "nfcorpus"),
        reranked=True,
        note="200 steps of 32 questions, 200 candidates, 128 word-pieces",
    ),
    "dtr": PrintedTable(
        method="dtr",
        trained=((MINILM, "twitter-airlines"), (MINILM, "banking77-skewed")),
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
        common={"towers": "two", "steps": 200, "every": 50, "dev": 300, "training_length": 48, "max_length": 48, "chunk": 0},
        variants={"as it came": {}, "top 3 anew": {"reinitialise": 3}},
        only={"top 3 anew": ("in-batch", "random", "Algorithm 4.1")},
        questions=1000,
        seeds=3,
        one_seed=("+ expanded loss", "+ top-k", "top 3 anew"),
        note="200 steps of 32 questions, at most 48 word-pieces",
    ),
    "fectek": PrintedTable(
        method="fectek",
        trained=(("bge-small-zh", "cmrc2018"), (MINILM, "squad")),
        rows={
            "DeepCT": {"method": "bert-scorer", "target": "recall", "batch": 16, "warmup": 0.1, "schedule": "linear"},
            "linear head": {**_LINEAR, "drawn": 3},
            "+ FCM": {"tkgm": False, "drawn": 3},
            "+ TKGM": {"fcm": False, "drawn": 3},
            "+ FCM + TKGM": {"drawn": 3},
        },
        measures=("MRR@10",),
        against="linear head",
        common={
            "preset": "paper",
            "epochs": -1,
            "training_length": 192,
            "max_length": 192,
            "steps": 200,
            "every": 100,
            "dev": 100,
            "rate": 1e-3,
            "layers_rate": 5e-5,
        },
        only={"squad": ("DeepCT", "linear head", "+ FCM + TKGM")},
        pool=1500,
        note="200 steps of 8 questions with 3 of the paper's 15 hard negatives; rates 1e-3 and 5e-5 instead of 2e-5, for so few steps",
    ),
    "le-bs": PrintedTable(
        method="le-bs",
        trained=(("bge-small-zh", "cmrc2018-reqa"),),
        rows={
            "LE-None": {"labels": "none"},
            "LE-TFIDF": {"labels": "tfidf", "alpha": 0.2},
            "LE-BS, alpha .2": {"labels": "scorer", "alpha": 0.2},
            "LE-BS, alpha .5": {"labels": "scorer", "alpha": 0.5},
            "LE-BS, alpha 1": {"labels": "scorer", "alpha": 1.0},
            "LE-Distill": {"labels": "distill", "alpha": 0.2},
            "LE-None, printed loss": {"labels": "none", "farthest": 1.0},
            "LE-BS, alpha .5, printed loss": {"labels": "scorer", "alpha": 0.5, "farthest": 1.0},
        },
        measures=("recall@1", "recall@10", "recall@20"),
        against="LE-None",
        common={
            "training_length": 64,
            "max_length": 64,
            "steps": 600,
            "every": 100,
            "patience": 6,
            "dev": 150,
            "batch": 16,
            "scorer": "paper-chinese",
            "chunk": 0,
        },
        # As it came, no step is better than none; with all four layers anew the vectors collapse.
        variants={"top 2 anew": {"reinitialise": 2, "layers_rate": 1e-4}},
        only={"cold": ("LE-None", "LE-BS, alpha .5")},
        splits={"warm": (0.6, 0.2, 0.2), "cold": (0.2, 0.2, 0.6)},
        part=(3000, 3000),
        questions=600,
        pool=4000,
        note="600 steps of 16 questions, one hard and two random negatives each",
    ),
    "sir": PrintedTable(
        method="sir",
        trained=(("bge-small-en", "stackfaq"), ("bge-small-en", "wikiqa")),
        rows={
            "random": {"variant": "random"},
            "static": {"variant": "static"},
            "LCL": {"variant": "lcl"},
            "V1 random": {"variant": "v1", "selector": "random"},
            "V1 top": {"variant": "v1", "selector": "top"},
            "V2 random": {"variant": "v2", "selector": "random"},
            "V2 top": {"variant": "v2", "selector": "top"},
            "V3 random": {"variant": "v3", "selector": "random"},
            "V3 top": {"variant": "v3", "selector": "top"},
            "V4 random": {"variant": "v4", "selector": "random"},
            "V4 top": {"variant": "v4", "selector": "top"},
        },
        measures=("MRR@10",),
        against="static",
        common={
            "anchor": False,
            "candidates_from": "bm25",
            "reuse": False,
            "candidates": 30,
            "blocks": "24,12,6",
            "batch": 2,
            "steps": 150,
            "every": 150,  # what is kept has taken no step, or all
            "dev": 40,
            "reranked": 20,
            "training_length": 96,
            "max_length": 96,
            "chunk": 0,
        },
        only={"wikiqa": ("static", "V1 top", "V3 top")},
        questions=100,
        pool=0,
        seeds=3,
        one_seed=("random", "LCL", "V3 random", "V1 random", "V1 top", "V2 random", "V2 top", "V4 random", "V4 top"),
        note="150 steps of each fit, blocks of 24, 12 and 6, two a batch, 96 word-pieces, BM25's best 20 reranked",
    ),
}
