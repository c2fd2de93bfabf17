"""List the generations of a name, and the names of all indices that termweave made on a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from termweave.catalog import lineage as lineages
from termweave.catalog.generations import live as live_index_of
from termweave.engine.client.payloads import ALL_SHARDS
from termweave.errors import TermweaveError, UsageError
from termweave.support.batching import in_parts

if TYPE_CHECKING:
    from termweave import answers
    from termweave.engine import Engine

#: Generations that one request names: a server reads at most 4,096 bytes of an address, and each has up to 224.
_IN_A_LINE = 16


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a name, as `termweave generations` lists it.

    Attributes:
        index: The concrete index.
        created: Time of the build, UTC, ISO 8601.
        source: Name of the corpus.
        documents: Number of the source's documents in the generation; None: the generation is unfinished or closed, so that they cannot be counted.
        bytes: Size on disk, copies included.
        complete: Whether the generation is whole and verified. If not, it is unfinished, or the server refused some of its documents.
        live: Whether the alias points at the generation.
        missed: Why the gate kept the generation from being published, or that `rollback` left it (`Lineage.missed`); "" for neither.
        unreadable: Why the lineage cannot be read; only index, time, size and `live` are known then. "": the lineage can be read.
        signals: Signal name -> parameters.
        models: "weights", "dense" and "dense_query" -> name of the model.
        passages: `Lineage.passages`.
        neighbours: `Lineage.neighbours`.
        options: The options of the build: flag -> value in words.
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


def list_generations(engine: Engine, name: str) -> list[Generation]:
    """List all generations of a name, newest first.

    Raises:
        UsageError: The name has no generation: nothing has this name, or it is the name of a single generation.
    """
    lineages.check_one(name)
    params = {"filter_path": "*.mappings._meta.termweave", "expand_wildcards": "open,closed"}
    mappings = engine.of_indices(f"/{name}-*/_mapping", "mappings", params=params)
    metas = {index: answer["mappings"]["_meta"]["termweave"] for index, answer in mappings.items()}
    # NAME-* also matches NAME-OTHER-..., and an alias NAME-... of an application's own index, or a clone of that.
    ours = {index: meta for index, meta in metas.items() if meta.get("name") == name}
    metas = {index: meta for index, meta in ours.items() if "enriched" not in meta.get("source", {})}
    if not metas:
        if not lineages.exists(engine, name):
            hint = lineages.known_names(engine) or "This server has no index that termweave made, as far as this user may see."
            raise UsageError(f"There is no index named {name!r} at {engine.url}.", hint)
        lineage = lineages.read_lineage(engine, lineages.resolve_index(engine, name))  # refuses what termweave did not make
        lineages.refuse_enriched(lineage)
        raise one_generation(name, lineage)
    generations = _generations(engine, metas, live_index_of(engine, name))
    return sorted(generations, key=lambda generation: (generation.created, generation.index), reverse=True)


def _generations(engine: Engine, metas: Mapping[str, Any], live: str | None) -> list[Generation]:
    """Describe generations (index -> lineage, as stored), with the sizes and numbers of documents that the server reports."""
    size: dict[str, int] = {}
    count: dict[str, int] = {}
    for part in in_parts(sorted(metas), _IN_A_LINE):
        size |= (of_open := sizes(engine, part))
        count |= _documents(engine, sorted(of_open))
    return [_generation(index, meta, size.get(index, 0), count.get(index), live=index == live) for index, meta in metas.items()]


def state_of(generation: Generation) -> str:
    """Return the state of a generation in words; "": the generation is complete and not live."""
    if generation.unreadable or generation.closed:
        damage = "unreadable" if generation.unreadable else "closed"
        return f"live, {damage}" if generation.live else damage
    if generation.live:
        return "live"
    if not generation.complete:
        return "unfinished"
    if generation.missed == lineages.ROLLED_BACK:
        return lineages.ROLLED_BACK
    return "refused by its gate" if generation.missed else ""


def closed_error(index: str) -> UsageError:
    """Return the error for a closed index."""
    return UsageError(f"The index {index!r} is closed.", f"Open it first (POST /{index}/_open), and run the command again.")


def one_generation(name: str, lineage: lineages.Lineage) -> UsageError:
    """Return the error for a command that takes a name and was given that of a single generation."""
    return UsageError(f"{name!r} is one generation of {lineage.name!r}.", f"Give the name it was built under: {lineage.name!r}.")


def _generation(index: str, meta: dict[str, Any], size: int, documents: int | None, *, live: bool) -> Generation:
    """Describe one generation. A damaged lineage marks the generation as unreadable and raises no error, so that the other generations are listed.

    Args:
        index: The concrete index.
        meta: The lineage, as stored.
        size: Bytes; 0 for a closed index.
        documents: Documents that a search sees; None for a closed index.
        live: Whether the alias points at it.
    """
    from termweave.indexer.rebuild_options import shown  # noqa: PLC0415 - numpy, for which a page waits at the start

    try:
        lineage = lineages.Lineage.from_meta({"termweave": meta}, index)
    except TermweaveError as error:
        reason = f"{error.message} {error.hint}".strip()
        return Generation(index, str(meta.get("created", "")), bytes=size, live=live, unreadable=reason)
    if not lineage.complete:  # it is not refreshed, so that no search sees all
        documents = None
    elif lineage.passages and documents is not None:
        documents = lineage.documents
    return Generation(
        index=index,
        created=lineage.created,
        source=lineage.source["name"],
        documents=documents,
        bytes=size,
        complete=lineage.complete,
        live=live,
        missed=lineage.missed,
        signals=lineage.signals,
        models={output: model.name for output, model in lineage.models.items()},
        passages=lineage.passages,
        neighbours=lineage.neighbours,
        options=shown(lineage),
    )


def sizes(engine: Engine, indices: Sequence[str]) -> dict[str, int]:
    """Return open index -> bytes of its segments. `_stats` would not do: its figures may be 10 s old, and a build has grown by then."""
    answer = engine.request("GET", f"/{','.join(indices)}/_segments", params={"ignore_unavailable": True})["indices"]
    copies = {index: chain.from_iterable(part["shards"].values()) for index, part in answer.items()}
    segments = {index: [each for copy in shards for each in copy["segments"].values()] for index, shards in copies.items()}
    return {index: sum(each["size_in_bytes"] for each in parts) for index, parts in segments.items()}


def _documents(engine: Engine, indices: list[str]) -> dict[str, int]:
    """Return open index -> number of documents that a search sees. Counts of segments would not do: they count each nested object as a document."""
    if not indices:
        return {}
    body = {"size": 0, "aggs": {"indices": {"terms": {"field": "_index", "size": len(indices)}}}}
    answer = engine.request("POST", f"/{','.join(indices)}/_search", params={**ALL_SHARDS, "ignore_unavailable": True}, body=body)
    return dict.fromkeys(indices, 0) | {each["key"]: each["doc_count"] for each in answer["aggregations"]["indices"]["buckets"]}


def names(engine: Engine) -> list[str]:
    """Return every name with at least one generation, sorted; one request, whatever the number of indices.

    A name whose first build is unfinished counts, too: its generation takes up disk.
    """
    params = {"filter_path": "*.mappings._meta.termweave.name", "expand_wildcards": "open,closed"}
    mappings = engine.of_indices("/*/_mapping", "mappings", params=params)
    return sorted({str(index["mappings"]["_meta"]["termweave"]["name"]) for index in mappings.values()})


def all_generations(engine: Engine) -> dict[str, list[Generation]]:
    """Return name -> generations, newest first, for every name that has generations."""
    listed = {}
    for name in names(engine):
        with suppress(UsageError):  # deleted since the names were read, or an enriched index, which has none
            listed[name] = list_generations(engine, name)
    return listed


def summaries(engine: Engine) -> list[answers.ListedIndex]:
    """Return every index as `termweave list --json` prints it; indices of other applications that were enriched come last."""
    built = [_summary(name, listed) for name, listed in all_generations(engine).items()]
    enriched = sorted(lineages.enriched_indices(engine).items())
    others = [each for index, meta in enriched for each in _generations(engine, {index: meta}, index)]
    return built + [{**_summary(each.index, [each]), "generations": 0} for each in others]


def _summary(name: str, listed: Sequence[Generation]) -> answers.ListedIndex:
    """Return one index as JSON, given its generations; `generation`, `created` and `documents` are null if no generation is live."""
    live = next((generation for generation in listed if generation.live), None)
    return {
        "name": name,
        "generation": live.index if live else None,
        "created": live.created if live else None,
        "documents": live.documents if live else None,
        "bytes": sum(generation.bytes for generation in listed),
        "generations": len(listed),
        "signals": list(live.signals) if live else [],
        "models": dict(live.models) if live else {},
    }
