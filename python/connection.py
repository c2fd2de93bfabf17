"""The entry points for Python programs: ``termweave.connect().index("docs").search("...")``, ``termweave.index(documents, "docs")``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from termweave import engine, settings
from termweave.catalog import audit, generations
from termweave.corpora import open_documents
from termweave.errors import UsageError, for_python
from termweave.indexer import builder, rebuild_options, updater
from termweave.indexer.generations import deletion, listing, publication
from termweave.indexer.options import BuildOptions
from termweave.indexer.update_plan import UpdateMode
from termweave.search import index as searched
from termweave.support.arguments import check, check_names

if TYPE_CHECKING:
    from termweave.answers import ListedIndex
    from termweave.engine import Engine
    from termweave.indexer.generations.listing import Generation
    from termweave.indexer.job import IndexingResult
    from termweave.learning.report import Learned

#: The arguments of `index` that are not build options.
_NOT_OF_BUILDS = ("connection", "update", "defaults", "id_field", "title_field", "text_fields", "progress")


class LiveIndex(searched.Index):
    """An index that can be searched, and that can learn from judged questions."""

    def learn(self, questions: str | None = None, *, minutes: float = 20.0, promote: bool = False) -> Learned:
        """Learn from judged questions or clicks how this index is searched best, and measure the gain, as `termweave learn` does.

        Args:
            questions: A data set or a click log; None: the index's book (judged queries stored beside it) and the server's log of user behaviour.
            minutes: Time for training, building and measuring.
            promote: Make the new generation live if its gain is confirmed. This index then searches it.

        Raises:
            UsageError: The questions cannot be used, or a package that training needs is not installed.
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
    """A connection to an OpenSearch server, and to the indices on it.

    Attributes:
        engine: The object that sends requests to the server.
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
        """Close the connections to the server."""
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
            weights: Name or folder of the weights model, if the name stored with the index does not resolve on this host.
            dense: Name or folder of the dense model, likewise.
            dense_query: Name or folder of the separate query encoder, likewise, if the index was built with one.

        Raises:
            UsageError: There is no such index, or it was not built by termweave.
            ModelError: The models found are not the ones with which the index was built.
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
            UsageError: The index has no such generation, or the generation is incomplete.
        """
        self._promote(name, generation, "promote")

    def rollback(self, name: str) -> str:
        """Make an earlier generation live and return its name.

        It is the newest finished generation that is older than the live one and that no earlier rollback has left.

        Raises:
            UsageError: There is no such generation.
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
            EngineError: Another process is building the index.
        """
        listed = self.generations(name)
        deletion.remove_all(self.engine, name, listed)
        return [each.index for each in listed]


def connect(url: str | None = None, **options: Any) -> Connection:
    """Connect to an OpenSearch. No request is sent yet: whether the server answers shows when an index is opened.

    Args:
        url: Address of the server, or of several nodes with commas between; None: the address in the settings, in $OPENSEARCH_URL or of the
            running embedded node.
        **options: As in `termweave.settings.Settings`: user, password, ca_certs, client_cert, client_key, insecure, timeout.

    Raises:
        EngineUnreachable: No address is given, and no embedded node runs.
        UsageError: A setting does not exist, or has an impossible value.
    """
    return Connection(engine.connect(settings.load(url=url, **options)))


def index(
    documents: object,
    name: str,
    *,
    connection: Connection | None = None,
    update: bool | UpdateMode = False,
    defaults: bool = False,
    id_field: str | None = None,
    title_field: str | None = None,
    text_fields: Sequence[str] = (),
    skip_bad: bool = False,
    progress: Callable[[str, int, int | None], None] | None = None,
    **options: Any,
) -> IndexingResult:
    """Build a new generation of an index, verify it and make it live; or update the live one.

    Args:
        documents: An iterable of dicts or `termweave.Document`, a pandas or polars DataFrame, an Arrow table or a
            ``datasets.Dataset``. Keys or columns ``id``, ``title`` and ``text`` are what they say; all others are metadata.
        name: The name to search by, an alias in OpenSearch.
        connection: The server, as `termweave.connect` returns it; None: $OPENSEARCH_URL, else the running embedded node.
        update: Send only what is new or changed. Documents that are not in `documents` stay in the index, unless it is
            ``termweave.indexer.UpdateMode(delete_missing=True)``.
        defaults: Build without the options that the live generation was built with, which hold otherwise where `options` gives no others.
        id_field: The key that holds the id, if it is not called ``id`` or ``_id``.
        title_field: The key that holds the title, if it is not called ``title``.
        text_fields: The keys that hold the text, if they are not called ``text``; several are joined by line ends.
        skip_bad: Leave out documents that cannot be read, instead of raising.
        progress: Called with (stage, documents done, documents in all or None); None: not called.
        **options: The fields of `termweave.indexer.BuildOptions`: weights, dense, signals, analyzer, passages, workers, ... An update
            refuses those with which the live index would have been built otherwise.

    Returns:
        What was built or updated: documents, seconds, signals, notes and warnings.

    Raises:
        UsageError: `documents`, the name or an option cannot be used; or an update would delete too much (`LargeDeletion`).
        InputError: A document has no text and no title, or an id occurs twice.
        TermweaveError: The server cannot be reached, refused documents, or stores something else than was sent.

    Example:
        >>> documents = [{"id": "a", "text": "Green tea is steeped at 70 degrees."}]
        >>> index(documents, "tea")  # doctest: +SKIP
    """
    if connection is not None:
        check(connection=connection)
    if "delete_missing" in options or "allow_deletions" in options:
        raise UsageError(
            "index() has no option 'delete_missing', because it belongs to UpdateMode.",
            "Write update=termweave.indexer.UpdateMode(delete_missing=True).",
        )
    check_names(options, BuildOptions, "index() has", _NOT_OF_BUILDS)
    chosen = BuildOptions(skip_bad=skip_bad, **options)
    source = open_documents(
        documents, name=name, skip_bad=skip_bad, id_field=id_field, title_field=title_field, text_fields=text_fields
    )
    remarks = list(source.remarks)

    def report(stage: str, done: int, total: int | None, _detail: str = "", /) -> None:
        if progress is not None:
            progress(stage, done, total)

    with connect() if connection is None else nullcontext(connection) as used:
        if update:
            mode = UpdateMode() if isinstance(update, bool) else update
            mode = replace(mode, options=[*mode.options, *(each for each, value in options.items() if value is not None)])
            done = updater.update(used.engine, source, name, chosen, mode, report)
        else:
            live = generations.find_live(used.engine, name)
            if live is not None and not defaults:
                names = [each for each, value in options.items() if value is not None]
                taken = rebuild_options.rebuilt(used.engine, live, chosen, names)
                remarks += rebuild_options.remark(chosen, taken)
                chosen = taken
            done = builder.build(used.engine, source, name, chosen, report, live=live)
    return replace(done, notes=tuple(map(for_python, (*remarks, *done.notes))), warnings=tuple(map(for_python, done.warnings)))
