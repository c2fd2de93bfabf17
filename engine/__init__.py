"""The connection to OpenSearch, and the embedded node.

Names are loaded when they are first used, because every pytest run imports this package (it holds a pytest plugin), and so does
``termweave --help``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

_HOME = {
    "Engine": "client.connection",
    "EngineResponseError": "client.server_errors",
    "connect": "client.connection",
}

__all__ = ["Engine", "EngineResponseError", "connect"]

if TYPE_CHECKING:
    from termweave.engine.client.connection import Engine, connect
    from termweave.engine.client.server_errors import EngineResponseError

__getattr__, __dir__ = lazy_names(__name__, _HOME)
