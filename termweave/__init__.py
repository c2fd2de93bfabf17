"""termweave: the learned-relevance layer for OpenSearch.

Public names are re-exported here lazily (PEP 562): ``import termweave`` loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

__version__ = "0.1.0"

#: Module -> its public names; a module that is public itself has its own name.
_NAMES = {
    "encoders": "DenseEncoder TermWeighter",
    "errors": "TermweaveError",
    "python": "Index connect index",
    "records": "Capabilities Document Encoding Hit Query Run TermWeights",
    "rerank": "rerank",
    "statistics": "CorpusStatistics",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Capabilities",
    "CorpusStatistics",
    "DenseEncoder",
    "Document",
    "Encoding",
    "Hit",
    "Index",
    "Query",
    "Run",
    "TermWeighter",
    "TermWeights",
    "TermweaveError",
    "__version__",
    "connect",
    "index",
    "rerank",
]

if TYPE_CHECKING:
    from termweave import rerank
    from termweave.encoders import DenseEncoder, TermWeighter
    from termweave.errors import TermweaveError
    from termweave.python import Index, connect, index
    from termweave.records import Capabilities, Document, Encoding, Hit, Query, Run, TermWeights
    from termweave.statistics import CorpusStatistics

__getattr__, __dir__ = lazy_names(__name__, _HOME)
