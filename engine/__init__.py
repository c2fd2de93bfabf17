"""The connection to OpenSearch, the capabilities of the server, and the embedded node.

Names are loaded when they are first used, because every pytest run imports this package (it holds a pytest plugin), and so does
``termweave --help``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'termweave.engine' has no attribute {name!r}")
    return getattr(import_module(f"termweave.engine.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
