"""`/book/log`: the most frequent queries of a log become queries of the book; clicks of a log of user behaviour become grades."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import QueryParams

from termweave.errors import UsageError
from termweave.evaluation.book import pool
from termweave.records import Query
from termweave.support import private_files
from termweave.ui.addresses import see_other
from termweave.ui.pages.forms import bytes_of, form_route, named, text_of
from termweave.ui.pages.judge_page import book_to_fill
from termweave.ui.parameters import Parameter
from termweave.ui.workspace import check_query, workspace_of

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from termweave.records import Qrels

#: Queries that are taken from a log.
_MOST = Parameter("most", "How many queries.", "count", 50, 1, 500)
#: How the spec of a log of user behaviour begins.
UBI = "ubi:"
#: The judge whose grades are those of the click model.
CLICKS = "clicks"
#: What a line of a click log begins with, if it is JSON; other JSON lines are records of user behaviour.
_CLICK_KEYS = ('"query"', '"document"')


def routes() -> list[Route]:
    """The form."""
    return [form_route("/book/log", _add)]


def _add(request: Request, form: FormData) -> Response:
    workspace = workspace_of(request)
    name, spec = text_of(form, "index"), text_of(form, "dataset")
    wanted = _MOST.read(QueryParams({"most": text_of(form, "most")}))
    content = bytes_of(form, "log")
    if spec and spec not in workspace.options.datasets:
        raise UsageError(f"Pages may not read the log {spec!r}.", "'termweave serve --on ubi:opensearch' allows one.")
    if bool(spec) == bool(content):
        raise UsageError("There is no log to read, or there are two.", "Choose a file, or one of the logs of the list.")
    with tempfile.TemporaryDirectory(dir=private_files.scratch()) as folder:
        counts, qrels = _read(content, Path(folder)) if content else _behaviour(spec)
    frequent = sorted(counts, key=lambda text: -counts[text])[:wanted]
    if not frequent:
        raise UsageError("The log holds no query with a click.", "Choose another one.")
    from termweave.corpora.behaviour.ubi import query_id  # noqa: PLC0415 - numpy, which the pages start without

    queries = [Query(query_id(text), check_query(text)) for text in frequent]
    book = book_to_fill(request, form)
    added = pool.add(workspace.index(name), book, queries)
    grades = {query.id: qrels[query.id] for query in queries if query.id in qrels}
    stored = book.import_qrels(CLICKS, queries, grades) if grades and text_of(form, "grades") else 0
    return see_other("/book", index=name, added=added, **({"imported": stored} if stored else {}))


def _read(content: bytes, folder: Path) -> tuple[dict[str, float], Qrels]:
    """The queries of an uploaded log with their clicks, and the grades of a log of user behaviour.

    Raises:
        InputError: A line is neither a click nor a record of user behaviour, or no search has a click.
    """
    first = content.lstrip()[:10_000].partition(b"\n")[0].decode("utf-8", "replace")
    if first.startswith("{") and not all(key in first for key in _CLICK_KEYS):
        path = folder / "ubi_queries_events.ndjson"
        path.write_bytes(content)
        with named(path, f"{UBI}{folder}"):
            return _behaviour(f"{UBI}{folder}")
    path = folder / "clicks"
    path.write_bytes(content)
    with named(path):
        return _clicks(path), {}


def _behaviour(spec: str) -> tuple[dict[str, float], Qrels]:
    from termweave.engine.index_source.ubi import UbiLog  # noqa: PLC0415 - numpy, which the pages start without

    log = UbiLog(spec)
    return {text: sum(documents.values()) for text, documents in log.counts().items()}, log.qrels()


def _clicks(path: Path) -> dict[str, float]:
    from termweave.training.data import click_log  # noqa: PLC0415 - numpy comes with it

    clicks: dict[str, float] = {}
    for text, _, count in click_log.read(path):
        if text.strip() and count > 0:
            clicks[text] = clicks.get(text, 0.0) + count
    return clicks
