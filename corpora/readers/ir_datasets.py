"""Read ``ir:NAME``: collections of ir_datasets with their queries and judgements. Needs `pip install 'termweave[ir]'`.

NAME is a name in the catalogue of ir_datasets (https://ir-datasets.com). If a collection is not on this host, ir_datasets downloads it
to its own folder, $IR_DATASETS_HOME: whoever writes ``ir:`` asks for that. The judgements of a data set belong to NAME itself, or to
NAME/SPLIT: ``ir:beir/scifact`` is beir/scifact/test, ``ir:beir/scifact:train`` beir/scifact/train.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from typing import Any, ClassVar

import orjson

from termweave.catalog.source_fields import TEXT_KEYS, TITLE_KEY
from termweave.corpora.file_source import EntrySource
from termweave.corpora.formats.fields import BadLine, Mapper, attempted, json_value
from termweave.corpora.judgements import Judged, Judgements, check_split, joined, relevant_from
from termweave.corpora.sources import DEFAULT_SPLIT, Progress, Reader, Reading
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.records import Document, Qrels, Query
from termweave.support.extras import needed

PREFIX = "ir:"


class IrDataset(Judged, EntrySource, Reader):
    """A collection of ir_datasets: a `Dataset`, and the reader behind ``ir:``."""

    LABEL: ClassVar[str] = "`ir:NAME` of ir_datasets"
    MAPPED: ClassVar[bool] = True
    #: Part of the fingerprint: change it when the same records are read as different documents.
    KIND: ClassVar[str] = "ir/1"
    ENTRY = "record"
    #: Set when the collection is opened.
    name = ""

    def __init__(self, name: str, judged: str | None = None, split: str = DEFAULT_SPLIT, reading: Reading | None = None) -> None:
        super().__init__(reading)
        self._name, self.name = name, f"{PREFIX}{name}"
        self._judged_name = judged or name
        self.relevant_from = relevant_from(self._judged_name)
        self.split = split
        if not _load(name).has_docs():
            raise UsageError(f"{self.name} has no documents.", "Name the collection whose documents it judges.")

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the spec begins with ``ir:``."""
        return spec.startswith(PREFIX)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> IrDataset:
        """Open the documents of a collection."""
        return cls(spec.removeprefix(PREFIX), reading=reading)

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> IrDataset:
        """Open a collection with the judgements of NAME itself or of NAME/SPLIT.

        Raises:
            UsageError: The collection has no such judgements.
        """
        name = spec.removeprefix(PREFIX)
        whole = _load(name)
        if split == DEFAULT_SPLIT and whole.has_qrels() and whole.has_queries():
            return cls(name, split=split)
        check_split(spec, split, _splits(name), "It is a corpus, not a data set.")
        return cls(name, f"{name}/{split}", split)

    @property
    def fingerprint(self) -> str:
        """Hash of every record, made in one pass, because the files behind a name may change."""
        return self._passed[0]

    @property
    def size(self) -> int:
        """Size of all records in bytes, as progress counts them."""
        return self._passed[1]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """Read the records in the collection's order, numbered from 1."""
        mapper, position = Mapper(self.reading.fields), 0
        for number, record in enumerate(self._records("docs"), 1):
            yield number, attempted(self._document, mapper, record, number)
            position += len(_bytes(record))
            if progress:
                progress(position)
        mapper.finish()

    def splits(self) -> list[str]:
        """Names of the splits: the parts SPLIT of collections NAME/SPLIT that have judgements."""
        return _splits(self._name)

    def _document(self, mapper: Mapper, record: Any, number: int) -> Document:
        entry = json_value(record)
        # Many collections have special fields; ir_datasets knows which of them are the text.
        if not self.reading.fields.text and not any(isinstance(entry.get(key), str) for key in TEXT_KEYS):
            title = entry.get(self.reading.fields.title or TITLE_KEY)
            entry["text"] = record.default_text().removeprefix(title if isinstance(title, str) else "").strip()
        document = mapper.document(entry, number)
        try:
            orjson.dumps([document.id, document.title, document.text, dict(document.metadata)])
        except TypeError as error:  # half of a surrogate pair, a number beyond 64 bits
            raise BadLine(f"a value is not valid JSON: {error}") from None
        return document

    def _records(self, kind: str) -> Iterator[Any]:
        try:
            yield from getattr(_load(self._name if kind == "docs" else self._judged_name), f"{kind}_iter")()
        except TermweaveError:
            raise
        except Exception as error:
            message = error.args[0] if error.args else ""  # a list of causes follows it
            reason = " ".join(str(message).split()) or type(error).__name__
            hint = "Collections are downloaded when first used, and some need a licence: see https://ir-datasets.com."
            raise InputError(f"ir_datasets cannot read the {kind} of {self.name}: {reason}.", hint) from error

    @cached_property
    def _passed(self) -> tuple[str, int]:
        """Fingerprint and size in bytes, from one pass over the records."""
        kind = f"{self.KIND} {self.reading.fields}\n"
        digest, size = blake2b(kind.encode(), digest_size=16), 0
        for record in self._records("docs"):
            data = _bytes(record)
            digest.update(data + b"\n")
            size += len(data)
        return digest.hexdigest(), size

    @cached_property
    def _judged(self) -> Judgements:
        qrels: Qrels = {}
        for judgement in self._records("qrels"):
            grade = getattr(judgement, "relevance", None)
            if not isinstance(grade, int):
                raise UsageError(f"The judgements of {self._judged_name} are not grades.", "Name another collection or split.")
            qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = grade
        queries = [Query(each.query_id, each.default_text()) for each in self._records("queries") if each.query_id in qrels]
        return joined(queries, qrels, table=self._judged_name, file="the collection")


def _bytes(record: Any) -> bytes:
    return repr(tuple(record)).encode(errors="surrogatepass")


def _registry() -> Any:
    return needed("ir_datasets", "ir", "`ir:` names a collection of ir_datasets, which").registry


def _load(name: str) -> Any:
    try:
        return _registry()[name]
    except KeyError:
        raise UsageError(f"ir_datasets has no collection {name!r}.", "Its catalogue is at https://ir-datasets.com.") from None


def _splits(name: str) -> list[str]:
    below = f"{name}/"
    return sorted(each.removeprefix(below) for each in _registry() if each.startswith(below) and _load(each).has_qrels())
