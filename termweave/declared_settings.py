"""Settings that are declared once, as annotated fields of a frozen dataclass, from which checks, help, docs and signatures are made.

    @dataclass(frozen=True)
    class Sending:
        workers: Annotated[int, Setting("Connections that send at the same time."), Ge(1), Le(64)] = 4

The annotations of pydantic hold: `Literal` for choices, `annotated_types` for ranges, a validator of `pydantic` for everything else. A subclass
that repeats a field without a `Setting` (``workers: int = 8``) changes only its default. The types in annotations are needed at run time: a
module of declarations imports them outside of ``if TYPE_CHECKING``, or declares a type there as `Any` and checks it in `Setting.convert`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property
from inspect import get_annotations
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from termweave.errors import UsageError
from termweave.support.arguments import check_names

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_Record = TypeVar("_Record")
#: The type of a pydantic error, or its beginning -> what the value must be.
_MUST_BE = {
    "greater_than_equal": "at least {ge:,.10g}",
    "greater_than": "above {gt:,.10g}",
    "less_than_equal": "at most {le:,.10g}",
    "less_than": "below {lt:,.10g}",
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "string": "a text",
    "dict": "a JSON object",
    "tuple": "a list",
    "too_short": "a list of at least {min_length}",
}
#: The largest whole number that Java, orjson and SQLite all take.
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Setting:
    """The help, the flag and the conversion of a setting: the texts that people read about it, and the ways in which they write it.

    Attributes:
        help: One or more sentences.
        metavar: Placeholder of the value in `--help`; None: the placeholder is made of the type.
        default_text: Text of `--help` about a default that is computed; None: `--help` shows the default itself.
        heading: Heading above the setting; "": the `heading` of the class that declares it, or else of the class that inherits it.
        flag: The flag of the command line, such as ``--loading/--no-loading``; "": the flag is made of the name.
        convert: Function that converts a given value, or raises `UsageError`; the type is checked afterwards. The function returns a
            value that it does not know unchanged.
        repeatable: Whether the option is repeated on the command line for each entry of a list.
        served: Whether pages and API take the setting: not if its value opens a file or a model, writes, or asks for seconds of work.
        control: Label on the search page; None: the label is made of the name; "": the page has no general control for the setting.
        example: Text that the page's control shows while it is empty.
        suggests: Values that the page's control suggests: "fields" for fields of the metadata; "": it suggests nothing.
    """

    help: str
    metavar: str | None = None
    default_text: str | None = None
    heading: str = ""
    flag: str = ""
    convert: Callable[[Any], Any] | None = None
    repeatable: bool = False
    served: bool = True
    control: str | None = None
    example: str = ""
    suggests: str = ""


@dataclass(frozen=True)
class DeclaredSetting:
    """A setting that a record (a frozen dataclass) declares.

    Attributes:
        name: Name of the field.
        annotation: Type of the setting, with all metadata of `Annotated`.
        default: Default of the setting; None: it has no default, or the default is None.
        heading: Heading above the setting.
        setting: Help, flag and conversion of the setting.
    """

    name: str
    annotation: Any
    default: Any
    heading: str
    setting: Setting

    @cached_property
    def types(self) -> tuple[Any, ...]:
        """The types of the value without their metadata and without None: ``(int,)``, ``(Literal["a", "b"],)``."""
        return tuple(_plain(self.annotation))

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values that the setting may have, as texts; (): the values are not a fixed list."""
        return tuple(str(value) for kind in self.types if get_origin(kind) is Literal for value in get_args(kind))

    @property
    def type_name(self) -> str:
        """The name of the type: bool, int, float, str, or list."""
        kind = str if self.choices else self.types[0]
        return "list" if get_origin(kind) in (tuple, Sequence) else kind.__name__

    @property
    def flag(self) -> str:
        """The setting's flag on the command line, as messages name it."""
        return (self.setting.flag or f"--{self.name.replace('_', '-')}").partition("/")[0]

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415 - 70 ms

        return TypeAdapter(self.annotation, config=ConfigDict(allow_inf_nan=False, arbitrary_types_allowed=True))

    def parse(self, value: object) -> Any:
        """Convert a value from the command line, a file or Python to the setting's type, and check it.

        Args:
            value: A text, which is converted to the type of the setting (a list has commas), or a value that has this type.

        Raises:
            UsageError: The value is not allowed.
        """
        if not isinstance(value, str):
            return self.check(value)
        parts = tuple(part.strip() for part in value.split(",") if part.strip())
        return self._validated(parts if self.type_name == "list" else value, strict=False)

    def check(self, value: object) -> Any:
        """Check a value that has the setting's type already, and return it; a list may stand for a tuple, a numpy number for a Python number.

        Raises:
            UsageError: The value is not allowed.
        """
        if getattr(value, "shape", None) == ():
            value = value.item()  # type: ignore[attr-defined]
        return self._validated(tuple(value) if isinstance(value, list) else value, strict=True)

    def _validated(self, value: object, *, strict: bool) -> Any:
        from pydantic import ValidationError  # noqa: PLC0415 - 70 ms

        if self.setting.convert is not None:
            value = self.setting.convert(value)
        try:
            return self._adapter.validate_python(value, strict=strict)
        except ValidationError as error:
            shown = written(value) or "empty"
            raise UsageError(f"{self.name} must be {self._must_be(error)}, not {shown}.", self.setting.help) from None

    def _must_be(self, error: Any) -> str:
        """Say what the value must be, by the first error that pydantic reports."""
        if self.choices:
            *first, last = self.choices
            return f"{', '.join(first)} or {last}" if first else last
        details = error.errors(include_url=False)[0]
        kinds = [details["type"], details["type"].partition("_")[0]]
        return next((_MUST_BE[kind].format(**details.get("ctx", {})) for kind in kinds if kind in _MUST_BE), details["msg"])


def written(value: object) -> str:
    """Write a setting's value as a text that the command line takes."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _plain(annotation: Any) -> list[Any]:
    if annotation is NoneType or annotation is None:
        return []
    if hasattr(annotation, "__metadata__"):
        return _plain(annotation.__origin__)
    if get_origin(annotation) in (None, Literal, tuple, Sequence):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _plain(part)]


def settings_of(record: type[Any]) -> Mapping[str, DeclaredSetting]:
    """Return the declared settings of a record as name -> setting: first the settings of the class itself, then those of its base classes."""
    return _settings_of(record)  # type: ignore[arg-type]  # mypy takes a class for unhashable where its instances are


@cache
def _settings_of(record: type[Any]) -> Mapping[str, DeclaredSetting]:
    defaults = {field.name: None if field.default is MISSING else field.default for field in fields(record)}
    settings: dict[str, DeclaredSetting] = {}
    for owner in record.__mro__:
        for name, annotation in get_annotations(owner, eval_str=True).items():
            setting = next((each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Setting)), None)
            if setting is not None and name not in settings:
                heading = setting.heading or getattr(owner, "heading", getattr(record, "heading", ""))
                settings[name] = DeclaredSetting(name, annotation, defaults[name], heading, setting)
    return settings


def parse(record: type[_Record], values: Mapping[str, object], subject: str = "") -> _Record:
    """Make a record from values for its settings; texts are converted.

    Args:
        record: The dataclass.
        values: Name -> value; a setting without a value gets its default.
        subject: Begins the message about a name that does not exist: "The method coder has".

    Raises:
        UsageError: A name does not exist, or a value is not allowed.
    """
    check_names(values, record, subject or f"{record.__name__} has")
    declared = settings_of(record)
    return record(**{name: declared[name].parse(value) if name in declared else value for name, value in values.items()})


def check(record: object) -> None:
    """Check all settings of a record, and replace each value by its conversion (`Setting.convert`).

    Raises:
        UsageError: A value is not allowed.
    """
    for name, setting in settings_of(type(record)).items():
        object.__setattr__(record, name, setting.check(getattr(record, name)))


def share(value: object) -> Any:
    """Convert a percentage to a share: "0.1%" to 0.001. Anything but a text is returned unchanged.

    Raises:
        UsageError: The text is not a percentage from 0% to 100%.
    """
    if not isinstance(value, str):
        return value
    number = number_in(value)
    if not (value.endswith("%") and 0 <= number <= 1):
        raise UsageError(f"{value!r} is not a percentage.", "Write 0.1% or 5%.")
    return number


def number_in(text: str) -> float:
    """The number in a text, of which a percentage is a hundredth; -1: the text holds neither."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return -1.0
