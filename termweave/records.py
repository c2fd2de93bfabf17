"""The records that the parts of termweave exchange, all frozen: documents, queries, term weights, encodings, hits, runs, capabilities."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.support.messages import clipped, counted
from termweave.support.normal_form import normal, normal_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.errors import UsageError

#: Judgements: query id -> document id -> grade (0 = judged and not relevant).
Qrels = dict[str, dict[str, int]]
#: Name of the metadata entry that holds the expansion of a document.
EXPANSION = "expansion"
#: Letters and digits at the beginning of two texts that are not the same by chance.
_LONG = 40


def _letters(text: str) -> str:
    """Reduce a text to its letters and digits in lower case, to compare texts regardless of spaces, punctuation and forms of letters."""
    return "".join(each for each in unicodedata.normalize("NFKC", text).casefold() if each.isalnum())


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document's text.

    Attributes:
        parent: Id of the document.
        number: Number of the passage in its document; the first is 1.
        start: Offset of the first character in the document's text.
        end: Offset after the last character: the passage is `text[start:end]`.
    """

    parent: str
    number: int
    start: int
    end: int

    @staticmethod
    def key(parent: str, number: int | None) -> str:
        """The id of a passage, ``PARENT#NUMBER``; without a number, the id of the document."""
        return parent if number is None else f"{parent}#{number}"


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a corpus, or a passage of one.

    Attributes:
        id: Id in the source, unique in the corpus.
        text: Body of the document; may be empty.
        title: Title of the document; may be empty.
        metadata: All other fields of the source; JSON values.
        line: Line or entry number in the source, from 1; for messages.
        passage: Position in the whole document if this is a passage; `id` is then ``PARENT#NUMBER``.
        encoding: The output of the models, if the source of documents brings it (`corpora.sources.Encodings`); None: it does not.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = None
    passage: Passage | None = None
    encoding: Encoding | None = field(default=None, compare=False, repr=False)

    @property
    def source_id(self) -> str:
        """The document's id in its source; for a passage, the id of the passage's document."""
        return self.id if self.passage is None else self.passage.parent

    @property
    def normal(self) -> Document:
        """A copy of the document with its texts in the normal form (`termweave.support.normal_form`)."""
        return replace(self, text=normal(self.text), title=normal(self.title), metadata=normal_value(self.metadata))

    @property
    def expansion(self) -> str:
        """Additional text for search (from doc2query, or tags): the metadata entry ``expansion``, a text or a list of texts; "": there is none.

        Its terms are weighted like those of the document itself, but never shown.
        """
        value = self.metadata.get(EXPANSION)
        return " ".join(text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))

    @property
    def blank(self) -> bool:
        """Whether title and text are empty: a vector of such a document would mean nothing."""
        return not (self.title.strip() or self.text.strip())

    @property
    def content(self) -> str:
        """The text for encoders: ``"title. text"``, and the expansion on a line below. Blank parts are left out.

        The expansion comes last, so that a model that reads only the beginning sees the text, and offsets into the text stay right.
        """
        visible = ". ".join(part for part in (self.title, self.text) if part.strip())
        return "\n".join(part for part in (visible, self.expansion) if part.strip())


@dataclass(frozen=True, slots=True)
class Query:
    """A query.

    Attributes:
        id: Id of the query.
        text: Words of the query, in the normal form (`termweave.support.normal_form`).
    """

    id: str
    text: str

    def __post_init__(self) -> None:
        """Bring the text into the normal form, so that texts that look the same are the same query."""
        object.__setattr__(self, "text", normal(self.text))

    def is_document(self, document: Document) -> bool:
        """Whether the query is a copy of a document: it has the document's id, and as text the title, the text or both, or a long beginning of them.

        For the first passage of a document, which has further passages, the query's text may also go on behind the passage.
        """
        query, title, text = (_letters(each) for each in (self.text, document.title, document.text))
        texts = [each for each in (text, title + text) if each]
        same = query in {title, *texts} or any(query.startswith(each) for each in texts if document.passage or len(each) >= _LONG)
        part = len(query) >= _LONG and any(each.startswith(query) for each in texts)
        return self.id == document.source_id and query != "" and (same or part)


@dataclass(frozen=True, slots=True)
class TermWeights:
    """The distinct terms of a text and their weights.

    Attributes:
        terms: Distinct terms, as the analysis makes them.
        weights: float32 ``(len(terms),)``, all > 0: impacts for a document, factors for a query.
        full_match_score: For a query, the score of a document of average length that contains each term once, before a model changes the
            weights (the sum of factor times idf); None: the text is a document, or the model's impacts have no such unit.
    """

    terms: tuple[str, ...]
    weights: NDArray[np.float32]
    full_match_score: float | None = None

    def __len__(self) -> int:
        return len(self.terms)

    def part(self, positions: Sequence[int]) -> TermWeights:
        """The terms at the given positions, in that order; `full_match_score` stays the same."""
        return TermWeights(tuple(self.terms[position] for position in positions), self.weights[positions], self.full_match_score)

    def as_dict(self) -> dict[str, float]:
        """``{term: weight}``, highest weight first."""
        pairs = zip(self.terms, self.weights.tolist(), strict=True)
        return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True, slots=True)
class Encoding:
    """The output of the models for one text.

    Attributes:
        text: The text itself, for signals that need no model (lexical).
        weights: Term weights; None: there is no weights model.
        vector: float32 ``(d,)`` of unit length; None: there is no dense model.
        rewritten: The result of rewriting the query; None: the text is searched as it is.
        liked: The documents that the query was made of; None: the query is made of words.
    """

    text: str
    weights: TermWeights | None = None
    vector: NDArray[np.float32] | None = None
    rewritten: RewrittenQuery | None = None
    liked: LikedDocuments | None = None


@dataclass(frozen=True, slots=True)
class LikedDocuments:
    """Documents known to be relevant, from which a query was made.

    Attributes:
        ids: Ids of the documents in their source.
        vectors: float32 ``(n, d)``, one vector for each document or passage; None if the index has no vectors.
    """

    ids: tuple[str, ...]
    vectors: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class RewrittenQuery:
    """The result of rewriting a query (`termweave.search.rewriting`).

    Attributes:
        typed: The query as it was typed.
        where: Clauses of the query DSL that every hit must pass: phrases, exclusions and hidden documents.
        operators: The phrases and exclusions in the query as typed: ``"machine learning"``, ``-java``.
        corrected: Word as typed -> the word that is searched instead.
        parts: With synonyms, the parts of the query. Each part is a list of alternatives, of which the best in a document counts. Signals of
            words search these parts, and the scores of the parts add up. (): there are no synonyms.
        ignored: Words whose synonyms are not searched, because the query has too many.
        pinned: Ids of documents that come first among the hits, if they pass the filters.
        refusal: The error about a query that cannot be searched because it only excludes; the query's text is empty then. A search of one
            query raises this error; among many queries the query finds nothing. None: the query can be searched.
        frequent: Phrases and exclusions that too many documents hold, so that the search checks single passages instead of documents.
    """

    typed: str
    where: tuple[Mapping[str, Any], ...] = ()
    operators: tuple[str, ...] = ()
    corrected: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[tuple[Encoding, ...], ...] = ()
    ignored: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    refusal: UsageError | None = None
    frequent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The description of a model behind an output, as an index keeps it in its `_meta`.

    Attributes:
        name: The name that the model's folder gives, or ``hf:OWNER/NAME``.
        hash: 16 hexadecimal digits; the same for the fp32 and the int8 graph of a model.
        dimension: Length of the vector; None: the output is not a vector.
        analysis: Id of the analysis that makes the terms; None: the output has no terms.
        max_length: The most tokens of a text that the model reads.
        folder: The folder that the model was opened from; None: the model is not open.
        spread: How far the model's scores lie apart (`encoders.calibration`); 0: that was not measured.
    """

    name: str
    hash: str
    dimension: int | None
    analysis: str | None
    max_length: int
    folder: Path | None = None
    spread: float = 0.0

    @property
    def local_folder(self) -> Path:
        """The folder of a model that was opened on this host."""
        assert self.folder is not None
        return self.folder


@dataclass(frozen=True, slots=True)
class WordWeight:
    """A word at its position in a text, with its weight (0 for a word that the analysis drops).

    Attributes:
        start: Offset of the first character in the original text.
        end: Offset after the last character.
        term: Term of the index; "" if the analysis drops the word.
        weight: Impact of the term in this text.
    """

    start: int
    end: int
    term: str
    weight: float


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a server. All other code reads this record, never a version number.

    Attributes:
        version: Version that the server reports, for messages and `doctor`.
        distribution: "opensearch" or "elasticsearch", which decides the dialect of requests (`termweave.dialect`).
        plugins: Names of the installed plugins.
        knn: Whether fields of vectors in an HNSW graph can be created (`knn_vector` of the engine lucene, `dense_vector`).
        sparse_vector: Whether `sparse_vector` fields without pruning can be created (Elasticsearch).
        neural_sparse: Whether the server understands the `neural_sparse` query with `query_tokens`.
        vector_doc_values: Whether `docvalue_fields` can read a `knn_vector` (3.7 and newer).
        max_clause_count: Current value of `indices.query.bool.max_clause_count`.
    """

    version: str
    distribution: str = "opensearch"
    plugins: tuple[str, ...] = ()
    knn: bool = False
    sparse_vector: bool = False
    neural_sparse: bool = False
    vector_doc_values: bool = False
    max_clause_count: int = 1024


@dataclass(frozen=True, slots=True)
class SignalScore:
    """The score of one signal for one hit.

    Attributes:
        score: Score of the signal (for dense: the inner product).
        rank: Rank of the hit in the signal's list, from 1; None: the signal did not return the hit.
        share: Contribution of the signal to the hit's final score.
        normalised: Score or rank after the fusion's normalisation, in [0, 1]; None: there is no fusion.
        counts: Weight of the signal for this query: ``share = normalised * counts``.
    """

    score: float
    rank: int | None
    share: float
    normalised: float | None = None
    counts: float | None = None


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """One of the best passages of a hit.

    Attributes:
        number: Number of the passage in its document; the first is 1.
        start: Offset of the first character of `text` in the document's text.
        end: Offset behind the last character of `text`.
        text: Text of the passage, and of its neighbours if they were asked for.
        score: Score of the passage for the query (`termweave.search.features.passages`).
    """

    number: int
    start: int
    end: int
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Highlight:
    """An extract of a field that shows matched words of the query.

    Attributes:
        field: "title" or "text".
        start: Offset of the extract in the field, in characters.
        text: Text of the extract.
        matches: (start, end) of each matched word, in characters of the extract.
    """

    field: str
    start: int
    text: str
    matches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search.

    Attributes:
        id: Id of the document in its source.
        score: Final score, after fusion and reranking.
        rank: Rank, from 1.
        fields: Stored fields that the search asked for (title, text, metadata ...).
        signals: Signal name -> the signal's score; the shares and `reranked` sum to `score`.
        explanation: The parts of which the score is made up, which sum to `score`; None: the search did not ask for it.
        explainer: Function that makes the explanation later, if the search did not ask for it.
        passage: Passage that was found, if the document is indexed in passages; `fields["text"]` is the passage's text.
        highlights: Extracts with matched words, at most one per field; None: the search did not ask for them.
        reranked: Contribution of the reranker to `score`.
        passages: The document's best passages, best first; None: the search did not ask for them.
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
    passages: tuple[FoundPassage, ...] | None = None

    def __hash__(self) -> int:
        return hash((self.id, self.rank))

    def __repr__(self) -> str:
        title = str(self.fields.get("title") or "")
        shown = f", {clipped(title, 60)!r}" if title not in {"", self.id} else ""
        return f"<Hit {self.rank}: {self.id!r}, {self.score:.4f}{shown}>"

    def __reduce__(self) -> tuple[type[Hit], tuple[Any, ...]]:
        """Pickle the hit without its explainer, which holds a connection."""
        before = (self.id, self.score, self.rank, dict(self.fields), dict(self.signals), self.explanation)
        return Hit, (*before, None, self.passage, self.highlights, self.reranked, self.passages)

    def as_dict(self) -> dict[str, Any]:
        """The JSON values of this hit, as in ``termweave search --json``."""
        signals = {name: {"score": each.score, "rank": each.rank, "share": each.share} for name, each in self.signals.items()}
        values = {"id": self.id, "score": self.score, "rank": self.rank, "fields": dict(self.fields), "signals": signals}
        values |= {"reranked": self.reranked, "explanation": self.explanation}
        if (passage := self.passage) is not None:
            values["passage"] = {"number": passage.number, "start": passage.start, "end": passage.end}
        extracts = {"highlights": self.highlights, "passages": self.passages}
        return values | {name: [asdict(each) for each in found] for name, found in extracts.items() if found is not None}

    def explain(self) -> Mapping[str, Any]:
        """Explain the score: ``{"score", "parts": [{"name", "share", ...}]}``; the shares sum to the score.

        The explanation takes one more request unless the search was made with ``explain=True``. A hit that was unpickled in another process
        cannot send the request: its explanation has the shares of the signals and the reranker, without terms.
        """
        if self.explanation is not None:
            return self.explanation
        if self.explainer is not None:
            return self.explainer()
        parts: list[dict[str, Any]] = [
            {"name": name, "share": signal.share, "score": signal.score, "rank": signal.rank, "terms": []}
            for name, signal in self.signals.items()
        ]
        if self.reranked:
            parts.append({"name": "reranker", "share": self.reranked, "score": self.reranked, "rank": self.rank, "terms": []})
        return {"score": self.score, "parts": parts}


def strictly_decreasing(scores: Mapping[str, float]) -> dict[str, float]:
    """Lower scores as little as possible so that they strictly decrease and trec_eval keeps the order of the documents.

    trec_eval stores float32 and orders equal scores by id, descending. The measured order must be the order that users see.
    """
    import numpy as np  # noqa: PLC0415

    lowered: dict[str, float] = {}
    last = np.float32(np.inf)
    for document, score in scores.items():
        last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
        lowered[document] = float(last)
    return lowered


@dataclass(frozen=True, slots=True)
class Run:
    """The rankings for all queries of a data set, as trec_eval reads them.

    Attributes:
        name: Name of the run.
        scores: Query id -> document id -> score, best first. Scores of a search are strictly decreasing, so that sorting by score keeps
            the order of equal hits. A query without results has an empty mapping, and counts in averages.
        self_matches: Ids of the queries that are copies of documents of the index: each such query was ranked without its own document.
    """

    name: str
    scores: Mapping[str, Mapping[str, float]]
    self_matches: Collection[str] = frozenset()

    def __repr__(self) -> str:
        return f"<Run {self.name!r}: {counted(len(self.scores), 'query', 'queries')}>"
