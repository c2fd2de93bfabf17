"""The options that the live generation was built with: a rebuild takes them over, unless the command says otherwise, and an update keeps them.

A lineage stores the options that its build was given and that make another generation. Anyone who can write to the index can change
them, so a model is one that this host already has, and a text is never read as the name of a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from termweave.catalog.layout import signal_class
from termweave.encoders.kinds import read_folder
from termweave.encoders.model_lookup import DEFAULT, NONE, resolve
from termweave.encoders.recorded_models import local_folder
from termweave.engine.client.payloads import as_text
from termweave.errors import UsageError
from termweave.indexer.options import BuildOptions, build_settings, in_words
from termweave.support.messages import clipped

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.records import ModelInfo


_MODELS = ("weights", "dense", "dense_query")


def stored(options: BuildOptions, models: Mapping[str, ModelInfo]) -> dict[str, Any]:
    """The options that a lineage stores, as JSON values: those that are not the defaults.

    Args:
        options: As they were given, or taken over.
        models: Output -> the model that was opened for it.
    """
    usual, settings, values = BuildOptions(), build_settings(), dict[str, Any]()
    for name in (each.name for each in fields(BuildOptions)):
        value = getattr(options, name)
        if name in _MODELS and value in NONE:
            values[name] = "none"
        elif name in _MODELS and value is not None and name in models:
            values[name] = models[name].name
        elif settings[name].kept and value != getattr(usual, name):
            values[name] = value if isinstance(value, Mapping | int) else in_words(value)
    return values


def of_generation(made: Lineage) -> dict[str, Any]:
    """The options that a generation was built with, as `BuildOptions` takes them, without its models.

    Of one of an earlier version only those that can be told from what it stores.
    """
    settings, usual, values = build_settings(), BuildOptions(), dict[str, Any]()
    for name, setting in settings.items():
        if setting.stored and (name in made.options if made.options is not None else setting.noted):
            value = setting.stored(made)
        elif setting.kept and not setting.stored:
            value = (made.options or {}).get(name)
            value = value if isinstance(value, Mapping | int) else None
        else:
            continue
        if value is not None and value != getattr(usual, name):
            values[name] = value
    return values


def rebuilt(
    engine: Engine, live: LiveGeneration, options: BuildOptions, names: Collection[str], *, index: bool = False
) -> BuildOptions:
    """The options of a rebuild: where it says nothing else, those of the live generation.

    Args:
        engine: The server.
        live: The live generation.
        options: The options of the command.
        names: Those that the command gives, with whatever value.
        index: Whether the source is an index, whose mapping can be kept.

    Raises:
        UsageError: The live generation has a model that this host does not have.
    """
    given = {name: getattr(options, name) for name in names}
    values = {name: value for name, value in of_generation(live.lineage).items() if name not in given}
    if live.lineage.options is None and live.lineage.fields and not {"mapping", "keep_mapping"} & given.keys():
        # An earlier version did not store the mapping of the user.
        properties = engine.request("GET", f"/{live.index}/_mapping")[live.index]["mappings"]["properties"]
        values["mapping"] = {"properties": {name: properties[name] for name in live.lineage.fields if name in properties}}
    if not index or {"mapping", "passages"} & given.keys():
        values.pop("keep_mapping", None)
    if given.get("keep_mapping"):
        values = {name: value for name, value in values.items() if name not in {"mapping", "passages", "shards"}}
    return replace(options, **_without_contradictions(_models(live.lineage, given) | values, given))


def remark(options: BuildOptions, taken: BuildOptions) -> list[str]:
    """Say which options were taken over; [] if none was."""
    names = [each.name for each in fields(BuildOptions) if getattr(options, each.name) != getattr(taken, each.name)]
    values = in_flags({name: getattr(taken, name) for name in names})
    flags = " ".join(flag if value == "yes" else f"{flag} {clipped(value)}" for flag, value in values.items())
    return [f"Built as the live generation was, with {flags} (--defaults: without)."] if flags else []


def _models(made: Lineage, given: Mapping[str, Any]) -> dict[str, Any]:
    """The models that the build of a generation named, or switched off, as far as the command names no other."""
    named: Collection[str] = {*given, *(_MODELS if "model" in given else ()), *(("dense_query",) if "dense" in given else ())}
    models: dict[str, Any] = {}
    for output in _MODELS:
        name = (made.options or {}).get(output)
        if name is None or output in named:
            continue
        model = made.models.get(output)
        if name in NONE:
            models[output] = "none"
        elif model is not None:
            flag = f"--{output.replace('_', '-')}"
            if (folder := local_folder(model)) is None:
                hint = f"Name its folder with {flag}, or add --defaults to build without the options of the live generation."
                raise UsageError(f"{made.name!r} was built with {flag} {model.name}, and this host has no such model.", hint)
            models[output] = folder
    return models


def _without_contradictions(values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what cannot be had beside the options of the command: its models decide which signals there are."""
    off = {output for output in ("weights", "dense") if given.get(output, given.get("model")) in NONE}
    on = {output for output in ("weights", "dense") if given.get(output, given.get("model")) not in {None, *NONE}}
    if signals := values.get("signals"):
        left = tuple(name for name in signals if signal_class(name).needs not in off)
        if on <= {signal_class(name).needs for name in left} and left:
            values["signals"] = left
        else:
            del values["signals"]
    signals = given.get("signals") or values.get("signals")
    needed = {signal_class(name).needs for name in signals} if signals else {"weights", "dense"}
    lacking = {output for output in ("weights", "dense") if output not in needed or {**values, **given}.get(output) in NONE}
    useless = {"weights": ("prune",), "dense": ("vectors", "dense_query")}
    return {name: value for name, value in values.items() if not any(name in useless[output] for output in lacking)}


def in_flags(values: Mapping[str, Any]) -> dict[str, str]:
    """Options as flag -> value in words."""
    settings = build_settings()
    return {settings[name].flag: in_words(value) for name, value in values.items() if name in settings}


def shown(made: Lineage) -> dict[str, str]:
    """The options that a generation was built with, as flag -> value in words."""
    models = {name: made.options[name] for name in _MODELS if name in made.options} if made.options else {}
    return in_flags(models | of_generation(made))


def differences(made: Lineage, planned: BuildPlan, source: Source | None = None) -> str:
    """Describe in what a build differs from a generation: options, models and, where it is given, the source; "" for nothing."""
    kept = {name: setting for name, setting in build_settings().items() if setting.kept}
    counting = (name for name, setting in kept.items() if source is None or setting.fingerprint != "never")
    usual = {name: getattr(BuildOptions(), name) for name in counting}
    if made.options is None:  # an earlier version stored only what the documents tell
        usual = {name: value for name, value in usual.items() if build_settings()[name].stored}
    before = usual | of_generation(made) | _of_models(made.models, made.signals, made.signals.get("lexical", {}).get("analyzer"))
    analyzer = planned.analyzer if "lexical" in planned.signals else None
    now = {name: planned.stored.get(name, value) for name, value in usual.items()}
    old, new = in_flags(before), in_flags(now | _of_models(planned.models, planned.signals, analyzer))
    if source is not None:
        first, second = ({"source": f"{each['name']} ({each['fingerprint'][:8]})"} for each in (made.source, source.origin))
        old, new = first | old, second | new
    return "; ".join(f"{part} was {clipped(old[part])} and is {clipped(new[part])}" for part in new if old[part] != new[part])


def _of_models(models: Mapping[str, Any], signals: Collection[str], analyzer: str | None) -> dict[str, Any]:
    """What a build made of its options: its models, signals and analyzer."""
    named = {output: f"{models[output].name} ({models[output].hash[:8]})" if output in models else None for output in _MODELS}
    return {**named, "signals": sorted(signals), "analyzer": analyzer}


def refuse_other(engine: Engine, live: LiveGeneration, options: BuildOptions, given: Collection[str]) -> None:
    """Refuse an update whose options would have made another generation: an option with the same value is accepted.

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
        if isinstance(asked, Mapping):
            stored = {key: stored.get(key) for key in asked}
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
        hint = f"To update, remove {flag}; to build anew with this model, remove --update."
        raise UsageError(f"An update cannot change {flag}: the live generation was built {built}, not {wanted}.", hint)


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
        message = f"{made.name!r} was built with {' and '.join(own)}, which only its own 'termweave index' command knows."
        raise UsageError(message, "Train with 'termweave train', and build with that command and --weights MODEL.")
    values: dict[str, Any] = {name: setting.stored(made) for name, setting in build_settings().items() if setting.stored}
    values |= {name: int(settings[f"index.number_of_{name}"]) for name in ("shards", "replicas")}
    values |= {name: value for name, value in of_generation(made).items() if name in {"settings", "mapping"}}
    return BuildOptions(**values, **models)


def _stored_in_index(engine: Engine, index: str, name: str, asked: Any) -> Any:
    """The value of an option that the index has: of settings and a mapping only the keys that are asked for; `asked` if they agree."""
    if name == "mapping":
        parts = {"filter_path": "*.mappings.properties,*.mappings.d*,*.mappings.n*"}
        mapping = engine.request("GET", f"/{index}/_mapping", params=parts)
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
