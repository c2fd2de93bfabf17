"""Options of the verbs that can read an existing index as their source: which documents, how fast, and with which credentials."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.number_types import FloatRange
from termweave.cli.options.option_groups import option_group
from termweave.cli.options.passwords import only_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from termweave.corpora import OpenedSource
    from termweave.settings import Settings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def source_index_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --source-query, --source-rate and the credentials of a source on another server.

    Stands below `connection_options` and `source_options`: they become the entry "index" of `reading`, an `IndexReading`.
    """

    @option_group(
        "Reading an index (SOURCE is opensearch:INDEX or https://HOST:9200/INDEX)",
        click.option(
            "--source-query",
            type=_FILE,
            metavar="FILE",
            help="Read only the documents that match this clause of the query DSL (JSON).",
        ),
        click.option(
            "--source-rate",
            type=FloatRange(min=0, min_open=True),
            metavar="DOCUMENTS",
            help="Read at most so many documents per second.  [default: no limit]",
        ),
        click.option("--source-user", help="User name on the server of SOURCE, if that is not the target's server."),
        click.option(
            "--source-password",
            metavar="-",
            callback=only_asked,
            help="'-' asks for the password there; see also $TERMWEAVE_SOURCE_PASSWORD.",
        ),
        click.option("--source-password-file", type=_FILE, help="File that holds that password."),
        click.option("--source-ca-certs", type=_FILE, help="Certificate authorities of that server (PEM)."),
        click.option("--source-client-cert", type=_FILE, help="Client certificate for that server (PEM)."),
        click.option("--source-client-key", type=_FILE, help="Key of that client certificate (PEM)."),
        click.option("--source-insecure", is_flag=True, default=None, help="Do not verify that server's certificate."),
        click.option("--source-aws-sigv4", metavar="REGION", help="Sign the requests to that server for this AWS region."),
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

        given = {name: kwargs.pop(f"source_{name}") for name in source_settings.FLAGS}
        of_an_index = [source_query, source_rate, *given.values()]
        if any(value is not None for value in of_an_index) and not is_index(source):
            raise click.UsageError("--source-... describe an index: SOURCE must be opensearch:INDEX or https://HOST:9200/INDEX.")
        index = IndexReading(
            query=None if source_query is None else _query(source_query),
            rate=source_rate,
            settings=lambda url: source_settings.load(url, settings, given),
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
