"""Read BEIR folders: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``, each plain, ``.gz`` or ``.zst``.

A folder with only a corpus is a source; with queries and judgements it is a data set. The demo corpus is such a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.formats import lines as files
from termweave.corpora.judgements import QUERIES, Judged, Judgements, check_split, queries_in, read_judgements, relevant_from
from termweave.corpora.readers.jsonl import JsonLines
from termweave.corpora.sources import DEFAULT_SPLIT, Derived, OpenedSource, Progress, Reader, Reading
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.records import Document

CORPUS, QRELS = "corpus.jsonl", "qrels"
_DEMO = Path(__file__).parents[1] / "demo"
_TABLE = re.compile(r"(?P<split>.+)\.[ct]sv(\.gz|\.zst)?")


def folders_in(folder: Path) -> list[str]:
    """Sorted names of the BEIR folders in a folder."""
    inside = (path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    return sorted(path.name for path in inside if files.plain_or_packed(path, CORPUS) is not None)


class BeirFolder(Judged, Derived, OpenedSource, Reader):
    """A BEIR folder: a `Dataset`, and the reader that recognises it.

    The fingerprint of the folder is that of its corpus file, because new judgements do not change an index of the corpus.
    """

    LABEL: ClassVar[str] = "a BEIR folder"
    MAPPED: ClassVar[bool] = True
    #: Set when the folder is opened.
    name = ""

    def __init__(self, folder: Path, split: str = DEFAULT_SPLIT, reading: Reading | None = None) -> None:
        corpus = files.plain_or_packed(folder, CORPUS)
        if corpus is None:
            raise UsageError(f"{folder} contains no {CORPUS}, compressed or not.", "Name a BEIR folder, or a file.")
        self._folder = folder
        self._corpus = JsonLines(corpus, reading)
        super().__init__(self._corpus)
        self.split = split
        self.name = (reading and reading.name) or folder.resolve().name

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether a path is a folder that holds a corpus."""
        return files.plain_or_packed(Path(spec), CORPUS) is not None

    @classmethod
    def open(cls, spec: str, reading: Reading) -> BeirFolder:
        """Open the folder as a source of documents. It need not have judgements.

        Raises:
            UsageError: The corpus is a link to a file outside the folder, and links are not to be followed.
        """
        source = cls(Path(spec), reading=reading)
        target = source._corpus.path.resolve()
        if not reading.follow_links and source._corpus.path.is_symlink() and not target.is_relative_to(Path(spec).resolve()):
            message = f"{source._corpus.path} is a link to a file outside its folder: {target}."
            raise UsageError(message, "If you trust this link, add --follow-links.")
        return source

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BeirFolder:
        """Open the folder as a data set.

        Raises:
            UsageError: The folder has no queries, or the split does not exist.
        """
        dataset = cls(Path(spec), split)
        if files.plain_or_packed(dataset._folder, QUERIES) is None:
            hint = f"Put queries and {QRELS}/{split}.tsv beside {CORPUS}."
            raise UsageError(f"{spec} contains no {QUERIES}, compressed or not: it is a corpus, not a data set.", hint)
        check_split(spec, split, dataset.splits(), f"Put judgements into {QRELS}/{split}.tsv.")
        return dataset

    @property
    def remarks(self) -> list[str]:
        """Remarks of the corpus file if the user named fields; else none, because a BEIR folder has fixed fields."""
        return self._corpus.remarks if self._corpus.reading.fields.named() else []

    @property
    def relevant_from(self) -> int:
        """The lowest relevant grade (`termweave.corpora.judgements.relevant_from`); 1 if the grades of the split have fractions."""
        return relevant_from(self.name, self.split) if self._judged.factor == 1 else 1

    @cached_property
    def unjudged(self) -> int:
        """Number of queries of the folder that have no judgement in the split."""
        judged = self._judged.qrels.keys()
        path = files.plain_or_packed(self._folder, QUERIES)
        return len({query.id for _, query in queries_in(path, str(path))} - judged) if path else 0

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read the documents of the corpus; see `JsonLines.documents`."""
        return self._corpus.documents(progress)

    def splits(self) -> list[str]:
        """Sorted names of the splits: the tables in ``qrels/``."""
        folder = self._folder / QRELS
        matches = (_TABLE.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        return sorted({match["split"] for match in matches if match})

    @cached_property
    def _judged(self) -> Judgements:
        tables = (files.plain_or_packed(self._folder / QRELS, f"{self.split}.{kind}") for kind in ("tsv", "csv"))
        table = next(filter(None, tables), None)
        path = files.plain_or_packed(self._folder, QUERIES)
        if table is None or path is None:
            raise UsageError(f"{self._folder} has no queries or no judgements of the split {self.split!r}.", "Add the file.")
        return read_judgements(table, path)


class DemoCorpus(BeirFolder):
    """The demo corpus: the BEIR folder that the name ``demo`` stands for."""

    LABEL: ClassVar[str] = "`demo`"
    MAPPED: ClassVar[bool] = False

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the spec is ``demo``; a folder of this name can be given as ``./demo``."""
        return spec == "demo"

    @classmethod
    def open(cls, spec: str, reading: Reading) -> DemoCorpus:
        """Open the corpus."""
        del spec
        return cls(_DEMO, reading=reading)

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BeirFolder:
        """Open the corpus with the queries of one split.

        Raises:
            UsageError: The split is neither "test" nor "train".
        """
        del spec
        return super().open_dataset(str(_DEMO), split)

    @cached_property
    def unjudged(self) -> int:
        """0, because queries that this split does not judge belong to the other split."""
        return 0
