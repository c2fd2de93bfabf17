"""Stored encodings: files beside the ledger, one per block of documents, kept until all documents are sent."""

from __future__ import annotations

import io
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import orjson

from termweave.errors import TermweaveError
from termweave.records import Encoding, TermWeights
from termweave.support import private_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from termweave.indexer.ledger.ledger import Ledger
    from termweave.records import Document

#: The ending of the files' names, and the number of bytes of the digest at their beginning.
_SUFFIX, _DIGEST = ".encodings", 16


def file(ledger: Ledger, block: int) -> Path:
    """The file with the encodings of a block; `storage.forget` removes it with the ledger."""
    return ledger.path.with_suffix(f".{block:06}{_SUFFIX}")


def keep(path: Path, documents: Sequence[Document], encodings: Sequence[Encoding]) -> None:
    """Store the encodings of a block: a digest, followed by an .npz archive.

    Raises:
        TermweaveError: The file cannot be written.
    """
    weights = [encoding.weights for encoding in encodings if encoding.weights is not None]
    terms = orjson.dumps([each.terms for each in weights])
    arrays = {
        "vectors": vectors(encodings),
        "weights": np.concatenate([each.weights for each in weights]),
        "terms": np.frombuffer(terms, np.uint8),
    }
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **arrays)
    packed = archive.getvalue()
    try:
        private_files.make_file(path)
        path.write_bytes(_digest(documents, packed) + packed)
    except OSError as error:
        raise TermweaveError(
            f"Encodings cannot be written to {path.parent}: {error.strerror or error}.",
            "Free some disk space or check the permissions of that folder, then run the command again: it resumes.",
        ) from error


def read(path: Path, documents: Sequence[Document]) -> list[Encoding] | None:
    """Read stored encodings, without their texts; None if the file is missing, damaged or belongs to other documents."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if content[:_DIGEST] != _digest(documents, content[_DIGEST:]):
        return None
    with np.load(io.BytesIO(content[_DIGEST:]), allow_pickle=False) as arrays:
        rows, weights, terms = arrays["vectors"], arrays["weights"], orjson.loads(arrays["terms"].tobytes())
    ends = np.cumsum([len(each) for each in terms])
    term_weights = [TermWeights(tuple(each), part) for each, part in zip(terms, np.split(weights, ends[:-1]), strict=True)]
    return [Encoding("", each, vector) for each, vector in zip(term_weights, rows, strict=True)]


def forget(ledger: Ledger) -> None:
    """Remove the stored encodings of a generation, once all documents are sent."""
    for path in ledger.path.parent.glob(f"{ledger.path.stem}.*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def vectors(encodings: Sequence[Encoding]) -> NDArray[np.float32]:
    """The vectors of encodings, float32 ``(n, d)``."""
    return np.stack([encoding.vector for encoding in encodings if encoding.vector is not None])


def _digest(documents: Sequence[Document], packed: bytes) -> bytes:
    """Digest of the archive and its documents: a later run may form other blocks, and a killed run may leave half a file."""
    identities = orjson.dumps([(document.id, document.line) for document in documents])
    return blake2b(packed + identities, digest_size=_DIGEST).digest()
