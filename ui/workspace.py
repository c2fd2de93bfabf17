"""The server and its open indices, which all pages share, and checks of what a request may name."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
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
    from collections.abc import Callable

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
    """The server has no index of termweave: pages say how to make one."""


class FreshItems(Generic[_Item]):
    """Items that are opened by name: once, even if several threads ask at the same time, and looked at again after some seconds.

    Args:
        most: How many stay open; the one that was looked at longest ago is forgotten first.

    Attributes:
        seconds: For how long an item is taken without a look.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self.seconds = most, seconds
        self._items: OrderedDict[str, tuple[float, _Item]] = OrderedDict()
        self._opening: dict[str, Future[_Item]] = {}
        self._lock = Lock()

    def fresh(self, name: str) -> _Item | None:
        """The item, if somebody looked at it a moment ago."""
        looked, item = self._items.get(name, (-math.inf, None))
        return item if time.monotonic() - looked < self.seconds else None

    def get(self, name: str, look: Callable[[_Item | None], _Item]) -> _Item:
        """The item; `look` gets the one that is open, if one is, and returns it again or another one.

        While one thread looks at an open item, others go on with it. While one opens an item, others wait, and share its error.
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
        """Open an item anew when it is asked for."""
        with self._lock:
            self._items.pop(name, None)
            self._opening.pop(name, None)


class Workspace:
    """The server and the open indices.

    Attributes:
        engine: The server.
        options: How the pages are served.
        indices: The open indices: each holds its statistics and models.
    """

    def __init__(self, engine: Engine, options: ServeOptions) -> None:
        self.engine, self.options = engine, options
        # Another process may publish a generation or adopt a profile meanwhile.
        self.indices: FreshItems[Index] = FreshItems(8, seconds=10.0)
        self._names: FreshItems[tuple[str, ...]] = FreshItems(1, seconds=5.0)

    def index(self, name: str) -> Index:
        """An open index, or one of its generations, by its name.

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
        """An index opened for work that takes long: the generation that is live now, whatever goes live meanwhile."""
        return search.Index.pinned(self.engine, name, **(self.options.models or {}))

    def warm(self) -> None:
        """Open the index that pages show first, so that the first search does not wait for its models; what is wrong is said there."""
        with suppress(TermweaveError):
            self.index(self.chosen(None))

    def names(self) -> tuple[str, ...]:
        """The names of the indices that termweave made; the one that the server was started with, if it may not list all."""

        def look(_: object) -> tuple[str, ...]:
            try:
                return tuple(names(self.engine))
            except EngineResponseError as error:
                if error.status != HTTPStatus.FORBIDDEN or self.options.index is None:
                    raise
                return (self.options.index,)

        return self._names.get("", look)

    def places(self, name: str) -> list[str]:
        """The indices, and the complete generations of one of them."""
        listed = []
        with suppress(TermweaveError):
            listed = listing.list_generations(self.engine, name)
        return [*self.names(), *(each.index for each in listed if each.complete)]

    def chosen(self, name: str | None) -> str:
        """The name of the index that a request is about: the one it names, else the one that the server was started with.

        Raises:
            NoIndexYet: The server has none.
        """
        if name or self.options.index:
            return str(name or self.options.index)
        if names := self.names():
            return names[0]
        advice = "Make one: 'termweave index SOURCE NAME', or 'termweave demo'."
        raise NoIndexYet(f"No index at {self.engine.url} was made by termweave.", advice)

    def book(self, name: str | None) -> JudgementBook:
        """The book of the index that a request is about; its name has no generation. It opens no model: this host may lack one of them."""
        resolved = resolve_name(self.engine, self.chosen(name))
        return JudgementBook(self.engine, book_of(resolved, read_lineage(self.engine, resolved.index)))

    def check_reranker(self, name: str | None) -> None:
        """Check that a page may name a reranker: a request must not make this process open a folder or fetch a model.

        Raises:
            UsageError: It may not.
        """
        if name is None or name in self.options.rerankers:
            return
        stages = {*_PLAIN, *self.options.rerankers}
        if not all(stage in stages or stage.partition("@")[0] in RULES for stage in split_chain(name)):
            advice = (
                f"Known: {', '.join((*_PLAIN[:2], *self.options.rerankers))}. 'termweave serve --rerank NAME' allows another one."
            )
            raise UsageError(f"Pages may not use the reranker {name!r}.", advice)

    def check_rewriting(self, text: str | None) -> None:
        """Check that a rewriting names no file of synonyms or pins: a request must not make this process read a file.

        Raises:
            UsageError: It names one.
        """
        if text and "@" in text:
            raise UsageError(f"Pages may not use {text!r}, which names a file.", "Known: operators, spelling, none.")


def workspace_of(request: Request) -> Workspace:
    """The workspace of the application that got a request."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def check_query(query: str) -> str:
    """A query that is short enough, in the one form (`termweave.support.normal_form`).

    Raises:
        UsageError: It is not.
    """
    if len(query) > _LONGEST:
        raise UsageError(f"The query has more than {_LONGEST:,} characters.", "Ask a shorter one.")
    return normal(query)
