"""The anchored method: heads on a frozen backbone that learn by how much BM25 is wrong about a word (term_weights.md, M2).

For a batch of Q questions of one collection, with their relevant documents and one mined BM25 negative each (D documents):

    S[q, d] = sum over terms t of  wq(t) * wd(t),      wq, wd as in `encoders.weighting`
    loss    = mean over q of  -log softmax(a * S[q, :])[relevant document of q]

with a learned scale a (starts at .3); other documents that are relevant to q are masked out of its softmax. All documents of a
batch come from one collection: telling medicine from history is no lesson. Only the pieces of terms that some question of
the batch holds are looked at, which is what makes a step take milliseconds.

Worked example: one question with one term of query weight 1; the relevant document gives it 3, the negative 1; a = .3:
loss = -log(e^.9 / (e^.9 + e^.3)) = .437.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from termweave.encoders.form import Form
from termweave.encoders.weighting import anchored
from termweave.training.sides import Prepared, Side, vocabulary_of
from termweave.training.sparse import SparseIndex, bm25_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from termweave.encoders.analysis import Analysis
    from termweave.encoders.anchor import BM25
    from termweave.encoders.models.anchored import Heads
    from termweave.encoders.pieces import PieceTokenizer
    from termweave.encoders.weighting import Kind
    from termweave.statistics import CorpusStatistics
    from termweave.training.pairs import Pairs
    from termweave.training.states import States


@dataclass(frozen=True)
class Options:
    """Parameters of the method, with the defaults that were measured.

    Attributes:
        steps: Of the optimiser; 1,000 is worse on collections never seen (term_weights.md).
        questions: In one batch.
        negatives: BM25's best documents of a question that are not relevant, to draw one from.
        learning_rate: The peak of the one-cycle schedule.
        weight_decay: AdamW's.
        scale: Where the learned scale of the scores starts.
        seed: Same seed, same model (on the same machine).
    """

    steps: int = 500
    questions: int = 48
    negatives: int = 25
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    scale: float = 0.3
    seed: int = 0


@dataclass(frozen=True)
class Material:
    """One collection as the method uses it.

    Attributes:
        name: For messages.
        share: How often batches come from here, relative to the others.
        pairs: Questions and relevant documents, as indices into `documents`.
        documents: Prepared documents.
        questions: Prepared questions.
        document_states: Hidden states of `documents`; None where layers are trained and states change.
        question_states: Hidden states of `questions`; likewise.
        negatives: For each question the indices of its hard negatives; may be empty.
        teacher: For each question what a scorer of pairs says of documents, to be distilled; None: nothing.
    """

    name: str
    share: float
    pairs: Pairs
    documents: Prepared
    questions: Prepared
    document_states: States | None
    question_states: States | None
    negatives: list[NDArray[np.int64]]
    teacher: Sequence[Mapping[int, float]] | None = None


def prepare(
    texts: Sequence[str],
    analysis: Analysis,
    tokenizer: PieceTokenizer,
    statistics: CorpusStatistics,
    bm25: BM25,
    kind: Kind,
    max_length: int,
    form: Form | None = None,
) -> Prepared:
    """Analyse and cut texts; `Pieces.words` of the result are words of the analysis."""
    words = analysis.words(texts)
    cut = tokenizer.encode([each.clean for each in words], max_length, ends=[each.clean_ends for each in words])
    pieces = [replace(piece, words=each.of(piece)) for piece, each in zip(cut, words, strict=True)]
    return Prepared([anchored(each, statistics, bm25, kind, form or Form()) for each in words], pieces)


def mine(
    questions: Sequence[str],
    documents: Sequence[str],
    relevant: Sequence[frozenset[int]],
    analysis: Analysis,
    statistics: CorpusStatistics,
    bm25: BM25,
    depth: int,
) -> list[NDArray[np.int64]]:
    """Hard negatives: for each question BM25's best `depth` documents without the relevant ones."""
    index = SparseIndex(bm25_weights(documents, analysis, statistics, bm25, "document"))
    found = []
    for query, known in zip(bm25_weights(questions, analysis, statistics, bm25, "query"), relevant, strict=True):
        best, _ = index.search(query, depth)
        found.append(np.array([document for document in best.tolist() if document not in known], dtype=np.int64))
    return found


def train(
    heads: Heads, materials: Sequence[Material], options: Options, say: Callable[[str], None] = lambda _: None
) -> list[float]:
    """Train the heads in place.

    Args:
        heads: On the CPU.
        materials: One or more collections.
        options: Of the method.
        say: Told about progress.

    Returns:
        The loss of every step.
    """
    torch.manual_seed(options.seed)
    generator = np.random.default_rng(options.seed)
    log_scale = nn.Parameter(torch.tensor(math.log(options.scale)))
    groups = [
        {"params": list(heads.parameters()), "weight_decay": options.weight_decay},
        {"params": [log_scale], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=options.learning_rate, total_steps=options.steps)
    shares = np.array([material.share for material in materials])
    losses = []
    heads.train()
    for step in range(options.steps):
        material = materials[int(generator.choice(len(materials), p=shares / shares.sum()))]
        questions, documents = draw(material, options.questions, generator)
        scores = log_scale.exp() * batch_scores(heads, material, questions, documents)
        loss = contrast(scores, material.pairs.relevant, questions, documents)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if (step + 1) % 50 == 0:
            say(
                f"step {step + 1} of {options.steps}: loss {np.mean(losses[-50:]):.4f}, scale {float(log_scale.detach().exp()):.3f}"
            )
    heads.eval()
    return losses


def draw(material: Material, count: int, generator: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A batch: questions, and documents of which the first `count` are relevant to the question of the same place."""
    shares = material.pairs.shares
    size = min(count, len(material.pairs) if shares is None else int((shares > 0).sum()))
    questions = generator.choice(len(material.pairs), size=size, replace=False, p=shares)
    positives = [sorted(material.pairs.relevant[question]) for question in questions.tolist()]
    chosen = [relevant[int(generator.integers(len(relevant)))] for relevant in positives]
    pools = [material.negatives[question] for question in questions.tolist()]
    hard = [int(pool[int(generator.integers(len(pool)))]) for pool in pools if len(pool)]
    return questions, np.array([*chosen, *hard], dtype=np.int64)


def contrast(
    scores: Tensor, relevant: Sequence[frozenset[int]], questions: NDArray[np.int64], documents: NDArray[np.int64]
) -> Tensor:
    """The loss.

    Args:
        scores: ``(Q, D)``, already scaled; document q is relevant to question q.
        relevant: Of all questions.
        questions: ``(Q,)``, indices into `relevant`.
        documents: ``(D,)``.
    """
    known = [relevant[question] for question in questions.tolist()]
    masked = np.array([[document in answers for document in documents.tolist()] for answers in known])
    np.fill_diagonal(masked, val=False)
    return nn.functional.cross_entropy(scores.masked_fill(torch.from_numpy(masked), -torch.inf), torch.arange(len(questions)))


def batch_scores(heads: Heads, material: Material, questions: NDArray[np.int64], documents: NDArray[np.int64]) -> Tensor:
    """Exact sparse dot products of a batch, with gradients to the heads: ``(Q, D)``."""
    vocabulary = vocabulary_of(material.questions, questions)
    asked = Side(material.questions, questions, vocabulary, "query")
    given = Side(material.documents, documents, vocabulary, "document")
    factors, impacts = (
        side.weights(head.outer(side.inner(head, side.cached(states, gated=head.gated))).squeeze(-1))
        for side, head, states in (
            (asked, heads.of("query"), material.question_states),
            (given, heads.of("document"), material.document_states),
        )
        if states is not None
    )
    return factors @ impacts.T
