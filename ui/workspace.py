"""The search server and its open indices, which all pages share, and checks that a request names nothing that pages may not use."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from termweave import search
from termweave.catalog.lineage import book_of, check_one, read_lineage, resolve_index, resolve_name
from termweave.engine import EngineResponseError
from termweave.errors import TermweaveError, UsageError
from termweave.evaluation.book.store import JudgementBook
from termweave.indexer.generations import listing
from termweave.indexer.generations.listing import names
from termweave.rerank.rerankers import RULES, split_chain
from termweave.support.normal_form import normal

if TYPE_CHECKING:
    from starlette.requests import Request

    from termweave.engine import Engine
    from termweave.search import Index
    from termweave.ui.serve_options import ServeOptions

_Item = TypeVar("_Item")
#: Rerankers that need no place; what others need is decided where the server is started.
_PLAIN = ("none", "rnn", "rnn@fused", "rnn@dense", "ranker", "ltr", "profile")
#: Characters of a query; longer ones are not questions.
_LONGEST = 10_000


class NoIndexYet(UsageError):
    """The server has no index that termweave made; pages then say how to make one."""


class FreshItems(Generic[_Item]):
    """A cache of items by name: each is opened once, even if several threads ask at the same time, and is checked again after some seconds.

    Args:
        most: How many items stay open; the item whose last check is oldest is dropped first.

    Attributes:
        seconds: For how long after a check an item is used without another check.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self.seconds = most, seconds
        self._items: OrderedDict[str, tuple[float, _Item]] = OrderedDict()
        self._opening: dict[str, Future[_Item]] = {}
        self._lock = Lock()

    def fresh(self, name: str) -> _Item | None:
        """The open item if its last check was less than `seconds` ago; None: it is not open, or is due for a check."""
        looked, item = self._items.get(name, (-math.inf, None))
        return item if time.monotonic() - looked < self.seconds else None

    def get(self, name: str, look: Callable[[_Item | None], _Item]) -> _Item:
        """Return the item, checked or opened by `look` if it is due: `look` takes the open item or None, and returns the item to use from now on.

        While one thread checks an open item, other threads go on with it. While one thread opens an item, others wait, and get the same error.
        """
        with self._lock:
            if (item := self.fresh(name)) is not None:
                return item
            if (item := self._items.get(name, (0.0, None))[1]) is not None:
                self._items[name] = time.monotonic(), item
            opening = self._opening.get(name) if item is None else None
            if opening is None:
                mine = self._opening[name] = Future()
        if opening is not None:
            return opening.result()
        try:
            mine.set_result(look(item))
        except BaseException as error:  # noqa: BLE001 - it is raised below, here and in those who wait
            mine.set_exception(error)
        with self._lock:
            if self._opening.get(name) is mine:  # nobody forgot it meanwhile
                del self._opening[name]
                self._items.pop(name, None)  # of one that is gone, opening it again says so
                if mine.exception() is None:
                    self._items[name] = time.monotonic(), mine.result()
                while len(self._items) > self._most:
                    self._items.popitem(last=False)
        return mine.result()

    def forget(self, name: str) -> None:
        """Drop an item, so that it is opened anew when a request asks for it."""
        with self._lock:
            self._items.pop(name, None)
            self._opening.pop(name, None)


class Workspace:
    """The search server and the indices that pages have opened.

    Attributes:
        engine: The search server.
        options: The options of `termweave serve`.
        indices: The open indices, each with its statistics and models in memory.
    """

    def __init__(self, engine: Engine, options: ServeOptions) -> None:
        self.engine, self.options = engine, options
        # Another process may publish a generation or adopt a profile meanwhile.
        self.indices: FreshItems[Index] = FreshItems(8, seconds=10.0)
        self._names: FreshItems[tuple[str, ...]] = FreshItems(1, seconds=5.0)

    def index(self, name: str) -> Index:
        """Return the open index with this name, or one generation of an index, opened if necessary.

        Raises:
            UsageError: There is no such index, or it was not made by termweave.
        """

        def look(last: Index | None) -> Index:
            if last is not None:
                try:
                    live = resolve_index(self.engine, name)
                    now, then = read_lineage(self.engine, live), last.lineage
                    same = (now.profile, now.profiles, now.models) == (then.profile, then.profiles, then.models)
                    if live == last.generation and same:
                        return last
                except UsageError:  # it is gone: opening it again says so
                    pass
                except TermweaveError:  # a search will say what is wrong
                    return last
            return search.Index.open(self.engine, name, **(self.options.models or {}))

        check_one(name)
        return self.indices.get(name, look)

    def pinned(self, name: str) -> Index:
        """Open an index for a long job: the job keeps the generation that is live now, even if another one goes live meanwhile."""
        return search.Index.pinned(self.engine, name, **(self.options.models or {}))

    def warm(self) -> None:
        """Open the index that pages show first, so that the first search need not wait for models; an error is left to this search to report."""
        with suppress(TermweaveError):
            self.index(self.chosen(None))

    def names(self) -> tuple[str, ...]:
        """The names of the indices that termweave made; if the user may not list indices, the index that `termweave serve` was started with."""

        def look(_: object) -> tuple[str, ...]:
            try:
                return tuple(names(self.engine))
            except EngineResponseError as error:
                if error.status != HTTPStatus.FORBIDDEN or self.options.index is None:
                    raise
                return (self.options.index,)

        return self._names.get("", look)

    def places(self, name: str) -> list[str]:
        """The names of all indices, and of the complete generations of the index `name`."""
        listed = []
        with suppress(TermweaveError):
            listed = listing.list_generations(self.engine, name)
        return [*self.names(), *(each.index for each in listed if each.complete)]

    def chosen(self, name: str | None) -> str:
        """The name of the index that a request is about: `name` if given, else the index that `termweave serve` was started with, else the first index.

        Raises:
            NoIndexYet: The server has no index that termweave made.
        """
        if name or self.options.index:
            return str(name or self.options.index)
        if names := self.names():
            return names[0]
        advice = "Make one: 'termweave index SOURCE NAME', or 'termweave demo'."
        raise NoIndexYet(f"No index at {self.engine.url} was made by termweave.", advice)

    def book(self, name: str | None) -> JudgementBook:
        """The book of judged queries of an index (one for all its generations). No model is opened, so this host need not have the index's models."""
        resolved = resolve_name(self.engine, self.chosen(name))
        return JudgementBook(self.engine, book_of(resolved, read_lineage(self.engine, resolved.index)))

    def check_reranker(self, name: str | None) -> None:
        """Check that a page may name a reranker: a request must not make this process open a folder or fetch a model.

        Raises:
            UsageError: Pages may not use this reranker.
        """
        if name is None or name in self.options.rerankers:
            return
        stages = {*_PLAIN, *self.options.rerankers}
        if not all(stage in stages or stage.partition("@")[0] in RULES for stage in split_chain(name)):
            allowed = ", ".join((*_PLAIN[:2], *self.options.rerankers))
            advice = f"Known: {allowed}. 'termweave serve --rerank NAME' allows another one."
            raise UsageError(f"Pages may not use the reranker {name!r}.", advice)


def workspace_of(request: Request) -> Workspace:
    """The workspace of the application that received a request."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def check_query(query: str) -> str:
    """Check that a query is not too long, and return it in Unicode's normal form (`termweave.support.normal_form`).

    Raises:
        UsageError: The query is too long.
    """
    if len(query) > _LONGEST:
        raise UsageError(f"The query has more than {_LONGEST:,} characters.", "Ask a shorter one.")
    return normal(query)
