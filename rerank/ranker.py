"""The reranker `ranker`: a cross-encoder reads the query with each candidate (`termweave.encoders.Ranker` runs it).

A ranker may have an anchor: features that search knows of a candidate before the ranker reads the text, added to the logit with learned weights.

    logit = residual(query, document) + sum over features of weight * feature

The features are the score so far, the cosine of the document's vector with the query's, and rNN's J among the candidates. A model folder
names its features and weights in ``termweave.json`` (`encoders.kinds.ranker.anchor_of`); `termweave train sir` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from math import inf
from threading import Lock
from time import perf_counter
from typing import Any

from termweave.encoders import Ranker, hub, model_lookup
from termweave.encoders.kinds import read_folder
from termweave.encoders.kinds.ranker import anchor_of
from termweave.encoders.manifest import MANIFEST
from termweave.encoders.recorded_models import ranker_folder
from termweave.errors import TermweaveError, UsageError
from termweave.rerank import occlusion
from termweave.rerank.candidate_features import neighbourhood_features
from termweave.rerank.rerankers import Need, Reranker, RerankRequest, RerankResult, check_range

_OPENING = Lock()
#: Features of an anchor that are computed of vectors.
_OF_VECTORS = frozenset({"cosine", "jaccard"})
#: Most windows of a document that is too long for the model.
WINDOWS = 4


@dataclass(slots=True)
class _Answered:
    """The logits that a ranker has computed for one query so far, so that no text is scored twice.

    Attributes:
        logits: Text of a document -> logit.
        seconds: The time that scoring took so far.
    """

    logits: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CrossEncoderReranker(Reranker):
    """Rerank by a cross-encoder, mixed with the score so far: ``(1 - weight) * s + weight * r``.

    r is the model's logit, scaled so that the lowest and the highest logit of a query become the lowest and the highest score s of
    the same documents. A document without text gets the lowest r. An anchored model adds the first stage's features to the logit.
    Of a document that is cut into passages, the best passage is read. A text that is too long for the model is read in up to four windows,
    and the best window gives its logit.

    With a budget the documents are scored in the order so far until the time is up. Documents that were not scored keep their score
    and their order, below the scored ones.

    Attributes:
        model: A folder, the name of a model, or ``hf:OWNER/NAME``.
        candidates: How many of the best documents are reranked; all others keep score and order below them.
        weight: The share of the cross-encoder, from 0 to 1.
        budget: Milliseconds for scoring the candidates of one query; None: no limit. Opening the model is not part of it.
        hash: Content hash that the model must have, if the profile of an index names the model: then only a model on this host is opened, and only
            with this hash. "": any model.
        scorer: The opened model, if it is open already; None: the first query opens the model, once in a process.
        answered: Logits and scoring time of one query so far, set by `for_one_query`; None: nothing is kept between calls.
    """

    model: str
    candidates: int = 30
    weight: float = 0.5
    budget: float | None = None
    hash: str = ""
    scorer: Ranker | None = field(default=None, repr=False, compare=False)
    answered: _Answered | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise `UsageError` if the number of candidates, the weight or the budget is outside its range."""
        check_range("ranker", self.candidates, self.weight)
        if self.budget is not None and not (isinstance(self.budget, int | float) and self.budget >= 0):
            raise UsageError(f"The budget of a ranker is a number of milliseconds or None, not {self.budget!r}.")

    @property
    def name(self) -> str:
        """The name that `--rerank` takes: "ranker@MODEL"."""
        return f"ranker@{self.model}"

    @property
    def needs(self) -> frozenset[Need]:
        """The data that search must fetch: the documents' texts, and their vectors if the model's anchor reads vectors."""
        try:
            return frozenset({"texts", "vectors"} if _reads_vectors(self.model, self.hash) else {"texts"})
        except TermweaveError:  # opening the model will say what is wrong
            return frozenset({"texts"})

    def open_scorer(self) -> Ranker:
        """Return the opened model, which is opened once in a process even if several threads ask at once.

        Raises:
            ModelError: The model cannot be opened, or the one on this host has another hash.
        """
        if self.scorer is not None:
            return self.scorer
        with _OPENING:
            return open_ranker(self.model, self.hash)

    def with_budget(self, milliseconds: float) -> CrossEncoderReranker:
        """Return this reranker with a time limit in milliseconds for each query; infinity: without a limit."""
        return replace(self, budget=None if milliseconds == inf else milliseconds)

    def for_one_query(self) -> CrossEncoderReranker:
        """Return this reranker for one query: all calls share the time budget, and a text is scored only once.

        This helps where a page reaches beyond the candidates: the query is then searched deeper, and mostly the same documents are ranked again.
        """
        return replace(self, answered=_Answered())

    def rerank(self, request: RerankRequest) -> RerankResult:
        """Score the candidates' texts by the model, and mix the result with the scores so far.

        Raises:
            ModelError: The model cannot be opened, is not a ranker, or gives something that is not a number.
        """
        texts = request.texts or [""] * len(request.ids)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        logits = self._logits(request.query.text, [texts[row] for row in rows])
        complete = len(logits) == len(rows)
        # The documents in the order so far, up to the last one that was scored.
        end = len(texts) if complete else rows[len(logits) - 1] + 1 if logits else 0
        added = anchor_shares(self.open_scorer().anchor if logits else {}, request)
        by_row = {row: logit + added[row] for row, logit in zip(rows, logits, strict=False)}
        values = self._scaled(by_row, request.scores[:end])
        shares = [self.weight * value for value in (*values, *request.scores[end:])]

        def details(row: int) -> Mapping[str, Any]:
            return {"logit": by_row[row], "weight": self.weight} if row in by_row else {"scored": False}

        def effects(row: int) -> list[dict[str, Any]]:
            """The words in a text's best window that the logit depends on most; none for a text that was not scored."""
            if row not in by_row:
                return []
            scorer, query = self.open_scorer(), request.query.text
            window = scorer.best_window(query, texts[row], WINDOWS)
            return occlusion.effects(window, lambda changed: scorer.score(query, changed).tolist())

        return RerankResult(shares, 1 - self.weight, 1.0, details, scored=None if complete else len(logits), word_effects=effects)

    def _logits(self, query: str, texts: Sequence[str]) -> list[float]:
        """The logits of the texts, in their order; fewer, for the first texts only, if the time budget ended."""
        if self.budget is not None and self.budget <= 0:  # the model is not even opened
            return []
        answered = self.answered or _Answered()
        new = [text for text in dict.fromkeys(texts) if text not in answered.logits]
        if new:
            scorer = self.open_scorer()
            began = perf_counter()
            if self.budget is None:
                logits = scorer.score(query, new, windows=WINDOWS)
            else:
                logits = scorer.score_within(query, new, self.budget / 1000 - answered.seconds, windows=WINDOWS)
            answered.seconds += perf_counter() - began
            answered.logits.update(zip(new, logits.tolist(), strict=False))
        return [answered.logits[text] for text in takewhile(answered.logits.__contains__, texts)]

    @staticmethod
    def _scaled(logits: Mapping[int, float], scores: Sequence[float]) -> list[float]:
        """Scale the logits to the range of the scores, one value for each score; a row without a logit gets the lowest value."""
        if not logits:
            return list(scores)
        lowest, highest = min(logits.values()), max(logits.values())
        bottom, extent = min(scores), (max(scores) - min(scores)) or 1.0  # equal scores: the logits alone decide
        spread = (highest - lowest) or 1.0
        return [bottom + extent * (logits.get(row, lowest) - lowest) / spread for row in range(len(scores))]


@cache
def _reads_vectors(model: str, expected: str) -> bool:
    """Whether a ranker's anchor reads vectors. A model on the hub is downloaded for this, as it is when it is opened.

    Args:
        model: Name or folder of the model.
        expected: The hash of the model, if the profile of an index names the model: then only models on this host are read. "": any model.
    """
    folder = ranker_folder(model, expected)
    weights = anchor_of(read_folder(folder, check=False).manifest) if (folder / MANIFEST).is_file() else {}
    return not _OF_VECTORS.isdisjoint(weights)


def anchor_shares(weights: Mapping[str, float], request: RerankRequest) -> list[float]:
    """The number that a ranker's anchor adds to the logit of each candidate.

    Args:
        weights: Feature of the anchor -> its weight.
        request: The query and its candidates.

    Raises:
        UsageError: The anchor reads vectors, and the query has none.
    """
    columns: dict[str, Sequence[float]] = {"score": request.scores}
    if not _OF_VECTORS.isdisjoint(weights):
        cosines, jaccard = neighbourhood_features(*request.dense("A ranker that was trained with vectors"))
        columns |= {"cosine": cosines.tolist(), "jaccard": jaccard.tolist()}
    return [sum(weight * columns[name][row] for name, weight in weights.items()) for row in range(len(request.ids))]


@cache
def open_ranker(model: str, expected: str) -> Ranker:
    """Open a ranker by folder or name, once in a process.

    `expected` is the hash that the model had when a profile was tuned with it; "" allows any hash.
    """
    scorer = Ranker.load(ranker_folder(model, expected) if expected else model)
    scorer.score("", [""])  # opens the graph, so that it is opened once and no query's budget pays for it
    return scorer


def create(option: str = "") -> CrossEncoderReranker:
    """Make the reranker `ranker` from its option, the name or folder of a model (an entry point of rerankers).

    Raises:
        UsageError: The option names no model, or no model of this name exists.
    """
    if not option:
        hint = "Name a cross-encoder: --rerank ranker@FOLDER, or --rerank ranker@hf:OWNER/NAME."
        raise UsageError("termweave ships no ranker, and no profile in use names one.", hint)
    if not hub.is_hub_name(option):
        model_lookup.resolve(option)
    elif not hub.well_formed(option):
        raise UsageError(f"{option!r} is not the name of a model on the hub.", "Write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.")
    return CrossEncoderReranker(option)
