"""The way in from Python: `connect` to a server, and `index` documents that a program holds. Public names are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

if TYPE_CHECKING:
    from termweave.python.connection import Connection, Index, connect
    from termweave.python.document_index import index

__all__ = ["Connection", "Index", "connect", "index"]

_HOME = {**dict.fromkeys(("Connection", "Index", "connect"), "connection"), "index": "document_index"}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
