"""BERT-Scorer (paper 000, LE-BS, sections 3.1 and 3.2.1; and DeepCT's target): term weights by regression.

    t_w^{x,y} = (n_{w,y} / |y|) * log(|Y| / (df_w + 1))          Eq. 1: tf-idf of the question's word w in the document y
    t^_i      = W h_i + b                                        Eq. 2, 3: one number per piece
    J         = mean over pieces of (t_i - t^_i)^2               Eq. 4 (the paper prints the sum)

Target `tfidf`: the pieces of a question x against Eq. 1 for each of its relevant documents y; with `sides=both` also the pieces
of y against Eq. 1 for y itself. Target `recall` (DeepCT): the pieces of a document against the share of its own questions
that hold the word; a query's words then weigh one each, and the weights suit the signal `term_frequency`.

The weight of a word is shared out among its pieces (LE-BS does so with the characters of a Chinese word) and is their sum
again in use; what is negative is dropped. `bmes` adds to the input an embedding of each piece's place in its word (begin,
middle, end, single), which needs a backbone that is trained.

Worked example: |y| = 20, n = 2, |Y| = 1000, df = 9: t = .1 * log(1000 / 10) = .460517.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.training.methods import BITS, Method, Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.encoders.form import Form


def _check(settings: Mapping[str, Any]) -> None:
    if settings["bmes"] and settings["top_layers"] != -1:
        raise UsageError("bmes changes the input of the backbone, which is not trained.", "Add --set top_layers=-1.")
    if settings["bmes"] and settings["outputs"] != "weights":
        raise UsageError("A model with bmes gives weights alone.", "Add --set outputs=weights.")


def _form(settings: Mapping[str, Any]) -> Form:
    from termweave.encoders.form import Form  # noqa: PLC0415 - numpy

    return Form(settings["anchor"], "linear", "sum", "one" if settings["target"] == "recall" else "learned")


METHOD = Method(
    name="bert-scorer",
    title="Weights by regression on tf-idf or query-term recall.",
    source="LE-BS: Label Enhancement for embedding retrieval (paper 000), Eq. 1-4; target 'recall': DeepCT (Dai and Callan 2019)",
    equations=(
        "Eq. 1  t_w = (n_wy / |y|) * log(|Y| / (df_w + 1))   (target=tfidf)",
        "       t_w = share of the document's questions that hold w   (target=recall)",
        "Eq. 3  t^_i = W h_i + b",
        "Eq. 4  J = mean (t - t^)^2",
    ),
    note=(
        "It needs no negatives and learns what is probable, not what tells documents apart: on English sets it stays below the contrastive "
        "method (docs/term-weights.md). With anchor=bm25 or idf the predicted number multiplies the anchor. Chinese: "
        "--set backbone=scratch --set bmes=true."
    ),
    parameters=(
        Parameter("target", "tfidf", "What is predicted.", ("tfidf", "recall")),
        Parameter("anchor", "none", "What the predicted number is multiplied with in the index.", ("none", "idf", "bm25")),
        Parameter(
            "sides",
            "both",
            "Whose words are trained on with target=tfidf: the questions' (as in the paper), or the documents' too.",
            ("query", "both"),
        ),
        Parameter("shared", default=True, help="One head for documents and queries, as in the paper."),
        Parameter("target_scale", 1.0, "Targets are multiplied by it; tf-idf targets are minute.", least=1e-6, most=1e6),
        Parameter("bmes", default=False, help="Add an embedding of each piece's place in its word to the input (Chinese)."),
        BITS,
    ),
    form=_form,
    lesson="termweave.training.regression:Regression",
    check=_check,
)
