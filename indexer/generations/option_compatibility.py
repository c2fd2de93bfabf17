"""How a live generation was built, compared with the options of a command.

An update keeps how the generation was built: an option with the same value is accepted, another value is refused.
`indexer.rebuild_options` says what a build takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from termweave.encoders.kinds import read_folder
from termweave.encoders.model_lookup import DEFAULT, NONE, resolve
from termweave.engine.client.payloads import as_text
from termweave.errors import UsageError
from termweave.indexer import rebuild_options
from termweave.indexer.options import BuildOptions, build_settings, in_words
from termweave.support.messages import clipped

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.engine import Engine


def check(engine: Engine, live: LiveGeneration, options: BuildOptions, given: Collection[str]) -> None:
    """Refuse an update whose options would have made another generation.

    Args:
        engine: The server.
        live: The generation to update.
        options: The options of the command.
        given: Names of the options that were given; all others are as the generation has them.

    Raises:
        UsageError: An option has another value than the generation; the message names both.
    """
    for name, setting in build_settings().items():
        if not setting.kept or name not in given:
            continue
        asked = getattr(options, name)
        stored = setting.stored(live.lineage) if setting.stored else _stored_in_index(engine, live.index, name, asked)
        if stored != asked:
            if isinstance(asked, Mapping):  # of a file only what differs
                keys = [key for key in asked if as_text(stored[key]) != as_text(asked[key])]
                stored, asked = ({key: each[key] for key in keys} for each in (stored, asked))
            raise UsageError(
                f"An update cannot change {setting.flag}: the live generation was built with {clipped(in_words(stored))}, "
                f"not {clipped(in_words(asked))}.",
                f"To update, remove {setting.flag}; to build anew, remove --update.",
            )
    for output in ("weights", "dense"):
        if flag := next((f"--{name}" for name in (output, "model") if name in given), ""):
            _check_model(live.lineage, output, getattr(options, output), flag)


def _check_model(made: Lineage, output: str, asked: str | Path | None, flag: str) -> None:
    """Refuse another model than that of the generation, which an update could not use."""
    stored = made.models.get(output)
    name = "none" if asked in NONE else str(asked or DEFAULT)
    opened = None if asked in NONE else read_folder(resolve(name), check=False, name=name).manifest
    if (stored.hash if stored else None) != (opened.hash if opened else None):
        built = f"with {stored.name!r} ({stored.hash})" if stored else f"without a model for --{output}"
        wanted = f"with {name!r} ({opened.hash})" if opened else "without one"
        raise UsageError(
            f"An update cannot change {flag}: the live generation was built {built}, not {wanted}.",
            f"To update, remove {flag}; to build anew with this model, remove --update.",
        )


def options_of(engine: Engine, live: LiveGeneration, models: Mapping[str, Any]) -> BuildOptions:
    """The options of a build that makes such a generation again with other models.

    Args:
        engine: The server.
        live: The generation.
        models: "weights", "dense" and "dense_query" -> model, as far as they are not the shipped ones.

    Raises:
        UsageError: It was built with options whose values it does not store: it keeps the mapping of its source, or an earlier version built
            it with a mapping, analyzers or similarities of its own.
    """
    made = live.lineage
    settings = engine.request("GET", f"/{live.index}/_settings", params={"flat_settings": True})[live.index]["settings"]
    stored = {"--keep-mapping": "kept" in made.source}
    own_settings = ("index.analysis.", "index.similarity.")
    of_signals = made.layout.settings()
    if made.options is None:
        stored["--mapping"] = bool(made.fields)
        stored["--settings"] = any(name.startswith(own_settings) and name not in of_signals for name in settings)
    if own := [flag for flag, given in stored.items() if given]:
        raise UsageError(
            f"{made.name!r} was built with {' and '.join(own)}, which only its own 'termweave index' command knows.",
            "Train with 'termweave train', and build with that command and --weights MODEL.",
        )
    values: dict[str, Any] = {name: setting.stored(made) for name, setting in build_settings().items() if setting.stored}
    values |= {name: int(settings[f"index.number_of_{name}"]) for name in ("shards", "replicas")}
    values |= {name: value for name, value in rebuild_options.of_generation(made).items() if name in {"settings", "mapping"}}
    return BuildOptions(**values, **models)


def _stored_in_index(engine: Engine, index: str, name: str, asked: Any) -> Any:
    """The value of an option that the index has: of settings and a mapping only the keys that are asked for; `asked` if they agree."""
    if name == "mapping":
        mapping = engine.request(
            "GET", f"/{index}/_mapping", params={"filter_path": "*.mappings.properties,*.mappings.d*,*.mappings.n*"}
        )
        mapping = mapping.get(index, {}).get("mappings", {})
        answer = engine.request("GET", f"/{index}/_mapping/field/*", params={"include_defaults": True})[index]["mappings"]
        fields = {name: field["mapping"][name.rpartition(".")[2]] for name, field in answer.items() if field["mapping"]}
        return asked if _contains(mapping, asked, fields) else {key: mapping.get(key) for key in asked}
    settings = engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
    if name != "settings":
        return int(settings[f"index.number_of_{name}"])
    stored = {key: settings.get(key) for key in asked}
    return asked if stored == {key: as_text(value) for key, value in asked.items()} else stored


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
