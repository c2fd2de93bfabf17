"""Signatures for notebooks: functions that take an options record show its fields, with defaults and descriptions."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_Function = TypeVar("_Function", bound="Callable[..., Any]")
_ENTRY = re.compile(r"^        (\w+): ", re.MULTILINE)


def with_options(record: type[Any]) -> Callable[[_Function], _Function]:
    """Give a function with ``**options`` the signature and the documentation of an options record.

    Args:
        record: The record, a dataclass. Its classes describe their fields under "Attributes:".
    """

    def decorated(function: _Function) -> _Function:
        signature = inspect.signature(function)
        kept = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields(record)
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*kept, *options])
        described = "".join(_described(each) for each in reversed(record.__mro__))
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n{described}"
        return function

    return decorated


def _described(record: type[Any]) -> str:
    """The descriptions of the fields of one class, indented."""
    _, found, entries = (record.__doc__ or "").partition("Attributes:\n")
    return "".join(f"{line[4:]}\n" for line in entries.rstrip().splitlines()) if found else ""
