"""The fields of a document that hold the id, the title and the text: their usual names, names that a user gave, and how their values are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ID_KEYS = ("_id", "id", "docid", "doc_id")
TEXT_KEYS = ("text", "contents", "body", "content")
TITLE_KEY = "title"


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields that the user named for id, title and text, because they have unusual names.

    Attributes:
        id: Field of the id; None: the first field with a usual name.
        title: Field of the title; None: ``title``.
        text: Fields of the text, joined by line ends in this order; (): the first field with a usual name.
    """

    id: str | None = None
    title: str | None = None
    text: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.named())

    def named(self) -> tuple[str, ...]:
        """All fields that the user named."""
        return tuple(name for name in (self.id, self.title, *self.text) if name)


def text_at(source: Mapping[str, Any], path: str) -> str:
    """Return the text of a field of a `_source`, given its dotted path; "": there is no such field, or the field holds an object."""
    try:
        return text_of(take(dict(source), path)) or ""
    except ObjectValue:
        return ""


def take(entry: dict[str, Any], path: str) -> Any:
    """Remove a field, given its dotted path, from an entry and return the field's value; objects on the path are copied, lists of objects give a list."""
    if path in entry:
        return entry.pop(path)
    head, dot, rest = path.partition(".")
    if not dot or head not in entry:
        return None
    inner = entry[head]
    if isinstance(inner, dict):
        entry[head] = inner = dict(inner)
        value = take(inner, rest)
        if not inner:
            del entry[head]
        return value
    if isinstance(inner, list):
        copies = [dict(each) if isinstance(each, dict) else each for each in inner]
        entry[head] = copies
        return [value for each in copies if isinstance(each, dict) and (value := take(each, rest)) is not None]
    return None


class ObjectValue(TypeError):
    """A field holds an object where a text should be.

    Attributes:
        inner: Name of the object's first field.
    """

    def __init__(self, inner: str) -> None:
        super().__init__(inner)
        self.inner = inner


def text_of(value: Any) -> str | None:
    """Convert a value to the text that the index itself reads: lists line by line, numbers and dates as they are written; None: there is no value.

    Raises:
        ObjectValue: The value is an object, or a list with one.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(text for each in value if (text := text_of(each)))
    if isinstance(value, dict):
        raise ObjectValue(next(iter(value), "NAME"))
    import orjson  # noqa: PLC0415 - most values are texts

    return orjson.dumps(value).decode()
