"""Options for verbs that read a corpus (a file, a folder or an existing index), and functions that open the corpus."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.declared_options import FILE, FloatRange, flag, option, option_group
from termweave.cli.shared_options import check_together
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.corpora import OpenedSource
    from termweave.settings import Settings

#: The keywords of `corpora.open_source` that are options.
_NAMES = ("skip_bad", "id_field", "title_field", "text_fields", "include", "follow_links", "list_separator")
_ID = option("--id-field", "Key or column of the id.  [default: _id, id, docid, doc_id]", "NAME")
_READING = (
    option("--title-field", "Key or column of the title.  [default: title]", "NAME"),
    option(
        "--text-field text_fields",
        "Key or column of the text; repeat it to join several.  [default: text, contents, body, content]",
        "NAME",
        multiple=True,
    ),
    flag("--skip-bad", "Leave out entries that cannot be read, and the second of two with the same id, and report them."),
)
_FOLDERS = option_group(
    "Reading the corpus",
    option(
        "--include",
        "In a folder, read the files that match as texts, whatever their type: '*.py', 'src/*.c'; repeatable.  "
        "[default: *.txt, *.md, *.rst, *.adoc, *.html]",
        "GLOB",
        multiple=True,
    ),
    flag("--follow-links", "In a folder, read links to files outside it, too."),
    option(
        "--list-separator",
        "In a table, a cell with this text is a list: with ';' the cell 'red;blue' has two values.",
        "TEXT",
        default="",
    ),
)
_INDEX = option_group(
    "Reading an index (SOURCE is opensearch:INDEX or https://HOST:9200/INDEX)",
    option(
        "--source-query",
        "Read only the documents that match this clause of the query DSL (JSON). $TERMWEAVE_SOURCE_USER, $TERMWEAVE_SOURCE_PASSWORD "
        "('-' asks) and so on are the credentials of another server: see docs/existing-index.md.",
        "FILE",
        type=FILE,
    ),
    option(
        "--source-rate",
        "Read at most so many documents per second.  [default: no limit]",
        "DOCUMENTS",
        type=FloatRange(min=0, min_open=True),
    ),
)


def source_options(
    *, ids: bool = True, folders: bool = False, index: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a verb with the options that describe a corpus.

    The function receives the options as `reading`: keyword arguments of `corpora.open_source`.

    Args:
        ids: Whether to add --id-field.
        folders: Whether to add the options for folders and tables: --include, --follow-links and --list-separator.
        index: Whether to add the options for an index: --source-query and --source-rate. The verb must have `source` and `settings`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            reading = {name: kwargs.pop(name) for name in _NAMES if name in kwargs}
            if index:
                query, rate = kwargs.pop("source_query"), kwargs.pop("source_rate")
                reading |= _index_reading(kwargs["source"], kwargs["settings"], query, rate)
            return function(*args, reading=reading, **kwargs)

        decorated = _INDEX(wrapped) if index else wrapped
        reading = option_group("Reading the corpus", *((_ID,) if ids else ()), *_READING)
        return reading(_FOLDERS(decorated) if folders else decorated)

    return decorate


def _index_reading(source: str | None, settings: Settings, query: Path | None, rate: float | None) -> dict[str, Any]:
    """Make the keyword argument `index` of `corpora.open_source` as a dict; empty if the source is not an index.

    Raises:
        UsageError: Options for an index were given, but the source is not an index.
    """
    if not is_index(source):
        problem = "--source-query and --source-rate need an index: SOURCE is opensearch:INDEX or https://HOST:9200/INDEX"
        check_together((problem, query is not None or rate is not None))
        return {}
    from termweave.corpora import IndexReading
    from termweave.settings import of_source

    clause = None if query is None else _query(query)
    return {"index": IndexReading(query=clause, rate=rate, settings=lambda url: of_source(url, settings))}


def open_source(source: str, reading: Mapping[str, Any], out: Output, *, fresh: bool = False) -> OpenedSource:
    """Open a corpus, and print remarks on how it is read, such as which columns are used and which files are left out.

    Args:
        source: The SOURCE argument.
        reading: Keyword arguments of `corpora.open_source`.
        out: Where remarks are printed.
        fresh: Whether to drop the snapshot of a source index that an earlier build left.
    """
    from termweave import corpora
    from termweave.corpora.formats import addresses

    if addresses.is_file(source):
        out.say(f"Downloading {addresses.shown(source)}.")
    corpus = corpora.open_source(source, **reading)
    if fresh:
        corpus.release()
    out.say(*corpus.remarks)
    return corpus


def is_index(source: str | None) -> bool:
    """Whether a SOURCE argument is the address of an index on a search server."""
    from termweave.corpora.formats import addresses

    return source is not None and addresses.is_index(source)


def for_build(reading: dict[str, Any], name: str, *, whole: bool) -> dict[str, Any]:
    """Return the reading options for a build, which keeps its snapshot of a source index until the build is finished.

    Args:
        reading: Keyword arguments of `corpora.open_source`.
        name: Name of the index to build; "": nothing is built, the source is only read.
        whole: Whether the mapping of the source index is taken over, so that all its fields are read.
    """
    return {**reading, "index": replace(reading["index"], build=name, whole=whole)} if "index" in reading else reading


@contextmanager
def released_unless_stopped(corpus: OpenedSource) -> Iterator[None]:
    """Delete the snapshot of a source index when the build in this context has ended.

    The snapshot is kept if the build was stopped, or if a server did not answer: then the same command goes on with the snapshot. After any
    other error the user corrects something, perhaps in the index, and the same command reads the index anew. The snapshot of an unfinished
    build with other options is kept, too: the command that began that build needs it.
    """
    from termweave.errors import EngineError
    from termweave.indexer.ledger.unfinished_builds import UnfinishedBuild

    earlier = corpus.resumed
    try:
        yield
    except Exception as error:
        if not isinstance(error, EngineError | click.exceptions.Exit) and not (earlier and isinstance(error, UnfinishedBuild)):
            corpus.release()
        raise
    corpus.release()


def _query(path: Path) -> dict[str, Any]:
    """Read a clause of the query DSL from a JSON file, which may also hold {"query": CLAUSE}.

    Raises:
        UsageError: The file holds no clause, a JSON object.
    """
    import orjson

    clause: Any = None
    with suppress(orjson.JSONDecodeError):
        clause = orjson.loads(path.read_bytes())
    if isinstance(clause, dict) and set(clause) == {"query"}:
        clause = clause["query"]
    if not isinstance(clause, dict) or not clause:
        raise UsageError(f"{path} is not a clause of the query DSL.", 'Write {"term": {"lang": "en"}}, for example.')
    return clause
