"""`/api/...`: the data of the pages as JSON, for applications in any language. The schemas are in docs/schemas."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from starlette.responses import FileResponse
from starlette.routing import Route

from termweave.evaluation.book.store import JudgementBook
from termweave.search.results import json
from termweave.ui import kept_candidates, parameters, searching
from termweave.ui.api import book_endpoints, job_endpoints
from termweave.ui.parameters import read
from termweave.ui.rendering import FOLDER, data
from termweave.ui.workspace import check_query

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.records import Encoding
    from termweave.ui.workspace import Workspace

#: The OpenAPI document, which docs/generate.py writes.
OPENAPI = FOLDER / "static" / "openapi.json"


def search(request: Request) -> Response:
    """`search/1`: as `termweave search --json`."""
    values = read(request.query_params, parameters.SEARCH)
    side = searching.answer(_workspace(request), values, **searching.shown(values, values.keys()))
    return data(json.search(values["q"], side.answer, side.took))


def explain(request: Request) -> Response:
    """`explain/1`: as `termweave explain --json`."""
    values = read(request.query_params, parameters.EXPLAIN)
    return data(json.explain(values["q"], searching.explained(_workspace(request), values)))


def compare(request: Request) -> Response:
    """`compare/1`: how far two configurations agree."""
    values = read(request.query_params, parameters.COMPARE)
    return data({"schema": "termweave.compare/1", "query": values["q"], **searching.heads(_workspace(request), values).as_dict()})


def candidates(request: Request) -> Response:
    """`candidates/1`: the candidates of every signal, with what ranks them."""
    values = read(request.query_params, parameters.KEPT)
    workspace = _workspace(request)
    index = workspace.index(workspace.chosen(values["index"]))
    setting = kept_candidates.setting_of(index, values["mode"])
    if setting.neighbours is not None and values["rnn"] is not None:
        setting = replace(setting, neighbours=replace(setting.neighbours, weight=values["rnn"]))
    book = JudgementBook(workspace.engine, index.lineage.name) if values["judged"] else None
    kept = kept_candidates.keep(index, values["q"], book, values["filter"])
    return data(kept_candidates.as_data(index, kept, setting))


def requests(request: Request) -> Response:
    """`requests/1`: the requests that the search sends to the server, as `termweave search --show-query --json`."""
    values = read(request.query_params, parameters.REQUESTS)
    index, _, ranked = searching.ranking(_workspace(request), values)
    return data(json.requests(index.requests(values["q"], **ranked)))


def encode(request: Request) -> Response:
    """`encode/1`: term weights and vectors of queries."""
    values = read(request.query_params, parameters.ENCODE)
    workspace = _workspace(request)
    for text in values["q"]:
        check_query(text)
    index = workspace.index(workspace.chosen(values["index"]))
    encoded = [_encoding(each) for each in index.encode(values["q"])]
    return data({"schema": "termweave.encode/1", "generation": index.generation, "encodings": encoded})


def _encoding(encoding: Encoding) -> dict[str, Any]:
    return {
        "text": encoding.text,
        "weights": None if encoding.weights is None else encoding.weights.as_dict(),
        "vector": encoding.vector,
    }


def indices(request: Request) -> Response:
    """`list/1`: as `termweave list --json`."""
    from termweave.indexer.generations.names import summaries  # noqa: PLC0415 - imports wait until a request needs them

    read(request.query_params, ())
    engine = _workspace(request).engine
    return data({"schema": "termweave.list/1", "url": engine.url, "indices": summaries(engine)})


def generations(request: Request) -> Response:
    """`generations/1`: as `termweave generations --json`."""
    from termweave.indexer.generations import generations  # noqa: PLC0415 - as above

    values = read(request.query_params, parameters.GENERATIONS)
    workspace = _workspace(request)
    name = workspace.chosen(values["index"])
    rows = [asdict(each) for each in generations.list_generations(workspace.engine, name)]
    return data({"schema": "termweave.generations/1", "name": name, "generations": rows})


def openapi(request: Request) -> Response:
    """The OpenAPI document of all of these."""
    del request
    return FileResponse(OPENAPI, media_type="application/json")


#: Path below /api -> what answers it.
ENDPOINTS = {
    "search": search,
    "explain": explain,
    "compare": compare,
    "candidates": candidates,
    "requests": requests,
    "encode": encode,
    "indices": indices,
    "generations": generations,
    "book": book_endpoints.book,
    "grades": book_endpoints.grades,
    "judge": book_endpoints.judge,
    "snapshots": book_endpoints.snapshots,
    "jobs": job_endpoints.jobs,
    "evaluate": job_endpoints.evaluate,
    "tune": job_endpoints.tune,
    "learn": job_endpoints.learn,
    "openapi.json": openapi,
}


def routes() -> list[Route]:
    """The routes of the API."""
    return [Route(f"/api/{name}", endpoint, methods=["GET"]) for name, endpoint in ENDPOINTS.items()]


def _workspace(request: Request) -> Workspace:
    workspace: Workspace = request.app.state.workspace
    return workspace
