"""DTR (paper 004): dense retrieval of answer templates with two encoders and labelled batches.

Every text of a batch carries the number of its template; a template carries its own. Equal numbers make a positive pair, different
numbers a negative one, so queries and templates need not be drawn in pairs.

    s(q, t)  = cos(E_Q(q), E_T(t))                                                                 Eq. 4.1
    L(A, B)  = 1/|A| sum_a 1/|P(a)| sum_{p in P(a)} -log( e^{s(a,p)} / (e^{s(a,p)} + sum_{n in N(a)} e^{s(a,n)}) )   Eq. 4.4
    L_batch  = alpha L(Q,T) + beta L(Q,Q) + gamma L(T,T) + theta L(T,Q)                            Eq. 4.3

P(a) are the texts of B with the label of a, N(a) those with another one. Each positive stands against all negatives and never
against the other positives. L(Q,T) is Eq. 4.2; L(T,T) only pushes templates apart; L(Q,Q) pulls the queries of a template together.
With `top`, N(a) is cut to its `top` elements with the largest s(a, .) (4.2.2.B). Eq. 4.1 to 4.4 have no temperature; `scale`
multiplies the cosines (20 by default, as in the author's program; 1 is the thesis).

Readings: a text is its own positive in L(Q,Q) and L(T,T), because B contains it. An anchor without a positive counts as 0 and still
counts in |A|. A query that several templates answer is labelled with one of them; the others are no negatives of it.

Algorithm 4.1, semi-independent sampling (`semi_independent`): draw b templates uniformly; collect all queries that they answer; draw
b of these queries. The negatives follow the templates of the collection, the positives follow the queries of the data. Reading: an epoch is
as many batches as a pass over all queries would be.

Worked example: Q = (1,0), (.6,.8), (0,1) with the labels 0, 0, 1 and T = (1,0), (0,1) with the labels 0, 1, at scale 1:
L(Q,T) = .474887, L(Q,Q) = .618622, L(T,T) = .313262, L(T,Q) = .578864; L(Q,T) + .5 L(Q,Q) + .5 L(T,T) = .940829.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from termweave.declared_settings import Setting, written
from termweave.errors import UsageError
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import Preset
from termweave.training.methods.bi_encoder import BiEncoderMethod, BothTowers, DenseParameters
from termweave.training.methods.parameters import PRESET, TO_THE_END, Depth, Factor, MixtureParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.training.data.sampler import Batch
    from termweave.training.dense.model import TargetContext
    from termweave.training.methods.base import Questions
    from termweave.training.trainer.trainer import Fit


# -- Batches ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledBatch:
    """The texts of one step.

    Attributes:
        queries: int64 ``(b,)``, indices of training queries.
        query_labels: int64 ``(b,)``, the template that each query is labelled with.
        templates: int64 ``(t,)``, the templates; each is its own label.
        own: int64 ``(t,)``, the row of the query that each template was drawn for, where it is a negative of that query alone;
            None: every template is a possible negative of every query.
    """

    queries: NDArray[np.int64]
    query_labels: NDArray[np.int64]
    templates: NDArray[np.int64]
    own: NDArray[np.int64] | None = None


def semi_independent(template_of: NDArray[np.int64], size: int, generator: np.random.Generator) -> LabelledBatch:
    """Draw a batch by Algorithm 4.1.

    Args:
        template_of: int64 ``(queries,)``, the template that answers each training query.
        size: b, the number of templates and of queries.
        generator: Source of randomness.

    Returns:
        b templates, or all where there are fewer, and b queries. Queries repeat only where the drawn templates have fewer than b.
    """
    templates = np.unique(template_of)
    drawn = np.sort(generator.choice(templates, size=min(size, len(templates)), replace=False))  # line 1
    answered = np.flatnonzero(np.isin(template_of, drawn))  # line 2
    queries = generator.choice(answered, size=size, replace=len(answered) < size)  # line 3
    return LabelledBatch(queries, template_of[queries], drawn)  # line 4


def in_batch(template_of: NDArray[np.int64], size: int, generator: np.random.Generator, *, by_query: bool) -> LabelledBatch:
    """Draw templates without repetition and one query of each: uniformly ("in-batch neg^t"), or by their number of queries ("neg^q")."""
    templates, counts = np.unique(template_of, return_counts=True)
    p = counts / counts.sum() if by_query else None
    drawn = generator.choice(templates, size=min(size, len(templates)), replace=False, p=p)
    queries = np.array([generator.choice(np.flatnonzero(template_of == template)) for template in drawn.tolist()])
    return LabelledBatch(queries, drawn, drawn)


def labelled_by_query(template_of: NDArray[np.int64], size: int, generator: np.random.Generator) -> LabelledBatch:
    """Draw queries uniformly with their templates; other templates take the place of repeated ones ("labelled in-batch neg^q")."""
    queries = generator.choice(len(template_of), size=min(size, len(template_of)), replace=False)
    labels = np.unique(template_of[queries])
    others = np.setdiff1d(template_of, labels)
    added = generator.choice(others, size=min(len(queries) - len(labels), len(others)), replace=False)
    return LabelledBatch(queries, template_of[queries], np.concatenate([labels, added]).astype(np.int64))


#: Wrong templates of each query with sampling=random.
RANDOM_NEGATIVES = 4


def random_negatives(
    template_of: NDArray[np.int64], size: int, generator: np.random.Generator, negatives: int = RANDOM_NEGATIVES
) -> LabelledBatch:
    """Draw queries uniformly with their templates and `negatives` other templates for each query alone ("random negatives")."""
    templates = np.unique(template_of)
    queries = generator.choice(len(template_of), size=min(size, len(template_of)), replace=False)
    drawn, own = [*template_of[queries].tolist()], [*range(len(queries))]
    for row, template in enumerate(template_of[queries].tolist()):
        others = templates[templates != template]
        drawn += generator.choice(others, size=min(negatives, len(others)), replace=False).tolist()
        own += [row] * min(negatives, len(others))
    return LabelledBatch(queries, template_of[queries], np.array(drawn), own=np.array(own))


#: How a batch is drawn: the names of the setting `sampling`.
SAMPLERS: dict[str, Callable[..., LabelledBatch]] = {
    "semi-independent": semi_independent,
    "labelled": labelled_by_query,
    "in-batch-template": partial(in_batch, by_query=False),
    "in-batch-query": partial(in_batch, by_query=True),
    "random": random_negatives,
}


def exclusions(batch: LabelledBatch, known: Sequence[frozenset[int]]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the pairs that are not negatives although their labels differ: query and template, and query and query.

    Args:
        batch: The batch.
        known: For each training query the templates that are no wrong answers.

    Returns:
        bool ``(b, t)``: the template answers the query, or was drawn for another query alone; bool ``(b, b)``: the same template
        answers both queries.
    """
    answers = [known[query] for query in batch.queries.tolist()]
    templates = np.array([[template in right for template in batch.templates.tolist()] for right in answers], dtype=np.bool_)
    queries = np.array([[not right.isdisjoint(other) for other in answers] for right in answers], dtype=np.bool_)
    if batch.own is not None:
        templates |= batch.own[None, :] != np.arange(len(batch.queries))[:, None]
    return templates, queries


# -- Loss ------------------------------------------------------------------------------------------------------------------------


def contrast_term(scores: Tensor, positive: Tensor, negative: Tensor, top: int = 0) -> Tensor:
    """Compute Eq. 4.4 from scores.

    Args:
        scores: s(a, b), scaled: ``(A, B)``, float32 or better.
        positive: bool ``(A, B)``, b in P(a).
        negative: bool ``(A, B)``, b in N(a).
        top: Keep only so many negatives of each anchor, those with the largest scores; 0: all.

    Returns:
        A scalar. An anchor without a positive contributes 0 to the mean over the anchors.
    """
    negatives = scores.masked_fill(~negative, -torch.inf)
    if 0 < top < negatives.shape[1]:
        negatives = negatives.topk(top, dim=1).values
    against = negatives.logsumexp(dim=1, keepdim=True)  # -inf without a negative: the term is 0 then
    losses = torch.nn.functional.softplus(against - scores).masked_fill(~positive, 0.0)  # -log(e^s / (e^s + e^against))
    return (losses.sum(dim=1) / positive.sum(dim=1).clamp(min=1)).mean()


def batch_loss(
    queries: Tensor,
    templates: Tensor,
    query_labels: Tensor,
    template_labels: Tensor,
    *,
    weights: Sequence[float] = (1.0, 0.5, 0.5, 0.0),
    scale: float = 20.0,
    top: int = 0,
    left_out: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Compute Eq. 4.3.

    Args:
        queries: Vectors ``(b, d)`` of any length, float32 or better: half precision loses the margins.
        templates: Likewise ``(t, d)``.
        query_labels: int64 ``(b,)``.
        template_labels: int64 ``(t,)``.
        weights: alpha (query-template), beta (query-query), gamma (template-template), theta (template-query), as in Eq. 4.3.
        scale: What cosines are multiplied by; 1 is the thesis.
        top: In-batch top-k negatives of each anchor, in every term; 0: all.
        left_out: Pairs of different labels that are no negatives: bool ``(b, t)`` and ``(b, b)`` (`exclusions`).

    Returns:
        Each weighted term whose weight is not 0: "qt", "qq", "tt", "tq". Their sum is L_batch.
    """
    unit = torch.nn.functional.normalize
    sides = {"q": (unit(queries, dim=-1), query_labels), "t": (unit(templates, dim=-1), template_labels)}
    excluded: dict[str, Tensor] = {}
    if left_out is not None:
        of_templates, of_queries = left_out
        excluded = {"qt": of_templates, "tq": of_templates.T, "qq": of_queries}
    parts: dict[str, Tensor] = {}
    for name, weight in zip(("qt", "qq", "tt", "tq"), weights, strict=True):
        if weight == 0:
            continue
        (anchors, anchor_labels), (others, other_labels) = sides[name[0]], sides[name[1]]
        positive = anchor_labels[:, None] == other_labels[None, :]
        negative = ~positive & ~excluded[name] if name in excluded else ~positive
        parts[name] = weight * contrast_term(scale * anchors @ others.T, positive, negative, top)
    return parts


# -- Declaration -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DtrParameters(MixtureParameters, DenseParameters):
    """The parameters of dtr."""

    heading: ClassVar[str] = "Of dtr"
    preset: Annotated[Literal["default", "paper", "program"], PRESET] = "default"
    towers: BothTowers = "one"
    sampling: Annotated[
        Literal["semi-independent", "labelled", "in-batch-template", "in-batch-query", "random"],
        Setting(
            "How a batch is drawn: Algorithm 4.1, queries with labels, pairs by template or by query without labels, or with random templates."
        ),
    ] = "semi-independent"
    scale: Annotated[Factor, Setting("Factor of the cosines; the thesis prints none (1).")] = 20.0
    weights: Annotated[
        tuple[float, ...], Setting("alpha, beta, gamma, theta of Eq. 4.3: of L(Q,T), L(Q,Q), L(T,T) and L(T,Q), each from 0 on.")
    ] = (1.0, 0.5, 0.5, 0.0)
    top: Annotated[Depth, Setting("Negatives of each anchor that count, those with the largest scores; 0: all.")] = 0
    layers_rate: float = 3e-5

    def check(self) -> None:
        """Raise `UsageError` for weights whose loss is always 0."""
        super().check()
        if len(self.weights) != 4 or min(self.weights) < 0 or not any(self.weights):
            raise UsageError(
                f"weights={written(self.weights)} cannot be used.",
                "Write four numbers from 0 on, not all 0: weights=1,0.5,0.5,0.",
            )

    def texts(self) -> tuple[int, int]:
        """Return how many queries and templates a step encodes: as many as queries, and with sampling=random the negatives of each query."""
        return self.batch, self.batch * (1 + (RANDOM_NEGATIVES if self.sampling == "random" else 0))


#: Sections 5.2 and 5.3 of the thesis, for its private data sets; the proposed model has top-k there, and none on CS-Twitter (Table 5.3).
_PRINTED = {
    **TO_THE_END,
    "towers": "two",
    "batch": 32,
    "epochs": 30.0,
    "layers_rate": 3e-5,
    "weight_decay": 0.0,
    "schedule": "linear",
    "warmup": 500.0,
    "top": 4,
}


class Dtr(BiEncoderMethod):
    """Dense retrieval where many queries share an answer: labelled batches and a four-term loss.

        Eq. 4.1   s(q, t) = cos(E_Q(q), E_T(t))
        Eq. 4.3   L = alpha L(Q,T) + beta L(Q,Q) + gamma L(T,T) + theta L(T,Q)
        Eq. 4.4   L(A,B) = mean over a, over positives p of -log(e^s(a,p) / (e^s(a,p) + sum over negatives e^s(a,n)))
        Alg. 4.1  b templates uniformly; b queries among those that they answer

    For data in which a document answers many queries: support templates, FAQ answers, intents. It needs no mined negatives. Equations 4.1
    to 4.4 have no temperature; the default scale of 20 is that of the author's program, and preset=paper sets it to 1 as printed. In-batch
    top-k (top) helps on CS-P1 and hurts on CS-Twitter.
    """

    name = "dtr"
    source = "DTR: dense template retrieval for customer support (paper 004)"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            "the proposed model on CS-P1 as printed: two encoders, scale 1, alpha 1, beta and gamma .5, top-k of 4, batches of 32, Adam 3e-5 with "
            "500 warm-up steps, 30 epochs; on CS-Twitter it has batch=192, epochs=50 and top=0",
            {**_PRINTED, "scale": 1.0},
        ),
        "program": Preset(
            "as paper, with cosines times 20, as in the author's program (which averages L(Q,Q) over pairs, unlike Eq. 4.4)",
            {**_PRINTED, "scale": 20.0},
        ),
    }
    parameters = DtrParameters

    def targets(self, context: TargetContext) -> NDArray[np.int64]:
        """Return the template that labels each training query: int64 ``(queries,)``."""
        return np.array([min(relevant) for relevant in context.inputs.pairs.relevant], dtype=np.int64)

    def draw(self, inputs: Any, settings: Any, generator: np.random.Generator, questions: Questions) -> LabelledBatch:
        """Draw templates first: an epoch is as many batches as a pass over the queries would be."""
        del questions
        return SAMPLERS[settings.sampling](inputs.targets, settings.batch, generator)

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute Eq. 4.3 of a batch: its weighted terms "qt", "qq", "tt", "tq"."""
        settings, drawn = fit.settings, batch.drawn
        queries = self.encode(fit, batch, "query", drawn.queries)
        templates = self.encode(fit, batch, "document", drawn.templates)
        labels = (torch.from_numpy(each).to(queries.device) for each in (drawn.query_labels, drawn.templates))
        of_templates, of_queries = exclusions(drawn, batch.inputs.pairs.known)
        return batch_loss(
            queries,
            templates,
            *labels,
            weights=settings.weights,
            scale=settings.scale,
            top=settings.top,
            left_out=(torch.from_numpy(of_templates).to(queries.device), torch.from_numpy(of_queries).to(queries.device)),
        )
