"""FecTek (paper 001), and the anchored head that grew out of it: impacts learned by telling the right document from others.

For a batch of Q questions with their relevant documents and one mined BM25 negative each (D documents), with term weights
``wq`` and ``wd`` as `encoders.form` makes them of the logits of a head on the states H of a BERT-like backbone:

    S[q, d] = sum over terms t of wq(t) * wd(t)
    L_text  = mean over q of -log softmax(a * S[q, :])[relevant document of q]                          Eq. 4
    L_term  = BCE(P, y) over the words of the questions + the same over those of their documents         Eq. 5-7
    L       = L_text + L_term [+ KL(teacher || S)] [+ dense losses, where layers are trained]            Eq. 8, 4.1.3

y = 1 for a term that question and relevant document share. P (TKGM, Eq. 3) is a sigmoid over what the head's last layer sees:
for a linear head without gate these are the states, as in the paper; for a deep head its hidden layer, which is then taught by
both losses also while the backbone is frozen. (With a frozen backbone and a linear head TKGM cannot change a weight.)
The gate (FCM, Eq. 2) is `encoders.models.anchored.ContextGate`.

Readings that differ from the paper are parameters: `anchor=none hidden=0 fcm=true tkgm=true scale=1 in_batch=false drawn=15`
is the paper's model on words.

Worked example: one question with one term of weight 1; the relevant document gives it 3, the negative 1; a = .3:
L_text = -log(e^.9 / (e^.9 + e^.3)) = .437.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.training.methods import BITS, FROM_SCRATCH, Method, Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.encoders.form import Form


def _check(settings: Mapping[str, Any]) -> None:
    if settings["query"] == "idf" and settings["anchor"] != "none":
        raise UsageError("query=idf counts idf twice where the document's weight is anchored on it.", "Use query=learned or one.")
    if settings["joint"] > 0 and settings["top_layers"] == 0:
        raise UsageError("joint trains the vector, but the backbone is frozen.", "Set top_layers too, or leave joint at 0.")
    if settings["beside"] and settings["backbone"] == FROM_SCRATCH:
        raise UsageError(
            "beside needs a backbone that knows all data sets: one from scratch is made of DATASET's characters alone.",
            "Leave beside out, or name a backbone.",
        )


def _form(settings: Mapping[str, Any]) -> Form:
    from termweave.encoders.form import Form  # noqa: PLC0415 - numpy

    return Form(
        settings["anchor"], "log" if settings["anchor"] == "none" else "softplus", "max", settings["query"], settings["tf_power"]
    )


#: By what each teacher's scores are divided: they lie between 0 and 1, 0 and 2, in deviations, or are a cross-encoder's logits.
_TEMPERATURES = {"dense": 0.05, "minmax": 0.1, "zscore": 0.5}


def _fitted(settings: Mapping[str, Any], *, made: bool) -> dict[str, Any]:
    """Questions made of the corpus are not like those that people ask: there the teacher says most (docs/term-weights.md)."""
    teacher = settings["teacher"]
    if teacher == "auto":
        whole = settings["top_layers"] == 0 and settings["layers"] == 0 and settings["backbone"] != FROM_SCRATCH
        teacher = "minmax" if made and whole else "none"
    return {
        **settings,
        "teacher": teacher,
        "teacher_weight": settings["teacher_weight"] or (9.0 if made else 1.0),
        "temperature": settings["temperature"] or _TEMPERATURES.get(teacher, 1.0),
    }


METHOD = Method(
    name="fectek",
    title="Impacts by contrast: a multiplier on BM25 or idf (the anchored head), or FecTek as in the paper.",
    source="FecTek: Enhancing Term Weight in Lexicon-Based Retrieval with Feature Context and Term-level Knowledge (paper 001)",
    equations=(
        "Eq. 1  W_i = log(1 + ReLU(w_1 f_i + b_1))          (anchor=none; anchored: anchor * softplus(z_i + ln(e-1)))",
        "Eq. 2  F = H * sigmoid(W'' relu(W' mean(H)))        (fcm)",
        "Eq. 3  P_i = sigmoid(w_2 h_i + b_2)                 (tkgm; training only)",
        "Eq. 4  L_text = -log softmax(s(q, .))[d+]",
        "Eq. 8  L = L_text + L_term",
    ),
    note=(
        "The default is the anchored head: a term is worth its BM25 impact times a learned multiplier, so that an untrained model is BM25 "
        "and training keeps nothing that is worse on the development questions. anchor=idf leaves the term frequency out, anchor=none is the "
        "paper's own formula. On a frozen backbone it trains in a minute and the vector of the same pass stays as it was."
    ),
    parameters=(
        Parameter("anchor", "bm25", "What a document's weight is a multiple of.", ("bm25", "idf", "none")),
        Parameter(
            "tf_power",
            1.0,
            "With anchor=bm25: power of BM25's frequency part; 1 is BM25, 0.5 lets repetitions count less.",
            least=0,
            most=10,
        ),
        Parameter(
            "query",
            "learned",
            "Weights of a query's terms: a head of its own, idf, or one for each occurrence.",
            ("learned", "idf", "one"),
        ),
        Parameter("shared", default=False, help="One head for documents and queries, as in the paper."),
        Parameter("fcm", default=False, help="Feature context module: features are gated by the mean state of the text."),
        Parameter("tkgm", default=False, help="Term-level knowledge: tell, beside, which terms question and document share."),
        Parameter("negatives", 25, "BM25's best wrong documents of a question, to draw from; 0: none.", least=0, most=10_000),
        Parameter("drawn", 1, "How many of them a question gets in a batch; the paper has 15.", least=0, most=10_000),
        Parameter("in_batch", default=True, help="The other questions' documents are negatives too."),
        Parameter(
            "scale", 0.3, "Where the learned scale of the scores starts; scores are large with an anchor.", above=0, most=1000
        ),
        BITS,
        Parameter(
            "teacher",
            "auto",
            "Scores of pairs to distil: a TREC run or lines of query, document, score; 'dense': the backbone's own vectors; 'minmax' or "
            "'zscore': BM25 and vectors, each scaled so, added; none; auto: minmax where questions are made of the corpus and the backbone "
            "is frozen, else none.",
        ),
        Parameter(
            "teacher_weight",
            0.0,
            "Weight of the distillation loss; 0: 9 where questions are made of the corpus, else 1.",
            least=0,
            most=1e6,
        ),
        Parameter(
            "temperature",
            0.0,
            "The teacher's scores are divided by it; 0: 0.05 for dense, 0.1 for minmax, 0.5 for zscore, 1 for a file.",
            least=0,
            most=1e6,
        ),
        Parameter(
            "beside",
            "",
            "Other data sets to learn from, with commas between. Of a BEIR folder the judged pairs are used, of a corpus questions are "
            "made; pairs, clicks, a teacher's file and the names of fields are said of DATASET alone.",
        ),
        Parameter(
            "beside_share", 1.0, "How many batches of each data set beside there are for one of DATASET.", above=0, most=1000
        ),
        Parameter(
            "joint",
            0.0,
            "Weight of the vectors' own contrastive loss, where layers are trained (0.5 was tried).",
            least=0,
            most=1e6,
        ),
    ),
    form=_form,
    lesson="termweave.training.lessons:Contrast",
    check=_check,
    fitted=_fitted,
)
