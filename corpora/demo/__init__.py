"""The demo corpus, a BEIR folder: the documentation of Python's standard library, with queries and judgements.

The documents are the docstrings of the public names of CPython 3.11.7 (their licence is beside them). The queries and their graded judgements
were written by hand: grade 2 answers the query, grade 1 helps.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora.readers.beir import BeirFolder

if TYPE_CHECKING:
    from termweave.corpora.sources import Reading

_FOLDER = Path(__file__).parent


class DemoCorpus(BeirFolder):
    """The folder under the name ``demo``."""

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
        return cls(_FOLDER, reading=reading)

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> BeirFolder:
        """Open the corpus with the queries of one split.

        Raises:
            UsageError: The split is neither "test" nor "train".
        """
        del spec
        return super().open_dataset(str(_FOLDER), split)

    @cached_property
    def unjudged(self) -> int:
        """None: queries that this split lacks are in the other one."""
        return 0
