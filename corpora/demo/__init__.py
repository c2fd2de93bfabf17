"""The demo corpus: the documentation of Python's standard library, with queries and judgements, as a BEIR folder.

The documents are the docstrings of public modules, classes, functions and methods of CPython 3.11.7 (`LICENSE.txt`), each with its aliases,
under a title of its name, the words of the name and its parameters. The queries and their graded judgements were written by hand: grade 2
answers the query, grade 1 helps.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.readers.beir import BeirFolder

if TYPE_CHECKING:
    from termweave.corpora.sources import Reading

FOLDER = Path(__file__).parent


class DemoCorpus(BeirFolder):
    """The standard library as a `Dataset`, and the reader of the name ``demo``."""

    LABEL: ClassVar[str] = "`demo`"
    MAPPED: ClassVar[bool] = False

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether the spec is ``demo``; a folder of this name can be given as ``./demo``."""
        return spec == "demo"

    @classmethod
    def open(cls, spec: str, reading: Reading) -> DemoCorpus:
        """Open the corpus. It has no bad entries."""
        del spec, reading
        return cls(FOLDER)

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BeirFolder:
        """Open the corpus with the queries of one split.

        Raises:
            UsageError: There is no such split.
        """
        del spec
        return super().open_dataset(str(FOLDER), split)

    @cached_property
    def unjudged(self) -> int:
        """None: queries that this split lacks are in the other one."""
        return 0
