"""Generations: ``NAME-<UTC time>-<hash>`` behind the alias NAME, and the one atomic swap."""

from __future__ import annotations

import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.connection import quote
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.indexer import ledgers, reindexing
from termweave.search.lineage import Lineage, check_one, exists, known_names, read, resolve, write
from termweave.search.stored_statistics import companion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from termweave.engine import Engine
    from termweave.indexer.ledger import Ledger

    #: Whether a primary shard holds it, and what the engine says of it.
    _Segment: TypeAlias = tuple[bool, dict[str, Any]]

#: What OpenSearch takes as an index name, less what the URL would need escaped; room is left for time and hash.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
#: What the engine's reason holds where it makes no index of these settings -> what to do. First match wins.
_NOT_MADE = (
    ("analyzer", "Name an analyzer that the server has (english, german, cjk, standard), or define it with --settings FILE."),
    ("setting", "Mend the file that --settings names."),
    ("type", "Mend the file that --mapping names: OpenSearch's documentation lists the types of fields."),
)
#: Settings that an index has of its own and that no other can be given.
_PRIVATE = frozenset({"uuid", "creation_date", "provided_name", "version", "history", "resize", "blocks"})


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a name.

    Attributes:
        index: The concrete index.
        created: UTC, ISO 8601.
        source: Name of the corpus.
        documents: Documents in it; of one in passages, those of the source; None where nobody can count them: unfinished, or closed.
        bytes: On disk, copies included.
        complete: Whole and verified; others are unfinished, or documents of theirs were refused.
        live: The alias points at it.
        missed: What its gate found wanting, where that kept it from being published.
        unreadable: Why what it says of itself cannot be read; of such a one nothing is known but its index, size and place.
        signals: Signal name -> parameters.
        models: "weights" and "dense" -> name of the model.
        passages: `Lineage.passages`.
        neighbours: `Lineage.neighbours`.
    """

    index: str
    created: str
    source: str
    documents: int | None
    bytes: int
    complete: bool
    live: bool
    missed: str
    unreadable: str = ""
    signals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    passages: Mapping[str, int] = field(default_factory=dict)
    neighbours: int = 0

    @property
    def closed(self) -> bool:
        """Whether it is whole, and cannot be searched until somebody opens it."""
        return self.complete and self.documents is None

    @property
    def accepted(self) -> bool:
        """Whether it is whole, and no gate refused it."""
        return self.complete and not self.missed


def check_name(engine: Engine, name: str) -> None:
    """Refuse names that OpenSearch would refuse, and names that hold somebody's data.

    Raises:
        UsageError: The name cannot be an alias here.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith((".stats", ".write")):
        raise UsageError(
            f"{name!r} cannot be the name of an index.",
            "Use at most 200 lower-case letters, digits, '-', '_' and '.', beginning with a letter or digit; "
            "names that end with .stats or .write are termweave's own.",
        )
    if not exists(engine, name):
        return
    behind = behind_alias(engine, name)
    if not behind:
        raise UsageError(
            f"{name!r} is an index of its own, not an alias; termweave does not touch it.",
            "Choose another name, or delete or rename that index first.",
        )
    if len(behind) > 1:
        raise UsageError(f"The alias {name!r} points at {len(behind)} indices.", "Choose another name, or leave it one of them.")
    read(engine, behind[0])  # refuses an alias over what termweave did not make


def live(engine: Engine, name: str) -> str | None:
    """The generation the alias points at now; None when there is no such alias."""
    behind = behind_alias(engine, name)
    return behind[0] if behind else None


def behind_alias(engine: Engine, name: str) -> list[str]:
    """The indices an alias points at; none when there is no such alias."""
    try:
        return sorted(engine.of_indices(f"/_alias/{quote(name)}", "aliases"))
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return []
        raise


def new_name(name: str) -> str:
    """A name for a new generation that no other has: two may begin in one second."""
    return f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def writer(index: str) -> str:
    """The alias that documents of a generation are sent to."""
    return f"{index}.write"


def moment(engine: Engine, name: str) -> str:
    """Now, as a generation's `created`; later than those of all others of the name, though the clock was set back."""
    params = {"filter_path": "*.mappings._meta.termweave.name,*.mappings._meta.termweave.created"}
    mappings = engine.of_indices(f"/{name}-*/_mapping", "mappings", params=params)
    others = [found["mappings"]["_meta"]["termweave"] for found in mappings.values()]
    latest = max((other.get("created", "") for other in others if other.get("name") == name), default="")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    if now > latest:
        return now
    return (datetime.fromisoformat(latest) + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")


def create(engine: Engine, index: str, mapping: dict[str, Any], lineage: Lineage, settings: dict[str, Any]) -> None:
    """Create the empty index.

    Documents are sent to an alias of its own with `require_alias`: should the index be deleted meanwhile, the server must
    not create one of that name by itself, without mapping and lineage.
    """
    body = {
        "settings": settings,
        "mappings": {**mapping, "_meta": {"termweave": lineage.as_meta()}},
        "aliases": {writer(index): {}},
    }
    # What is sent waits for the shards, as long as the user has patience; the server would wait here half a minute, silently.
    try:
        engine.request("PUT", f"/{index}", params={"wait_for_active_shards": 0}, body=body)
    except EngineResponseError as error:
        if error.status == HTTPStatus.BAD_REQUEST and not error.hint:
            error.hint = next(
                (hint for word, hint in _NOT_MADE if word in error.reason), "Mend what --mapping or --settings says."
            )
        raise


def create_like(engine: Engine, index: str, model: str, lineage: Lineage) -> dict[str, Any]:
    """Create an empty index with another generation's mapping and settings, set for loading; returns the settings to restore."""
    found = engine.request("GET", f"/{model}")[model]
    settings = {key: value for key, value in found["settings"]["index"].items() if key not in _PRIVATE}
    if "verified_before_close" in settings:  # there from closing to opening
        raise _closed(model)
    loading = {**settings, "refresh_interval": "-1", "number_of_replicas": 0}
    mapping = {**found["mappings"], "_meta": {"termweave": lineage.as_meta()}}
    engine.request("PUT", f"/{index}", body={"settings": {"index": loading}, "mappings": mapping, "aliases": {writer(index): {}}})
    return {key: settings.get(key) for key in ("refresh_interval", "number_of_replicas")}


def _closed(index: str) -> UsageError:
    return UsageError(f"The index {index!r} is closed.", f"Open it first (POST /{index}/_open), and run the command again.")


def open_writer(engine: Engine, index: str) -> None:
    """Let documents be sent to a generation that is live."""
    engine.request("POST", "/_aliases", body={"actions": [{"add": {"index": index, "alias": writer(index)}}]})


def close_writer(engine: Engine, index: str) -> None:
    """The inverse of `open_writer`."""
    action = {"remove": {"index": index, "alias": writer(index), "must_exist": False}}
    engine.request("POST", "/_aliases", body={"actions": [action]})


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
        UsageError: An index of that name has come to be: the server makes one where an application writes to NAME.
    """
    now = live(engine, name)
    if now is None:
        check_name(engine, name)
    if now not in {None, expected, index}:  # where nothing is live any more, there is nothing to be left there
        raise EngineError(
            f"While {index!r} was built, somebody pointed {name!r} at {now!r}; it was left there.",
            "Look at both; run 'termweave index' again to publish yours.",
        )
    actions: list[dict[str, Any]] = [
        {"add": {"index": index, "alias": name}},
        {"remove": {"index": index, "alias": writer(index), "must_exist": False}},
    ]
    if now and now != index:
        actions.insert(0, {"remove": {"index": now, "alias": name, "must_exist": True}})
    engine.request("POST", "/_aliases", body={"actions": actions})


def stayed(engine: Engine, name: str, index: str) -> None:
    """Say so where a generation that was updated in place is not the live one any more.

    Raises:
        EngineError: The alias was moved while it was updated.
    """
    now = live(engine, name)
    if now != index:
        raise EngineError(
            f"{index!r} was updated, and is not live: meanwhile somebody pointed {name!r} at {now!r}."
            if now
            else f"{index!r} was updated, and is not live: meanwhile somebody removed the alias {name!r}.",
            f"'termweave promote {name} {index}' publishes it.",
        )


def was_published(engine: Engine, index: str, ledger: Ledger, live: str | None) -> bool:
    """Whether a generation whose ledger calls it unfinished was published: its builder died before it could say so there.

    It is said there now, and the ledger is closed: there is nothing to go on with.
    """
    if index != live and (not read(engine, index).complete or exists(engine, writer(index))):
        return False
    ledger.put("state", "complete")
    ledger.close()
    return True


def of(engine: Engine, name: str) -> list[Generation]:
    """All generations of a name, newest first.

    Raises:
        UsageError: There is none.
    """
    check_one(name)
    params = {"filter_path": "*.mappings._meta.termweave", "expand_wildcards": "open,closed"}
    mappings = engine.of_indices(f"/{name}-*/_mapping", "mappings", params=params)
    said = {index: found["mappings"]["_meta"]["termweave"] for index, found in mappings.items()}
    said = {index: each for index, each in said.items() if each.get("name") == name}  # NAME-* also finds those of NAME-OTHER
    if not said:
        raise _no_generations(engine, name)
    segments = _segments(engine, sorted(said))
    now = live(engine, name)
    found = [_generation(index, each, segments.get(index), live=index == now) for index, each in said.items()]
    return sorted(found, key=lambda generation: (generation.created, generation.index), reverse=True)


def _no_generations(engine: Engine, name: str) -> UsageError:
    """What to say of a name without generations: nothing has it, or something else does."""
    if not exists(engine, name):
        return UsageError(f"There is no index named {name!r} at {engine.url}.", known_names(engine) or "No name is known there.")
    made = read(engine, resolve(engine, name))  # refuses what termweave did not make
    return UsageError(f"{name!r} is one generation of {made.name!r}.", f"Give the name it was built under: {made.name!r}.")


def _generation(index: str, said: dict[str, Any], segments: list[_Segment] | None, *, live: bool) -> Generation:
    """A generation by what it says of itself; damage to one keeps nobody from the others."""
    size = sum(segment["size_in_bytes"] for _, segment in segments or [])
    try:
        made = Lineage.from_meta({"termweave": said}, index)
    except TermweaveError as error:
        created = str(said.get("created", ""))
        return Generation(index, created, "", None, size, complete=False, live=live, missed="", unreadable=str(error))
    return Generation(
        index=index,
        created=made.created,
        source=made.source["name"],
        documents=_documents(made, segments),
        bytes=size,
        complete=made.complete,
        live=live,
        missed=made.missed,
        signals=made.signals,
        models={output: model.name for output, model in made.models.items()},
        passages=made.passages,
        neighbours=made.neighbours,
    )


def _segments(engine: Engine, indices: list[str]) -> dict[str, list[_Segment]]:
    """Index that is open -> its segments, each with whether a primary shard holds it. What `_stats` says may be 10 s old: a build is larger by then."""
    found = engine.request("GET", f"/{','.join(indices)}/_segments", params={"ignore_unavailable": True})["indices"]
    return {
        index: [
            (copy["routing"]["primary"], segment)
            for copies in shards["shards"].values()
            for copy in copies
            for segment in copy["segments"].values()
        ]
        for index, shards in found.items()
    }


def _documents(lineage: Lineage, segments: list[_Segment] | None) -> int | None:
    if not lineage.complete or segments is None:  # while documents come in, nothing is refreshed
        return None
    if lineage.passages:
        return lineage.documents
    return sum(int(each["num_docs"]) for primary, each in segments if primary and each["search"])


def promote(engine: Engine, name: str, index: str) -> str | None:
    """Point the alias at another complete generation, one that missed its gate included; returns the one it left.

    Raises:
        UsageError: There is no such generation, it was never finished, or it is closed.
    """
    known = {generation.index: generation for generation in of(engine, name)}
    if index not in known:
        raise UsageError(f"{name!r} has no generation {index!r}.", f"It has: {', '.join(known)}.")
    if known[index].unreadable:
        raise UsageError(known[index].unreadable)
    if not known[index].complete:
        raise UsageError(f"{index!r} was never finished and verified.", "Finish it by repeating its 'termweave index' command.")
    if known[index].closed:  # under the name, no search would find anything any more
        raise _closed(index)
    before = live(engine, name)
    if known[index].missed:  # it was published deliberately: `rollback` may come back to it
        write(engine, index, replace(read(engine, index), missed=""))
        with suppress(UsageError), ledgers.existing(engine, index) as ledger:
            ledger.put("state", "complete")
    publish(engine, name, index, before)
    return before


def previous(engine: Engine, name: str) -> str:
    """The generation to roll back to: the newest complete one that is older than the live one and that no gate refused.

    Raises:
        UsageError: There is none.
    """
    known = of(engine, name)
    places = [place for place, generation in enumerate(known) if generation.live]
    older = [generation.index for generation in known[places[0] + 1 if places else 0 :] if generation.accepted]
    if not older:
        raise UsageError(f"{name!r} has no older generation to go back to.", "'termweave generations' lists those there are.")
    return older[0]


def remove(engine: Engine, index: str) -> None:
    """Delete a generation with its statistics and, where it is on this host, its ledger. What is gone already is no error."""
    reindexing.stop(engine, index)
    # One request: a builder that dies between two would leave statistics that nobody looks for.
    engine.request("DELETE", f"/{index},{companion(index)}", params={"ignore_unavailable": True})
    ledgers.forget(engine, index)
