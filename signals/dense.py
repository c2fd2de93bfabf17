"""The dense signal: one unit vector a document, searched by HNSW, and the same vector as half floats for reranking.

The engine is named explicitly, `lucene`: the default has been faiss since 2.18, which needs native libraries that the
plugin archive does not carry. Candidates' vectors are read from `vector_fp16`, a binary field with doc values: 100
vectors cost 1 ms there, 25 ms and more from `_source` (run on 3.6.0), and it works on every version.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pybase64

from termweave.errors import ModelError
from termweave.signals.base import Clause, Fitting, Output, Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.records import Capabilities, Document, Encoding

VECTOR_FIELD = "vector_fp16"
#: `Dense.background` of an index that did not measure it, or is too small to: all-MiniLM-L6-v2 has .08 to .15 on eight corpora.
_BACKGROUND = 0.12
#: Documents that measure it.
_ENOUGH = 30
#: Vectors looked for, for each one wanted: what lucene's graph search looks through is k. Of the nearest hundred it then finds
#: 1.000 on cranfield and stackfaq, .987 and .996 if asked for no more than those, in the same time (docs/index-layout.md).
_EFFORT = 2
#: The engine takes no larger k.
_MOST = 10_000
#: The bits of a float32 that come of a half float: its sign, the low five of the exponent, the high ten of the fraction.
_MOVED = -0x70002000
#: 2 to the difference of the two formats' exponent offsets, 127 - 15; and the first number beyond the half floats.
_OFFSET, _BEYOND = 2.0**112, 2.0**16
#: So many background deviations tell as much as the whole score of a signal of words (docs/fusion.md).
_UNIT = 3.5


def to_half(vector: NDArray[np.float32]) -> str:
    """float32 ``(d,)`` as base64 of little-endian half floats."""
    return pybase64.b64encode_as_string(vector.astype("<f2").tobytes())


def from_half(value: str) -> NDArray[np.float32]:
    """The inverse of `to_half`, up to 5e-4 relative; the engine's doc values come without the "=" at the end (3.6.0)."""
    return _floats(pybase64.b64decode(_filled(value), validate=True))


def from_halves(values: Sequence[str | None], dimension: int) -> NDArray[np.float32]:
    """float32 ``(len(values), dimension)`` of many at once, a row of zeros for None: three times as fast as one by one."""
    nothing = pybase64.b64encode_as_string(bytes(2 * dimension))
    texts = [nothing if value is None else value for value in values]
    if not nothing.endswith("="):  # else they are filled up, and none can go on where another ends
        texts = ["".join(texts)]
    rows = b"".join([pybase64.b64decode(_filled(text), validate=True) for text in texts])
    return _floats(rows).reshape(len(values), dimension)


def _floats(halves: bytes) -> NDArray[np.float32]:
    """Little-endian half floats as float32 ``(n,)``: what numpy's own cast gives, in a third of its time.

    The bits of a half, moved to where a float32 has them, are the number times 2^-112, subnormal ones too: only the offsets of
    the exponents differ.
    """
    import numpy as np  # noqa: PLC0415

    values = np.frombuffer(halves, "<f2")
    bits = values.view("<i2").astype(np.int32)  # the sign fills what is above
    bits <<= 13
    bits &= _MOVED
    floats = bits.view(np.float32)
    floats *= _OFFSET
    # Infinity and NaN have an exponent of their own and come out as numbers beyond all others: no model gives them.
    if len(floats) and not -_BEYOND < floats.min() <= floats.max() < _BEYOND:
        return values.astype(np.float32)
    return floats


def _filled(text: str) -> str:
    return text + "=" * (-len(text) % 4)


@dataclass(frozen=True)
class Dense(Signal):
    """Dense vectors of unit length, compared by inner product.

    Attributes:
        dimension: d.
        m: Links a node of the HNSW graph keeps.
        ef_construction: Candidates looked at when a node is linked.
        background: Standard deviation of the similarity between two documents of the corpus drawn at random.
    """

    name: ClassVar[str] = "dense"
    needs: ClassVar[Output | None] = "dense"
    engine_explains: ClassVar[bool] = False  # a stub (k-NN #1976)
    floor: ClassVar[float | None] = None

    dimension: int
    m: int = 16
    ef_construction: int = 100
    background: float = _BACKGROUND

    @classmethod
    def fit(cls, fitting: Fitting) -> Self:
        """Take the encoder's dimension, and measure how similar the sample's documents are to each other by chance."""
        if fitting.dimension is None:
            raise ModelError(
                "The signal 'dense' needs a model that gives vectors.",
                "Name one with --dense, or leave the signal out with --signals.",
            )
        vectors = [encoding.vector for encoding in fitting.sample if encoding.vector is not None and encoding.text.strip()]
        return cls(dimension=fitting.dimension, background=_deviation(vectors))

    @classmethod
    def unavailable(cls, capabilities: Capabilities) -> str | None:
        """Vectors need the k-NN plugin."""
        return None if capabilities.knn else "the server has no k-NN plugin, or does not let this role ask"

    def properties(self) -> dict[str, Any]:
        """The k-NN field and its half-float twin."""
        method = {
            "name": "hnsw",
            "engine": "lucene",
            "space_type": "innerproduct",
            "parameters": {"m": self.m, "ef_construction": self.ef_construction},
        }
        return {
            "vector": {"type": "knn_vector", "dimension": self.dimension, "method": method},
            VECTOR_FIELD: {"type": "binary", "doc_values": True},
        }

    def settings(self) -> dict[str, Any]:
        """k-NN has to be switched on."""
        return {"index.knn": True}

    def fields(self, document: Document, encoding: Encoding) -> dict[str, Any]:
        """The vector, twice; a blank document has none."""
        if document.blank:
            return {}
        vector = encoding.vector
        if vector is None or vector.shape != (self.dimension,):
            found = "none" if vector is None else f"{vector.shape[0]} numbers"
            raise ModelError(
                f"Document {document.id!r} should have a vector of {self.dimension} numbers; the model gave {found}."
            )
        if not math.isfinite(vector.dot(vector)):  # one NaN or infinity makes it one
            raise ModelError(
                f"The model gave NaN for document {document.id!r}.",
                "The model folder is damaged or was exported from a diverged training.",
            )
        return {"vector": vector, VECTOR_FIELD: to_half(vector)}

    def canonical(self, stored: Mapping[str, Any]) -> bytes:
        """The vector as float32 bytes, then the twin."""
        import numpy as np  # noqa: PLC0415

        vector = stored.get("vector")
        return np.asarray([] if vector is None else vector, "<f4").tobytes() + str(stored.get(VECTOR_FIELD, "")).encode()

    def clause(
        self, query: Encoding, *, size: int, where: Sequence[Mapping[str, Any]], capabilities: Capabilities
    ) -> Clause | None:
        """The nearest, filtered inside the graph search: more than the `size` wanted, so that those are the right ones."""
        del capabilities
        if query.vector is None or not query.text.strip():
            return None
        reach = min(_EFFORT * size, max(size, _MOST))
        knn: dict[str, Any] = {"vector": query.vector, "k": reach}
        if where:
            knn["filter"] = {"bool": {"filter": list(where)}}
        return Clause({"knn": {"vector": knn}}, reach=reach)

    def score(self, engine_score: float, clause: Clause) -> float:
        """The inner product: the engine gives 1 + ip for ip >= 0 and 1 / (1 - ip) below."""
        del clause
        return engine_score - 1.0 if engine_score >= 1.0 else 1.0 - 1.0 / engine_score

    def spread(self, low: float, high: float, par: float | None = None) -> float:
        """In deviations of the similarity between any two documents: one inner product says little by itself.

        Half-way (geometric mean) between the deviation of this corpus and the usual one: a corpus on one subject has a large
        one, but not all of that is chance.
        """
        del par
        return (high - low) / (_UNIT * math.sqrt(self.background * _BACKGROUND))


def _deviation(vectors: Sequence[NDArray[np.float32]]) -> float:
    """Standard deviation of the inner products of all pairs."""
    import numpy as np  # noqa: PLC0415

    if len(vectors) < _ENOUGH:
        return _BACKGROUND
    matrix = np.stack(vectors)
    pairs = (matrix @ matrix.T)[np.triu_indices(len(matrix), 1)]
    return max(0.01, float(pairs.std()))  # texts that are all alike would make every difference infinite
