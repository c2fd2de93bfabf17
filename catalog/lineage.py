"""The lineage of a generation: how the index was built. The indexer writes it to the mapping's ``_meta``, and searches read it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from termweave.catalog.layout import DocumentLayout
from termweave.catalog.typed_fields import NOTATIONS, TYPES
from termweave.engine import EngineResponseError
from termweave.engine.client.payloads import NO_PIPELINES, WHOLE_DOCUMENTS, quote
from termweave.engine.client.resolved_name import ResolvedName, narrowing, stands_for
from termweave.errors import EngineError, UsageError
from termweave.support import arguments
from termweave.support.messages import few, is_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.engine import Engine

T = TypeVar("T")
#: Bytes of the name of an index or alias, as the server takes it.
_MOST_BYTES = 255
#: The formats that this version reads. 2 has the types of metadata, and an encoder of queries beside that of documents, 3 has notations.
FORMATS = (1, 2, 3)
#: The fingerprint of a generation that an update has begun to change. No build has it, so a repeated update that finds nothing left to
#: change still knows that the generation was changed.
CHANGING = "changing"
#: `Lineage.missed` of a generation that `rollback` left.
ROLLED_BACK = "rolled back"
#: Replicas of termweave's own small indices, whose grades are work of people: on three nodes each node has a copy, so that no copy moves. A
#: primary whose node ended while it moved refused all writes from then on (OpenSearch 3.6.0: "shard is not in primary mode").
_COPIES = "0-2"


@dataclass(frozen=True)
class ModelLineage:
    """The model that computed one output of the encoder.

    Attributes:
        name: The model's name, from its folder. Anyone who can write to the index can change it: see `encoders.recorded_models`.
        hash: Content hash of model and tokenizer, as hexadecimal digits.
    """

    name: str
    hash: str


@dataclass(frozen=True)
class Lineage:
    """How a generation was built.

    Attributes:
        name: The alias that the generation was built for.
        created: Time of the build, UTC, ISO 8601.
        termweave: The version of termweave that built it.
        source: Name and fingerprint of the corpus; "options": those of the build, as JSON.
        fingerprint: Hash of source, models, signals and settings: equal fingerprints mean equal indices.
        signals: Signal name -> parameters.
        models: "weights" and "dense" -> model; "dense_query" -> the encoder of queries, where it is another one than "dense".
        statistics: Hash, documents and analysis of the collection statistics; empty without a weights model.
        documents: Number of documents of the source.
        complete: Whether the build is finished and verified.
        missed: Why its gate refused to publish it, or `ROLLED_BACK`; else "".
        profiles: Name of a tuned profile -> `catalog.profiles.Profile.as_meta`.
        profile: Name of the profile that searches use by default; "" for none.
        passages: "size" and "stride" in words, "count" of all passages, and "most" of one document; empty if documents are not cut
            into passages.
        fields: Metadata entries that the user's mapping makes fields of their own.
        types: Metadata entry -> type of its typed field; empty for an index that was built before metadata had types.
        notations: Metadata entry -> how its values are written, where that was decided (`typed_fields.NOTATIONS`).
        neighbours: Number of nearest documents whose words an earlier version added to each document; 0: none, as in every new build.
        updated: Time of the last update, UTC, ISO 8601; "" if there was none.
    """

    name: str
    created: str
    termweave: str
    source: Mapping[str, str]
    fingerprint: str
    signals: Mapping[str, Mapping[str, Any]]
    models: Mapping[str, ModelLineage] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    documents: int = 0
    complete: bool = False
    missed: str = ""
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    profile: str = ""
    passages: Mapping[str, int] = field(default_factory=dict)
    fields: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    notations: Mapping[str, str] = field(default_factory=dict)
    neighbours: int = 0
    updated: str = ""

    @cached_property
    def layout(self) -> DocumentLayout:
        """The signals and fields of its documents."""
        return DocumentLayout.from_meta(self.signals, self.fields, {**self.types, **self.notations})

    @cached_property
    def options(self) -> Mapping[str, Any] | None:
        """The options that its build was given, as JSON values (`indexer.rebuild_options`); None in the lineage of an earlier version."""
        import orjson  # noqa: PLC0415 - not needed by `--help`

        with suppress(orjson.JSONDecodeError, TypeError):
            values = orjson.loads(self.source["options"]) if "options" in self.source else None
            return values if isinstance(values, dict) else None
        return None

    def as_meta(self) -> dict[str, Any]:
        """The JSON that ``_meta.termweave`` and the ledger store.

        It has the oldest format that can hold it: an older version reads an index that has nothing new, and says of another one that it
        cannot read its format.
        """
        values = asdict(self)
        if self.notations:
            return {**values, "schema": 3}
        del values["notations"]
        if self.types or "dense_query" in self.models:
            return {**values, "schema": 2}
        del values["types"]
        return {**values, "schema": 1}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any], index: str) -> Lineage:
        """Read `as_meta`.

        Raises:
            UsageError: The index was not built by termweave, or by a newer version.
            EngineError: The lineage is damaged.
        """
        values = dict(meta.get("termweave") or {})
        if not values:
            raise UsageError(
                f"The index {index!r} was not built by termweave.",
                "Build an index under another name with 'termweave index SOURCE NAME'.",
            )
        if values.pop("schema", 1) not in FORMATS:
            raise UsageError(
                f"The index {index!r} was built by termweave {values.get('termweave')} in a format that this version cannot read.",
                "Install the version that built it, or index again.",
            )
        try:
            models = {output: ModelLineage(**model) for output, model in values.pop("models", {}).items()}
            made = cls(**values, models=models)
        except (AttributeError, TypeError):
            made = None
        if made is None or not _sound(made):
            raise EngineError(
                f"The lineage of the index {index!r} ('_meta.termweave' in its mapping) is damaged.",
                "If the index is live, roll back to another generation, or delete the name and build it again.",
            )
        return made


def _sound(made: Lineage) -> bool:
    """Whether the values that were read have the types that other modules rely on."""
    mappings = (made.source, made.signals, made.statistics, made.profiles, made.passages, made.types, made.notations)
    if not (isinstance(made.created, str) and isinstance(made.fields, list | tuple) and isinstance(made.neighbours, int)):
        return False
    if not all(isinstance(mapping, dict) for mapping in mappings):
        return False
    # Hashes become names of files on this host, so they may contain only hexadecimal digits.
    hashes = [model.hash for model in made.models.values()] + ([made.statistics.get("hash")] if made.statistics else [])
    if not all(map(is_hash, hashes)) or not all(isinstance(model.name, str) for model in made.models.values()):
        return False
    of_types = [*((kind, TYPES) for kind in made.types.values()), *((each, NOTATIONS) for each in made.notations.values())]
    if not all(isinstance(kind, str) and kind in known for kind, known in of_types):
        return False
    needed = ((made.statistics, {"hash"}), (made.passages, {"size", "stride"}))
    return "name" in made.source and all(not values or names <= values.keys() for values, names in needed)


def exists(engine: Engine, name: str) -> bool:
    """Whether an index or alias with this name exists."""
    # Not HEAD: its answer to a role that lacks a permission does not say which.
    return unless_missing(lambda: engine.of_indices(f"/{quote(name)}/_alias", "aliases")) is not None


def unless_missing(ask: Callable[[], T]) -> T | None:
    """What a request gives; None where the server says that what it asks for does not exist."""
    try:
        return ask()
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def create_hidden_index(engine: Engine, index: str, mapping: Mapping[str, Any]) -> None:
    """Create one of termweave's own small indices, unless it exists."""
    if exists(engine, index):
        return
    settings = {"index.hidden": True, "index.number_of_shards": 1, "index.auto_expand_replicas": _COPIES, **NO_PIPELINES}
    try:
        engine.request("PUT", f"/{index}", body={"settings": settings, "mappings": {**WHOLE_DOCUMENTS, **mapping}})
    except EngineResponseError as error:
        if error.status != HTTPStatus.BAD_REQUEST:  # it exists: another process created it in this moment
            raise


def resolve(engine: Engine, name: str) -> str:
    """The concrete index behind an alias or a data stream (or the index itself), for work on the whole index. Searches need `resolved`.

    Raises:
        UsageError: No index has this name; the message lists the names that exist.
        EngineError: It stands for several indices.
    """
    return _looked_up(engine, name)[0]


def resolved(engine: Engine, name: str) -> ResolvedName:
    """The concrete index behind a name, and which of its documents searches of the name see.

    Raises:
        UsageError: As `resolve`; or the documents that the index hides cannot be found out.
        EngineError: It stands for several indices.
    """
    index, aliases = _looked_up(engine, name)
    return narrowing(engine, name, index, aliases)


def _looked_up(engine: Engine, name: str) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
    """The concrete index behind a name, and the properties of its aliases."""
    arguments.check(engine=engine)
    check_one(name)
    if (found := unless_missing(lambda: stands_for(engine, name))) is None:
        raise UsageError(f"There is no index named {name!r} at {engine.url}.", _what_instead(engine, name))
    indices, aliases = found
    if len(indices) != 1:
        raise EngineError(
            f"{name!r} stands for {len(indices)} indices, and a search reads one: {few(indices)}.",
            "Give the name of one of them, or read all of them into a new index: 'termweave index opensearch:NAME NEW'.",
        )
    return indices[0], aliases


def book_of(resolved: ResolvedName, made: Lineage) -> str:
    """The name under which judgements of an index are stored. An alias that hides documents has a book of its own, which shows none of them."""
    return resolved.name if resolved.partial and resolved.name != resolved.index else made.name


def check_one(name: str) -> None:
    """Refuse a text that cannot be the name of one index.

    Raises:
        UsageError: The name is empty, too long, a pattern, or contains characters that have a meaning in a URL.
    """
    if isinstance(name, str) and (size := len(name.encode(errors="replace"))) > _MOST_BYTES:
        raise UsageError(
            f"The name of an index has at most {_MOST_BYTES} bytes, and this one has {size:,}.",
            "Give the NAME of 'termweave index SOURCE NAME'.",
        )
    if not isinstance(name, str) or not name or set(name) & set('*?,<>/\\|" #:') or name.startswith(("_", "-", ".")):
        raise UsageError(f"{name!r} is not the name of an index.", "Give the NAME of 'termweave index SOURCE NAME'.")


def read(engine: Engine, index: str) -> Lineage:
    """The lineage of a concrete index."""
    answer = engine.of_indices(f"/{quote(index)}/_mapping", "mappings")
    return Lineage.from_meta(answer[index]["mappings"].get("_meta") or {}, index)


def all_live(engine: Engine) -> dict[str, Lineage]:
    """Name -> lineage of every index that termweave built or enriched and that can be searched by its name; two requests."""
    aliases = engine.of_indices("/*/_alias", "aliases")
    mappings = engine.of_indices("/*/_mapping", "mappings", params={"filter_path": "*.mappings._meta.termweave"})
    lineages = {}
    for index, stored in mappings.items():
        with suppress(UsageError, EngineError):  # unreadable: of a newer version, or damaged
            made = Lineage.from_meta(stored["mappings"]["_meta"], index)
            if made.name == index or made.name in aliases.get(index, {}).get("aliases", {}):
                lineages[made.name] = made
    return lineages


def refuse_enriched(made: Lineage) -> None:
    """Refuse to change, replace or compare with a source an index that belongs to another application.

    Raises:
        UsageError: It does.
    """
    if "enriched" in made.source:
        raise UsageError(
            f"{made.name!r} is an index of another application, which 'termweave enrich' added fields to.",
            "Search it, verify or change its fields with 'termweave enrich', or give another NAME for an index of its own.",
        )


def write(engine: Engine, index: str, lineage: Lineage) -> None:
    """Store a lineage. A mapping update replaces the whole ``_meta``, so the lineage must be complete."""
    engine.request("PUT", f"/{quote(index)}/_mapping", body={"_meta": {"termweave": lineage.as_meta()}})


def _what_instead(engine: Engine, name: str) -> str:
    """The hint for an unknown name: unpublished generations, or the names that exist, as far as the user may see them."""
    with suppress(EngineResponseError):
        params = {"filter_path": "*.mappings._meta.termweave.name"}
        mappings = engine.of_indices(f"/{quote(name)}-*/_mapping", "mappings", params=params)
        if any(entry["mappings"]["_meta"]["termweave"]["name"] == name for entry in mappings.values()):
            return (
                f"None of its generations is published; 'termweave generations {name}' lists them. "
                "To continue a build that was stopped, repeat its 'termweave index' command."
            )
    return known_names(engine) or "Build one with 'termweave index SOURCE NAME'."


def known_names(engine: Engine) -> str:
    """A sentence with the names that exist; "" if there are none, or the user may not list them."""
    with suppress(EngineResponseError):
        aliases = engine.request("GET", "/_cat/aliases", params={"format": "json", "h": "alias"})
        names = sorted({row["alias"] for row in aliases if not row["alias"].startswith(".") and ".write-" not in row["alias"]})
        if names:
            return f"Known names: {', '.join(names[:20])}{f' and {len(names) - 20} more' if names[20:] else ''}."
    return ""
