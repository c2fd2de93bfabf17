"""The groups of parameters that several methods share.

A method lists the groups that it takes (`Method.groups`); groups that belong to one family stand in that family's folder.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.training.data import pseudo_queries
from termweave.training.methods.parameter_declaration import LARGEST, ParameterGroup, TrainingParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The backbone that is made anew. It knows nothing until it is trained: all of it is trained by default, and it gives no vector.
FROM_SCRATCH = "scratch"
_DEFAULTS_OF_SCRATCH = {"top_layers": -1, "outputs": "weights"}
#: No backbone has more positions, and a new one with so many still takes only some megabytes.
_LONGEST = 32_768


def _check_data(settings: Mapping[str, Any]) -> None:
    """Refuse unknown views, and a click log that would not be read."""
    pseudo_queries.parse(str(settings["views"]))
    if settings["clicks"] and settings["pairs"] not in ("auto", "clicks"):
        raise UsageError(
            f"pairs={settings['pairs']} does not read the click log {settings['clicks']}.",
            "Set pairs=clicks, or leave clicks out.",
        )


#: Settings of a preset that trains on all questions and documents.
EVERYTHING = {"documents": LARGEST, "questions": LARGEST}

DATA = ParameterGroup(
    "Data",
    (
        TrainingParameter(
            "pairs",
            "auto",
            "Where questions come from: judgements (qrels), a click log (clicks), or the corpus itself (corpus); auto: the first of these "
            "that is there.",
            ("auto", "qrels", "clicks", "corpus"),
        ),
        TrainingParameter(
            "clicks",
            "",
            "Click log: lines of query, document id and count (tab-separated, or JSON); or ubi:FOLDER, ubi:opensearch, ubi:https://HOST:9200, "
            "a log of user behaviour.",
        ),
        TrainingParameter(
            "click_counts",
            "corrected",
            "Clicks of a log of user behaviour: corrected for the positions of the documents by a click model, or raw.",
            ("corrected", "raw"),
        ),
        TrainingParameter(
            "views",
            "title,heading,sentence,span",
            "How questions are made of documents: title -> body, heading -> section, first sentence -> rest, cropped spans.",
        ),
        TrainingParameter("documents", 5000, "Largest number of documents to train on.", least=2),
        TrainingParameter("questions", 12000, "Largest number of questions to train on.", least=2),
        TrainingParameter(
            "dev",
            300,
            "Largest number of questions that decide when to stop: from the split 'dev', or held out where there is no such split.",
            least=5,
        ),
        TrainingParameter(
            "skip_bad",
            default=False,
            help="Leave out entries of the corpus that cannot be read, and the second of two with one id (--skip-bad).",
        ),
        TrainingParameter("id_field", "", "Key or column of the corpus that holds the id; empty: the usual names (--id-field)."),
        TrainingParameter("title_field", "", "Key or column that holds the title; empty: the usual names (--title-field)."),
        TrainingParameter(
            "text_field", "", "Key or column that holds the text; several, with commas, are joined (--text-field)."
        ),
    ),
    _check_data,
)


def _check_backbone(settings: Mapping[str, Any]) -> None:
    """Refuse to use the vector of layers that were cut off, or of a backbone that nobody has trained."""
    scratch, cut = settings["backbone"] == FROM_SCRATCH, settings["layers"] and settings["top_layers"] == 0
    if not (scratch or cut):
        return
    from termweave.training.data.teacher_scores import MADE  # noqa: PLC0415 - numpy

    dense, teacher = "dense" in str(settings.get("outputs", "")).split(","), settings.get("teacher") in MADE
    if scratch and (teacher or (dense and not settings.get("joint"))):
        raise UsageError(
            "The vectors of a backbone made from scratch mean nothing: nobody has trained them.",
            "Leave outputs and teacher out; fectek trains the vector with joint=1 and outputs=weights,dense.",
        )
    if cut and (dense or teacher):
        raise UsageError(
            f"layers={settings['layers']} cuts off the layers that the frozen backbone's vector is made of.",
            "Set outputs=weights and a teacher that is a file or none, or leave layers at 0.",
        )


BACKBONE = ParameterGroup(
    "Backbone",
    (
        TrainingParameter(
            "backbone",
            "",
            "Folder of a BERT-like model in transformers' layout, or hf:OWNER/NAME; empty: all-MiniLM-L6-v2, if its package is installed; "
            "'scratch': a small new model with a vocabulary of the corpus's characters, which sets top_layers=-1 and outputs=weights.",
        ),
        TrainingParameter(
            "layers",
            0,
            "Number of the backbone's layers to use, from below; 0: all. Term weights alone need fewer: half the layers take half the time "
            "(docs/encoding.md).",
            least=0,
        ),
        TrainingParameter(
            "top_layers", 0, "Number of top layers that are trained: 0 leaves the backbone frozen, -1 trains all of it.", least=-1
        ),
        TrainingParameter(
            "max_length", 256, "Word-pieces that the model sees in use, up to the backbone's limit.", least=8, most=_LONGEST
        ),
        TrainingParameter(
            "training_length",
            128,
            "Word-pieces of a text that training looks at, up to the backbone's limit.",
            least=8,
            most=_LONGEST,
        ),
    ),
    _check_backbone,
    lambda given: _DEFAULTS_OF_SCRATCH if given.get("backbone") == FROM_SCRATCH else {},
)

#: The value of `epochs` that leaves the number of steps to `steps`.
_NO_EPOCHS = -1.0


def _check_epochs(settings: Mapping[str, Any]) -> None:
    if settings["epochs"] != _NO_EPOCHS and settings["epochs"] <= 0:
        raise UsageError(
            f"epochs={settings['epochs']:g} trains nothing.", "Set epochs above 0, or leave it out: then steps counts."
        )


def steps_of(settings: Mapping[str, Any], questions: int, share: float = 1.0) -> int:
    """Count the steps of a run: `epochs` passes over the training questions, or where no epochs are set, `steps`.

    Args:
        settings: Of the method.
        questions: Training questions of DATASET.
        share: Share of the batches that are drawn from DATASET.
    """
    if settings["epochs"] == _NO_EPOCHS:
        return int(settings["steps"])
    return math.ceil(float(settings["epochs"]) * questions / (int(settings["batch"]) * int(settings["accumulate"])) / share)


LOOP = ParameterGroup(
    "Training loop",
    (
        TrainingParameter("seed", 0, "The same seed gives the same model on the same machine.", least=0, most=2**32 - 1),
        TrainingParameter("steps", 500, "Largest number of optimiser steps.", least=1),
        TrainingParameter(
            "epochs",
            _NO_EPOCHS,
            "Largest number of passes over the training questions of DATASET, instead of steps; -1: steps counts.",
            least=_NO_EPOCHS,
            most=100_000,
        ),
        TrainingParameter("batch", 48, "Questions (or texts) in a batch.", least=1, most=10_000),
        TrainingParameter(
            "accumulate",
            1,
            "Batches whose gradients are averaged for one step: a large batch on a small device.",
            least=1,
            most=10_000,
        ),
        TrainingParameter(
            "every", 100, "Steps between two evaluations on the development questions; each one writes a checkpoint.", least=1
        ),
        TrainingParameter("patience", 3, "Evaluations without a better figure after which training stops.", least=1),
        TrainingParameter(
            "measure",
            "nDCG@10",
            "Measure of the development questions that decides when to stop.",
            ("nDCG@10", "MRR@10", "recall@100"),
        ),
    ),
    _check_epochs,
)

OPTIMISER = ParameterGroup(
    "Optimiser (AdamW)",
    (
        TrainingParameter("rate", 1e-3, "Peak learning rate of all that is trained beside the backbone.", above=0, most=10),
        TrainingParameter("layers_rate", 5e-5, "Peak learning rate of the backbone's layers.", above=0, most=10),
        TrainingParameter(
            "schedule",
            "one-cycle",
            "How the rate falls after the warm-up: one-cycle (cosine), linear, or constant.",
            ("one-cycle", "linear", "constant"),
        ),
        TrainingParameter("warmup", 0.3, "Share of the steps in which the rate rises to its peak.", least=0, most=0.95),
        TrainingParameter(
            "warmup_steps", 0, "Steps in which the rate rises to its peak, instead of a share; 0: warmup counts.", least=0
        ),
        TrainingParameter("weight_decay", 0.01, "Weight decay; scalars have none.", least=0, most=100),
        TrainingParameter(
            "clip", 0.0, "Largest norm of the gradient; longer gradients are scaled down to it. 0: no limit.", least=0, most=1e6
        ),
        TrainingParameter(
            "precision",
            "auto",
            "Numbers that the backbone computes with in training: bf16, fp32, or auto (bf16 on a GPU that has it). Losses are always fp32.",
            ("auto", "fp32", "bf16"),
        ),
        TrainingParameter(
            "ema",
            0.0,
            "Decay of the running mean of the parameters that is evaluated and kept; 0: the parameters themselves.",
            least=0,
            most=0.99999,
        ),
    ),
)

NEGATIVES = ParameterGroup(
    "Hard negatives",
    (
        TrainingParameter(
            "negatives", 25, "BM25's best wrong documents of a question, to draw from; 0: none.", least=0, most=10_000
        ),
        TrainingParameter("drawn", 1, "How many of them each question gets in a batch; the paper has 15.", least=0, most=10_000),
        TrainingParameter("in_batch", default=True, help="The other questions' documents are negatives too."),
    ),
)

TEACHER = ParameterGroup(
    "Teacher",
    (
        TrainingParameter(
            "teacher",
            "auto",
            "Scores of pairs to distil: a TREC run or lines of query, document, score; 'ranker:FOLDER': a cross-encoder, on the right "
            "documents and the hard negatives; 'dense': the backbone's own vectors; 'minmax' or "
            "'zscore': BM25 and vectors, each scaled so, added; none; auto: minmax where questions are made of the corpus and the backbone "
            "is frozen, else none.",
        ),
        TrainingParameter(
            "teacher_weight",
            0.0,
            "Weight of the distillation loss; 0: 9 where questions are made of the corpus, else 1.",
            least=0,
            most=1e6,
        ),
        TrainingParameter(
            "temperature",
            0.0,
            "The teacher's scores are divided by it; 0: 0.05 for dense, 0.1 for minmax, 0.5 for zscore, 1 for a file.",
            least=0,
            most=1e6,
        ),
    ),
)

MIXTURE = ParameterGroup(
    "Other data sets",
    (
        TrainingParameter(
            "beside",
            "",
            "Other data sets to learn from, separated by commas. Of a BEIR folder the judged pairs are used; of a corpus questions are "
            "made; pairs, clicks, a teacher's file and the names of fields apply to DATASET alone.",
        ),
        TrainingParameter("beside_share", 1.0, "Batches of each data set beside for one batch of DATASET.", above=0, most=1000),
    ),
)
