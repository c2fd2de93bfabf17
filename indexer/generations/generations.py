"""The generations of a name: indices called ``NAME-<UTC time>-<hash>``, of which the alias NAME points at the live one."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import TermweaveError, UsageError
from termweave.search.catalog.lineage import (
    ROLLED_BACK,
    Lineage,
    check_one,
    exists,
    known_names,
    read,
    refuse_enriched,
    resolve,
    resolved,
)
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine

#: Index names that OpenSearch takes and that need no escaping in a URL, with room for time and hash.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
#: Generations that one request names: a server reads at most 4,096 bytes of an address, and each has up to 224.
_IN_A_LINE = 16


@dataclass(frozen=True, slots=True)
class LiveGeneration:
    """The generation that the alias points at.

    Attributes:
        index: Its concrete index.
        lineage: Its lineage, as it was when it was read.
    """

    index: str
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a name, as `termweave generations` lists it.

    Attributes:
        index: The concrete index.
        created: UTC, ISO 8601.
        source: Name of the corpus.
        documents: Documents of the source in it; None if they cannot be counted, because it is unfinished or closed.
        bytes: Size on disk, copies included.
        complete: Whether it is whole and verified. If not, it is unfinished, or the server refused some of its documents.
        live: Whether the alias points at it.
        missed: The requirement that its gate found missed, which kept it from being published; "" for none.
        unreadable: Why its lineage cannot be read; only index, size and position are known then.
        signals: Signal name -> parameters.
        models: "weights", "dense" and "dense_query" -> name of the model.
        passages: `Lineage.passages`.
        neighbours: `Lineage.neighbours`.
        options: The options that it was built with: flag -> value in words.
    """

    index: str
    created: str
    source: str = ""
    documents: int | None = None
    bytes: int = 0
    complete: bool = False
    live: bool = False
    missed: str = ""
    unreadable: str = ""
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    passages: Mapping[str, int] = field(default_factory=dict)
    neighbours: int = 0
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        """Whether the generation is complete but closed: it cannot be searched until somebody opens its index."""
        return self.complete and self.documents is None

    @property
    def accepted(self) -> bool:
        """Whether the generation is complete, no gate refused it, and `rollback` did not leave it."""
        return self.complete and not self.missed


def check_spelling(name: str) -> None:
    """Refuse a name that OpenSearch would refuse.

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
    """Find the live generation of a name and read its lineage; None if nothing has this name.

    Raises:
        UsageError: The name cannot be an alias, or it belongs to data that termweave did not make.
    """
    check_spelling(name)
    indices = behind_alias(engine, name)
    if not indices:
        check_free(engine, name)
        return None
    if len(indices) > 1:
        raise UsageError(
            f"The alias {name!r} points at {len(indices)} indices.", "Choose another name, or leave only one of them behind it."
        )
    made = read(engine, indices[0])  # refuses what termweave did not make
    refuse_enriched(made)
    if made.name != name and resolved(engine, name).partial:
        raise UsageError(f"{name!r} shows only some of the documents of {made.name!r}.", f"Give the name {made.name!r}.")
    return LiveGeneration(indices[0], made)


def check_free(engine: Engine, name: str) -> None:
    """Check that a name that is not an alias can become one.

    Raises:
        UsageError: It is the name of an index.
    """
    if exists(engine, name):
        raise UsageError(
            f"{name!r} is an index of its own, not an alias; termweave does not touch it.",
            "Choose another name, or delete or rename that index first.",
        )


def live(engine: Engine, name: str) -> str | None:
    """The index that the alias points at now; None if there is no such alias."""
    indices = behind_alias(engine, name)
    return indices[0] if indices else None


def behind_alias(engine: Engine, name: str) -> list[str]:
    """The indices that an alias points at; none if there is no such alias."""
    try:
        # Not `/_alias/NAME`: that asks about all indices, and a role may be limited to those of one name.
        return sorted(engine.of_indices(f"/{quote(name)}/_alias/{quote(name)}", "aliases"))
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return []
        raise


def new_index(name: str) -> str:
    """A name for the index of a new generation. Its random part distinguishes generations that begin in the same second."""
    return f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def creation_time(engine: Engine, name: str) -> str:
    """The time now, for `Lineage.created`. It is later than that of all other generations, even if the clock was set back."""
    params = {"filter_path": "*.mappings._meta.termweave.name,*.mappings._meta.termweave.created"}
    mappings = engine.of_indices(f"/{name}-*/_mapping", "mappings", params=params)
    others = [answer["mappings"]["_meta"]["termweave"] for answer in mappings.values()]
    latest = max((other.get("created", "") for other in others if other.get("name") == name), default="")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    if now > latest:
        return now
    return (datetime.fromisoformat(latest) + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")


def list_generations(engine: Engine, name: str) -> list[Generation]:
    """List all generations of a name, newest first.

    Raises:
        UsageError: There is none.
    """
    check_one(name)
    params = {"filter_path": "*.mappings._meta.termweave", "expand_wildcards": "open,closed"}
    mappings = engine.of_indices(f"/{name}-*/_mapping", "mappings", params=params)
    metas = {index: answer["mappings"]["_meta"]["termweave"] for index, answer in mappings.items()}
    metas = {index: meta for index, meta in metas.items() if meta.get("name") == name}  # NAME-* also matches NAME-OTHER-...
    if not metas:
        raise _no_generations(engine, name)
    bytes_of: dict[str, int] = {}
    documents: dict[str, int] = {}
    for part in in_parts(sorted(metas), _IN_A_LINE):
        bytes_of |= (opened := sizes(engine, part))
        documents |= _documents(engine, sorted(opened))
    live_index = live(engine, name)
    generations = [
        _generation(index, meta, bytes_of.get(index), documents.get(index), live=index == live_index)
        for index, meta in metas.items()
    ]
    return sorted(generations, key=lambda generation: (generation.created, generation.index), reverse=True)


def state_of(generation: Generation) -> str:
    """The state of a generation in words; "" for a complete one that is not live."""
    if generation.unreadable:
        return "live, unreadable" if generation.live else "unreadable"
    if generation.closed:
        return "live, closed" if generation.live else "closed"
    if generation.live:
        return "live"
    if not generation.complete:
        return "unfinished"
    if generation.missed == ROLLED_BACK:
        return ROLLED_BACK
    return "refused by its gate" if generation.missed else ""


def closed_error(index: str) -> UsageError:
    """The error for a closed index."""
    return UsageError(f"The index {index!r} is closed.", f"Open it first (POST /{index}/_open), and run the command again.")


def _no_generations(engine: Engine, name: str) -> UsageError:
    """The error for a name without generations: nothing has this name, or it is the name of a single generation."""
    if not exists(engine, name):
        return UsageError(f"There is no index named {name!r} at {engine.url}.", known_names(engine) or "No name is known there.")
    made = read(engine, resolve(engine, name))  # refuses what termweave did not make
    refuse_enriched(made)
    return one_generation(name, made)


def one_generation(name: str, made: Lineage) -> UsageError:
    """The error for the name of a single generation."""
    return UsageError(f"{name!r} is one generation of {made.name!r}.", f"Give the name it was built under: {made.name!r}.")


def _generation(index: str, meta: dict[str, Any], size: int | None, documents: int | None, *, live: bool) -> Generation:
    """Describe one generation. A damaged lineage makes it unreadable instead of raising an error, so that the others are listed.

    Args:
        index: Its concrete index.
        meta: Its lineage, as stored.
        size: Bytes; None for a closed index.
        documents: Documents that a search sees; None for a closed index.
        live: Whether the alias points at it.
    """
    from termweave.indexer.rebuild_options import shown  # noqa: PLC0415 - numpy, for which a page waits at the start

    try:
        made = Lineage.from_meta({"termweave": meta}, index)
    except TermweaveError as error:
        reason = f"{error.message} {error.hint}".strip()
        return Generation(index, str(meta.get("created", "")), bytes=size or 0, live=live, unreadable=reason)
    if not made.complete:  # it is not refreshed, so that no search sees all
        documents = None
    elif made.passages and documents is not None:
        documents = made.documents
    return Generation(
        index=index,
        created=made.created,
        source=made.source["name"],
        documents=documents,
        bytes=size or 0,
        complete=made.complete,
        live=live,
        missed=made.missed,
        signals=made.signals,
        models={output: model.name for output, model in made.models.items()},
        passages=made.passages,
        neighbours=made.neighbours,
        options=shown(made),
    )


def sizes(engine: Engine, indices: Sequence[str]) -> dict[str, int]:
    """Open index -> bytes of its segments. `_stats` would not do: its figures may be 10 s old, and a build has grown by then."""
    answer = engine.request("GET", f"/{','.join(indices)}/_segments", params={"ignore_unavailable": True})["indices"]
    return {
        index: sum(
            segment["size_in_bytes"]
            for copies in shards["shards"].values()
            for copy in copies
            for segment in copy["segments"].values()
        )
        for index, shards in answer.items()
    }


def _documents(engine: Engine, indices: list[str]) -> dict[str, int]:
    """Open index -> documents that a search sees. Segments count nested objects, too, each as a document."""
    if not indices:
        return {}
    body = {"size": 0, "aggs": {"indices": {"terms": {"field": "_index", "size": len(indices)}}}}
    answer = engine.request("POST", f"/{','.join(indices)}/_search", params={**ALL_SHARDS, "ignore_unavailable": True}, body=body)
    return dict.fromkeys(indices, 0) | {each["key"]: each["doc_count"] for each in answer["aggregations"]["indices"]["buckets"]}
