"""Collect the entries of the standard library: modules, classes, functions and methods with a public name.

Every object has one name. Names are collected first, then the methods of the classes among them. A method belongs to the class that
defines it, and a method of a private base class to the public class below it (`pathlib.PurePath.suffix` is defined in a private class in
some versions of Python and not in others; its name is the same in all).
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
import sys
import types
import warnings
from contextlib import redirect_stdout
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from termweave.corpora.demo.allowed_modules import HIDDEN, HOMES, PREFERRED, SUBMODULES, TOP_LEVEL, UNLISTED

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
#: Docstrings that Python generates.
_SAYS_NOTHING = re.compile(r"Alias for field number \d+|partial\(func, .*|list of weak references.*")
_ROUTINES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_SELF = re.compile(r"^\(\$?(self|cls|module|type)(, /)?(, |(?=\)))")
_PATH = re.compile(r"""=(['"])(/|[A-Za-z]:\\).{7,}?\1""")
#: Functions that modules define for `python -m`.
_SCRIPTS = frozenset({"main", "test", "usage"})
_LONGEST_SIGNATURE = 200


@dataclass(frozen=True, slots=True)
class LibraryEntry:
    """One documented name.

    Attributes:
        name: Qualified name: ``threading.Timer``, ``str.join`` (for builtins without the module).
        module: Module that offers the name.
        kind: module, class, exception, function, method, property or special form.
        signature: ``(interval, function, args=None)``; empty if Python does not know it.
        doc: Docstring without indentation, else the comment above the definition; may be empty.
        aliases: Other public names of the same object, in any module.
    """

    name: str
    module: str
    kind: str
    signature: str
    doc: str
    aliases: tuple[str, ...] = ()


def entries() -> list[LibraryEntry]:
    """All documented names, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names are included
        walk = _Walk()
        listed = sorted(walk.entries(), key=lambda entry: entry.name)
    return [replace(entry, aliases=tuple(sorted(set(walk.aliases.get(entry.name, ()))))) for entry in listed]


def write(stream: BinaryIO) -> None:
    """Write `entries` as a JSON array of their fields. The output of modules that print when imported is discarded."""
    with redirect_stdout(io.StringIO()):
        listed = entries()
    stream.write(json.dumps([astuple(entry) for entry in listed]).encode())


class _Walk:
    def __init__(self) -> None:
        self.aliases: dict[str, list[str]] = {}
        self._names: dict[tuple[int, ...], str] = {}
        self._kept: list[Any] = []
        self._classes: dict[type, tuple[str, str]] = {}

    def entries(self) -> Iterator[LibraryEntry]:
        for name in PREFERRED:
            module_name, _, own = name.rpartition(".")
            cls = getattr(_import(module_name), own, None)
            if isinstance(cls, type):
                self._classes[cls] = name, module_name
        functions: list[LibraryEntry] = []
        for name in (*TOP_LEVEL, *SUBMODULES):
            module = _import(name)
            if module is None:
                continue
            yield LibraryEntry(name, name, "module", "", _clean(module.__doc__))
            functions.extend(self._members(module, name))
        yield from functions
        for cls, (name, module_name) in self._classes.items():
            kind = "exception" if issubclass(cls, BaseException) else "class"
            yield LibraryEntry(name, module_name, kind, _signature(cls), _class_doc(cls))
            yield from self._methods(cls, name, module_name)

    def _members(self, module: types.ModuleType, module_name: str) -> Iterator[LibraryEntry]:
        """The functions of a module; its classes are stored for later."""
        for name in _public(module, module_name):
            member = getattr(module, name, None)
            qualified = name if module_name == "builtins" else f"{module_name}.{name}"
            if isinstance(member, type):
                if qualified not in HIDDEN and self._classes.setdefault(member, (qualified, module_name))[0] != qualified:
                    self.aliases.setdefault(self._classes[member][0], []).append(qualified)
            elif isinstance(member, _ROUTINES) or _is_wrapped(member):
                if (known := self._names.get(self._key(member))) is not None:
                    self.aliases.setdefault(known, []).append(qualified)
                elif self._first(member, qualified):
                    doc = _clean(inspect.getdoc(member)) or _comment(member)
                    yield LibraryEntry(qualified, module_name, "function", _signature(member), doc)
            elif type(member).__name__ == "_SpecialForm":  # for example typing.Optional
                yield LibraryEntry(qualified, module_name, "special form", "", _clean(member.__doc__))

    def _methods(self, cls: type, class_name: str, module_name: str) -> Iterator[LibraryEntry]:
        done: set[str] = set()
        for base in cls.__mro__:
            if base is not cls and (base is object or base in self._classes or self._has_nearer_owner(cls, base)):
                continue
            for name, member in sorted(vars(base).items()):
                if name.startswith("_") or name in done or isinstance(member, type):
                    continue
                done.add(name)
                kind = "property" if isinstance(member, property) or inspect.isdatadescriptor(member) else "method"
                inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
                if kind == "method" and not (callable(inner) or inspect.ismethoddescriptor(inner)):
                    continue
                doc = _method_doc(cls, name, inner)
                # Hundreds of fields have no docstring and are left out; a method without one still has a name and parameters.
                if (doc or kind == "method") and self._first(inner, class_name):
                    signature = _signature(inner) if kind == "method" else ""
                    yield LibraryEntry(f"{class_name}.{name}", module_name, kind, signature, doc)

    def _has_nearer_owner(self, cls: type, base: type) -> bool:
        """Whether another public class above `cls` also inherits from the private `base`, whose methods are then listed there."""
        return any(other is not cls and other in self._classes and issubclass(other, base) for other in cls.__mro__)

    def _first(self, member: Any, name: str) -> bool:
        """Whether this object is found for the first time; later names are aliases."""
        key = self._key(member)
        if key in self._names:
            return False
        self._names[key] = name
        if isinstance(member, types.MethodType):  # random.choice is Random.choice of one instance; secrets.choice of another
            self._names.setdefault((id(member.__func__),), name)
        return True

    def _key(self, member: Any) -> tuple[int, ...]:
        self._kept.append(member)  # a bound method is a new object at each access: kept, so that its id is not used again
        return (id(member.__func__), id(member.__self__)) if isinstance(member, types.MethodType) else (id(member),)


def _import(name: str) -> types.ModuleType | None:
    if name.partition(".")[0] not in sys.stdlib_module_names:
        return None
    try:
        return importlib.import_module(name)
    except (ImportError, OSError):  # not on this platform, or not in this build
        return None


def _public(module: types.ModuleType, module_name: str) -> list[str]:
    """The public names of a module, with the own name of an object before its aliases.

    These are the names in ``__all__``, or without ``__all__`` those that the module defines or imports from a private module
    (``datetime`` from ``_datetime``).
    """
    listed = getattr(module, "__all__", ())
    names = dict.fromkeys((*vars(module), *listed))

    def offered(name: str) -> bool:
        if f"{module_name}.{name}" in UNLISTED:
            return True
        if name.startswith("_"):
            return False
        if listed or name in _SCRIPTS:
            return name in listed
        home = getattr(vars(module)[name], "__module__", None) or module_name
        return module_name == "builtins" or home in {module_name, module.__name__, HOMES.get(module_name)} or _is_private(home)

    def is_alias(name: str) -> bool:
        return getattr(getattr(module, name, None), "__name__", name) != name

    return sorted(filter(offered, names), key=lambda name: (f"{module_name}.{name}" not in PREFERRED, is_alias(name)))


def _is_private(home: Any) -> bool:
    return isinstance(home, str) and any(part.startswith("_") for part in home.split("."))


def _is_wrapped(member: Any) -> bool:
    """Whether this is a callable object around a function, as functools.cache and singledispatch make."""
    return callable(member) and hasattr(member, "__wrapped__")


def _class_doc(cls: type) -> str:
    """The docstring of a class, followed by that of its constructor."""
    docs = [_clean(vars(cls).get("__doc__"))]
    constructor = vars(cls).get("__init__")
    if isinstance(constructor, types.FunctionType):
        docs.append(_clean(constructor.__doc__))
    return "\n\n".join(filter(None, docs))


def _method_doc(cls: type, name: str, member: Any) -> str:
    doc = _clean(getattr(member, "__doc__", None))
    if not doc and isinstance(member, property | types.FunctionType):
        # An override without a docstring has that of the overridden method, as in inspect.
        doc = _clean(inspect.getdoc(getattr(cls, name, member)))
    return doc or _comment(member)


def _comment(member: Any) -> str:
    """The comment above a function without a docstring, as pydoc shows it."""
    if not isinstance(member, types.FunctionType):
        return ""
    try:
        comment = inspect.getcomments(member) or ""
    except (OSError, TypeError, SyntaxError):  # the source is not installed
        return ""
    return "\n".join(line.lstrip("#").strip() for line in comment.splitlines()).strip("-= \n")


def _clean(doc: Any) -> str:
    if not isinstance(doc, str):
        return ""
    doc = _ADDRESS.sub("", inspect.cleandoc(doc)).strip()
    return "" if _SAYS_NOTHING.fullmatch(doc) else doc


def _signature(member: Any) -> str:
    try:
        signature = _ADDRESS.sub("", str(inspect.signature(member)))
    except Exception:  # noqa: BLE001 - inspect evaluates what C modules write as their defaults, and names there may be missing
        return ""
    signature = _PATH.sub("=...", signature)
    signature = _SELF.sub("(", signature)
    return signature if len(signature) <= _LONGEST_SIGNATURE else "(...)"
