"""The kinds of values that build options take: how a flag's text is read, which values are allowed, and what a message calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.indexer.preparation.passages import Window
    from termweave.search.catalog.lineage import Lineage
    from termweave.signals.pruning import Pruning

#: The largest number that Java, orjson and SQLite all take.
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Values:
    """The values that an option takes.

    Attributes:
        noun: What they are, for a message: "a whole number".
        types: Python's types of them.
        home: "MODULE:CLASS" of a further type, which is imported when a value is checked.
        example: One of them, as Python writes it.
        minimum: The smallest number; None: no bound.
        maximum: The largest number; None: no bound.
        parse: Reads the text of a flag; raises ValueError or `UsageError`.
        items: Type of what a list holds; such a list is not empty.
    """

    noun: str
    types: tuple[type, ...]
    example: str
    minimum: float | None = None
    maximum: float | None = None
    parse: Callable[[str], Any] = str
    home: str = ""
    items: type | None = None

    def __str__(self) -> str:
        if self.minimum is None:
            return self.noun
        if self.maximum is None:
            return f"{self.noun} of at least {self.minimum:g}"
        return f"{self.noun} from {self.minimum:g} to {self.maximum:,.10g}"

    def allow(self, value: object) -> bool:
        """Whether a value may be given. True and False are no numbers, and neither is nan."""
        module, _, name = self.home.partition(":")
        types = (*self.types, getattr(import_module(module), name)) if module else self.types
        if (isinstance(value, bool) and bool not in types) or not isinstance(value, types):
            return False
        if self.items is not None:
            return isinstance(value, tuple | list) and bool(value) and all(isinstance(item, self.items) for item in value)
        if self.minimum is None or not isinstance(value, int | float):
            return True
        return not math.isnan(value) and value >= self.minimum and (self.maximum is None or value <= self.maximum)


def whole_number(minimum: int, maximum: int = LARGEST, example: str = "2") -> Values:
    """Values that are whole numbers within bounds, both included."""
    return Values("a whole number", (int,), example, minimum, maximum, parse=int)


def number(minimum: float, maximum: float | None = None, *, example: str) -> Values:
    """Values that are numbers within bounds, both included."""
    return Values("a number", (int, float), example, minimum, maximum, float)


def share() -> Values:
    """Values from 0 to 1, which a flag takes as a percentage."""
    return Values("a share", (int, float), "0.001", 0, 1, parse=_percentage)


def _percentage(text: str) -> float:
    if not text.endswith("%"):
        raise ValueError(text)
    return float(text.removesuffix("%")) / 100


def pruning(text: str) -> Pruning:
    """Read the value of --prune."""
    from termweave.signals.pruning import Pruning  # noqa: PLC0415 - the command line declares its flags without the signals

    return Pruning.parse(text)


def pruning_of(generation: Lineage) -> str:
    """The value of --prune that a generation was built with."""
    from termweave.signals.pruning import Pruning  # noqa: PLC0415

    pruned: Mapping[str, Any] = next((each for each in generation.signals.values() if "prune_share" in each), {})
    return str(Pruning(pruned.get("prune_share", 0.0), pruned.get("prune_below", 0.0)))


def check_vectors(value: str) -> None:
    """Refuse a type of vectors that there is not.

    Raises:
        UsageError: It is neither "float" nor "byte".
    """
    from termweave.errors import UsageError  # noqa: PLC0415 - not needed by `--help`

    if value not in {"float", "byte"}:
        raise UsageError(f"{value!r} is no type of vectors.", "Write --vectors float or --vectors byte.")


def vectors_of(generation: Lineage) -> str:
    """The value of --vectors that a generation was built with."""
    return "byte" if generation.signals.get("dense", {}).get("byte_scale") else "float"


def window(size: int) -> Window | None:
    """The value of --passage-size; 0: texts stay whole."""
    from termweave.indexer.preparation.passages import Window  # noqa: PLC0415

    return Window(size) if size else None


def passages_of(generation: Lineage) -> str:
    """The value of --passage-size that a generation was built with."""
    from termweave.indexer.preparation.passages import Window  # noqa: PLC0415

    made = generation.passages
    return str(Window(made["size"], made["stride"])) if made else "0"


def _settings_file(path: str) -> dict[str, Any]:
    from termweave.indexer.preparation import user_mapping  # noqa: PLC0415

    return user_mapping.read_settings(Path(path))


def _mapping_file(path: str) -> dict[str, Any]:
    from termweave.indexer.preparation import user_mapping  # noqa: PLC0415

    return user_mapping.read_mapping(Path(path))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse index settings that an option sets."""
    from termweave.indexer.preparation import user_mapping  # noqa: PLC0415

    user_mapping.check_settings(settings, "settings")


def check_mapping(mapping: Mapping[str, Any]) -> None:
    """Refuse a mapping with keys that a user's mapping cannot have."""
    from termweave.indexer.preparation import user_mapping  # noqa: PLC0415

    user_mapping.check_mapping(mapping, "mapping")


def as_json(value: Mapping[str, Any]) -> str:
    """A JSON object on one line; "none" if it is empty."""
    import orjson  # noqa: PLC0415 - not needed by `--help`

    return orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode() if value else "none"


def as_text(value: Any) -> Any:
    """A setting as OpenSearch returns it: every value is a string."""
    if isinstance(value, list):
        return [as_text(item) for item in value]
    import orjson  # noqa: PLC0415 - not needed by `--help`

    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


SWITCH = Values("True or False", (bool,), "True")
VECTORS = Values("'float' or 'byte'", (str,), '"byte"')
TEXT = Values("a text", (str,), '"english"')
MODEL = Values("the name or folder of a model", (str, PathLike), '"./my-model"')
SIGNALS = Values("a list of signal names", (tuple, list), '("lexical", "dense")', parse=_names, items=str)
SETTINGS = Values("a JSON object", (Mapping,), "{...}", parse=_settings_file)
MAPPING = Values("a JSON object", (Mapping,), "{...}", parse=_mapping_file)
PRUNING = Values(
    "a Pruning", (), 'Pruning.parse("30%"), from termweave.signals', parse=pruning, home="termweave.signals.pruning:Pruning"
)
WINDOW = Values(
    "a Window",
    (),
    "Window(160), from termweave.indexer.preparation.passages",
    home="termweave.indexer.preparation.passages:Window",
)
