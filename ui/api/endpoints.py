"""`/api/...`: the data of the pages as JSON, for applications in any language. The schemas are in docs/schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.routing import Route

from termweave.errors import UsageError
from termweave.evaluation.book import agreement
from termweave.evaluation.book.store import check_judge
from termweave.indexer.generations import listing
from termweave.search.results import json
from termweave.ui import parameters, searching
from termweave.ui.pages import judge_page
from termweave.ui.rendering import FOLDER, data
from termweave.ui.workspace import check_query, workspace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.ui.background.jobs import BackgroundJob
    from termweave.ui.parameters import Parameter

#: The OpenAPI document, which tools/generate_docs.py writes.
OPENAPI = FOLDER / "static" / "openapi.json"

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """One address of the API.

    Attributes:
        values: Gets the request and the values of its parameters, and returns the answer without its schema.
        about: What it is for.
        parameters: What a request may say.
        schema: Name of the schema of its answers in docs/schemas; "": the name of the endpoint.
    """

    values: Callable[[Request, Values], Mapping[str, Any]]
    about: str
    parameters: Sequence[Parameter] = ()
    schema: str = ""


def search(request: Request, given: Values) -> Mapping[str, Any]:
    """The hits and what is said about them."""
    side = searching.answer(workspace_of(request), given, **searching.display_options(given, given.keys()))
    return json.search(given["q"], side.answer, side.took)


def explain(request: Request, given: Values) -> Mapping[str, Any]:
    """One explained document."""
    return json.explain(given["q"], searching.explained(workspace_of(request), given))


def compare(request: Request, given: Values) -> Mapping[str, Any]:
    """How far two configurations agree."""
    return {"query": given["q"], **searching.heads(workspace_of(request), given).as_dict()}


def requests(request: Request, given: Values) -> Mapping[str, Any]:
    """The requests that a search sends to the server."""
    index, _, ranked = searching.ranking(workspace_of(request), given)
    return json.requests(index.requests(given["q"], **ranked))


def encode(request: Request, given: Values) -> Mapping[str, Any]:
    """Term weights and vectors of queries."""
    workspace = workspace_of(request)
    for text in given["q"]:
        check_query(text)
    index = workspace.index(workspace.chosen(given["index"]))
    encoded = [
        {"text": each.text, "weights": None if each.weights is None else each.weights.as_dict(), "vector": each.vector}
        for each in index.encode(given["q"])
    ]
    return {"generation": index.generation, "encodings": encoded}


def indices(request: Request, given: Values) -> Mapping[str, Any]:
    """All indices."""
    del given
    engine = workspace_of(request).engine
    return {"url": engine.url, "indices": listing.summaries(engine)}


def generations(request: Request, given: Values) -> Mapping[str, Any]:
    """The generations of an index."""
    workspace = workspace_of(request)
    name = workspace.chosen(given["index"])
    return {"name": name, "generations": [asdict(each) for each in listing.list_generations(workspace.engine, name)]}


def book(request: Request, given: Values) -> dict[str, Any]:
    """The queries with their pools, how far judges agree, and the guidelines."""
    name = workspace_of(request).alias(given["index"])
    stored = judge_page.book_of(request, name)
    grades = stored.grades()
    counts = Counter(each.query for each in grades if each.grade is not None)
    queries = [{"id": each.id, "text": each.text, "documents": each.pool, "grades": counts[each.id]} for each in stored.queries()]
    agreed = asdict(agreement.measure(grades)) if grades else None
    return {"index": name, "queries": queries, "agreement": agreed, "guidelines": stored.guidelines()}


def grades(request: Request, given: Values) -> dict[str, Any]:
    """What every judge said, with notes and times."""
    name = workspace_of(request).alias(given["index"])
    return {"index": name, "grades": [asdict(each) for each in judge_page.book_of(request, name).grades()]}


def judge(request: Request, given: Values) -> dict[str, Any]:
    """How far a judge is, and the document that comes next; not which search found it."""
    name, judge = workspace_of(request).alias(given["index"]), check_judge(given["judge"])
    task = judge_page.task_of(request, name, judge)
    card = task.card and {
        "query": task.card.query.text,
        "document": task.card.document,
        "title": task.card.title,
        "text": task.card.text,
    }
    return {"index": name, "judge": judge, "done": task.done, "documents": task.documents, "next": card}


def jobs(request: Request, given: Values) -> dict[str, Any]:
    """All work whose result is kept, the newest first."""
    del given
    return {"jobs": [_job(each) for each in request.app.state.jobs.all()]}


def evaluate(request: Request, given: Values) -> dict[str, Any]:
    """The result of an evaluation, as `termweave evaluate --json`."""
    from termweave.evaluation.table import as_json  # noqa: PLC0415 - numpy comes with it

    result = _ended(request, given, "evaluate").result
    verdicts = [verdict.as_json(gate) for gate, verdict in result.verdicts]
    return {**as_json(result.experiment), "gates": verdicts}


def tune(request: Request, given: Values) -> dict[str, Any]:
    """The result of tuning, as `termweave tune --json`."""
    job = _ended(request, given, "tune")
    return {**asdict(job.result), "adopted": bool(job.about.get("adopted"))}


def learn(request: Request, given: Values) -> dict[str, Any]:
    """The result of learning."""
    result: dict[str, Any] = _ended(request, given, "learn").result
    return result


def _ended(request: Request, given: Values, kind: str) -> BackgroundJob:
    """The job that a request names.

    Raises:
        UsageError: There is none of this kind, or it has not ended.
        TermweaveError: The error that ended it.
    """
    job: BackgroundJob = request.app.state.jobs.find(given["job"])
    if job.kind != kind:
        raise UsageError(f"This is not a result of {kind!r}.", f"Ask /api/{job.kind} for it.")
    if job.error is not None:
        raise job.error
    if job.running:
        raise UsageError(f"{job.title} is running.", "Ask again when /api/jobs says that it is done.")
    return job


def _job(job: BackgroundJob) -> dict[str, Any]:
    state = "running" if job.running else "failed" if job.error else "done"
    about = {"id": job.id, "kind": job.kind, "title": job.title, "index": job.about["index"], "state": state}
    error = f"{job.error.message} {job.error.hint}".strip() if job.error else None
    return about | {"stage": job.stage, "done": job.done, "total": job.total, "error": error}


#: Path below /api -> what answers it.
ENDPOINTS = {
    "search": Endpoint(search, "The best documents for a query, as 'termweave search --json'.", parameters.SEARCH),
    "explain": Endpoint(explain, "Why a document has its score for a query, as 'termweave explain --json'.", parameters.EXPLAIN),
    "compare": Endpoint(compare, "How far two ways to search agree on a query.", parameters.COMPARE),
    "requests": Endpoint(
        requests,
        "The requests that a search sends to the server, for applications that send them themselves.",
        parameters.REQUESTS,
    ),
    "encode": Endpoint(encode, "Term weights and vectors of queries.", parameters.ENCODE),
    "indices": Endpoint(indices, "All indices, as 'termweave list --json'.", schema="list"),
    "generations": Endpoint(generations, "The generations of an index, as 'termweave generations --json'.", (parameters.INDEX,)),
    "book": Endpoint(book, "The judged queries of an index, with their pools, and how far judges agree.", (parameters.INDEX,)),
    "grades": Endpoint(grades, "Every grade of every judge, with notes.", (parameters.INDEX,)),
    "judge": Endpoint(judge, "How far a judge is, and the document to judge next.", parameters.JUDGE),
    "jobs": Endpoint(jobs, "The evaluations and other work that pages began, the newest first."),
    "evaluate": Endpoint(evaluate, "The result of an evaluation, as 'termweave evaluate --json'.", parameters.JOB),
    "tune": Endpoint(tune, "The result of tuning, as 'termweave tune --json'.", parameters.JOB),
    "learn": Endpoint(
        learn,
        "The result of learning: what was tried, the gain on test questions, and the generation to promote.",
        parameters.JOB,
    ),
}


def routes() -> list[Route]:
    """The routes of the API, and that of its OpenAPI document."""
    document = Route("/api/openapi.json", lambda _: FileResponse(OPENAPI, media_type="application/json"), methods=["GET"])
    return [document, *(_route(name, endpoint) for name, endpoint in ENDPOINTS.items())]


def takes_body(endpoint: Endpoint) -> bool:
    """Whether the parameters may come as a JSON body, too: a query may be longer than an address that a proxy lets pass."""
    return any(each.name == "q" for each in endpoint.parameters)


def _route(name: str, endpoint: Endpoint) -> Route:
    def answer(request: Request, body: bytes | None) -> Response:
        given = request.query_params if body is None else parameters.of_json(body, endpoint.parameters)
        values = endpoint.values(request, parameters.read(given, endpoint.parameters))
        return data({"schema": f"termweave.{endpoint.schema or name}/1", **values})

    async def answer_request(request: Request) -> Response:
        if request.method == "POST" and request.query_params:
            raise UsageError("The parameters are in the address and in the body.", "Send all of them in the body.")
        return await run_in_threadpool(answer, request, await request.body() if request.method == "POST" else None)

    return Route(f"/api/{name}", answer_request, methods=["GET", "POST"] if takes_body(endpoint) else ["GET"])
