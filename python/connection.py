"""The way in from Python: ``termweave.connect().index("docs").search("...")``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from termweave import engine, settings
from termweave.indexer.generations import deletion, listing, publication
from termweave.search import index as searched

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.answers import ListedIndex
    from termweave.catalog import audit
    from termweave.engine import Engine
    from termweave.indexer.generations.listing import Generation
    from termweave.learning.report import Learned


class LiveIndex(searched.Index):
    """An index that also learns."""

    def learn(self, questions: str | None = None, *, minutes: float = 20.0, promote: bool = False) -> Learned:
        """Learn from judged questions or clicks how this index is searched best, and prove it: `termweave learn`.

        Args:
            questions: A data set or a click log; None: the book of the index and the server's log of user behaviour.
            minutes: Time for training, building and measuring.
            promote: Make the new generation live if its gain is confirmed. This index then searches it.

        Raises:
            UsageError: The questions cannot be used, or what training needs is not installed.
            InputError: There are too few questions.
        """
        from termweave.learning import preparation, run  # noqa: PLC0415 - searching does not load training

        learned = run.learn(self._server, preparation.LearningTask(self.name, questions, minutes, self._models))
        if promote and learned.confirmed:
            learned = run.promote(self._server, learned)
        return learned


#: Its public name: `termweave.Index`.
Index = LiveIndex


class Connection:
    """An OpenSearch and the indices in it.

    Attributes:
        engine: What talks to the server.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connection({self.engine.url!r})"

    def close(self) -> None:
        """Give the connections to the server back."""
        self.engine.close()

    def index(
        self,
        name: str,
        *,
        weights: str | Path | None = None,
        dense: str | Path | None = None,
        dense_query: str | Path | None = None,
    ) -> LiveIndex:
        """Open an index by its alias (or a generation by its full name).

        Args:
            name: The alias.
            weights: Weights model, where the name stored with the index does not resolve on this host.
            dense: Dense model, likewise.
            dense_query: Encoder of queries, likewise, where it is another one than the dense model.

        Raises:
            UsageError: There is no such index, or it was not built by termweave.
            ModelError: The models found are not those the index was made with.
        """
        return LiveIndex.open(self.engine, name, weights=weights, dense=dense, dense_query=dense_query)

    def indices(self) -> list[ListedIndex]:
        """The indices that termweave made on this server, as `termweave list --json` has them."""
        return listing.summaries(self.engine)

    def generations(self, name: str) -> list[Generation]:
        """The generations of an index, the newest first.

        Raises:
            UsageError: There is no index of this name that termweave built.
        """
        return listing.list_generations(self.engine, name)

    def promote(self, name: str, generation: str) -> None:
        """Make a generation live: point the alias at it, in one atomic step.

        Raises:
            UsageError: The index has no such generation, or it is not whole.
        """
        self._promote(name, generation, "promote")

    def rollback(self, name: str) -> str:
        """Make the newest finished generation live that is older than the live one and no rollback has left; returns it.

        Raises:
            UsageError: There is none.
        """
        generation = publication.previous(self.engine, name)
        self._promote(name, generation, "rollback")
        return generation

    def _promote(self, name: str, generation: str, act: audit.Act) -> None:
        before = publication.promote(self.engine, name, generation, act)
        if remark := publication.profile_remark(self.engine, name, before, generation):
            logging.getLogger(__name__).warning("%s", remark)

    def delete(self, name: str) -> list[str]:
        """Delete an index: the alias, all generations, their statistics and ledgers. This cannot be undone.

        Returns:
            The generations that were deleted.

        Raises:
            UsageError: There is no index of this name that termweave built.
            EngineError: Another process builds it.
        """
        listed = self.generations(name)
        deletion.remove_all(self.engine, name, listed)
        return [each.index for each in listed]


def connect(url: str | None = None, **options: Any) -> Connection:
    """Connect to an OpenSearch. Nothing is asked of it yet: whether it answers shows when an index is opened.

    Args:
        url: Its address, or those of several nodes with commas between; None: what the settings, $OPENSEARCH_URL or the running embedded node say.
        **options: As in `termweave.settings.Settings`: user, password, ca_certs, client_cert, client_key, insecure, timeout.

    Raises:
        EngineUnreachable: No address is given, and no embedded node runs.
        UsageError: A setting that does not exist or cannot be.
    """
    return Connection(engine.connect(settings.load(url=url, **options)))
