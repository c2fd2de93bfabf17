"""An OpenSearch to talk to: connection, what the server found can do, and the embedded node.

Names are loaded when first used: this package is imported by every pytest run (the plugin lives here) and by
``termweave --help``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {
    "Engine": "connection",
    "EngineResponseError": "failures",
    "NodeProcess": "state",
    "NodeState": "state",
    "connect": "connection",
    "probe": "capabilities",
}

__all__ = ["Engine", "EngineResponseError", "NodeProcess", "NodeState", "connect", "probe"]

if TYPE_CHECKING:
    from termweave.engine.capabilities import probe
    from termweave.engine.connection import Engine, connect
    from termweave.engine.failures import EngineResponseError
    from termweave.engine.state import NodeProcess, NodeState


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'termweave.engine' has no attribute {name!r}")
    return getattr(import_module(f"termweave.engine.{home}"), name)


def __dir__() -> list[str]:
    return list(__all__)
