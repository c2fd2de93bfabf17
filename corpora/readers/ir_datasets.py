"""``ir:NAME``: the collections of ir_datasets, with their queries and judgements. Needs `pip install 'termweave[ir]'`.

NAME is a name of its catalogue (https://ir-datasets.com). A collection that is not on this host is downloaded by
ir_datasets into its own folder, $IR_DATASETS_HOME: whoever writes ``ir:`` asks for that. As a data set NAME has judgements
itself, or NAME/SPLIT has them: ``ir:beir/scifact`` is beir/scifact/test, ``ir:beir/scifact:train`` beir/scifact/train.
"""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from termweave.corpora.beir import relevant_from
from termweave.corpora.fields import TEXT_KEYS, TITLE_KEY, BadLine, Mapper, json_value
from termweave.corpora.filesource import EntrySource
from termweave.corpora.sources import DEFAULT_SPLIT
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.records import Qrels, Query
from termweave.words import counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress, Reading
    from termweave.records import Document

PREFIX = "ir:"
#: Names in a message.
_NAMED = 12


class IrDataset(EntrySource):
    """A collection of ir_datasets: a `Dataset`, and the reader behind ``ir:``."""

    LABEL: ClassVar[str] = "`ir:NAME` of ir_datasets"
    MAPPED: ClassVar[bool] = True
    #: Raise it when the same records come to be read as other documents.
    KIND: ClassVar[str] = "ir/1"

    def __init__(self, name: str, judged: str | None = None, split: str = DEFAULT_SPLIT, reading: Reading | None = None) -> None:
        super().__init__(reading)
        self._name = name
        self._set = _load(name)
        self._judged_set = _load(judged or name)
        self._judged_name = judged or name
        self._split = split
        if not self._set.has_docs():
            raise UsageError(f"{self.name} has no documents.", "Name the collection that it belongs to.")

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """By the prefix."""
        return spec.startswith(PREFIX)

    @classmethod
    def open(cls, spec: str, reading: Reading) -> IrDataset:
        """The documents of a collection."""
        return cls(spec.removeprefix(PREFIX), reading=reading)

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> IrDataset:
        """The collection with the judgements of a split, or its own.

        Raises:
            UsageError: It has neither.
        """
        name = spec.removeprefix(PREFIX)
        whole = _load(name)
        if split == DEFAULT_SPLIT and whole.has_qrels() and whole.has_queries():
            return cls(name, split=split)
        if split not in (known := _splits(name)):
            hint = f"There are: {few(known, _NAMED)}." if known else "It is a corpus, not a data set."
            raise UsageError(f"{spec} has no split {split!r}.", hint)
        return cls(name, f"{name}/{split}", split)

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"{PREFIX}{self._name}"

    @property
    def fingerprint(self) -> str:
        """Over every record, in one pass: a name may stand for files that somebody exchanges."""
        return self._passed[0]

    @property
    def shown(self) -> str:
        """As messages name it: as it is asked for."""
        return self.name

    @property
    def size(self) -> int:
        """Bytes of all records, as they are counted here."""
        return self._passed[1]

    @property
    def split(self) -> str:
        """The split whose judgements are meant."""
        return self._split

    @property
    def relevant_from(self) -> int:
        """See `termweave.corpora.beir.relevant_from`."""
        return relevant_from(self._judged_name)

    @property
    def notes(self) -> list[str]:
        """What was left out of the judgements."""
        return self._judged[2]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document | BadLine]]:
        """The records in the collection's order, counted."""
        mapper, position = Mapper(self.reading.fields), 0
        for number, record in enumerate(self._records("docs"), 1):
            try:
                yield number, self._document(mapper, record, number)
            except BadLine as bad:
                yield number, bad
            position += len(_bytes(record))
            if progress:
                progress(position)
        mapper.finish()

    def splits(self) -> list[str]:
        """Names below this one that have judgements."""
        return _splits(self._name)

    def queries(self) -> list[Query]:
        """The judged queries, in the collection's order."""
        return list(self._judged[0])

    def qrels(self) -> Qrels:
        """The judgements of these queries."""
        return self._judged[1]

    def _document(self, mapper: Mapper, record: Any, number: int) -> Document:
        found = json_value(record)
        # Many collections have fields of their own; ir_datasets knows which of them are the text.
        if not self.reading.fields.text and not any(isinstance(found.get(key), str) for key in TEXT_KEYS):
            title = found.get(self.reading.fields.title or TITLE_KEY)
            found["text"] = record.default_text().removeprefix(title if isinstance(title, str) else "").strip()
        document = mapper.document(found, number)
        try:
            orjson.dumps([document.id, document.title, document.text, dict(document.metadata)])
        except TypeError as error:  # half of a surrogate pair, a number beyond 64 bits
            raise BadLine(f"it is no JSON: {error}") from None
        return document

    def _records(self, kind: str) -> Iterator[Any]:
        try:
            yield from getattr(self._judged_set if kind != "docs" else self._set, f"{kind}_iter")()
        except TermweaveError:
            raise
        except Exception as error:
            first = error.args[0] if error.args else ""  # behind it stands a list of causes
            said = " ".join(str(first).split()) or type(error).__name__
            hint = "Collections are downloaded on first use; some need a licence: see https://ir-datasets.com."
            raise InputError(f"ir_datasets cannot give the {kind} of {self.name}: {said}.", hint) from error

    @cached_property
    def _passed(self) -> tuple[str, int]:
        kind = f"{self.KIND} {self.reading.fields}\n"
        digest, size = blake2b(kind.encode(), digest_size=16), 0
        for record in self._records("docs"):
            found = _bytes(record)
            digest.update(found + b"\n")
            size += len(found)
        return digest.hexdigest(), size

    @cached_property
    def _judged(self) -> tuple[list[Query], Qrels, list[str]]:
        qrels: Qrels = {}
        for each in self._records("qrels"):
            grade = getattr(each, "relevance", None)
            if not isinstance(grade, int):
                raise UsageError(f"The judgements of {self._judged_name} are no grades.", "Name another collection or split.")
            qrels.setdefault(each.query_id, {})[each.doc_id] = grade
        queries = [Query(each.query_id, each.default_text()) for each in self._records("queries") if each.query_id in qrels]
        lost = set(qrels) - {query.id for query in queries}
        notes = []
        if lost:
            dropped = sum(len(qrels[query]) for query in lost)
            judged = counted(dropped, "judgement")
            notes.append(f"{judged} of {self._judged_name} left out: on {counted(len(lost), 'query', 'queries')} that it lacks.")
        return queries, {query.id: qrels[query.id] for query in queries}, notes


def _bytes(record: Any) -> bytes:
    return repr(tuple(record)).encode(errors="surrogatepass")


def _registry() -> Any:
    try:
        import ir_datasets  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "`ir:` names collections of ir_datasets, and ir_datasets is not installed.", "Run `pip install 'termweave[ir]'`."
        ) from error
    return ir_datasets.registry


def _load(name: str) -> Any:
    try:
        return _registry()[name]
    except KeyError:
        hint = "Its catalogue is at https://ir-datasets.com, and `ir_datasets list` prints it."
        raise UsageError(f"ir_datasets has no collection {name!r}.", hint) from None


def _splits(name: str) -> list[str]:
    below = f"{name}/"
    return sorted(each.removeprefix(below) for each in _registry() if each.startswith(below) and _load(each).has_qrels())
