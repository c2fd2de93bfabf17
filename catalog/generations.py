"""The generations of a name: indices called ``NAME-<UTC time>-<hash>``, of which the alias NAME points at the live one."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from termweave.catalog.lineage import Lineage, exists, read_lineage, refuse_enriched, resolve_name, unless_missing
from termweave.engine.client.connection import Engine, quote
from termweave.errors import UsageError

#: Index names that OpenSearch takes and that need no escaping in a URL, with room for time and hash.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class LiveGeneration:
    """The live generation of a name: the one that the name's alias points at.

    Attributes:
        index: The concrete index of the generation.
        lineage: The lineage of the generation when it was read.
    """

    index: str
    lineage: Lineage


def check_spelling(name: str) -> None:
    """Check that OpenSearch takes a name for indices and aliases.

    Raises:
        UsageError: The name cannot be an alias.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith((".stats", ".write")):
        raise UsageError(
            f"{name!r} cannot be the name of an index.",
            "Use at most 200 lower-case letters, digits, '-', '_' and '.', beginning with a letter or digit; "
            "names that end with .stats or .write are termweave's own.",
        )


def find_live(engine: Engine, name: str) -> LiveGeneration | None:
    """Find the live generation of a name and read its lineage; None: nothing on the server has this name.

    Raises:
        UsageError: The name cannot be an alias, or it belongs to data that termweave did not make.
    """
    check_spelling(name)
    indices = behind_alias(engine, name)
    if not indices:
        check_free(engine, name)
        return None
    index, *others = indices
    if others:
        raise UsageError(f"The alias {name!r} points at {len(indices)} indices.", "Choose another name, or that of one of them.")
    lineage = read_lineage(engine, index)  # refuses what termweave did not make
    refuse_enriched(lineage)
    if lineage.name != name and resolve_name(engine, name).partial:
        raise UsageError(f"{name!r} shows only some of the documents of {lineage.name!r}.", f"Give the name {lineage.name!r}.")
    return LiveGeneration(index, lineage)


def check_free(engine: Engine, name: str) -> None:
    """Check that a name that is not an alias can become an alias.

    Raises:
        UsageError: The name is that of an index.
    """
    if exists(engine, name):
        raise UsageError(
            f"{name!r} is an index of its own, not an alias; termweave does not touch it.",
            f"Give another NAME. From its documents 'termweave index opensearch:{name} NAME' builds an index that "
            "'termweave learn NAME ...' and all other commands take.",
        )


def live(engine: Engine, name: str) -> str | None:
    """Return the index that an alias points at now; None: there is no such alias."""
    return next(iter(behind_alias(engine, name)), None)


def behind_alias(engine: Engine, name: str) -> list[str]:
    """Return the sorted names of the indices that an alias points at; []: there is no such alias."""
    # Not `/_alias/NAME`: that asks about all indices, and a role may be limited to those of one name.
    return sorted(unless_missing(lambda: engine.of_indices(f"/{quote(name)}/_alias/{quote(name)}", "aliases")) or ())


def new_index(name: str) -> str:
    """Make a name for the index of a new generation. The name's random part distinguishes generations that begin in the same second."""
    return f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def creation_time(engine: Engine, name: str) -> str:
    """Return the time now (UTC, ISO 8601) for `Lineage.created`, always later than that of the name's other generations, even if the clock was set back."""
    params = {"filter_path": "*.mappings._meta.termweave.name,*.mappings._meta.termweave.created"}
    mappings = engine.of_indices(f"/{name}-*/_mapping", "mappings", params=params)
    others = [answer["mappings"]["_meta"]["termweave"] for answer in mappings.values()]
    latest = max((other.get("created", "") for other in others if other.get("name") == name), default="")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    if now > latest:
        return now
    return (datetime.fromisoformat(latest) + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")
