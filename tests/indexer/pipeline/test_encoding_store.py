"""Encodings on the disk: they come back as they were, or count as not there."""

from __future__ import annotations

import numpy as np
import pytest

from termweave.errors import TermweaveError
from termweave.indexer.pipeline import encoding_store
from termweave.records import Document
from tests.indexer.builds import three


def test_what_is_read_is_what_was_written(tmp_path):
    documents, encodings = three()
    path = tmp_path / "kept"
    encoding_store.keep(path, documents, encodings)
    for found, given in zip(encoding_store.read(path, documents), encodings, strict=True):
        assert (found.weights.terms, found.weights.weights) == (given.weights.terms, given.weights.weights)
        assert np.array_equal(found.vector, given.vector)


def test_damaged_anywhere_is_not_there(tmp_path):
    documents, encodings = three()
    path = tmp_path / "kept"
    assert encoding_store.read(path, documents) is None
    encoding_store.keep(path, documents, encodings)
    packed = path.read_bytes()
    for place in range(len(packed)):
        path.write_bytes(packed[:place])
        assert encoding_store.read(path, documents) is None
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :])
        assert encoding_store.read(path, documents) is None


def test_what_cannot_be_kept_is_said(tmp_path):
    with pytest.raises(TermweaveError, match=r"Encodings cannot be written to .*: Is a directory"):
        encoding_store.keep(tmp_path, *three())


def test_of_as_many_other_documents_is_not_there(tmp_path):
    documents, encodings = three()
    path = tmp_path / "kept"
    encoding_store.keep(path, documents, encodings)
    for other in (Document("other", "a text", line=1), Document("whole", "a text", line=9)):
        assert encoding_store.read(path, [other, *documents[1:]]) is None
