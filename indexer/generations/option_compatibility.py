"""How a live generation was built, compared with the options of a command.

An update keeps how the generation was built: an option with the same value is accepted, another value is refused. A build may differ,
and says which options of the live generation it does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError
from termweave.indexer.option_values import as_text, vectors_of
from termweave.indexer.options import DECLARED, BuildOptions
from termweave.indexer.preparation.passages import Window
from termweave.signals.pruning import Pruning
from termweave.support.messages import clipped

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from termweave.engine import Engine
    from termweave.indexer.generations.generations import LiveGeneration
    from termweave.indexer.option_declaration import Flag
    from termweave.search.catalog.lineage import Lineage


def check(engine: Engine, live: LiveGeneration, options: BuildOptions, flags: Collection[str]) -> None:
    """Refuse an update whose options would have made another generation.

    Args:
        engine: The server.
        live: The generation to update.
        options: The options of the command.
        flags: The flags that were given, "--shards" for example; all other options are as the generation has them.

    Raises:
        UsageError: A flag has another value than the generation; the message names both.
    """
    for name, option in DECLARED.items():
        for flag in option.flags:
            if not option.kept_by_update or flag.name not in flags:
                continue
            asked = flag.compare(getattr(options, name))
            stored = flag.of_generation(live.lineage) if flag.of_generation else _of_index(engine, live.index, flag, asked)
            if stored != asked:
                raise UsageError(
                    f"An update cannot change {flag.name}: the live generation was built with {_shown(stored)}, not {_shown(asked)}.",
                    f"To update, remove {flag.name}; to build anew, remove --update.",
                )


def left_out(made: Lineage, options: BuildOptions, flags: Collection[str]) -> list[str]:
    """The options of the live generation that a build does not have and does not mention, as flags: "--shards 2".

    Args:
        made: The lineage of the live generation.
        options: The options of the build.
        flags: The flags that were given, with whatever value.
    """
    missing = []
    for name, option in DECLARED.items():
        for flag in option.flags:
            if flag.noted and flag.name not in flags and flag.of_generation is not None:
                stored = flag.of_generation(made)
                if stored != flag.compare(getattr(options, name)):
                    missing.append(f"{flag.name} {_shown(stored)}")
    return missing


def options_of(engine: Engine, live: LiveGeneration, models: Mapping[str, str]) -> BuildOptions:
    """The options of a build that makes such a generation again with other models.

    Args:
        engine: The server.
        live: The generation.
        models: "weights", "dense" and "dense_query" -> model, as far as they are not the shipped ones.

    Raises:
        UsageError: It was built with options whose values no generation stores: a mapping, analyzers or similarities of its own.
    """
    made = live.lineage
    settings = engine.request("GET", f"/{live.index}/_settings", params={"flat_settings": True})[live.index]["settings"]
    stored = {"--mapping": bool(made.fields), "--keep-mapping": "kept" in made.source}
    own_settings = ("index.analysis.", "index.similarity.")
    of_signals = made.layout.settings()
    stored["--settings"] = any(name.startswith(own_settings) and name not in of_signals for name in settings)
    if own := [flag for flag, given in stored.items() if given]:
        raise UsageError(
            f"{made.name!r} was built with {' and '.join(own)}, which only its own 'termweave index' command knows.",
            "Train with 'termweave train', and build with that command and --weights MODEL.",
        )
    pruned = next((each for each in made.signals.values() if "prune_share" in each), {})
    return BuildOptions(
        weights=models.get("weights"),
        dense=models.get("dense"),
        dense_query=models.get("dense_query"),
        signals=tuple(made.signals),
        analyzer=made.signals.get("lexical", {}).get("analyzer"),
        shards=int(settings["index.number_of_shards"]),
        replicas=int(settings["index.number_of_replicas"]),
        passages=Window.from_lineage({name: made.passages[name] for name in ("size", "stride")} if made.passages else {}),
        prune=Pruning(pruned.get("prune_share", 0.0), pruned.get("prune_below", 0.0)),
        vectors=vectors_of(made),
    )


def _of_index(engine: Engine, index: str, flag: Flag, asked: Any) -> Any:
    """The value that the index stores for a flag; if the flag names a file, only the keys that are in the file."""
    if flag.name == "--mapping":
        mapping = engine.request(
            "GET", f"/{index}/_mapping", params={"filter_path": "*.mappings.properties,*.mappings.d*,*.mappings.n*"}
        )
        mapping = mapping.get(index, {}).get("mappings", {})
        answer = engine.request("GET", f"/{index}/_mapping/field/*", params={"include_defaults": True})[index]["mappings"]
        fields = {name: field["mapping"][name.rpartition(".")[2]] for name, field in answer.items() if field["mapping"]}
        return asked if _contains(mapping, asked, fields) else {key: mapping.get(key) for key in asked}
    settings = engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
    if flag.name == "--settings":
        return {key: settings.get(key) for key in asked}
    return settings[f"index.number_of_{flag.argument}"]


def _contains(stored: Any, asked: Any, fields: Mapping[str, Any], path: str = "") -> bool:
    """Whether a part of a stored mapping has everything that a user asked for.

    Args:
        stored: The part as the server returns it, without default values and without the type of objects that have properties.
        asked: The part as the user wrote it.
        fields: Full name of a field -> its whole mapping, default values included.
        path: Names of the objects around the properties, each with a dot behind it.
    """
    if not (isinstance(stored, dict) and isinstance(asked, dict)):
        return bool(as_text(stored) == as_text(asked))
    for key, value in asked.items():
        if key == "properties":
            inner = stored.get(key, {})
            names = {name: f"{path}{name}" for name in value}
            if not all(
                _contains(fields.get(full, inner.get(name)), value[name], fields, f"{full}.") for name, full in names.items()
            ):
                return False
        elif not ((key, value) == ("type", "object") and key not in stored) and not _contains(stored.get(key), value, {}):
            return False
    return True


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else ",".join(value) if isinstance(value, list) else orjson.dumps(value).decode()
    return clipped(text)
