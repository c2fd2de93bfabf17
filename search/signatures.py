"""Let methods that take a record of options be called with the record's fields as keyword arguments, visible to type checkers and notebooks."""

from __future__ import annotations

import functools
import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from termweave.errors import UsageError
from termweave.support.arguments import check_names

if TYPE_CHECKING:
    from collections.abc import Callable

_Fields = ParamSpec("_Fields")
_Record_co = TypeVar("_Record_co", covariant=True)
_Self = TypeVar("_Self")
_First = TypeVar("_First")
_Second = TypeVar("_Second")
_Result = TypeVar("_Result")


class _Decorator(Protocol[_Fields, _Record_co]):
    """The type of a decorator that replaces the last argument of a method, a record, by keyword arguments."""

    @overload
    def __call__(
        self, method: Callable[[_Self, _First, _Record_co], _Result]
    ) -> Callable[Concatenate[_Self, _First, _Fields], _Result]: ...
    @overload
    def __call__(
        self, method: Callable[[_Self, _First, _Second, _Record_co], _Result]
    ) -> Callable[Concatenate[_Self, _First, _Second, _Fields], _Result]: ...


def with_options(record: Callable[_Fields, _Record_co], default: str | None = None) -> _Decorator[_Fields, _Record_co]:
    """Make a decorator for methods whose last argument is a record of options: callers give the fields of the record as keyword arguments.

    The decorated method has a signature and a documentation with the record's fields.

    Args:
        record: The class of the record, a dataclass. Its base classes describe their fields under "Attributes:".
        default: Default value of the method's first argument; None: the argument has no default.
    """
    options_class: type[Any] = record  # type: ignore[assignment]

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        this, *arguments, _ = inspect.signature(method).parameters.values()
        if default is not None:
            arguments[0] = arguments[0].replace(default=default)
        names = [each.name for each in arguments]

        @functools.wraps(method)
        def call(self: Any, *positional: Any, **keywords: Any) -> Any:
            if len(positional) > len(names):
                example = f"k={positional[-1]!r}" if hasattr(options_class, "k") else 'mode="lexical"'
                raise UsageError(f"{method.__name__}() takes its options by name.", f"Write {example}, for example.")
            first = {name: keywords.pop(name) for name in names if name in keywords}
            if default is not None and not positional:
                first.setdefault(names[0], default)
            check_names(keywords, options_class, "A search has", names)
            return method(self, *positional, **first, options=options_class(**keywords))

        options = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
            for each in fields(options_class)
        ]
        vars(call)["__signature__"] = inspect.signature(method).replace(parameters=[this, *arguments, *options])
        described = "".join(_described(each) for each in reversed(options_class.__mro__))
        call.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\nOptions:\n{described}"
        return call

    return decorate


def _described(record: type[Any]) -> str:
    """The description of the fields of one class, from its docstring, indented for another docstring."""
    _, heading, entries = (record.__doc__ or "").partition("Attributes:\n")
    return "".join(f"{line[4:]}\n" for line in entries.rstrip().splitlines()) if heading else ""
