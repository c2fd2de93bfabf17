"""The options that the live generation was built with: a rebuild takes them over, unless the command says otherwise, and an update keeps them.

A lineage stores the options that its build was given and that make another generation. Anyone who can write to the index can change
them, so a model is one that this host already has, and a text is never read as the name of a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
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
    from termweave.catalog.generations import LiveGeneration
    from termweave.catalog.lineage import Lineage
    from termweave.corpora import Source
    from termweave.engine import Engine
    from termweave.indexer.build_plan import BuildPlan
    from termweave.records import ModelInfo

_MODELS = ("weights", "dense", "dense_query")
#: The options that the lineage of an earlier version tells, which did not store them.
_TOLD = ("passages", "prune", "vectors")


def stored(options: BuildOptions, models: Mapping[str, ModelInfo]) -> dict[str, Any]:
    """Return the options that a lineage stores (name -> JSON value): those that are not the defaults.

    Args:
        options: The build options, as they were given or taken over.
        models: Output -> the model that was opened for it.
    """
    usual, settings, values = BuildOptions(), build_settings(), dict[str, Any]()
    for name in (each.name for each in fields(BuildOptions)):
        value = getattr(options, name)
        if name in _MODELS and value in NONE:
            values[name] = "none"
        elif name in _MODELS and value is not None and name in models:
            values[name] = models[name].name
        elif settings[name].fixed and value != getattr(usual, name):
            values[name] = value if isinstance(value, Mapping | int) else in_words(value)
    return values


def of_generation(lineage: Lineage) -> dict[str, Any]:
    """Return the options that a generation was built with (name -> value for `BuildOptions`), without the models.

    Of a generation that an earlier version built, only options are returned that the generation's stored values tell.
    """
    usual, values = BuildOptions(), dict[str, Any]()
    for name, setting in build_settings().items():
        value = None
        if setting.stored:
            if name in (_TOLD if lineage.options is None else lineage.options):
                value = setting.stored(lineage)
        elif setting.fixed and isinstance(stored := (lineage.options or {}).get(name), Mapping | int):
            value = stored
        if value is not None and value != getattr(usual, name):
            values[name] = value
    return values


def rebuilt(
    engine: Engine, live: LiveGeneration, options: BuildOptions, names: Collection[str], *, index: bool = False
) -> BuildOptions:
    """Return the options of a rebuild: those that the command gives, and for the rest those of the live generation.

    Args:
        engine: The server.
        live: The live generation.
        options: The options of the command.
        names: Names of the options that the command gives, with whatever value.
        index: Whether the source is an index, whose mapping can be kept.

    Raises:
        UsageError: The live generation has a model that this host does not have.
    """
    chosen = {name: getattr(options, name) for name in names}
    values = of_generation(live.lineage)
    if not {"mapping", "keep_mapping"} & chosen.keys() and (mapping := _mapping(engine, live)):
        values["mapping"] = mapping
    values = {name: value for name, value in values.items() if name not in chosen}
    if not index or {"mapping", "passages"} & chosen.keys():
        values.pop("keep_mapping", None)
    if chosen.get("keep_mapping"):
        values = {name: value for name, value in values.items() if name not in {"mapping", "passages", "shards"}}
    return replace(options, **_without_contradictions(_models(live.lineage, chosen) | values, chosen))


def remark(options: BuildOptions, taken: BuildOptions) -> list[str]:
    """Return a sentence that says which options were taken over from the live generation; []: no option was."""
    names = [each.name for each in fields(BuildOptions) if getattr(options, each.name) != getattr(taken, each.name)]
    values = in_flags({name: getattr(taken, name) for name in names})
    flags = " ".join(flag if value == "yes" else f"{flag} {clipped(value)}" for flag, value in values.items())
    return [f"Built like the live generation, with {flags}. Add --defaults to build without these options."] if flags else []


def _mapping(engine: Engine, live: LiveGeneration) -> Mapping[str, Any]:
    """Return the `BuildOptions.mapping` of a generation, read from the index if an earlier version, which did not store this option, built the generation."""
    lineage = live.lineage
    if lineage.options is not None or not lineage.fields:
        return dict(of_generation(lineage).get("mapping", {}))
    properties = engine.request("GET", f"/{live.index}/_mapping")[live.index]["mappings"]["properties"]
    return {"properties": {name: properties[name] for name in lineage.fields if name in properties}}


def _models(lineage: Lineage, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return output -> model folder, or "none", for models that a generation's build named or switched off and the command does not replace."""
    replaced = {*chosen, *(_MODELS if "model" in chosen else ()), *(("dense_query",) if "dense" in chosen else ())}
    models: dict[str, Any] = {}
    for output in _MODELS:
        name, model = (lineage.options or {}).get(output), lineage.models.get(output)
        if name is None or output in replaced:
            continue
        if name in NONE:
            models[output] = "none"
        elif model is not None:
            flag = f"--{output.replace('_', '-')}"
            if (folder := local_folder(model)) is None:
                hint = f"Name its folder with {flag}, or add --defaults to build without the options of the live generation."
                raise UsageError(f"{lineage.name!r} was built with {flag} {model.name}, and this host has no such model.", hint)
            models[output] = folder
    return models


def _without_contradictions(values: dict[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Remove options of the live generation that contradict those of the command, whose models decide which signals there are."""
    off = {output for output in ("weights", "dense") if chosen.get(output, chosen.get("model")) in NONE}
    on = {output for output in ("weights", "dense") if chosen.get(output, chosen.get("model")) not in {None, *NONE}}
    if signals := values.get("signals"):
        left = tuple(name for name in signals if signal_class(name).needs not in off)
        if on <= {signal_class(name).needs for name in left} and left:
            values["signals"] = left
        else:
            del values["signals"]
    signals = chosen.get("signals") or values.get("signals")
    needed = {signal_class(name).needs for name in signals} if signals else {"weights", "dense"}
    lacking = {output for output in ("weights", "dense") if output not in needed or {**values, **chosen}.get(output) in NONE}
    useless = {"weights": ("prune",), "dense": ("vectors", "dense_query")}
    return {name: value for name, value in values.items() if not any(name in useless[output] for output in lacking)}


def in_flags(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert option name -> value to flag -> value in words."""
    settings = build_settings()
    return {settings[name].flag: in_words(value) for name, value in values.items() if name in settings}


def shown(lineage: Lineage) -> dict[str, str]:
    """Return the options that a generation was built with, as flag -> value in words."""
    stored = lineage.options or {}
    return in_flags({name: stored[name] for name in _MODELS if name in stored} | of_generation(lineage))


def differences(lineage: Lineage, planned: BuildPlan, source: Source | None = None) -> str:
    """Describe how a planned build differs from a generation: in options, models and, if a source is given, the source; "": in nothing."""
    usual = {
        name: getattr(BuildOptions(), name)
        for name, setting in build_settings().items()
        if setting.fixed
        and (source is None or setting.fingerprint != "never")
        and (lineage.options is not None or setting.stored)  # an earlier version stored only what the documents tell
    }
    analyzer = lineage.signals.get("lexical", {}).get("analyzer")
    before = usual | of_generation(lineage) | _resolved(lineage.models, lineage.signals, analyzer)
    analyzer = planned.analyzer if "lexical" in planned.signals else None
    now = {name: planned.stored.get(name, value) for name, value in usual.items()}
    old, new = in_flags(before), in_flags(now | _resolved(planned.models, planned.signals, analyzer))
    if source is not None:
        first, second = ({"source": f"{each['name']} ({each['fingerprint'][:8]})"} for each in (lineage.source, source.origin))
        old, new = first | old, second | new
    return "; ".join(f"{part} was {clipped(old[part])} and is {clipped(new[part])}" for part in new if old[part] != new[part])


def _resolved(models: Mapping[str, Any], signals: Collection[str], analyzer: str | None) -> dict[str, Any]:
    """Return the models, signals and analyzer of a build, under the names of the options that led to them."""
    shown = {output: f"{models[output].name} ({models[output].hash[:8]})" if output in models else None for output in _MODELS}
    return {**shown, "signals": sorted(signals), "analyzer": analyzer}


def refuse_other(engine: Engine, live: LiveGeneration, options: BuildOptions, names: Collection[str]) -> None:
    """Check that an update keeps the options of its generation: an option with the same value is accepted.

    Args:
        engine: The server.
        live: The generation to update.
        options: The options of the command.
        names: Names of the options that the command gives; all other options are as the generation has them.

    Raises:
        UsageError: An option has another value than the generation; the message names both.
    """
    for name, setting in build_settings().items():
        if not setting.fixed or name not in names:
            continue
        value = getattr(options, name)
        stored = setting.stored(live.lineage) if setting.stored else _in_index(engine, live, name)
        if isinstance(value, Mapping):  # of a file only what differs
            keys = [key for key, part in value.items() if part != stored.get(key) and as_text(part) != as_text(stored.get(key))]
            stored, value = ({key: each.get(key) for key in keys} for each in (stored, value))
        if stored != value:
            raise _changed(setting.flag, clipped(in_words(stored)), clipped(in_words(value)))
    for output in ("weights", "dense"):
        if flag := next((f"--{name}" for name in (output, "model") if name in names), ""):
            _check_model(live.lineage, output, getattr(options, output), flag)


def _in_index(engine: Engine, live: LiveGeneration, name: str) -> Any:
    """Read an option of a generation from its index, by name: the mapping, the settings, or the number of shards or replicas."""
    if name == "mapping":
        return _mapping(engine, live)
    settings = _settings(engine, live.index)
    return settings if name == "settings" else int(settings[f"index.number_of_{name}"])


def _settings(engine: Engine, index: str) -> dict[str, Any]:
    settings: dict[str, Any] = engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
    return settings


def _check_model(lineage: Lineage, output: str, model: str | Path | None, flag: str) -> None:
    """Check that a model is the one that the generation was built with: an update can use no other model."""
    stored = lineage.models.get(output)
    name = "none" if model in NONE else str(model or DEFAULT)
    manifest = None if model in NONE else read_folder(resolve(name), check=False, name=name).manifest
    if (stored.hash if stored else None) != (manifest.hash if manifest else None):
        built = f"{stored.name} ({stored.hash})" if stored else "no model"
        raise _changed(flag, built, f"{name} ({manifest.hash})" if manifest else "no model")


def _changed(flag: str, before: str, now: str) -> UsageError:
    """Return the error for an update with another value of an option than the live generation was built with."""
    hint = f"To update, remove {flag}; to build anew, remove --update."
    return UsageError(f"An update cannot change {flag}: the live generation was built with {before}, not {now}.", hint)


def options_of(engine: Engine, live: LiveGeneration, models: Mapping[str, Any]) -> BuildOptions:
    """Return the options of a build that makes a generation again with other models.

    Args:
        engine: The server.
        live: The generation.
        models: "weights", "dense" and "dense_query" -> model, as far as they are not the shipped ones.

    Raises:
        UsageError: The generation keeps the mapping of its source, or an earlier version built it with a user's own analyzers or similarities.
    """
    lineage, settings = live.lineage, _settings(engine, live.index)
    obstacle = "--keep-mapping" if "kept" in lineage.source else ""
    if lineage.options is None:
        usual = lineage.layout.settings()
        if any(name.startswith(("index.analysis.", "index.similarity.")) and name not in usual for name in settings):
            obstacle = "--settings"
    if obstacle:
        message = f"{lineage.name!r} was built with {obstacle}, so that only the user's own 'termweave index' command can build it again."
        raise UsageError(message, "Train a model with 'termweave train', and run that command with --weights MODEL.")
    values = of_generation(lineage) | {"mapping": _mapping(engine, live)}
    values |= {name: setting.stored(lineage) for name, setting in build_settings().items() if setting.stored}
    values |= {name: int(settings[f"index.number_of_{name}"]) for name in ("shards", "replicas")}
    return BuildOptions(**values, **models)
