"""LE-BS (paper 000): a two-tower retriever that learns from label distributions beside the hard labels.

A judged pair says 1, a sampled pair says 0. How much of the query a text really answers lies in between: LE-BS measures it by the
weights that BERT-Scorer (`methods/bert_scorer.py`, Eq. 1 to 4) gives to the terms that both texts hold.

    d    = tanh( 1/|x n y| * sum_{w in x n y} t^_w^y * t^_w^x )                    Eq. 5, one number a pair, in [0, 1)
    f    = 1/2 (1 - u.v / (|u| |v|))                                               Eq. 6, a distance: documents rank by smaller f
    L    = sum_i [ alpha (f_i + d_i - 1)^2 + (1 - alpha) (f_i + l_i - 1)^2 ]       Eq. 8

u and v are the pooled states of the query x and the document y, l is the hard label. preset=paper averages states, as printed; the default pools
as the backbone's folder says (bge takes the first token's). The setting `labels` names the variants that the paper compares: `scorer` is LE-BS; `tfidf`
puts Eq. 1 in the place of the scorer's weights (LE-TFIDF); `distill` takes for d the scores of the same retriever trained on hard labels
(LE-Distill); `none` is hard labels alone (LE-None), as alpha = 0 is.

Readings: a term whose weight is negative on either side is dropped before the overlap is counted. A term that a text holds several
times, query or document, has its largest weight. Without overlap d = 0. Pairs with l = 0 get a d by Eq. 5 too. LE-TFIDF weighs the terms
of each text by Eq. 1 of that text at itself. Rates, batches, steps and negatives are not printed: they are the defaults.

A label of 0 asks for a cosine of -1. Queries can only be that far from all documents at once if each side gathers at its own pole: in a
short training the order of the documents is lost on the way (docs/reproduction.md has the figures). ``farthest=.5``, the default, puts
f + farthest (d - 1) and f + farthest (l - 1) into Eq. 8, so that a label of 0 asks for a cosine of 0; preset=paper has the printed 1.

Targets are small: with labels=tfidf d of a judged pair has median .066 on squad-dev-reqa with word-pieces and .22 with words without stop
words, .044 on cmrc2018-reqa with characters and .31 with words; d of a random pair is below .01. alpha = 1 asks for distances of 1 - d. The
loss is computed in float32 or better, and d by the scorer's fp32 graph.

Worked example: x weighs a .5, b .2, z .4 and y weighs a .6, b -.1, c .3. b is dropped, the overlap is {a}: d = tanh(.3) = .291313.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from termweave.declared_settings import Setting
from termweave.support import LazyModule
from termweave.training.data.arrays import np, torch
from termweave.training.methods.base import Preset
from termweave.training.methods.bi_encoder import BiEncoderMethod, BothTowers, DenseParameters
from termweave.training.methods.parameters import EVERYTHING, PRESET, NegativesParameters, Share

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from termweave.training.data.sampler import Batch
    from termweave.training.dense import term_label_weights
    from termweave.training.dense.model import DenseInputs, TargetContext
    from termweave.training.methods.base import Method, Questions
    from termweave.training.mixture import DataPart
    from termweave.training.trainer.trainer import Fit, Trainer
else:  # `termweave train --help` reads this file and needs no numpy
    term_label_weights = LazyModule("termweave.training.dense.term_label_weights")


# -- Batches ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairBatch:
    """The pairs of one step.

    Attributes:
        queries: int64 ``(Q,)``, indices of training queries.
        documents: int64 ``(D,)``, distinct documents.
        rows: int64 ``(P,)``, for each pair the position of its query in `queries`.
        columns: int64 ``(P,)``, for each pair the position of its document in `documents`.
        labels: float64 ``(P,)``, the label l of each pair.
    """

    queries: NDArray[np.int64]
    documents: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    labels: NDArray[np.float64]

    def pairs(self) -> list[tuple[int, int]]:
        """Return (query, document) of each pair, as indices into the collection."""
        return list(zip(self.queries[self.rows].tolist(), self.documents[self.columns].tolist(), strict=True))


def draw_pairs(
    inputs: DenseInputs, settings: LeBsParameters, queries: NDArray[np.int64], generator: np.random.Generator
) -> PairBatch:
    """Draw one pair with l = 1 of each query, and pairs with l = 0: hard negatives, random ones, or with `in_batch` all others of the batch.

    A document that answers a query is never a negative of it; where `in_batch` meets a second right answer, its label is 1.
    """
    relevant, known = inputs.pairs.relevant, inputs.pairs.known
    of_queries = [_drawn_for(inputs, settings, query, generator) for query in queries.tolist()]
    documents = np.unique(np.concatenate(of_queries))
    if settings.in_batch:
        rows, columns = (each.ravel() for each in np.indices((len(queries), len(documents))))
    else:
        rows = np.repeat(np.arange(len(queries)), [len(each) for each in of_queries])
        columns = np.searchsorted(documents, np.concatenate(of_queries))
    pairs = list(zip(queries[rows].tolist(), documents[columns].tolist(), strict=True))
    right = np.array([document in relevant[query] for query, document in pairs], dtype=np.bool_)
    usable = right | np.array([document not in known[query] for query, document in pairs], dtype=np.bool_)
    return PairBatch(queries, documents, rows[usable], columns[usable], right[usable].astype(np.float64))


def _drawn_for(inputs: DenseInputs, settings: LeBsParameters, query: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw the documents for a query: one right answer, then hard negatives, then random documents."""
    answers, known = sorted(inputs.pairs.relevant[query]), inputs.pairs.known[query]
    drawn = [answers[int(generator.integers(len(answers)))]]
    if inputs.negatives and len(inputs.negatives[query]):
        drawn += generator.permutation(inputs.negatives[query])[: settings.drawn].tolist()
    if count := settings.random_negatives:
        others = generator.permutation(len(inputs.documents))[: count + len(known) + len(drawn)].tolist()
        drawn += [each for each in others if each not in known and each not in drawn][:count]
    return np.array(drawn, dtype=np.int64)


# -- Targets ---------------------------------------------------------------------------------------------------------------------


def label_distribution(query: Mapping[str, float], document: Mapping[str, float]) -> float:
    """Compute d of a pair, Eq. 5.

    Args:
        query: Weight of each term of x. A term that is missing has no weight; a negative weight is insignificant.
        document: Likewise of y.

    Returns:
        A number in [0, 1); 0 where the texts share no significant term.
    """
    shorter, longer = sorted((query, document), key=len)
    products = [weight * longer[term] for term, weight in shorter.items() if weight >= 0 and term in longer and longer[term] >= 0]
    return math.tanh(sum(products) / len(products)) if products else 0.0


def distilled(cosines: NDArray[np.float32], farthest: float = 1.0) -> NDArray[np.float64]:
    """Turn the cosines of a retriever trained on hard labels into the d of LE-Distill.

    It is the d in [0, 1] for which `label_loss` asks for the teacher's own f of Eq. 6: 1 - f with the printed loss. A pair that is
    farther than `farthest` has 0.
    """
    return np.clip(1.0 - (1.0 - np.asarray(cosines, np.float64)) / 2.0 / farthest, 0.0, 1.0)


# -- Loss ------------------------------------------------------------------------------------------------------------------------


def distance(queries: Tensor, documents: Tensor) -> Tensor:
    """Compute f of row pairs, Eq. 6: ``(P, d), (P, d) -> (P,)`` in [0, 1]; a zero vector is at distance 1/2 of everything."""
    u, v = (torch.nn.functional.normalize(each, dim=-1) for each in (queries, documents))
    return 0.5 * (1.0 - (u * v).sum(dim=-1))


def label_loss(distances: Tensor, distribution: Tensor, labels: Tensor, alpha: float, farthest: float = 1.0) -> Tensor:
    """Compute Eq. 8, the sum over the training pairs (the tuples of Eq. 7).

    Args:
        distances: f of each pair, ``(P,)``.
        distribution: d of each pair, ``(P,)``.
        labels: l of each pair, ``(P,)``.
        alpha: The share of the label distribution: 0 is hard labels alone, 1 the distribution alone.
        farthest: The distance that a label of 0 asks for: 1 in the paper (cosine -1), 1/2 is a cosine of 0.

    Returns:
        A scalar. The training model divides it by P, which changes its scale alone.
    """
    soft, hard = (distances + farthest * (distribution - 1.0)) ** 2, (distances + farthest * (labels - 1.0)) ** 2
    return (alpha * soft + (1.0 - alpha) * hard).sum()


# -- Declaration -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelSource:
    """Where d of a pair comes from, for the training queries and documents of a data set.

    Attributes:
        queries: Weights of each query's terms; [] for labels=none and labels=distill.
        documents: Weights of each document's terms.
        vectors: Of queries and documents by the retriever trained on hard labels; () but for labels=distill.
        farthest: The distance that d = 0 asks for (`label_loss`).
    """

    queries: Sequence[Mapping[str, float]] = ()
    documents: Sequence[Mapping[str, float]] = ()
    vectors: tuple[NDArray[np.float32], ...] = field(default=())
    farthest: float = 1.0

    def distributions(self, pairs: Sequence[tuple[int, int]], labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute d of each pair: float64 ``(pairs,)``; with labels=none these are the hard labels."""
        if self.vectors:
            rows, columns = (list(each) for each in zip(*pairs, strict=True))
            of_queries, of_documents = self.vectors
            return distilled((of_queries[rows] * of_documents[columns]).sum(axis=1), self.farthest)
        if not self.queries:
            return labels
        return np.array([label_distribution(self.queries[x], self.documents[y]) for x, y in pairs], dtype=np.float64)


@dataclass(frozen=True)
class LeBsParameters(NegativesParameters, DenseParameters):
    """The parameters of le-bs."""

    heading: ClassVar[str] = "Of le-bs"
    preset: Annotated[Literal["default", "paper"], PRESET] = "default"
    towers: BothTowers = "one"
    labels: Annotated[
        Literal["scorer", "tfidf", "distill", "none"], Setting("Label distribution: LE-BS, LE-TFIDF, LE-Distill or LE-None.")
    ] = "scorer"
    alpha: Annotated[Share, Setting("Share of the label distribution in the loss; the rest is that of the hard labels.")] = 0.2
    scorer: Annotated[
        str,
        Setting(
            "BERT-Scorer: the preset with which it is trained on the same data (paper-frozen takes minutes; paper and paper-chinese train all "
            "layers), or the folder or name of a trained one. With labels=tfidf the preset's terms are weighed."
        ),
    ] = "paper-frozen"
    farthest: Annotated[float, Setting("Distance that a label of 0 asks for: 0.5 (cosine 0), or 1 as printed."), Gt(0), Le(1)] = (
        0.5
    )
    vectors: Annotated[
        Literal["unit", "mean"],
        Setting("Pooling: that of the backbone's folder (unit), or the mean state, as in the paper (mean)."),
    ] = "unit"
    random_negatives: Annotated[int, Setting("Random wrong documents of each question in a batch."), Ge(0), Le(1000)] = 2
    negatives: int = 20
    in_batch: bool = False
    layers_rate: float = 2e-5

    @classmethod
    def derived(cls, changed: Mapping[str, object]) -> dict[str, object]:
        """Return derived defaults: with labels=none there is no label distribution, so alpha, its share of the loss, is 0."""
        return super().derived(changed) | ({"alpha": 0.0} if changed.get("labels") == "none" else {})

    def texts(self) -> tuple[int, int]:
        """Return how many queries and documents a step encodes: for each query its right document, hard negatives and random documents."""
        return self.batch, self.batch * (1 + self.drawn + self.random_negatives)

    def rounds(self) -> int:
        """Return the number of fits: 1, and with labels=distill 2, because LE-Distill's teacher is fitted first."""
        return 1 + (self.labels == "distill")


class LeBs(BiEncoderMethod):
    """A two-tower retriever that learns label distributions made of BERT-Scorer's term weights.

        Eq. 5     d = tanh(1/|x n y| sum over shared terms of t_w^y t_w^x)
        Eq. 6     f(x, y) = 1/2 (1 - cos(u, v))
        Eq. 8     L = sum of alpha (f + d - 1)^2 + (1 - alpha) (f + l - 1)^2

    BERT-Scorer is trained first, on the same data, or named with scorer=MODEL. The paper's best alpha is 1 on SQuAD and .2 on NQ.
    labels=none, tfidf and distill are the paper's variants under the same loop. Number and kind of negatives are not in the paper.
    """

    name = "le-bs"
    source = "LE-BS: label enhancement for embedding retrieval (paper 000)"
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": Preset(
            "shared towers, average pooling, 64 word-pieces, the loss as printed, hard and random negatives of each query alone",
            {**EVERYTHING, "training_length": 64, "max_length": 64, "vectors": "mean", "farthest": 1.0, "scorer": "paper"},
        )
    }
    parameters = LeBsParameters

    def before(self, part: DataPart) -> tuple[Method, Any, Path] | None:
        """Return BERT-Scorer, its settings and its folder; None: a trained scorer is named, or the label distribution needs no scorer."""
        return term_label_weights.scorer_to_train(part)

    def targets(self, context: TargetContext) -> LabelSource:
        """Return the term weights that Eq. 5 reads, by the scorer or by Eq. 1."""
        sources = {"scorer": term_label_weights.scorer_weights, "tfidf": term_label_weights.tfidf_weights}
        weigh = sources.get(context.settings.labels)
        return LabelSource(*weigh(context)) if weigh else LabelSource()

    def draw(self, inputs: Any, settings: Any, generator: np.random.Generator, questions: Questions) -> PairBatch:
        """Draw labelled pairs of the questions."""
        return draw_pairs(inputs, settings, questions(), generator)

    def loss(self, fit: Fit, batch: Batch) -> dict[str, Tensor]:
        """Compute Eq. 8 of a batch, divided by its number of pairs: the part "labels"."""
        drawn, alpha, farthest = batch.drawn, fit.settings.alpha, fit.settings.farthest
        queries = self.encode(fit, batch, "query", drawn.queries)
        documents = self.encode(fit, batch, "document", drawn.documents)
        rows, columns = (torch.from_numpy(each).to(queries.device) for each in (drawn.rows, drawn.columns))
        d = batch.inputs.targets.distributions(drawn.pairs(), drawn.labels) if alpha else drawn.labels
        soft, hard = (torch.from_numpy(each).to(queries) for each in (d, drawn.labels))
        total = label_loss(distance(queries[rows], documents[columns]), soft, hard, alpha, farthest)
        return {"labels": total / len(drawn.labels)}

    def fits(self, trainer: Trainer) -> None:
        """Fit the retriever; LE-Distill first fits its teacher, the same retriever on hard labels, from the same start."""
        inputs, model = trainer.inputs, trainer.model
        if trainer.settings.labels == "distill":
            start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            trainer.fit("teacher", alpha=0.0)
            vectors = [(model.vectors("query", each.questions), model.vectors("document", each.documents)) for each in inputs]
            sources = [LabelSource(vectors=each, farthest=trainer.settings.farthest) for each in vectors]
            inputs = [replace(each, targets=source) for each, source in zip(inputs, sources, strict=True)]
            model.load_state_dict(start)
        trainer.fit("student", inputs)
