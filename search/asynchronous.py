"""Searches to await, for web applications: the event loop goes on while OpenSearch and the models work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from termweave.search.options import SearchOptions
from termweave.search.signatures import with_options

if TYPE_CHECKING:
    from typing import Protocol, Unpack

    from termweave.search.options import SearchKeywords
    from termweave.search.results.hit_sequence import Hits
    from termweave.search.results.hits import Answer

    class Searches(Protocol):
        """What can be asked without `await`."""

        def answer(self, query: str = "", **options: Unpack[SearchKeywords]) -> Answer:
            """As `Index.answer`."""


class AsyncSearches:
    """The methods of `Index` that are awaited. Each search runs in a thread of asyncio's default executor."""

    @with_options(SearchOptions)
    async def asearch(self: Searches, query: str = "", **options: Unpack[SearchKeywords]) -> Hits:
        """The best documents for a query, best first: ``hits = await index.asearch("parse json")``."""
        return (await asyncio.to_thread(self.answer, query, **options)).hits

    @with_options(SearchOptions)
    async def aanswer(self: Searches, query: str = "", **options: Unpack[SearchKeywords]) -> Answer:
        """As `Index.answer`, to be awaited."""
        return await asyncio.to_thread(self.answer, query, **options)
