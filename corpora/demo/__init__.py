"""The demo corpus: the documentation of the Python standard library that is installed, with questions and judgements.

The entries are made anew from the running Python (`walk`); the questions and their graded judgements are ours, written
by hand, and ship with the package: 2 is an answer, 1 helps. Only names that every supported Python has are judged.
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

from termweave.corpora.demo import walk
from termweave.corpora.sources import DEFAULT_SPLIT, Progress, Reading, Skips
from termweave.errors import InputError, UsageError
from termweave.records import Document, Qrels, Query
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

SPLITS = ("test", "train")

_JOINT = re.compile(r"[._]+|(?<=[a-z])(?=[A-Z])")
#: Isolated from environment and working folder; modules beside the standard library are found behind it.
_COLLECT = """
import json, sys
sys.path += [path for path in json.loads(sys.argv[1]) if path not in sys.path]
from termweave.corpora.demo import walk
walk.write(sys.stdout.buffer)
"""


class DemoCorpus:
    """The standard library as a `Dataset`, and the reader behind the name ``demo``."""

    LABEL: ClassVar[str] = "`demo`"
    MAPPED: ClassVar[bool] = False
    SEEKS: ClassVar[bool] = False
    #: Goes into the fingerprint: raise it when entries come to be written otherwise.
    KIND: ClassVar[str] = "demo/1"

    def __init__(self, split: str = DEFAULT_SPLIT) -> None:
        if split not in SPLITS:
            raise UsageError(f"The demo corpus has no split {split!r}.", f"There are: {', '.join(SPLITS)}.")
        self._split = split
        self.skipped = Skips()

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """The name itself; a folder of this name is ``./demo``."""
        return spec == "demo"

    @classmethod
    def open(cls, spec: str, reading: Reading) -> DemoCorpus:
        """The corpus; there is nothing in it to skip."""
        del spec, reading
        return cls()

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> DemoCorpus:
        """The corpus with the questions of one split.

        Raises:
            UsageError: The split is not one of `SPLITS`.
        """
        del spec
        return cls(split)

    @property
    def name(self) -> str:
        """Always "demo"."""
        return "demo"

    @property
    def fingerprint(self) -> str:
        """Over the Python version and every entry."""
        return _fingerprint()

    @property
    def total(self) -> int | None:
        """The number of entries: known at once."""
        return len(_documents())

    @property
    def size(self) -> int:
        """Bytes of all titles and texts."""
        return sum(map(_size, _documents()))

    @property
    def remarks(self) -> list[str]:
        """None: it is what it is."""
        return []

    @property
    def split(self) -> str:
        """Train or test."""
        return self._split

    @property
    def relevant_from(self) -> int:
        """1: what helps counts."""
        return 1

    @property
    def notes(self) -> list[str]:
        """Which judgements this Python has no entries for: it was built without sqlite3, or curses, or for Windows."""
        lacking = self._judged[1]
        modules = sorted({name.rpartition(".")[0] or name for name in lacking})
        if not lacking:
            return []
        return [f"{counted(len(lacking), 'judgement')} left out: on entries that this Python lacks ({', '.join(modules)})."]

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """The entries, sorted by name."""
        position = 0
        for document in _documents():
            yield document
            position += _size(document)
            if progress:
                progress(position)

    def splits(self) -> list[str]:
        """Test and train."""
        return list(SPLITS)

    def queries(self) -> list[Query]:
        """The questions of the split."""
        qrels = self.qrels()
        lines = _shipped("queries.jsonl").splitlines()
        return [Query(found["_id"], found["text"]) for found in map(orjson.loads, lines) if found["_id"] in qrels]

    def qrels(self) -> Qrels:
        """The judgements of the split."""
        return self._judged[0]

    @cached_property
    def _judged(self) -> tuple[Qrels, list[str]]:
        """Judgements, and the judged names that are not in the corpus."""
        here = {document.id for document in _documents()}
        qrels: Qrels = {}
        lacking = []
        for line in _shipped(f"{self._split}.tsv").splitlines()[1:]:
            query, document, grade = line.split("\t")
            if document in here:
                qrels.setdefault(query, {})[document] = int(grade)
            else:
                lacking.append(document)
        return qrels, lacking


def _shipped(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _size(document: Document) -> int:
    return len(document.title.encode()) + len(document.text.encode())


@cache
def _documents() -> tuple[Document, ...]:
    """The entries as documents: a few megabytes, and less than a second to make.

    They are collected in a process of their own: importing the whole library would leave its marks on this one, and
    what this one did to the library (handlers, hooks, patches) would be read as its documentation.
    """
    paths = json.dumps([path for path in sys.path if path])
    command = [sys.executable, "-I", "-W", "ignore", "-c", _COLLECT, paths]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - our own Python
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise InputError(f"The standard library's documentation cannot be read: {reason}.", "Try `termweave doctor`.")
    return tuple(_document(walk.Entry(*fields), line) for line, fields in enumerate(orjson.loads(done.stdout), 1))


def _document(entry: walk.Entry, line: int) -> Document:
    text = entry.doc
    if entry.aliases:
        text = f"{text}\n\nAlso known as {', '.join(entry.aliases)}.".strip()
    # The engine's tokenizer keeps threading.Timer and call_later whole: beside the name stand the words it is made of.
    words = _JOINT.sub(" ", entry.name).strip()
    title = f"{entry.name}{entry.signature}" if words == entry.name else f"{words}: {entry.name}{entry.signature}"
    return Document(entry.name, text, title, {"module": entry.module, "kind": entry.kind}, line)


@cache
def _fingerprint() -> str:
    digest = blake2b(f"{DemoCorpus.KIND} {platform.python_version()}\n".encode(), digest_size=16)
    for document in _documents():
        digest.update(orjson.dumps([document.id, document.title, document.text, document.metadata]))
    return digest.hexdigest()
