"""Encodings of a source, kept on the disk beside the ledger until all of it is sent: one file a block of documents."""

from __future__ import annotations

import io
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import orjson

from termweave.errors import TermweaveError
from termweave.records import Encoding, TermWeights

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.indexer.ledger import Ledger
    from termweave.records import Document

#: Files end so, and begin with a digest of so many bytes.
_SUFFIX, _DIGEST = ".encodings", 16


def file(ledger: Ledger, block: int) -> Path:
    """Where the encodings of a block lie; `ledgers.forget` finds them there."""
    return ledger.path.with_suffix(f".{block:06}{_SUFFIX}")


def keep(path: Path, documents: Sequence[Document], encodings: Sequence[Encoding]) -> None:
    """Write a file: a digest, and an .npz behind it.

    Raises:
        TermweaveError: It cannot be written.
    """
    weights = [encoding.weights for encoding in encodings if encoding.weights is not None]
    terms = orjson.dumps([each.terms for each in weights])
    parts = {
        "vectors": vectors(encodings),
        "weights": np.concatenate([each.weights for each in weights]),
        "terms": np.frombuffer(terms, np.uint8),
    }
    written = io.BytesIO()
    np.savez(written, allow_pickle=False, **parts)
    packed = written.getvalue()
    try:
        path.write_bytes(_digest(documents, packed) + packed)
    except OSError as error:
        raise TermweaveError(
            f"Encodings cannot be kept in {path.parent}: {error.strerror or error}.",
            "Free some disk space, or see who may write there, and run the command again: it resumes.",
        ) from error


def read(path: Path, documents: Sequence[Document]) -> list[Encoding] | None:
    """What `keep` wrote, without texts; None where the file is not there, is damaged or of other documents."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    if kept[:_DIGEST] != _digest(documents, kept[_DIGEST:]):
        return None
    with np.load(io.BytesIO(kept[_DIGEST:]), allow_pickle=False) as parts:
        rows, weights, terms = parts["vectors"], parts["weights"], orjson.loads(parts["terms"].tobytes())
    ends = np.cumsum([len(each) for each in terms])
    held = [TermWeights(tuple(each), part) for each, part in zip(terms, np.split(weights, ends[:-1]), strict=True)]
    return [Encoding("", each, vector) for each, vector in zip(held, rows, strict=True)]


def forget(ledger: Ledger) -> None:
    """Remove the files, once all is sent."""
    for path in ledger.path.parent.glob(f"{ledger.path.stem}.*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def vectors(encodings: Sequence[Encoding]) -> NDArray[np.float32]:
    """Their vectors, float32 ``(n, d)``."""
    return np.stack([encoding.vector for encoding in encodings if encoding.vector is not None])


def _digest(documents: Sequence[Document], packed: bytes) -> bytes:
    """Of encodings and whose they are: blocks may have other borders, and a kill may cut a file off."""
    whose = orjson.dumps([(document.id, document.line) for document in documents])
    return blake2b(packed + whose, digest_size=_DIGEST).digest()
