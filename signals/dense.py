"""The dense signal: one unit vector per document, searched by HNSW, and a half-precision copy of the vector for reranking.

On OpenSearch the mapping names the k-NN engine `lucene` explicitly: the default since 2.18 is faiss, which needs native libraries that the
plugin archive does not contain. Rerankers read the vectors of candidates from `vector_fp16`, a binary field with doc values:
100 vectors take 1 ms from there, and 25 ms or more from `_source` (measured on 3.6.0). This field works on every version, and on Elasticsearch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pybase64

from termweave.contracts.signal import Clause, Fitting, Output, Signal
from termweave.dialect import OPENSEARCH, ServerDialect, dialect_of
from termweave.errors import ModelError
from termweave.support import LazyModule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import Capabilities, Document, Encoding
    from termweave.statistics import CorpusStatistics
else:  # `--help` reads the signals, and needs no numpy
    np = LazyModule("numpy")

VECTOR_FIELD = "vector_fp16"
#: `Dense.background` of an index whose sample is too small to measure it. all-MiniLM-L6-v2 has .08 to .15 on eight corpora.
_BACKGROUND = 0.12
#: The smallest sample of documents that measures the background.
_ENOUGH = 30
#: k of the graph search for each document wanted. Lucene explores k nodes, so a larger k has a higher recall. With 2, the recall
#: of the nearest hundred is 1.000 on cranfield and stackfaq; with 1, .987 and .996, in the same time (docs/index-layout.md).
_EFFORT = 2
#: The largest k that the server accepts.
_MOST = 10_000
#: The largest whole number of a byte that has a negative, too.
_BYTE = 127
#: Share of a sample's numbers that bytes represent without clipping; and a number that few exceed in a unit vector, times the root of
#: its dimension, where there is no sample.
_QUANTILE, _USUAL = 0.9995, 4.0
#: `Dense.unit` in a corpus of documents with `_LENGTH` terms, as a share of the model's own spread; and the power of their length.
#: docs/fusion.md says which models and data sets chose these numbers.
_SHARE, _LENGTH, _POWER = 0.8, 50, 0.25
#: Average lengths outside these do not change the unit further.
_SHORTEST, _LONGEST = 10, 500
#: The unit of indices built before models were calibrated, in standard deviations of the similarity between random documents.
_EARLIER_UNIT = 3.5


def to_half(vector: NDArray[np.float32]) -> str:
    """Encode a vector, float32 ``(d,)``, as base64 of little-endian half floats."""
    return pybase64.b64encode_as_string(vector.astype("<f2").tobytes())


def from_half(value: str) -> NDArray[np.float32]:
    """Decode the base64 text of `to_half` to a vector, float32 ``(d,)``, with a relative error of up to 5e-4.

    The server's doc values lack the "=" at the end (3.6.0).
    """
    return np.frombuffer(pybase64.b64decode(_padded(value), validate=True), "<f2").astype(np.float32)


def from_halves(values: Sequence[str | None], dimension: int) -> NDArray[np.float32]:
    """Decode the base64 texts of many vectors at once, three times as fast as one by one.

    Returns:
        float32 ``(len(values), dimension)``, with a row of zeros for each value that is None.
    """
    zeros = pybase64.b64encode_as_string(bytes(2 * dimension))
    texts = [zeros if value is None else value for value in values]
    if not zeros.endswith("="):  # without padding the texts can be joined and decoded as one
        texts = ["".join(texts)]
    rows = b"".join([pybase64.b64decode(_padded(text), validate=True) for text in texts])
    return np.frombuffer(rows, "<f2").astype(np.float32).reshape(len(values), dimension)


def _padded(text: str) -> str:
    """Add to a base64 text the padding "=" that the server leaves out."""
    return text + "=" * (-len(text) % 4)


@dataclass(frozen=True)
class Dense(Signal):
    """The signal `dense`: vectors of unit length, compared by inner product.

    Attributes:
        dimension: Number of components of each vector.
        m: Number of links of each node of the HNSW graph.
        ef_construction: Number of candidates that are compared when a node is linked into the graph.
        background: Standard deviation of the similarity between two random documents of the corpus, used where `unit` is 0.
        unit: The difference between two similarities that counts in fusion as much as the whole score of a signal of words; 0: the model was not
            calibrated.
        byte_scale: Factor by which each number of a vector is multiplied and then rounded to a whole number from -127 to 127 for the server; 0: the
            server stores floats.
    """

    name: ClassVar[str] = "dense"
    needs: ClassVar[Output | None] = "dense"
    engine_explains: ClassVar[bool] = False  # the server gives only a placeholder (k-NN #1976)
    floor: ClassVar[float | None] = None

    dimension: int
    m: int = 16
    ef_construction: int = 100
    background: float = _BACKGROUND
    byte_scale: float = 0.0
    unit: float = 0.0

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Make the signal for an index: dimension and unit from the encoder, the scale of the numbers from a sample of vectors."""
        if fitting.dimension is None:
            hint = "Name a model with --dense, or leave the signal out with --signals."
            raise ModelError("The signal 'dense' needs a model that gives vectors, and there is none.", hint)
        if fitting.dimension > (most := dialect_of(fitting.capabilities).most_dimensions):
            hint = "Choose another model, or leave the signal out with --signals."
            raise ModelError(f"The model gives vectors of {fitting.dimension:,} numbers; the server takes up to {most:,}.", hint)
        vectors = [encoding.vector for encoding in fitting.sample if encoding.vector is not None and encoding.text.strip()]
        scale = _byte_scale(vectors, fitting.dimension) if fitting.byte_vectors else 0.0
        if fitting.dense_spread:
            return cls(dimension=fitting.dimension, byte_scale=scale, unit=_unit(fitting.dense_spread, fitting.average_length))
        return cls(dimension=fitting.dimension, background=_deviation(vectors), byte_scale=scale)

    @classmethod
    def unavailable(cls, capabilities: Capabilities, analysis: str | None = None) -> str | None:
        """The reason why this server cannot search vectors; None: it can."""
        return dialect_of(capabilities).vectors_obstacle(capabilities)

    def parameters(self) -> dict[str, Any]:
        """The parameters that the lineage stores; for an index of floats only those that earlier versions know, too."""
        return {name: value for name, value in super().parameters().items() if name not in {"byte_scale", "unit"} or value}

    def properties(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The mapping of the k-NN field and of the field with the half-precision copy."""
        of_bytes = dialect.byte_vectors if self.byte_scale else {}
        vector = {**dialect.vector_field(self.dimension, self.m, self.ef_construction), **of_bytes}
        return {"vector": vector, VECTOR_FIELD: {"type": "binary", "doc_values": True}}

    def settings(self, dialect: ServerDialect = OPENSEARCH) -> dict[str, Any]:
        """The index settings that enable k-NN."""
        return dialect.vector_settings()

    def fields(self, document: Document, encoding: Encoding, statistics: CorpusStatistics | None = None) -> dict[str, Any]:
        """The vector of a document and its half-precision copy, as the index stores them; {} for a blank document."""
        if document.blank:
            return {}
        vector = encoding.vector
        if vector is None or vector.shape != (self.dimension,):
            output = "no vector" if vector is None else f"{vector.shape[0]} numbers"
            raise ModelError(f"The model gave {output} for document {document.id!r}; the index has vectors of {self.dimension}.")
        if not math.isfinite(vector.dot(vector)):  # the sum is NaN or infinite if one number is
            raise ModelError(
                f"The model gave a vector with NaN or infinity for document {document.id!r}.", "The model folder is damaged."
            )
        return {"vector": self.stored_vector(vector), VECTOR_FIELD: to_half(vector)}

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """Bytes for a document's digest: the stored numbers as float32, followed by the half-precision copy."""
        vector = stored.get("vector")
        return np.asarray([] if vector is None else vector, "<f4").tobytes() + str(stored.get(VECTOR_FIELD, "")).encode()

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """A k-NN clause that applies the filters during graph search; None: the query has no vector.

        The clause asks for more than `size` neighbours because the search is approximate.
        """
        if query.vector is None or not query.text.strip():
            return None
        count = reach(size)
        vector, scale = self.query_vector(query.vector)
        return Clause(dialect_of(capabilities).vector_query(f"{self.prefix}vector", vector, count, where), scale, reach=count)

    def query_vector(self, vector: NDArray[np.float32]) -> tuple[NDArray[Any], float]:
        """The vector of a query ``(d,)`` in the form that the server gets, and the factor by which this form multiplies inner products."""
        if not self.byte_scale:
            return vector, 1.0
        step = _BYTE / max(float(abs(vector).max()), 1e-6)  # each query uses all steps
        return _as_bytes(vector, step), step * self.byte_scale

    def stored_vector(self, vector: NDArray[np.float32]) -> NDArray[Any]:
        """The vector of a document ``(d,)`` in the form that the server stores."""
        return _as_bytes(vector, self.byte_scale) if self.byte_scale else vector

    def score(self, engine_score: float, clause: Clause) -> float:
        """The inner product ip of query and document, computed from the server's score.

        The server's score is 1 + ip for ip >= 0, and 1 / (1 - ip) below, with ip multiplied by the clause's scale where the index holds bytes.
        """
        return (engine_score - 1.0 if engine_score >= 1.0 else 1.0 - 1.0 / engine_score) / clause.scale

    def restricted(
        self, clause: Clause, query: Encoding, where: Sequence[Mapping[str, Any]], *, size: int, capabilities: Capabilities
    ) -> dict[str, Any]:
        """The clause for some documents only, as `Signal.restricted`, with the filter inside the k-NN clause."""
        return (self.clause(query, size=size, where=where, capabilities=capabilities) or clause).query

    def spread(self, low: float, high: float, full_match_score: float | None = None) -> float:
        """The difference between two similarities, in a unit that depends on the model and the corpus.

        In an index of an earlier version the unit is a number of standard deviations of the similarity between random documents. The deviation is the
        geometric mean of this corpus's and the usual one: a corpus on one subject has a large deviation, but only a part of it is chance.
        """
        return (high - low) / (self.unit or _EARLIER_UNIT * math.sqrt(self.background * _BACKGROUND))


def reach(size: int) -> int:
    """The number of neighbours that a k-NN clause asks for to find `size` documents."""
    return min(_EFFORT * size, max(size, _MOST))


def _unit(spread: float, length: float) -> float:
    """Compute `Dense.unit`, which is smaller for short documents.

    Vectors count more there, because short documents hold few of the words that a query may use.

    Args:
        spread: The model's own spread of similarities (`Fitting.dense_spread`).
        length: The average length of a document in terms (`Fitting.average_length`); 0: it is not known.
    """
    typical = min(_LONGEST, max(_SHORTEST, length)) if length else _LENGTH
    return _SHARE * spread * math.pow(typical / _LENGTH, _POWER)


def _byte_scale(vectors: Sequence[NDArray[np.float32]], dimension: int) -> float:
    """Compute `Dense.byte_scale` from a sample of vectors: a high quantile of their numbers becomes 127, and larger numbers are clipped."""
    largest = float(np.quantile(np.abs(np.stack(vectors)), _QUANTILE)) if vectors else 0.0
    return _BYTE / (largest or _USUAL / math.sqrt(dimension))


def _as_bytes(vector: NDArray[np.float32], scale: float) -> NDArray[np.int8]:
    """Multiply a vector by `scale`, and round it to whole numbers from -127 to 127."""
    steps: NDArray[np.float32] = np.rint(vector * scale)
    return np.clip(steps, -_BYTE, _BYTE).astype(np.int8)


def _deviation(vectors: Sequence[NDArray[np.float32]]) -> float:
    """Standard deviation of the inner products of all pairs of vectors; a usual value if there are fewer than 30 vectors."""
    if len(vectors) < _ENOUGH:
        return _BACKGROUND
    matrix = np.stack(vectors)
    pairs = (matrix @ matrix.T)[np.triu_indices(len(matrix), 1)]
    return max(0.01, float(pairs.std()))  # equal texts would make every difference infinite
