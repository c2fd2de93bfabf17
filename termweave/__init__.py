"""termweave: the learned-relevance layer for OpenSearch.

Public names are re-exported here lazily (PEP 562): ``import termweave`` loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

__version__ = "0.1.0"

#: Module of each public name. For a module that is public itself, its own name.
_HOME = {
    "Capabilities": "records",
    "CorpusStatistics": "statistics",
    "DenseEncoder": "encoders",
    "Document": "records",
    "Encoding": "records",
    "Hit": "records",
    "Index": "search",
    "Query": "records",
    "Run": "records",
    "TermWeighter": "encoders",
    "TermWeights": "records",
    "TermweaveError": "errors",
    "connect": "python",
    "index": "python",
    "rerank": "rerank",
}

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
    from termweave.python import connect, index
    from termweave.records import Capabilities, Document, Encoding, Hit, Query, Run, TermWeights
    from termweave.search import Index
    from termweave.statistics import CorpusStatistics

__getattr__, __dir__ = lazy_names(__name__, _HOME)
