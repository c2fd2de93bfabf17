"""What a search takes besides the query: named for editors and type checkers, and checked before anything is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

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


def check(query: object, *, like: Iterable[object], fields: object, where: object) -> None:
    """Refuse what Python would take apart: a text where a list of texts is meant, one filter where several are.

    Raises:
        UsageError: It is such a thing.
    """
    if not isinstance(query, str):
        raise UsageError(f"A query is text, not {type(query).__name__}.", "Queries that are encoded already go to `candidates`.")
    for name, given in (("fields", fields), ("like", like), ("where", where)):
        if not isinstance(given, Collection):  # a generator would filter the first signal asked, and no other
            raise UsageError(f"{name} is a list, not {type(given).__name__}.", "Leave it out where it is not wanted.")
    for name, given, what in (("fields", fields, "names"), ("like", like, "ids")):
        if isinstance(given, str):
            raise UsageError(f"{name} is a list of {what}, not the text {given!r}.", f"Write {name}=[{given!r}].")
    if isinstance(where, Mapping | str):
        raise UsageError("where is a list of filters, not one.", "Write where=[...] around it.")
    if wrong := [each for each in like if not isinstance(each, str)]:
        raise UsageError(f"The id of a document is text, not {type(wrong[0]).__name__}.", f"Write {str(wrong[0])!r}.")
