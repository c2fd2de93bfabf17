"""Options of the verbs that can read an existing index as their source: which documents, and how fast."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.number_types import FloatRange
from termweave.cli.options.option_groups import option_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from termweave.corpora import OpenedSource
    from termweave.settings import Settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def source_index_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --source-query and --source-rate.

    Stands below `connection_options` and `source_options`: they become the entry "index" of `reading`, an `IndexReading`.
    """

    @option_group(
        "Reading an index (SOURCE is opensearch:INDEX or https://HOST:9200/INDEX)",
        click.option(
            "--source-query",
            type=_FILE,
            metavar="FILE",
            help="Read only the documents that match this clause of the query DSL (JSON). $TERMWEAVE_SOURCE_USER, $TERMWEAVE_SOURCE_PASSWORD "
            "('-' asks) and so on are the credentials of another server: see docs/existing-index.md.",
        ),
        click.option(
            "--source-rate",
            type=FloatRange(min=0, min_open=True),
            metavar="DOCUMENTS",
            help="Read at most so many documents per second.  [default: no limit]",
        ),
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        settings: Settings,
        reading: dict[str, Any],
        source: str | None,
        source_query: Path | None,
        source_rate: float | None,
        **kwargs: Any,
    ) -> Any:
        from termweave import source_settings
        from termweave.corpora import IndexReading

        if (source_query is not None or source_rate is not None) and not is_index(source):
            raise click.UsageError(
                "--source-query and --source-rate describe an index: SOURCE must be opensearch:INDEX or https://HOST:9200/INDEX."
            )
        index = IndexReading(
            query=None if source_query is None else _query(source_query),
            rate=source_rate,
            settings=lambda url: source_settings.load(url, settings),
        )
        reading = {**reading, "index": index} if is_index(source) else reading
        return function(*args, settings=settings, reading=reading, source=source, **kwargs)

    return wrapped


def is_index(source: str | None) -> bool:
    """Whether a SOURCE argument is the address of an index."""
    from termweave.corpora.formats.index_address import is_address

    return source is not None and is_address(source)


def for_build(reading: dict[str, Any], name: str, *, whole: bool) -> dict[str, Any]:
    """The same options for a build, which keeps its snapshot of the index until it is finished.

    Args:
        reading: Keyword arguments of `corpora.open_source`.
        name: What is built; "": nothing, the source is only read.
        whole: Whether the mapping of the index is taken over.
    """
    return {**reading, "index": replace(reading["index"], build=name, whole=whole)} if "index" in reading else reading


def release(opened: OpenedSource) -> None:
    """Delete the snapshot that a source keeps for a build that is resumed, if it keeps one."""
    if (own := getattr(opened, "release", None)) is not None:
        own()


@contextmanager
def released_unless_stopped(opened: OpenedSource) -> Iterator[None]:
    """Delete the snapshot of an index when a build has ended.

    It is kept if the build was stopped, or if a server did not answer: then the same command goes on with it. After any other error the
    user corrects something, perhaps in the index, and the same command reads the index anew.
    """
    from termweave.errors import EngineError

    try:
        yield
    except (EngineError, KeyboardInterrupt, click.exceptions.Exit):
        raise
    except Exception:
        release(opened)
        raise
    release(opened)


def _query(path: Path) -> dict[str, Any]:
    """Read a query.

    Raises:
        UsageError: The file holds no JSON object.
    """
    import orjson

    from termweave.errors import UsageError

    try:
        clause = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", "Name a file that holds one JSON object.") from None
    if isinstance(clause, dict) and set(clause) == {"query"}:
        clause = clause["query"]
    if not isinstance(clause, dict) or not clause:
        raise UsageError(f"{path} is not a clause of the query DSL.", 'Write {"term": {"lang": "en"}}, for example.')
    return clause
