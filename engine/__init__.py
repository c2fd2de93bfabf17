"""The connection to OpenSearch, the capabilities of the server, and the embedded node.

Names are loaded when they are first used, because every pytest run imports this package (it holds a pytest plugin), and so does
``termweave --help``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

_HOME = {
    "Engine": "client.connection",
    "EngineResponseError": "client.server_errors",
    "NodeProcess": "embedded.state",
    "NodeState": "embedded.state",
    "connect": "client.connection",
    "probe": "client.capabilities",
}

__all__ = ["Engine", "EngineResponseError", "NodeProcess", "NodeState", "connect", "probe"]

if TYPE_CHECKING:
    from termweave.engine.client.capabilities import probe
    from termweave.engine.client.connection import Engine, connect
    from termweave.engine.client.server_errors import EngineResponseError
    from termweave.engine.embedded.state import NodeProcess, NodeState

__getattr__, __dir__ = lazy_names(__name__, _HOME)
