"""The addresses `/api/...`: the data that pages show, as JSON for applications in any language. The JSON schemas are in docs/schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from termweave.errors import UsageError
from termweave.evaluation.book import agreement
from termweave.evaluation.book.store import check_judge
from termweave.indexer.generations import listing
from termweave.search.results import json
from termweave.ui import parameters, searching
from termweave.ui.pages import judge_page
from termweave.ui.parameters import INDEX, JOB, JUDGE, Parameter
from termweave.ui.rendering import FOLDER, data
from termweave.ui.workspace import check_query, workspace_of

if TYPE_CHECKING:
    from termweave.ui.jobs import BackgroundJob

#: The OpenAPI document, which tools/generate_docs.py writes.
OPENAPI = FOLDER / "static" / "openapi.json"

Values: TypeAlias = Mapping[str, Any]
#: Gets a request and the values of its parameters, and returns the answer without its schema.
Answer: TypeAlias = Callable[[Request, Values], Values]


@dataclass(frozen=True)
class Endpoint:
    """One address of the API, named as the function that answers its requests; the docstring of this function describes the address in OpenAPI.

    Attributes:
        answer: The function that answers a request.
        parameters: The parameters that a request may have.
        schema: Name of the JSON schema of the answers, a file in docs/schemas.
    """

    answer: Answer
    parameters: tuple[Parameter, ...]
    schema: str

    @property
    def takes_body(self) -> bool:
        """Whether a request may also give the parameters as a JSON body: a query may be longer than an address that a proxy lets pass."""
        return any(each.name == "q" for each in self.parameters)


#: Path below /api -> what answers it.
ENDPOINTS: dict[str, Endpoint] = {}


def endpoint(*parameters: Parameter, schema: str = "") -> Callable[[Answer], Answer]:
    """Return a decorator that registers a function as an endpoint of the API, under the name of the function."""

    def registered(function: Answer) -> Answer:
        name = function.__name__
        ENDPOINTS[name] = Endpoint(function, parameters, schema or name)
        return function

    return registered


@endpoint(*parameters.SEARCH)
def search(request: Request, values: Values) -> Values:
    """The best documents for a query, as 'termweave search --json'."""
    side = searching.answer(workspace_of(request), values, searching.options(values))
    return json.search(values["q"], side.answer, side.took)


@endpoint(*parameters.EXPLAIN)
def explain(request: Request, values: Values) -> Values:
    """Why a document has its score for a query, as 'termweave explain --json'."""
    return json.explain(values["q"], searching.explained(workspace_of(request), values))


@endpoint(*parameters.COMPARE)
def compare(request: Request, values: Values) -> Values:
    """The agreement of two ways to search on a query."""
    return {"query": values["q"], **searching.compared(workspace_of(request), values).as_dict()}


@endpoint(*parameters.REQUESTS)
def requests(request: Request, values: Values) -> Values:
    """The requests that a search sends to the server, for applications that send them themselves."""
    index = searching.index_of(workspace_of(request), values)
    return json.requests(index.requests(values["q"], **searching.options(values)))


@endpoint(*parameters.ENCODE)
def encode(request: Request, values: Values) -> Values:
    """Term weights and vectors of queries."""
    workspace = workspace_of(request)
    for text in values["q"]:
        check_query(text)
    index = workspace.index(workspace.chosen(values["index"]))
    encoded = [
        {"text": each.text, "weights": None if each.weights is None else each.weights.as_dict(), "vector": each.vector}
        for each in index.encode(values["q"])
    ]
    return {"generation": index.generation, "encodings": encoded}


@endpoint(schema="list")
def indices(request: Request, _: Values) -> Values:
    """All indices, as 'termweave list --json'."""
    engine = workspace_of(request).engine
    return {"url": engine.url, "indices": listing.summaries(engine)}


@endpoint(INDEX)
def generations(request: Request, values: Values) -> Values:
    """The generations of an index, as 'termweave generations --json'."""
    workspace = workspace_of(request)
    name = workspace.chosen(values["index"])
    return {"name": name, "generations": [asdict(each) for each in listing.list_generations(workspace.engine, name)]}


@endpoint(INDEX)
def book(request: Request, values: Values) -> Values:
    """The judged queries of an index, with their pools, and how far judges agree."""
    stored = workspace_of(request).book(values["index"])
    grades = stored.grades()
    counts = Counter(each.query for each in grades if each.grade is not None)
    queries = [{"id": each.id, "text": each.text, "documents": each.pool, "grades": counts[each.id]} for each in stored.queries()]
    agreed = asdict(agreement.measure(grades)) if grades else None
    return {"index": stored.name, "queries": queries, "agreement": agreed, "guidelines": stored.guidelines()}


@endpoint(INDEX)
def grades(request: Request, values: Values) -> Values:
    """Every grade of every judge, with notes."""
    stored = workspace_of(request).book(values["index"])
    return {"index": stored.name, "grades": [asdict(each) for each in stored.grades()]}


@endpoint(INDEX, JUDGE)
def judge(request: Request, values: Values) -> Values:
    """The progress of a judge, and the document to judge next, without the search that found it."""
    workspace, judge = workspace_of(request), check_judge(values["judge"])
    stored = workspace.book(values["index"])
    task = judge_page.task_of(workspace.index(stored.name), stored, judge)
    card = task.card
    shown = card and {"query": card.query.text, "document": card.document, "title": card.title, "text": card.text}
    return {"index": stored.name, "judge": judge, "done": task.done, "documents": task.documents, "next": shown}


@endpoint()
def jobs(request: Request, _: Values) -> Values:
    """The evaluations and other work that pages began, the newest first."""
    return {"jobs": [_job(each) for each in request.app.state.jobs.all()]}


@endpoint(JOB)
def evaluate(request: Request, values: Values) -> Values:
    """The result of an evaluation, as 'termweave evaluate --json'."""
    from termweave.evaluation.table import as_json  # noqa: PLC0415 - numpy comes with it

    result = _ended(request, values, "evaluate").result
    return {**as_json(result.experiment), "gates": list(map(asdict, result.verdicts))}


@endpoint(JOB)
def tune(request: Request, values: Values) -> Values:
    """The result of tuning, as 'termweave tune --json'."""
    job = _ended(request, values, "tune")
    return {**asdict(job.result), "adopted": bool(job.about.get("adopted"))}


@endpoint(JOB)
def learn(request: Request, values: Values) -> Values:
    """The result of learning: what was tried, the gain on test questions, and the generation to promote."""
    result: Values = _ended(request, values, "learn").result
    return result


def _ended(request: Request, values: Values, kind: str) -> BackgroundJob:
    """The background job that a request names by its id, once the job has ended successfully.

    Raises:
        UsageError: There is no such job of this kind, or the job has not ended.
        TermweaveError: The job failed: the error that ended the job is raised again.
    """
    job: BackgroundJob = request.app.state.jobs.find(values["job"], kind)
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


def routes() -> list[Route]:
    """The routes of all endpoints of the API, and the route of the OpenAPI document."""
    document = Route("/api/openapi.json", lambda _: FileResponse(OPENAPI, media_type="application/json"), methods=["GET"])
    return [document, *(_route(name, each) for name, each in ENDPOINTS.items())]


def _route(name: str, endpoint: Endpoint) -> Route:
    def answer(request: Request, body: bytes | None) -> Response:
        query = request.query_params if body is None else parameters.of_json(body, endpoint.parameters)
        values = endpoint.answer(request, parameters.read(query, endpoint.parameters))
        return data({"schema": f"termweave.{endpoint.schema}/1", **values})

    async def answer_request(request: Request) -> Response:
        if request.method == "POST" and request.query_params:
            raise UsageError("The request has parameters both in its address and in its body.", "Send all of them in the body.")
        return await run_in_threadpool(answer, request, await request.body() if request.method == "POST" else None)

    return Route(f"/api/{name}", answer_request, methods=["GET", "POST"] if endpoint.takes_body else ["GET"])
