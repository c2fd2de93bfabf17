"""How the live generation is made: an update keeps it, and a build says what it does not keep.

For an update an option that says the same is fine, and another value is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError
from termweave.search import lineage
from termweave.signals.pruning import Pruning
from termweave.words import clipped

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from termweave.engine import Engine
    from termweave.indexer.plan import Options


def check(engine: Engine, index: str, options: Options, flags: Collection[str]) -> None:
    """Refuse options under which a build would have made another generation.

    Args:
        engine: Where.
        index: The live generation.
        options: What was asked for.
        flags: Which of it: "--shards". All else is as the generation has it.

    Raises:
        UsageError: A value is another one; both are named.
    """
    made = lineage.read(engine, index)
    asked = _asked(options)
    for flag in flags:
        held = _held(engine, index, made, flag, asked[flag])
        if held != asked[flag]:
            raise UsageError(
                f"An update keeps what the live generation is made with: {flag} is {_shown(held)} there and {_shown(asked[flag])} here.",
                f"To update, leave out {flag}; to build anew, leave out --update.",
            )


def left_out(made: lineage.Lineage, options: Options, flags: Collection[str]) -> list[str]:
    """What a build leaves out without a word: "--neighbours 5", where the live generation is made so.

    Args:
        made: The lineage of the live generation.
        options: Of the build.
        flags: Those that were given, whatever they say.
    """
    held, asked = _told(made), _asked(options)
    silent = [flag for flag in ("--prune", "--passage-size", "--neighbours", "--saturation") if flag not in flags]
    return [f"{flag} {_shown(held[flag])}" for flag in silent if held[flag] != asked[flag]]


def _asked(options: Options) -> dict[str, Any]:
    cut = options.passages
    return {
        "--signals": sorted(options.signals or ()),
        "--analyzer": options.analyzer,
        "--prune": str(options.prune),
        "--passage-size": cut.size if cut else 0,
        "--passage-stride": cut.stride if cut else 0,
        "--neighbours": options.neighbours,
        "--saturation": options.saturation or "none",
        "--shards": str(options.shards),
        "--replicas": str(options.replicas),
        "--settings": {key: _as_told(value) for key, value in options.settings.items()},
        "--mapping": options.mapping,
    }


def _held(engine: Engine, index: str, made: lineage.Lineage, flag: str, asked: Any) -> Any:
    """What the generation has in place of what a flag says; of files that name some of it only that."""
    if flag == "--mapping":
        mapping = engine.request("GET", f"/{index}/_mapping")[index]["mappings"]
        told = engine.request("GET", f"/{index}/_mapping/field/*", params={"include_defaults": True})[index]["mappings"]
        whole = {name: field["mapping"][name.rpartition(".")[2]] for name, field in told.items() if field["mapping"]}
        return asked if _holds(mapping, asked, whole) else {key: mapping.get(key) for key in asked}
    if flag in {"--settings", "--shards", "--replicas"}:
        settings = engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
        if flag == "--settings":
            return {key: settings.get(key) for key in asked}
        return settings[f"index.number_of_{flag.removeprefix('--')}"]
    return _told(made)[flag]


def _told(made: lineage.Lineage) -> dict[str, Any]:
    """What a lineage says of flags."""
    pruned = next((each for each in made.signals.values() if "prune_share" in each), {})
    return {
        "--signals": sorted(made.signals),
        "--analyzer": made.signals.get("lexical", {}).get("analyzer", "none"),
        "--prune": str(Pruning(pruned.get("prune_share", 0.0), pruned.get("prune_below", 0.0))),
        "--passage-size": made.passages.get("size", 0),
        "--passage-stride": made.passages.get("stride", 0),
        "--neighbours": made.neighbours,
        "--saturation": made.signals.get("weights", {}).get("saturation") or "none",
    }


def _holds(held: Any, asked: Any, whole: Mapping[str, Any], path: str = "") -> bool:
    """Whether a part of a mapping says what was asked for.

    Args:
        held: As the engine tells it: what is its default it leaves out, and what an object with properties is.
        asked: As a user wrote it.
        whole: Full name of a field -> all it is, defaults included.
        path: Of objects that hold the properties, with a dot behind each.
    """
    if not (isinstance(held, dict) and isinstance(asked, dict)):
        return bool(_as_told(held) == _as_told(asked))
    for key, value in asked.items():
        if key == "properties":
            inside = held.get(key, {})
            names = {name: f"{path}{name}" for name in value}
            if not all(_holds(whole.get(full, inside.get(name)), value[name], whole, f"{full}.") for name, full in names.items()):
                return False
        elif not ((key, value) == ("type", "object") and key not in held) and not _holds(held.get(key), value, {}):
            return False
    return True


def _as_told(value: Any) -> Any:
    """A value as the engine tells it: all in strings."""
    if isinstance(value, list):
        return [_as_told(each) for each in value]
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _shown(value: Any) -> str:
    return clipped(
        value if isinstance(value, str) else ",".join(value) if isinstance(value, list) else orjson.dumps(value).decode()
    )
