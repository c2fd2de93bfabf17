"""Index documents that a Python program holds: ``termweave.index(documents, "docs")``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.corpora import open_documents
from termweave.errors import for_python
from termweave.indexer import builder, updater
from termweave.indexer.options import BuildOptions
from termweave.support.arguments import check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from termweave.indexer.builder import Built
    from termweave.indexer.updater import Updated
    from termweave.search import Connection


def index(
    documents: object,
    name: str,
    *,
    connection: Connection | None = None,
    update: bool = False,
    id_field: str | None = None,
    title_field: str | None = None,
    text_fields: Sequence[str] = (),
    skip_bad: bool = False,
    progress: Callable[[str, int, int | None], None] = lambda *_: None,
    **options: Any,
) -> Built | Updated:
    """Build a new generation of an index, verify it and make it live; or update the live one.

    Args:
        documents: An iterable of dicts or `termweave.Document`, a pandas or polars DataFrame, an Arrow table or a
            ``datasets.Dataset``. Keys or columns ``id``, ``title`` and ``text`` are what they say; all others are metadata.
        name: The name to search by, an alias in OpenSearch.
        connection: The server, as `termweave.connect` returns it; None: $OPENSEARCH_URL, else the running embedded node.
        update: Send only what is new or changed. Documents that are not in `documents` stay in the index.
        id_field: The key that holds the id, if it is not called ``id`` or ``_id``.
        title_field: The key that holds the title, if it is not called ``title``.
        text_fields: The keys that hold the text, if they are not called ``text``; several are joined by line ends.
        skip_bad: Leave out documents that cannot be read, instead of raising.
        progress: Called with (stage, documents done, documents in all or None).
        **options: The fields of `termweave.indexer.BuildOptions`: weights, dense, signals, analyzer, passages, workers, ...

    Returns:
        What was built or updated: documents, seconds, signals, notes and warnings.

    Raises:
        UsageError: `documents`, the name or an option cannot be used.
        InputError: A document has no text and no title, or an id occurs twice.
        TermweaveError: The server cannot be reached, refused documents, or stores something else than was sent.

    Example:
        >>> documents = [{"id": "a", "text": "Green tea is steeped at 70 degrees."}]
        >>> index(documents, "tea")  # doctest: +SKIP
    """
    check_names(options, BuildOptions, "index() has")
    chosen = BuildOptions(skip_bad=skip_bad, **options)
    source = open_documents(
        documents, name=name, skip_bad=skip_bad, id_field=id_field, title_field=title_field, text_fields=text_fields
    )
    from termweave.search import connect  # noqa: PLC0415 - opensearch-py is loaded when a server is needed

    if connection is not None:
        return _run(connection, source, name, chosen, progress, update=update)
    with connect() as own:
        return _run(own, source, name, chosen, progress, update=update)


def _run(
    connection: Connection, source: Any, name: str, options: BuildOptions, progress: Any, *, update: bool
) -> Built | Updated:
    run = updater.update if update else builder.build
    done: Built | Updated = run(connection.engine, source, name, options, progress=progress)
    return replace(done, notes=tuple(map(for_python, done.notes)), warnings=tuple(map(for_python, done.warnings)))
