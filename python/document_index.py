"""Index documents that a Python program holds: ``termweave.index(documents, "docs")``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from termweave.catalog import generations
from termweave.corpora import open_documents
from termweave.errors import UsageError, for_python
from termweave.indexer import builder, rebuild_options, updater
from termweave.indexer.options import BuildOptions
from termweave.indexer.update_plan import UpdateMode
from termweave.python.connection import connect
from termweave.support.arguments import check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.indexer.job import IndexingResult
    from termweave.python.connection import Connection

#: The arguments of `index` that are no build options.
_OWN = ("connection", "update", "defaults", "id_field", "title_field", "text_fields", "progress")


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
    given: object = connection
    if given is not None and not hasattr(given, "engine"):
        raise UsageError(
            f"connection is what termweave.connect returns, not {type(given).__name__}.",
            f"Write connection=termweave.connect({given!r})." if isinstance(given, str) else "",
        )
    if not isinstance(update, bool | UpdateMode):
        raise UsageError(f"update is True, False or an UpdateMode, not {type(update).__name__}.", "Write update=True.")
    if "delete_missing" in options or "allow_deletions" in options:
        raise UsageError(
            "index() has no option 'delete_missing': it belongs to the way of updating.",
            "Write update=termweave.indexer.UpdateMode(delete_missing=True).",
        )
    check_names(options, BuildOptions, "index() has", _OWN)
    chosen = BuildOptions(skip_bad=skip_bad, **options)
    source = open_documents(
        documents, name=name, skip_bad=skip_bad, id_field=id_field, title_field=title_field, text_fields=text_fields
    )
    report, remarks = partial(_report, progress), list(source.remarks)
    with connect() if connection is None else nullcontext(connection) as used:
        if update:
            mode = UpdateMode() if isinstance(update, bool) else update
            mode = replace(mode, given=[*mode.given, *(each for each, value in options.items() if value is not None)])
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


def _report(
    progress: Callable[[str, int, int | None], None] | None, stage: str, done: int, total: int | None, detail: str = "", /
) -> None:
    del detail
    if progress is not None:
        progress(stage, done, total)
