"""termweave: the learned-relevance layer for OpenSearch.

Public names are re-exported here lazily (PEP 562): ``import termweave`` loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Module of each public name. For a module that is public itself, its own name.
_HOME = {
    "Capabilities": "termweave.records",
    "CorpusStatistics": "termweave.statistics",
    "DenseEncoder": "termweave.encoders",
    "Document": "termweave.records",
    "Encoding": "termweave.records",
    "Hit": "termweave.records",
    "Index": "termweave.search",
    "Query": "termweave.records",
    "Run": "termweave.records",
    "TermWeighter": "termweave.encoders",
    "TermWeights": "termweave.records",
    "TermweaveError": "termweave.errors",
    "connect": "termweave.search",
    "index": "termweave.indexer",
    "rerank": "termweave.rerank",
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
    from termweave.indexer import index
    from termweave.records import Capabilities, Document, Encoding, Hit, Query, Run, TermWeights
    from termweave.search import Index, connect
    from termweave.statistics import CorpusStatistics


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'termweave' has no attribute {name!r}")
    module = import_module(home)
    return module if home == f"termweave.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return list(__all__)
