"""What a generation says of itself: the lineage in the mapping's ``_meta``, written by the indexer, read by search."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave import doors
from termweave.engine import EngineResponseError
from termweave.engine.connection import quote
from termweave.errors import EngineError, UsageError
from termweave.signals import DocumentLayout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine

SCHEMA = 1


@dataclass(frozen=True)
class ModelLineage:
    """The model that made one output.

    Attributes:
        name: What `--weights` or `--dense` said, or the shipped model's name.
        hash: Content hash of model and tokenizer.
    """

    name: str
    hash: str


@dataclass(frozen=True)
class Lineage:
    """Where a generation comes from.

    Attributes:
        name: The alias it was built for.
        created: UTC, ISO 8601.
        termweave: Version that wrote it.
        source: Name and fingerprint of the corpus.
        fingerprint: Over source, models, signals and settings: equal fingerprints make equal indices.
        signals: Signal name -> parameters.
        models: "weights" and "dense" -> model.
        statistics: Hash, documents and analysis of the collection statistics; empty without a weights model.
        documents: How many documents of the source it holds.
        complete: False while it is being built; whole and verified when True.
        missed: What its gate found wanting, where that kept it from being published.
        profiles: Name of a tuned profile -> what `search.profiles.Profile` makes of it.
        profile: The one that `search` uses unless told otherwise; "" for none.
        passages: "size" and "stride" in words, "count" of what is stored, "most" of one document; empty where texts are not cut.
        fields: Entries of the metadata that are fields of their own, by the user's mapping.
        neighbours: How many of its nearest documents each document has words of; 0: none.
        updated: When it was last updated, UTC, ISO 8601; "" when never.
        schema: Of this record.
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
    neighbours: int = 0
    updated: str = ""
    schema: int = SCHEMA

    @property
    def layout(self) -> DocumentLayout:
        """How its documents are stored."""
        return DocumentLayout.from_meta(self.signals, self.fields)

    def as_meta(self) -> dict[str, Any]:
        """As ``_meta.termweave`` keeps it."""
        return asdict(self)

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any], index: str) -> Lineage:
        """The inverse of `as_meta`.

        Raises:
            UsageError: The index was not made by termweave, or by a newer one.
            EngineError: Somebody has changed what it says of itself.
        """
        values = dict(meta.get("termweave") or {})
        if not values:
            raise UsageError(
                f"The index {index!r} was not made by termweave.",
                "termweave works on what 'termweave index SOURCE NAME' made; build one under another name.",
            )
        if values.get("schema", SCHEMA) != SCHEMA:
            raise UsageError(
                f"The index {index!r} was written by termweave {values.get('termweave')} in a layout "
                "that this version does not read.",
                "Install the version that wrote it, or index again.",
            )
        try:
            models = {output: ModelLineage(**model) for output, model in values.pop("models", {}).items()}
            made = cls(**values, models=models)
        except (AttributeError, TypeError):
            made = None
        if made is None or not _sound(made):
            raise EngineError(
                f"What the index {index!r} says of itself, '_meta.termweave' in its mapping, is damaged.",
                "Where it is live, roll back to another generation, or delete the name and build it anew.",
            )
        return made


def _sound(made: Lineage) -> bool:
    """Whether what was read is of the kinds that others build on."""
    mappings = (made.source, made.signals, made.statistics, made.profiles, made.passages)
    if not (isinstance(made.created, str) and isinstance(made.fields, list | tuple) and isinstance(made.neighbours, int)):
        return False
    if not all(isinstance(each, dict) for each in mappings):
        return False
    needed = ((made.statistics, {"hash"}), (made.passages, {"size", "stride"}))
    return "name" in made.source and all(not values or names <= values.keys() for values, names in needed)


def exists(engine: Engine, name: str) -> bool:
    """Whether an index or alias of this name is there."""
    return bool(engine.request("HEAD", f"/{quote(name)}"))


def resolve(engine: Engine, name: str) -> str:
    """The concrete index behind an alias (or the index itself).

    Raises:
        UsageError: Nothing has that name; near ones are listed.
    """
    doors.check(engine=engine)
    check_one(name)
    try:
        indices = sorted(engine.of_indices(f"/{quote(name)}/_alias", "aliases"))
    except EngineResponseError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise UsageError(f"There is no index named {name!r} at {engine.url}.", _what_instead(engine, name)) from None
    if len(indices) != 1:
        raise EngineError(f"The alias {name!r} points at {len(indices)} indices: {', '.join(indices[:5])}.", "Name one of them.")
    index: str = indices[0]
    return index


def check_one(name: str) -> None:
    """Refuse what cannot be the name of one index.

    Raises:
        UsageError: It is empty, a pattern, or holds what an address gives a meaning.
    """
    if not isinstance(name, str) or not name or set(name) & set('*?,<>/\\|" #:') or name.startswith(("_", "-", ".")):
        raise UsageError(f"{name!r} is not the name of an index.", "Names are those given to 'termweave index SOURCE NAME'.")


def read(engine: Engine, index: str) -> Lineage:
    """The lineage of a concrete index."""
    answer = engine.of_indices(f"/{quote(index)}/_mapping", "mappings")
    return Lineage.from_meta(answer[index]["mappings"].get("_meta") or {}, index)


def write(engine: Engine, index: str, lineage: Lineage) -> None:
    """Store a lineage; a mapping update overrides the whole ``_meta``, so it carries everything."""
    engine.request("PUT", f"/{quote(index)}/_mapping", body={"_meta": {"termweave": lineage.as_meta()}})


def _what_instead(engine: Engine, name: str) -> str:
    """What to do where there is no index of that name; silent where this user may not ask for others."""
    with suppress(EngineResponseError):
        params = {"filter_path": "*.mappings._meta.termweave.name"}
        mappings = engine.of_indices(f"/{quote(name)}-*/_mapping", "mappings", params=params)
        if any(found["mappings"]["_meta"]["termweave"]["name"] == name for found in mappings.values()):
            why = f"None of its generations is published: 'termweave generations {name}' lists them; "
            return why + "a build that was stopped goes on when its 'termweave index' command is repeated."
    return known_names(engine) or "Build one with 'termweave index SOURCE NAME'."


def known_names(engine: Engine) -> str:
    """A sentence with the names there are; "" where there is none, or this user may not ask."""
    with suppress(EngineResponseError):
        aliases = engine.request("GET", "/_cat/aliases", params={"format": "json", "h": "alias"})
        names = sorted(
            {row["alias"] for row in aliases if not row["alias"].startswith(".") and not row["alias"].endswith(".write")}
        )
        if names:
            return f"Known names: {', '.join(names[:20])}{f' and {len(names) - 20} more' if names[20:] else ''}."
    return ""
