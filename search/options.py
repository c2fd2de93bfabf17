"""What a search takes besides the query: named for editors and type checkers, and checked before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import orjson

from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.search.ranking import Reranking


class Options(TypedDict, total=False):
    """The arguments of `Index.answer` besides the query; it says what they mean."""

    like: Sequence[str]
    k: int
    mode: str | None
    rerank: str | None
    candidates: int
    start: int
    fields: Sequence[str]
    where: Sequence[Mapping[str, Any]]
    reranking: Reranking | None
    explain: bool
    highlight: bool
    two_phase: bool
    server_fusion: bool


class ManyOptions(TypedDict, total=False):
    """The arguments of `batch.run` besides the queries; it says what they mean."""

    mode: str | None
    rerank: str | None
    k: int
    candidates: int
    where: Sequence[Mapping[str, Any]]
    reranking: Reranking | None
    workers: int
    name: str


def checked(
    query: object, *, like: Any = (), fields: Any = (), where: Any = ()
) -> tuple[list[str], list[str], list[Mapping[str, Any]]]:
    """`like`, `fields` and `where` as lists: each is read more than once, and what can be read once only would then mean nothing.

    Raises:
        UsageError: It is what Python would take apart, a text where a list of texts is meant or one filter where several are; or
            what nobody can send.
    """
    if not isinstance(query, str):
        raise UsageError(f"A query is text, not {type(query).__name__}.", "Queries that are encoded already go to `candidates`.")
    if isinstance(where, Mapping | str):
        raise UsageError("where is a list of filters, not one.", "Write where=[...] around it.")
    found, names, filters = _listed("like", "ids", like), _listed("fields", "names", fields), _listed("where", "filters", where)
    if wrong := [each for each in found if not isinstance(each, str)]:
        raise UsageError(f"The id of a document is text, not {type(wrong[0]).__name__}.", f"Write {str(wrong[0])!r}.")
    if wrong := [each for each in names if not isinstance(each, str)]:
        raise UsageError(f"The name of a field is text, not {type(wrong[0]).__name__}.", f"Write {str(wrong[0])!r}.")
    if filters:
        try:
            orjson.dumps(filters, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            raise UsageError(f"where holds what JSON cannot say: {error}.", "Write texts, numbers, lists and dicts.") from None
    return found, names, filters


def _listed(name: str, what: str, given: object) -> list[Any]:
    if given is None:
        raise UsageError(f"{name} is a list, not None.", "Leave it out where it is not wanted.")
    if isinstance(given, str):
        raise UsageError(f"{name} is a list of {what}, not the text {given!r}.", f"Write {name}=[{given!r}].")
    if not isinstance(given, Iterable):
        raise UsageError(f"{name} is a list of {what}, not {type(given).__name__}.", f"Write {name}=[...].")
    return list(given)
