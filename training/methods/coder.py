"""CODER with label smoothing (paper 002, sections 3.2, 4 and A.5): list-wise fine-tuning over many candidates of each query.

The documents' vectors stay as the base model made them and the query encoder learns (`towers=query`), so that a list of hundreds of
candidates costs one product. For a query q with candidates c_1..c_N and judged documents L(q):

    s'(q, c) = <x_q, x_c>                     predicted scores, of vectors of length 1, or as the base model gives them (`vectors`)
    s^       = softmax(s' / T)                T is learned
    L        = KL(r || s^), the mean over the queries of a batch                                   Algorithm 1, line 9

The target r is one of (setting `labels`):

    teacher=ranker:FOLDER  r = softmax(o), o = the scores of a trained cross-encoder (`dense.list_targets.ranker_targets`), whatever `labels` says
    hybrid     r = softmax(m / .1), m = min-max BM25 + min-max cosine, which is what hybrid search ranks by; for questions that
               were made of the corpus, where nobody judged anything
    hard       r = 1/|L(q)| on L(q), else 0                                                        plain CODER, ListNet
    uniform    r = (1 - e)/|L(q)| on L(q), e/(N - |L(q)|) elsewhere                                Eq. 2
    evidence   r'' = 1/|L(q)| sum_{l in L(q)} s*(l, c)                                             Algorithm 1, line 5
               r'  = b f_n(r'') on L(q); -inf below rank n_max of r''; f_n(r'') elsewhere          line 6
               r   = softmax(r')                                                                   line 9

s*(l, c) = lambda s(l, c) + (1 - lambda) s_J(l, c) is the mixed similarity of Eq. 1 with the judged document l as the probe
(`rerank/neighbours/reciprocal.py`, with its readings): lambda = 1 gives geometric labels, lambda = 0
those of reciprocal neighbours alone, anything between the paper's mixed labels. f_n is max-min (Eq. 13) or std (Eq. 14).

Two ways from r'' to r are offered (setting `label_path`). `algorithm` is Algorithm 1 as printed. `program` is what the authors' data
set class computes: it drops scores below .1, keeps the n_max best, normalises over these alone, and boosts the first |L(q)| places,
whichever documents stand there. On raw inner products the second often gives the judged document probability 1.

Readings: rank for n_max is rank by r''. A judged document outside n_max keeps its label. A judged document that retrieval missed
takes the place of the last candidate. KL(r || s^) counts 0 where r is 0. T has the encoder's learning rate with preset=paper. Not printed: what
follows the warm-up (here a linear fall to step 20,000), and what becomes of candidates outside N_r (here they get no label).

Worked example: r'' = (3, 1, 2), L(q) = {0}, b = 1.5, n_max = 2, max-min: r' = (1.5, -inf, .5) and r = (.731, 0, .269).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from termweave.declared_settings import Setting
from termweave.support import LazyModule
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import Preset
from termweave.training.methods.bi_encoder import BiEncoderMethod, DenseParameters
from termweave.training.methods.parameters import PRESET, TO_THE_END, Depth, Factor, MixtureParameters, Share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.rerank.neighbours import reciprocal as algorithm
    from termweave.training.data.sampler import Batch
    from termweave.training.dense import list_targets
    from termweave.training.dense.list_targets import ListTargets
    from termweave.training.dense.model import TargetContext, Towers
    from termweave.training.methods.base import Parts
    from termweave.training.trainer.trainer import Fit
else:  # `termweave train --help` reads this file and needs no numpy
    algorithm = LazyModule("termweave.rerank.neighbours.reciprocal")
    list_targets = LazyModule("termweave.training.dense.list_targets")


#: e of Eq. 2.
_SMOOTHING = 0.1


# -- Targets ---------------------------------------------------------------------------------------------------------------------


def uniform_labels(candidates: int, relevant: Sequence[int], smoothing: float = 0.0) -> NDArray[np.float64]:
    """Return Eq. 2, float64 ``(candidates,)`` of sum 1: relevant documents share the probability equally, but for `smoothing`, which the others share."""
    others = candidates - len(set(relevant))
    moved = smoothing if others else 0.0
    shares = np.full(candidates, moved / max(1, others))
    shares[list(relevant)] = (1.0 - moved) / len(relevant)
    return shares


def target(
    settings: CoderParameters, relevant: Sequence[int], candidates: int, evidence: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """Compute the target distribution of one list: float64 ``(candidates,)``.

    Args:
        settings: The kind of labels, and how they are smoothed; hybrid labels are made without judged documents (`dense.list_targets`).
        relevant: Positions of the judged documents in the list, at least one.
        candidates: Length of the list.
        evidence: r'' of each candidate (`rerank.neighbours.reciprocal.evidence`); needed for "evidence" alone.
    """
    if settings.labels in ("hard", "uniform"):
        return uniform_labels(candidates, relevant, _SMOOTHING if settings.labels == "uniform" else 0.0)
    assert evidence is not None
    make = algorithm.labels if settings.label_path == "algorithm" else list_targets.program_labels
    return make(evidence, relevant, boost=settings.boost, keep=settings.keep_labels or None, normalize=settings.normalisation)


# -- Loss ------------------------------------------------------------------------------------------------------------------------


def list_loss(scores: Tensor, targets: Tensor, log_temperature: Tensor | float = 0.0, present: Tensor | None = None) -> Tensor:
    """Compute KL(r || softmax(s' / T)), the mean over the queries (Algorithm 1, line 9).

    Args:
        scores: s' ``(Q, N)``, float32 or better.
        targets: r ``(Q, N)``; each row sums to 1.
        log_temperature: log T; learned on the logarithm, so that T stays above 0.
        present: bool ``(Q, N)``, False where a shorter list was filled up; None: all lists have N candidates.

    Returns:
        A scalar, 0 where prediction and target agree.
    """
    temperature = torch.as_tensor(log_temperature, dtype=scores.dtype, device=scores.device).exp()
    scaled = scores / temperature
    if present is not None:
        scaled = scaled.masked_fill(~present, -torch.inf)
    predicted = scaled.log_softmax(dim=1)
    predicted = predicted.masked_fill(targets == 0, 0.0)  # 0 log 0 = 0, and no gradient through -inf
    return (torch.special.xlogy(targets, targets) - targets * predicted).sum(dim=1).mean()


# -- Declaration -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoderParameters(MixtureParameters, DenseParameters):
    """The parameters of coder."""

    heading: ClassVar[str] = "Of coder"
    preset: Annotated[Literal["default", "paper", "cocondenser"], PRESET] = "default"
    towers: Literal["one", "two", "query"] = "query"
    labels: Annotated[
        Literal["auto", "hard", "uniform", "evidence", "hybrid"],
        Setting("Target distribution; hybrid: scores of hybrid search; auto: evidence where there are judgements, else hybrid."),
    ] = "auto"
    candidates: Annotated[int, Setting("Candidates of each query."), Ge(2), Le(10_000)] = 200
    candidates_from: Annotated[str, Setting("Their ranking: model, bm25, index:NAME, or a run of `evaluate --save`.")] = "model"
    temperature: Annotated[Factor, Setting("T of the predicted distribution as training begins; it is learned.")] = 0.05
    boost: Annotated[float, Setting("b: factor of the judged documents' normalised evidence."), Gt(0), Le(100)] = 1.222
    keep_labels: Annotated[Depth, Setting("n_max: how many keep a label by their evidence; judged ones always do; 0: all.")] = 4
    normalisation: Annotated[Literal["max-min", "std"], Setting("f_n: Eq. 13 or Eq. 14.")] = "max-min"
    label_path: Annotated[
        Literal["algorithm", "program"], Setting("From evidence to labels: Algorithm 1 as printed, or the authors' program.")
    ] = "algorithm"
    evidence_weight: Annotated[Share, Setting("lambda of Eq. 1: 1 is geometric similarity, 0 that of neighbours.")] = 0.75
    context: Annotated[Depth, Setting("N_r: candidates in whose context neighbours are computed; 0: all.")] = 60
    k: Annotated[int, Setting("Neighbours of an element, itself not counted (Eq. 3)."), Ge(1), Le(1000)] = 10
    k_exp: Annotated[int, Setting("Elements whose sets are averaged (Eq. 8)."), Ge(1), Le(1000)] = 3
    tau: Annotated[Share, Setting("Size of sets that expand a neighbourhood: tau (k + 1), rounded; 2 with itself (Eq. 5).")] = 0.0
    inclusive: Annotated[bool, Setting("Expand a neighbourhood at an overlap of exactly 2/3, too: Eq. 5 as printed.")] = False
    vectors: Annotated[
        Literal["unit", "given"],
        Setting(
            "Vectors of which scores and evidence are inner products: unit (of length 1, as in an index), or as the base model makes them (given)."
        ),
    ] = "unit"
    teacher: Annotated[str, Setting("ranker:FOLDER: this cross-encoder's scores are the targets, not labels; none.")] = "none"
    layers_rate: float = 2e-5

    def fitted(self, *, made: bool) -> CoderParameters:
        """Replace labels=auto: questions made of the corpus have no judgements and get hybrid search as teacher (hybrid), others evidence."""
        return replace(self, labels="hybrid" if made else "evidence") if self.labels == "auto" else self

    def texts(self) -> tuple[int, int]:
        """Return how many queries a step encodes, and how many documents: all candidates of the queries, or 0 where documents are not trained."""
        return self.batch, 0 if self.towers == "query" else self.batch * self.candidates


#: Both columns of Tables 5 and 6. Not printed: candidates, T at the start, weight decay and lengths, which are those of the authors' public
#: configuration, and schedule and steps, which are ours (theirs: RAdam, at most 15 epochs of MS MARCO, a rate that falls on plateaus).
_MARCO = {
    **TO_THE_END,
    "vectors": "given",
    "inclusive": True,
    "evidence_weight": 0.451,
    "k": 21,
    "k_exp": 3,
    "tau": 0.0,
    "context": 60,
    "labels": "evidence",
    "candidates": 1000,
    "temperature": 1.0,
    "weight_decay": 9.5e-5,
    "training_length": 256,
    "steps": 20_000,
    "every": 1000,
}


class Coder(BiEncoderMethod):
    """List-wise fine-tuning over many candidates, with evidence-based label smoothing.

        Eq. 1     s*(l, c) = lambda s(l, c) + (1 - lambda) s_J(l, c)
        Eq. 2     r = [1 - e, e / (N - 1), ...]                              (labels=uniform)
        Alg. 1.5  r'' = mean over the judged l of s*(l, c)                   (labels=evidence)
        Alg. 1.6  r' = b f_n(r'') if c is judged; -inf beyond n_max; f_n(r'') otherwise
        Alg. 1.9  L = KL(softmax(r') || softmax(s' / T)), T learned

    The documents' vectors stay as they are and the query encoder learns, so that an existing index keeps its vectors and a batch costs
    little. The default neighbourhoods (lambda .75, k 10) suit vectors of length 1, and the default b, n_max and f_n are those of
    CODER(TAS-B). The paper's parameters belong to its base encoders: preset=paper is CODER(TAS-B) in its Tables 5 and 6, preset=cocondenser
    has the labels of CoCondenser in Table 5 and CODER(CoCondenser) in Table 6. Without judgements hybrid search is the teacher
    (labels=hybrid).
    """

    name = "coder"
    source = "Evidence-based label smoothing and reranking by reciprocal nearest neighbours, on CODER (paper 002)"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            "CODER(TAS-B) as printed, Tables 5 and 6: lambda .451, k 21, k_exp 3, tau 0, N_r 60, b 1.222, n_max 4, max-min, Eq. 5 with >=, "
            "inner products of the base model's vectors (held-out questions and indices are searched by cosine)",
            {**_MARCO, "layers_rate": 1.73e-6, "rate": 1.73e-6, "warmup": 9000.0},
        ),
        "cocondenser": Preset(
            "CODER(CoCondenser) as printed: the labels' lambda .469, k 21, k_exp 5, tau .128, N_r 53 are those of its base model; b 1.525, "
            "n_max 32, std",
            {
                **_MARCO,
                "evidence_weight": 0.469,
                "k_exp": 5,
                "tau": 0.128,
                "context": 53,
                "boost": 1.525,
                "keep_labels": 32,
                "normalisation": "std",
                "layers_rate": 1.37e-6,
                "rate": 1.37e-6,
                "warmup": 12_000.0,
            },
        ),
    }
    parameters = CoderParameters

    def targets(self, context: TargetContext) -> ListTargets:
        """Retrieve the candidates and make the target distributions, once."""
        settings = context.settings
        if settings.teacher != "none":
            return list_targets.ranker_targets(context)
        if settings.labels == "hybrid":
            return list_targets.hybrid_targets(context)
        return list_targets.judged_targets(context, partial(target, settings), with_evidence=settings.labels == "evidence")

    def extras(self, model: Towers, settings: CoderParameters) -> Parts:
        """Return the temperature T of the loss, which is learned as its logarithm."""
        del model
        return {"log_temperature": torch.nn.Parameter(torch.tensor(math.log(settings.temperature)))}

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute KL(r || s^) of the lists of a batch: the part "list"."""
        prepared, queries = batch.inputs.targets, self.encode(fit, batch, "query", batch.drawn)
        lists = prepared.candidates[batch.drawn]
        present = lists >= 0
        used, places = np.unique(np.where(present, lists, lists[:, :1]), return_inverse=True)
        documents = (
            torch.from_numpy(prepared.documents[used]).to(queries)
            if fit.model.fixed_documents
            else self.encode(fit, batch, "document", used)
        )
        scores = (queries @ documents.T).gather(1, torch.from_numpy(places.reshape(lists.shape)).to(queries.device))
        targets, mask = (torch.from_numpy(each).to(queries.device) for each in (prepared.targets[batch.drawn], present))
        return {"list": list_loss(scores, targets, fit.log_temperature, mask)}
