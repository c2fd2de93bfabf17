"""The lineage of a generation: how the index was built. The indexer writes it to the mapping's ``_meta``, and searches read it.

An index of an application has a lineage once `termweave enrich` has added signals: it says which of the application's fields are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from termweave.catalog.columns import Column, columns, unlisted
from termweave.catalog.layout import ApplicationFields, DocumentLayout
from termweave.catalog.source_fields import TEXT_KEYS, TITLE_KEY, Fields
from termweave.catalog.typed_fields import NOTATIONS, TYPES
from termweave.dialect import dialect_of
from termweave.engine import EngineResponseError
from termweave.engine.client.payloads import NO_PIPELINES, WHOLE_DOCUMENTS, quote
from termweave.engine.client.resolved_name import ResolvedName, narrowing, stands_for, target
from termweave.errors import EngineError, UsageError
from termweave.support import arguments
from termweave.support.messages import few, is_hash

if TYPE_CHECKING:
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
#: Fields of a lineage -> the type that other modules rely on.
_TYPES: dict[str, Any] = {"created": str, "fields": (list, tuple), "neighbours": int}
_TYPES |= dict.fromkeys(("source", "signals", "statistics", "profiles", "passages", "types", "notations"), dict)


@dataclass(frozen=True)
class ModelLineage:
    """The model that computed one output of the encoder: term weights, vectors, or vectors of queries.

    Attributes:
        name: The model's name, from its folder. Anyone who can write to the index can change it: see `encoders.recorded_models`.
        hash: Content hash of model and tokenizer, as hexadecimal digits.
    """

    name: str
    hash: str


@dataclass(frozen=True)
class Lineage:
    """The origin of a generation: source, models, signals and options of its build.

    Attributes:
        name: The alias that the generation was built for.
        created: Time of the build, UTC, ISO 8601.
        termweave: The version of termweave that built the generation.
        source: Name and fingerprint of the corpus; "options" holds the build options as JSON.
        fingerprint: Hash of source, models, signals and settings: equal fingerprints mean equal indices.
        signals: Signal name -> parameters.
        models: "weights" and "dense" -> model; "dense_query" -> the model that encodes queries, if "dense" encodes only documents.
        statistics: Hash, documents and analysis of the collection statistics; empty without a weights model.
        documents: Number of documents of the source.
        complete: Whether the build is finished and verified.
        missed: Why the gate refused to publish the generation, or `ROLLED_BACK` if a rollback left it; else "".
        profiles: Name of a tuned profile -> `catalog.profiles.Profile.as_meta`.
        profile: Name of the profile that searches use by default; "" for none.
        passages: "size" and "stride" in words, "count" of all passages, and "most" of one document; empty if documents are not cut
            into passages.
        fields: Metadata entries that the user's mapping makes fields of their own.
        types: Metadata entry -> type of its typed field; empty for an index that was built before metadata had types.
        notations: Metadata entry -> notation of its values (`typed_fields.NOTATIONS`), for entries whose notation was decided.
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
        """The signals and fields of the generation's documents."""
        layout = DocumentLayout.from_meta(self.signals, self.fields, {**self.types, **self.notations})
        if not layout.prefix:  # termweave's own, or of an earlier version
            return layout
        used = [*(model.hash for model in self.models.values()), str(self.statistics.get("hash", ""))]
        return replace(layout, models=" ".join(used))

    @cached_property
    def options(self) -> Mapping[str, Any] | None:
        """The options of the build, as JSON values (`indexer.rebuild_options`); None: an earlier version of termweave built the index and stored no options."""
        import orjson  # noqa: PLC0415 - not needed by `--help`

        with suppress(orjson.JSONDecodeError, TypeError):
            values = orjson.loads(self.source["options"]) if "options" in self.source else None
            return values if isinstance(values, dict) else None
        return None

    @property
    def named_fields(self) -> Fields | None:
        """The fields that the first `termweave enrich` of the index was told to read; None: the lineage names no fields."""
        return parsed_fields(self.source.get("fields", ""))

    @property
    def application_fields(self) -> ApplicationFields | None:
        """The fields that `termweave enrich` reads title and text from; None: termweave built the index itself."""
        return read_by(self.named_fields or Fields()) if "enriched" in self.source else None

    def as_meta(self) -> dict[str, Any]:
        """Return the lineage as the JSON that ``_meta.termweave`` and the ledger store.

        The JSON has the oldest format that can hold the lineage: an older version of termweave reads every index without newer features,
        and says of any other index that it cannot read the format.
        """
        values = asdict(self)
        if self.notations:
            return {**values, "schema": 3}
        del values["notations"]
        if self.types or "dense_query" in self.models:
            return {**values, "schema": 2}
        del values["types"]
        return {**values, "schema": 1}

    def differences(self, other: Lineage) -> list[str]:
        """Name the parts (such as "models") by which two lineages differ so that one query cannot search both indices; profiles, too: a search uses one."""
        parts = {
            "models": (self.models, other.models),
            "signals": (self.signals, other.signals),
            "statistics": (self.statistics.get("hash"), other.statistics.get("hash")),
            "fields": (self.source.get("fields"), other.source.get("fields")),
            "profiles": (self.profiles.get(self.profile), other.profiles.get(other.profile)),
        }
        return [part for part, (first, second) in parts.items() if first != second]

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any], index: str, name: str = "") -> Lineage:
        """Read the lineage from the ``_meta`` of an index. `name`: what the user called the index, if that is another name.

        Raises:
            UsageError: The index was not built by termweave, or by a newer version.
            EngineError: The lineage is damaged.
        """
        values = dict(meta.get("termweave") or {})
        if not values:
            whose = f", which {name!r} stands for now," if name not in {"", index} else ""
            raise UsageError(
                f"The index {index!r}{whose} was not built by termweave, nor enriched.",
                f"Add signals to it with 'termweave enrich {name or index}', or build an index under another name with "
                "'termweave index SOURCE NAME'.",
            )
        if values.pop("schema", 1) not in FORMATS:
            message = (
                f"The index {index!r} was built by termweave {values.get('termweave')} in a format that this version cannot read."
            )
            raise UsageError(message, "Install the version that built it, or index again.")
        try:
            models = {output: ModelLineage(**model) for output, model in values.pop("models", {}).items()}
            lineage = cls(**values, models=models)
            if _sound(lineage):
                return lineage
        except (AttributeError, TypeError):
            pass
        hint = "If the index is live, roll back to another generation, or build one under another name."
        raise EngineError(f"The lineage of the index {index!r} ('_meta.termweave' in its mapping) is damaged.", hint)


def _sound(lineage: Lineage) -> bool:
    """Whether the values of a lineage have the types that other modules rely on, so that the lineage is not damaged."""
    if not all(isinstance(getattr(lineage, name), kind) for name, kind in _TYPES.items()):
        return False
    # Hashes become names of files on this host, so they may contain only hexadecimal digits.
    hashes = [model.hash for model in lineage.models.values()] + ([lineage.statistics.get("hash")] if lineage.statistics else [])
    if not all(map(is_hash, hashes)) or not all(isinstance(model.name, str) for model in lineage.models.values()):
        return False
    kinds = [*((kind, TYPES) for kind in lineage.types.values()), *((each, NOTATIONS) for each in lineage.notations.values())]
    if not all(isinstance(kind, str) and kind in possible for kind, possible in kinds):
        return False
    needed = ((lineage.statistics, {"hash"}), (lineage.passages, {"size", "stride"}))
    return "name" in lineage.source and all(not values or names <= values.keys() for values, names in needed)


def parsed_fields(stored: str) -> Fields | None:
    """Parse the names of fields that a lineage stores as JSON; None: the text is empty."""
    import orjson  # noqa: PLC0415 - not needed by `--help`

    if not stored:
        return None
    names = orjson.loads(stored)
    return Fields(names.get("id"), names.get("title"), tuple(names.get("text") or ()))


def read_by(fields: Fields) -> ApplicationFields:
    """Return the fields that title and text are read from: those that the user named, else the usual names.

    As in `corpora.formats.fields.Mapper`, a field that was named for one purpose does not serve its usual one.
    """
    title, *texts = ("" if key in fields.named() else key for key in (TITLE_KEY, *TEXT_KEYS))
    return ApplicationFields(fields.title or title, fields.text or [*filter(None, texts)], joined=bool(fields.text))


def layout_with_fields(engine: Engine, index: str, lineage: Lineage) -> DocumentLayout:
    """Return an index's layout with the fields that the user's mapping or the application declares, read now, because a mapping may change later."""
    fields = lineage.application_fields
    if fields is None and not lineage.fields:
        return lineage.layout
    mapped: dict[str, Column] = {}
    strict = True
    for stored in engine.of_indices(f"/{quote(index)}/_mapping", "mappings").values():
        strict = strict and not unlisted(stored["mappings"])
        top = (stored["mappings"].get("properties") or {}).keys()
        ours = top - set(lineage.fields) if fields is None else set(lineage.source["enriched"].split()) - {"id"}
        for name, column in columns(stored["mappings"], ours, dialect_of(engine.capabilities).unordered).items():
            first = mapped.setdefault(name, column)
            if (first, first.searched, first.doc_values) != (column, column.searched, column.doc_values):
                mapped[name] = replace(first, kind="mixed")
    if fields is not None:
        mapped.setdefault("id", Column(lineage.layout.id_field, "keyword"))
        fields = replace(fields, strict=strict)
    return replace(lineage.layout, application=fields, mapped=mapped)


def exists(engine: Engine, name: str) -> bool:
    """Whether an index or alias with this name exists."""
    # Not HEAD: its answer to a role that lacks a permission does not say which.
    return unless_missing(lambda: engine.of_indices(f"/{quote(name)}/_alias", "aliases")) is not None


def unless_missing(ask: Callable[[], T], status: HTTPStatus = HTTPStatus.NOT_FOUND) -> T | None:
    """Return the answer to a request, which `ask` sends; None: the server answered with the given status, by default 404 (not found)."""
    try:
        return ask()
    except EngineResponseError as error:
        if error.status == status:
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
        if "resource_already_exists" not in str(error.body):  # another process created it in this moment
            raise


def resolve_index(engine: Engine, name: str) -> str:
    """Resolve the name of an alias, a data stream or an index to its concrete index, for work on the whole index. Searches need `resolve_name`.

    Raises:
        UsageError: No index has this name; the message lists the names that exist.
        EngineError: The name stands for several indices that are not all enriched.
    """
    indices, _, lacking = _looked_up(engine, name)
    return target(name, indices, lacking)


def resolve_name(engine: Engine, name: str) -> ResolvedName:
    """Resolve an index name or alias to its concrete indices, and to the filter that decides which of their documents a search of the name sees.

    Raises:
        UsageError: As `resolve_index`; or it cannot be found out which documents the index hides.
        EngineError: The name stands for several indices, and none of them is enriched.
    """
    return narrowing(engine, name, *_looked_up(engine, name))


def _looked_up(engine: Engine, name: str) -> tuple[list[str], Mapping[str, Mapping[str, Any]], list[str]]:
    """Return the concrete indices behind a name, the properties of their aliases, and, if there are several indices, those that are not enriched."""
    arguments.check(engine=engine)
    check_one(name)
    if (behind := unless_missing(lambda: stands_for(engine, name))) is None:
        raise UsageError(f"There is no index named {name!r} at {engine.url}.", _what_instead(engine, name))
    indices, aliases = behind
    if len(indices) == 1:
        return indices, aliases, []
    stored = engine.of_indices(f"/{quote(name)}/_mapping", "mappings").items()
    metas = {index: meta for index, each in stored if (meta := (each["mappings"].get("_meta") or {}).get("termweave"))}
    searched = [index for index in indices if "enriched" in metas.get(index, {}).get("source", {})]
    if not searched or len(searched) < len(metas):
        raise EngineError(
            f"{name!r} stands for {len(indices)} indices, and a search reads one unless all are enriched: {few(indices)}.",
            f"Run 'termweave enrich {name}', give the name of one of them, or read all of them into a new index: "
            f"'termweave index opensearch:{name} NEW'.",
        )
    return searched, aliases, [index for index in indices if index not in searched]


def book_of(resolved: ResolvedName, lineage: Lineage) -> str:
    """Return the name under which judgements of an index are stored: an alias that hides documents has judgements of its own, which show no hidden one."""
    return resolved.name if resolved.partial and resolved.name != resolved.index else lineage.name


def check_one(name: str) -> None:
    """Check that a text can be the name of one index.

    Raises:
        UsageError: The name is empty, too long, a pattern, or contains characters that have a meaning in a URL.
    """
    if isinstance(name, str) and (size := len(name.encode(errors="replace"))) > _MOST_BYTES:
        hint = "Give the NAME of 'termweave index SOURCE NAME'."
        raise UsageError(f"The name of an index has at most {_MOST_BYTES} bytes, and this one has {size:,}.", hint)
    if not isinstance(name, str) or not name or set(name) & set('*?,<>/\\|" #:') or name.startswith(("_", "-", ".")):
        raise UsageError(f"{name!r} is not the name of an index.", "Give the NAME of 'termweave index SOURCE NAME'.")


def read_lineage(engine: Engine, index: str, name: str = "") -> Lineage:
    """Read the lineage of a concrete index; of several indices that are enriched alike (`ResolvedName.index`), the lineage of the last one.

    Args:
        engine: The server.
        index: The index, or several.
        name: What the user called the index; "": the user gave the name of the index itself.

    Raises:
        UsageError: The indices are not enriched alike.
    """
    answer = sorted(engine.of_indices(f"/{quote(index)}/_mapping", "mappings").items())
    every = {each: Lineage.from_meta(stored["mappings"].get("_meta") or {}, each, name) for each, stored in answer}
    check_alike(every)
    return [*every.values()][-1]


def check_alike(every: Mapping[str, Lineage]) -> None:
    """Check that several indices (index -> lineage) can be searched together.

    Raises:
        UsageError: The indices are enriched with different models, fields and so on.
    """
    for other, lineage in every.items():
        last = [*every][-1]
        if parts := every[last].differences(lineage):
            raise UsageError(
                f"{last!r} and {other!r} are enriched with different {few(parts)}, so they cannot be searched together.",
                f"Search each by its own name; or use one profile in both: 'termweave profiles {other} --use PROFILE'."
                if parts == ["profiles"]
                else f"Search each by its own name; or run 'termweave enrich {other} --remove' and then 'termweave enrich' with the name of "
                "both, which enriches them alike.",
            )


def predecessor(engine: Engine, name: str) -> tuple[str, Lineage] | None:
    """Find the index that was last enriched under a name which now stands for another index, and that index's lineage; None: no index was.

    If the user's role may not read all mappings, no index is found.
    """
    under: dict[str, Mapping[str, Any]] = {}
    with suppress(EngineResponseError):
        under = {
            index: meta for index, meta in enriched_indices(engine).items() if meta["source"].get("name") == f"opensearch:{name}"
        }
    last = max(under, key=lambda index: str(under[index].get("created")), default=None)
    return None if last is None else (last, Lineage.from_meta({"termweave": under[last]}, last))


def all_live(engine: Engine) -> dict[str, Lineage]:
    """Return name -> lineage for every index that termweave built or enriched and that can be searched by its name; two requests."""
    aliases = engine.of_indices("/*/_alias", "aliases")
    mappings = engine.of_indices("/*/_mapping", "mappings", params={"filter_path": "*.mappings._meta.termweave"})
    lineages = {}
    for index, stored in mappings.items():
        with suppress(UsageError, EngineError):  # unreadable: of a newer version, or damaged
            lineage = Lineage.from_meta(stored["mappings"]["_meta"], index)
            of_stream = index.startswith(f".ds-{lineage.name}-")
            if lineage.name == index or of_stream or lineage.name in aliases.get(index, {}).get("aliases", {}):
                lineages[lineage.name] = lineage
    return lineages


def enriched_indices(engine: Engine, **params: str) -> dict[str, Mapping[str, Any]]:
    """Return index -> lineage, as stored, for every index of another application that was enriched. `params`: further parameters of the request."""
    stored = engine.of_indices("/*/_mapping", "mappings", params={"filter_path": "*.mappings._meta.termweave", **params})
    metas = {index: each["mappings"]["_meta"]["termweave"] for index, each in stored.items()}
    return {index: meta for index, meta in metas.items() if "enriched" in meta.get("source", {})}


def refuse_enriched(lineage: Lineage) -> None:
    """Check that an index belongs to termweave, so that it may be changed, replaced and compared with its source.

    Raises:
        UsageError: The index belongs to another application.
    """
    if "enriched" in lineage.source:
        raise UsageError(
            f"{lineage.name!r} is an index of another application, which 'termweave enrich' added fields to.",
            f"Search it; verify or change its fields with 'termweave enrich'; or build a separate index, which 'termweave learn NAME ...' and all "
            f"other commands take: 'termweave index opensearch:{lineage.name} NAME'.",
        )


def store_lineage(engine: Engine, index: str, lineage: Lineage | None) -> None:
    """Store a lineage in the ``_meta`` of an index, beside the entries of an application; None: the stored lineage is removed.

    If `index` stands for several indices, each keeps its own lineage and takes over only the profiles. A mapping update replaces the
    whole ``_meta``.
    """
    if lineage is not None and "enriched" not in lineage.source:  # the index is termweave's own
        engine.request("PUT", f"/{quote(index)}/_mapping", body={"_meta": {"termweave": lineage.as_meta()}})
        return
    answer = engine.of_indices(f"/{quote(index)}/_mapping", "mappings")
    for each, stored in answer.items():
        before = stored["mappings"].get("_meta") or {}
        meta = {key: value for key, value in before.items() if key != "termweave"}
        if lineage is not None:
            stays = Lineage.from_meta(before, each) if len(answer) > 1 else lineage
            meta["termweave"] = replace(stays, profiles=lineage.profiles, profile=lineage.profile).as_meta()
        engine.request("PUT", f"/{quote(each)}/_mapping", body={"_meta": meta})


def _what_instead(engine: Engine, name: str) -> str:
    """Return the hint for an unknown name: its unpublished generations, or the names that exist, as far as the user may see them."""
    with suppress(EngineResponseError):
        if under := [index for index, meta in enriched_indices(engine).items() if meta.get("name") == name]:
            one = "was" if len(under) == 1 else "were"
            return f"{few(sorted(under))} {one} enriched under this name: point the alias there again, or search by the name of the index."
        params = {"filter_path": "*.mappings._meta.termweave.name"}
        mappings = engine.of_indices(f"/{quote(name)}-*/_mapping", "mappings", params=params)
        if any(entry["mappings"]["_meta"]["termweave"]["name"] == name for entry in mappings.values()):
            return (
                f"None of its generations is published; 'termweave generations {name}' lists them. "
                "To continue a build that was stopped, repeat its 'termweave index' command."
            )
    return known_names(engine) or "Build one with 'termweave index SOURCE NAME'."


def known_names(engine: Engine) -> str:
    """Return a sentence with the index names that exist on the server; "": there are none, or the user may not list them."""
    with suppress(EngineResponseError):
        aliases = engine.request("GET", "/_cat/aliases", params={"format": "json", "h": "alias"})
        names = {row["alias"] for row in aliases if not row["alias"].startswith(".") and ".write-" not in row["alias"]}
        if names := names | enriched_indices(engine).keys():
            return f"Known names: {few(sorted(names), 20)}."
    return ""
