"""Generations: ``NAME-<UTC time>-<hash>`` behind the alias NAME, and the one atomic swap."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.errors import EngineError, UsageError
from termweave.search.lineage import exists

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.search.lineage import Lineage
    from termweave.signals import DocumentLayout

#: What OpenSearch takes as an index name, less what the URL would need escaped; room is left for time and hash.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_NOT_FOUND = 404


def check_name(engine: Engine, name: str) -> None:
    """Refuse names that OpenSearch would refuse, and names that hold somebody's data.

    Raises:
        UsageError: The name cannot be an alias here.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of an index.",
            "Use lower-case letters, digits, '-', '_' and '.', beginning with a letter or digit.",
        )
    if exists(engine, name) and live(engine, name) is None:
        raise UsageError(
            f"{name!r} is an index of its own, not an alias; termweave does not touch it.",
            "Choose another name, or delete or rename that index first.",
        )


def live(engine: Engine, name: str) -> str | None:
    """The generation the alias points at now; None when there is no such alias."""
    try:
        indices = sorted(engine.request("GET", f"/_alias/{name}"))
    except EngineResponseError as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    return indices[0] if indices else None


def new_name(name: str, fingerprint: str) -> str:
    """A name for a new generation."""
    return f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{fingerprint[:8]}"


def create(engine: Engine, index: str, layout: DocumentLayout, lineage: Lineage, settings: dict[str, Any]) -> None:
    """Create the empty index, set for loading: no refresh, no replicas."""
    loading = {**layout.settings(), **settings, "index.refresh_interval": "-1", "index.number_of_replicas": 0}
    engine.request("PUT", f"/{index}", body={"settings": loading, "mappings": layout.mapping(lineage.as_meta())})


def finish(engine: Engine, index: str, settings: dict[str, Any], replicas: int) -> None:
    """Set the index for searching again and make everything visible."""
    wanted = {"index.refresh_interval": settings.get("index.refresh_interval"), "index.number_of_replicas": replicas}
    engine.request("PUT", f"/{index}/_settings", body=wanted)
    engine.request("POST", f"/{index}/_refresh")


def publish(engine: Engine, name: str, index: str, expected: str | None) -> None:
    """Point the alias at a generation, in one atomic action.

    Args:
        engine: Where.
        name: The alias.
        index: The generation.
        expected: What the alias pointed at when the build began.

    Raises:
        EngineError: Somebody else has moved the alias since.
    """
    now = live(engine, name)
    if now not in {expected, index}:
        raise EngineError(
            f"While {index!r} was built, somebody pointed {name!r} at {now!r}; it was left there.",
            "Look at both; run 'termweave index' again to publish yours.",
        )
    actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": name}}]
    if now and now != index:
        actions.insert(0, {"remove": {"index": now, "alias": name}})
    engine.request("POST", "/_aliases", body={"actions": actions})
