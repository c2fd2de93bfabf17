"""The demo corpus: the documentation of the installed Python standard library, with queries and judgements.

The documents are made from the running Python (`standard_library`). The queries and their graded judgements were written by hand
and are part of this package: grade 2 answers the query, grade 1 helps. Only names that every supported Python has are judged.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from functools import cache, cached_property
from hashlib import blake2b
from importlib import resources
from typing import TYPE_CHECKING, ClassVar

import orjson

from termweave.corpora.demo import standard_library
from termweave.corpora.file_source import EntrySource
from termweave.corpora.judgements import Judged, Judgements
from termweave.corpora.sources import DEFAULT_SPLIT, Progress, Reader, Reading
from termweave.errors import InputError, UsageError
from termweave.records import Document, Qrels, Query
from termweave.support.messages import counted
from termweave.support.python_processes import start_python

if TYPE_CHECKING:
    from collections.abc import Iterator

SPLITS = ("test", "train")

_JOINT = re.compile(r"[._]+|(?<=[a-z])(?=[A-Z])")
#: Program of the collecting process. It ignores environment and working folder, and other packages come after the standard library.
_COLLECT = """
import json, sys
sys.path += [path for path in json.loads(sys.argv[1]) if path not in sys.path]
from termweave.corpora.demo import standard_library
standard_library.write(sys.stdout.buffer)
"""


class DemoCorpus(Judged, EntrySource, Reader):
    """The standard library as a `Dataset`, and the reader of the name ``demo``."""

    LABEL: ClassVar[str] = "`demo`"
    #: Part of the fingerprint: change it when entries are written in another way.
    KIND: ClassVar[str] = "demo/1"
    name = "demo"

    def __init__(self, split: str = DEFAULT_SPLIT) -> None:
        if split not in SPLITS:
            raise UsageError(f"The demo corpus has no split {split!r}.", f"There are: {', '.join(SPLITS)}.")
        super().__init__()
        self.split = split

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the spec is ``demo``; a folder of this name can be given as ``./demo``."""
        return spec == "demo"

    @classmethod
    def open(cls, spec: str, reading: Reading) -> DemoCorpus:
        """Open the corpus. It has no bad entries."""
        del spec, reading
        return cls()

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> DemoCorpus:
        """Open the corpus with the queries of one split.

        Raises:
            UsageError: The split is not one of `SPLITS`.
        """
        del spec
        return cls(split)

    @property
    def fingerprint(self) -> str:
        """Hash of the Python version and of all entries."""
        return _fingerprint()

    @property
    def total(self) -> int | None:
        """Number of entries."""
        return len(_documents())

    @property
    def size(self) -> int:
        """Size of all titles and texts in bytes."""
        return sum(map(_size, _documents()))

    def entries(self, progress: Progress | None) -> Iterator[tuple[int, Document]]:
        """Read the entries, sorted by name."""
        position = 0
        for document in _documents():
            yield document.line or 0, document
            position += _size(document)
            if progress:
                progress(position)

    def splits(self) -> list[str]:
        """Names of the splits: "test" and "train"."""
        return list(SPLITS)

    @cached_property
    def _judged(self) -> Judgements:
        """The judgements; a note says which are on entries that this Python lacks: it was built without sqlite3 or for another system."""
        known = {document.id for document in _documents()}
        qrels: Qrels = {}
        missing = []
        for line in _shipped(f"{self.split}.tsv").splitlines()[1:]:
            query, document, grade = line.split("\t")
            if document in known:
                qrels.setdefault(query, {})[document] = int(grade)
            else:
                missing.append(document)
        lines = _shipped("queries.jsonl").splitlines()
        queries = [Query(entry["_id"], entry["text"]) for entry in map(orjson.loads, lines) if entry["_id"] in qrels]
        modules = ", ".join(sorted({name.rpartition(".")[0] or name for name in missing}))
        note = f"{counted(len(missing), 'judgement')} left out: on entries that this Python lacks ({modules})."
        return Judgements(queries, qrels, [note] if missing else [])


def _shipped(name: str) -> str:
    """The text of a file of this package."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _size(document: Document) -> int:
    return len(document.title.encode()) + len(document.text.encode())


@cache
def _documents() -> tuple[Document, ...]:
    """The entries as documents: a few megabytes, made in less than a second.

    A separate process collects them: importing the whole library would change this process, and changes that this process made to the
    library (handlers, hooks, patches) would appear in the documentation.
    """
    paths = json.dumps([path for path in sys.path if path])
    with start_python("-I", "-W", "ignore", "-c", _COLLECT, paths, stderr=subprocess.PIPE) as process:
        entries, errors = process.communicate()
    if process.returncode:
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {process.returncode}"
        raise InputError(f"The standard library's documentation cannot be read: {reason}.", "Try `termweave doctor`.")
    return tuple(_document(standard_library.LibraryEntry(*fields), line) for line, fields in enumerate(orjson.loads(entries), 1))


def _document(entry: standard_library.LibraryEntry, line: int) -> Document:
    text = entry.doc
    if entry.aliases:
        text = f"{text}\n\nAlso known as {', '.join(entry.aliases)}.".strip()
    # The engine's tokenizer does not split threading.Timer and call_later, so the title has the words of the name, too.
    words = _JOINT.sub(" ", entry.name).strip()
    title = f"{entry.name}{entry.signature}" if words == entry.name else f"{words}: {entry.name}{entry.signature}"
    return Document(entry.name, text, title, {"module": entry.module, "kind": entry.kind}, line)


@cache
def _fingerprint() -> str:
    digest = blake2b(f"{DemoCorpus.KIND} {platform.python_version()}\n".encode(), digest_size=16)
    for document in _documents():
        digest.update(orjson.dumps([document.id, document.title, document.text, document.metadata]))
    return digest.hexdigest()
