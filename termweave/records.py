"""The records that travel between stages: frozen, typed, the same everywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

#: Judgements: query id -> document id -> grade (0 = judged and not relevant).
Qrels = dict[str, dict[str, int]]
#: The entry of a document's metadata that holds its expansion.
EXPANSION = "expansion"


@dataclass(frozen=True, slots=True)
class Passage:
    """Which part of which document a passage is.

    Attributes:
        parent: Id of the document.
        number: 1 for the first.
        start: Offset of its first character in the document's text.
        end: Offset behind its last: the passage is `text[start:end]`.
    """

    parent: str
    number: int
    start: int
    end: int

    @staticmethod
    def key(parent: str, number: int | None) -> str:
        """The id that a passage goes by; a document that is whole goes by its own."""
        return parent if number is None else f"{parent}#{number}"


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus, as its source gives it.

    Attributes:
        id: The source's id, unique in the corpus.
        text: The body; may be empty.
        title: May be empty.
        metadata: Whatever else the source says of it; JSON values.
        line: 1-based line (or entry number) in the source, for messages.
        passage: Set where this is a passage of a longer document; `id` is its own then, ``PARENT#NUMBER``.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None
    passage: Passage | None = None

    @property
    def source_id(self) -> str:
        """The id that the source knows: of a passage, its document's."""
        return self.id if self.passage is None else self.passage.parent

    @property
    def expansion(self) -> str:
        """Terms that somebody else gave it (doc2query, tags): the metadata's ``expansion``, a text or a list of texts; else "".

        They are weighted like the document's own, and are no part of what is shown of it.
        """
        given = self.metadata.get(EXPANSION)
        return " ".join(each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str))

    @property
    def blank(self) -> bool:
        """Whether it has no text of its own: a vector would mean nothing, and be near to everything."""
        return not (self.title.strip() or self.text.strip())

    @property
    def content(self) -> str:
        """What encoders see: ``"title. text"``, and the expansion on a line below; what is blank counts as not there.

        The expansion comes last, so that of a long document the model sees the text, and offsets into the text stay right.
        """
        own = ". ".join(part for part in (self.title, self.text) if part.strip())
        return "\n".join(part for part in (own, self.expansion) if part.strip())


@dataclass(frozen=True, slots=True)
class Query:
    """A question to the corpus."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class TermWeights:
    """The distinct terms of one text and what each is worth.

    Attributes:
        terms: Distinct terms, as the analysis makes them.
        weights: float32 ``(len(terms),)``, all > 0: impacts for a document, factors for a query.
        par: Of a query: the score of a document of average length that has each of its terms once, before a model changes what they
            are worth there (the sum of factor times idf). None: not a query's, or of a model whose impacts have no such unit.
    """

    terms: tuple[str, ...]
    weights: NDArray[np.float32]
    par: float | None = None

    def __len__(self) -> int:
        return len(self.terms)

    def part(self, places: Sequence[int]) -> TermWeights:
        """Only the terms at some places, in their order; what was par stays so."""
        return TermWeights(tuple(self.terms[place] for place in places), self.weights[places], self.par)

    def as_dict(self) -> dict[str, float]:
        """``{term: weight}``, heaviest first."""
        pairs = zip(self.terms, self.weights.tolist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True, slots=True)
class Encoding:
    """What the models say of one text.

    Attributes:
        text: The text itself: signals that need no model (lexical) search with it.
        weights: Term weights, where a weights model ran.
        vector: float32 ``(d,)``, unit length, where a dense model ran.
    """

    text: str
    weights: TermWeights | None = None
    vector: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class WordWeight:
    """One word where it stands in a text, with its weight (0 for a dropped word).

    Attributes:
        start: Offset of the first character in the original text.
        end: Offset behind the last.
        term: What the index calls it; "" where the analysis drops it.
        weight: Impact of the term in this text.
    """

    start: int
    end: int
    term: str
    weight: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the server found can do. Later code asks this record, never a version number.

    Attributes:
        version: As the server says it, for messages and `doctor`.
        distribution: "opensearch" or what else answered.
        plugins: Names of the installed plugins.
        knn: `knn_vector` fields can be made (lucene engine).
        neural_sparse: the `neural_sparse` query with `query_tokens` is understood.
        vector_doc_values: `docvalue_fields` works on a `knn_vector` itself (3.7+).
        max_clause_count: `indices.query.bool.max_clause_count` as it stands.
    """

    version: str
    distribution: str = "opensearch"
    plugins: tuple[str, ...] = ()
    knn: bool = False
    neural_sparse: bool = False
    vector_doc_values: bool = False
    max_clause_count: int = 1024


@dataclass(frozen=True, slots=True)
class SignalScore:
    """What one signal said of one hit.

    Attributes:
        score: The signal's own score (for dense: the inner product).
        rank: 1-based rank in the signal's list; None when the signal did not return it.
        share: What it contributes to the final score.
        normalised: What the fusion makes of score or rank, in [0, 1]; None where nothing is fused.
        counts: How much the signal counts for this query: ``share = normalised * counts``.
    """

    score: float
    rank: int | None
    share: float
    normalised: float | None = None
    counts: float | None = None


@dataclass(frozen=True, slots=True)
class Highlight:
    """The passage of a field that shows where the words of a query stand.

    Attributes:
        field: "title" or "text".
        start: Offset of the passage in the field, in characters.
        text: The passage.
        matches: (start, end) of each matched word, in the passage.
    """

    field: str
    start: int
    text: str
    matches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One answer.

    Attributes:
        id: The source's document id.
        score: The final score, after fusion and reranking.
        rank: 1-based.
        fields: The stored fields asked for (title, text, metadata ...).
        signals: Signal name -> what it said; their shares and `reranked` sum to `score`.
        explanation: Filled when asked for: how the score comes about; its parts sum to `score`.
        explainer: What makes the explanation later, where it was not asked for.
        passage: Of a document that is indexed in passages, the one that was found: `fields["text"]` is its text.
        highlights: Where words matched, at most one passage a field; None where it was not asked for.
        reranked: What the reranker contributes to `score`.
    """

    id: str
    score: float
    rank: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, SignalScore] = field(default_factory=dict)
    explanation: Mapping[str, Any] | None = None
    explainer: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False, compare=False)
    passage: Passage | None = None
    highlights: tuple[Highlight, ...] | None = None
    reranked: float = 0.0

    def __hash__(self) -> int:
        return hash((self.id, self.rank))

    def __reduce__(self) -> tuple[type[Hit], tuple[Any, ...]]:
        """Pickled without what could explain it later: that holds a connection."""
        kept = (self.id, self.score, self.rank, dict(self.fields), dict(self.signals), self.explanation)
        return Hit, (*kept, None, self.passage, self.highlights, self.reranked)

    def as_dict(self) -> dict[str, Any]:
        """What ``termweave search --json`` has of it: JSON values, for the answer of a web handler."""
        found: dict[str, Any] = {
            "id": self.id,
            "score": self.score,
            "rank": self.rank,
            "fields": dict(self.fields),
            "signals": {
                name: {"score": said.score, "rank": said.rank, "share": said.share} for name, said in self.signals.items()
            },
            "reranked": self.reranked,
            "explanation": self.explanation,
        }
        if (part := self.passage) is not None:
            found["passage"] = {"number": part.number, "start": part.start, "end": part.end}
        if self.highlights is not None:
            found["highlights"] = [asdict(each) for each in self.highlights]
        return found

    def explain(self) -> Mapping[str, Any]:
        """How the score comes about: ``{"score", "parts": [{"name", "share", ...}]}``; the shares sum to the score.

        Asks the engine once more unless the search was made with ``explain=True``. A hit that comes from another process (pickled)
        cannot ask: it says what each signal and the reranker gave, without their terms.
        """
        if self.explanation is not None:
            return self.explanation
        if self.explainer is not None:
            return self.explainer()
        parts: list[dict[str, Any]] = [
            {"name": name, "share": said.share, "score": said.score, "rank": said.rank, "terms": []}
            for name, said in self.signals.items()
        ]
        if self.reranked:
            parts.append({"name": "reranker", "share": self.reranked, "score": self.reranked, "rank": self.rank, "terms": []})
        return {"score": self.score, "parts": parts}


@dataclass(frozen=True, slots=True)
class Run:
    """A ranking for every query of a set: query id -> document id -> score, as trec_eval reads it.

    A query without results is there, with an empty mapping, and counts.
    """

    name: str
    scores: Mapping[str, Mapping[str, float]]
