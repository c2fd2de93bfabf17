"""The web application of `termweave serve --models`: its endpoints, metrics for Prometheus, and answers to errors."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson
import pybase64
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from termweave import __version__
from termweave.encoders.onnx.runtime import available_cores
from termweave.errors import TermweaveError, UsageError
from termweave.search.retrieval import client_query
from termweave.serving.model_server import request_bodies
from termweave.serving.model_server.encoding_queue import EncodingQueue, QueueFull
from termweave.serving.model_server.request_bodies import EncodingRequest, QueryRequest, TooMuch
from termweave.serving.model_server.served_models import KINDS, ServedModel, ServedModels, UnknownModel
from termweave.ui.protection.request_filter import RequestFilter
from termweave.ui.protection.sessions import Sessions
from termweave.ui.rendering import CLIENT_GONE, data, error_handlers, status_of

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.ui.serve_options import ServeOptions

#: Paths that need no token: they say only whether the server runs.
PUBLIC = frozenset({"/health", "/ready"})
#: Bytes of a body that is read in a thread, because it would keep other requests waiting.
_LARGE = 1 << 18
#: Status of an answer -> its code in OpenAI's form, where that is not the name of the status.
_CODES = {400: "invalid_request", 401: "invalid_api_key", 408: "timeout", 413: "request_too_large", 422: "too_much"}
#: Kind of an error, the status of its answer, and its code.
_STATUS = (
    (UnknownModel, HTTPStatus.NOT_FOUND, "model_not_found"),
    (TooMuch, HTTPStatus.UNPROCESSABLE_ENTITY, "too_much"),
    (QueueFull, HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"),
)
_OPENAPI = Path(__file__).parent / "openapi.json"
#: Bounds of the histograms.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16)
#: Name of a metric -> its type, and what it says.
_METRICS = {
    "termweave_requests_total": ("counter", "Requests that were answered."),
    "termweave_texts_total": ("counter", "Texts that were encoded."),
    "termweave_request_seconds": ("histogram", "Seconds until the answer."),
    "termweave_queue_texts": ("gauge", "Texts that wait."),
    "termweave_batch_texts": ("histogram", "Texts that were encoded together."),
}


class Metrics:
    """The counts and histograms that `/metrics` shows; safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: defaultdict[str, float] = defaultdict(float)  # a name with its labels, as the text has them -> a value

    def answered(self, endpoint: str, status: int, texts: int, seconds: float) -> None:
        """Count an answered request to an endpoint ("embeddings", "sparse", "query"), its encoded texts (0 after an error), and its duration."""
        label = f'endpoint="{endpoint}"'
        with self._lock:
            self._values[f'termweave_requests_total{{{label},status="{status}"}}'] += 1
            self._values[f"termweave_texts_total{{{label}}}"] += texts
            self._observe("termweave_request_seconds", label, seconds, _SECONDS)

    def batch(self, texts: int) -> None:
        """Count a batch with this number of texts in the histogram of batch sizes."""
        with self._lock:
            self._observe("termweave_batch_texts", "", texts, _SIZES)

    def _observe(self, name: str, label: str, number: float, bounds: Sequence[float]) -> None:
        """Enter a number into a histogram: into the bucket of each bound that the number does not exceed, the sum and the count."""
        for bound in (*bounds, float("inf")):
            text = "+Inf" if bound == float("inf") else bound
            self._values[f'{name}_bucket{{{label}{"," if label else ""}le="{text}"}}'] += number <= bound
        labels = f"{{{label}}}" if label else ""
        self._values[f"{name}_sum{labels}"] += number
        self._values[f"{name}_count{labels}"] += 1

    def text(self, waiting: int) -> str:
        """All metrics in the text format of Prometheus; `waiting` is the number of texts in the queue."""
        with self._lock:
            values = {**self._values, "termweave_queue_texts": waiting}
        lines: list[str] = []
        for name, (kind, about) in _METRICS.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{line} {value:.15g}" for line, value in values.items() if line.startswith(name)]
        return "\n".join([*lines, ""])


def create(engine: Engine | None, options: ServeOptions) -> RequestFilter:
    """Make the web application of a model server, with its protection around it.

    Args:
        engine: The search server whose indices' models are served; None: only the models that the options name are served.
        options: The options of `termweave serve`.

    Raises:
        UsageError: A model that the options name does not exist, or is not an encoder.
        ModelError: The folder of a model that the options name is damaged.
    """
    described = orjson.loads(_OPENAPI.read_bytes())
    described["info"]["version"] = __version__
    app = Starlette(
        routes=[
            *(_post(name, partial(request_bodies.read_encoding, endpoint=name), _encoded) for name in KINDS.values()),
            _post("query", request_bodies.read_query, _rewritten),
            Route("/v1/models", _models),
            Route("/health", lambda _: data({"status": "alive"})),
            Route("/ready", _ready),
            Route("/metrics", _metrics),
            Route("/openapi.json", lambda _: data(described)),
        ],
        exception_handlers=error_handlers(_failed, problem, "'/openapi.json' lists the addresses."),
    )
    app.router.redirect_slashes = False
    app.state.engine = engine
    app.state.models = ServedModels(engine, options)
    app.state.metrics = Metrics()
    app.state.ending = lambda: False
    app.state.queue = EncodingQueue(available_cores(), app.state.metrics.batch, lambda: bool(app.state.ending()))
    app.state.warm, app.state.close = app.state.models.warm, app.state.queue.close
    app.state.sessions = Sessions(options.token)
    return RequestFilter(app, options, problem=problem, public=PUBLIC)


def problem(_: Request, status: int, message: str, hint: str = "", code: str = "") -> Response:
    """Make the answer that reports an error, in the JSON form of OpenAI's API."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    code = code or _CODES.get(status, HTTPStatus(status).phrase.lower().replace(" ", "_"))
    return data({"error": {"message": f"{message} {hint}".strip(), "type": kind, "param": None, "code": code}}, status)


def _failed(request: Request, error: TermweaveError) -> Response:
    """Make the answer to an error about which the client can do something."""
    _, status, code = next((each for each in _STATUS if isinstance(error, each[0])), (None, status_of(error), ""))
    answer = problem(request, status, error.message, error.hint, code)
    if isinstance(error, QueueFull):
        answer.headers["retry-after"] = "1"  # second
    return answer


def _post(
    name: str, read: Callable[[bytes], Any], make: Callable[[Request, str, Any], Awaitable[tuple[Mapping[str, Any], int]]]
) -> Route:
    """Make the route of `/v1/NAME`, whose requests are counted. `read` parses a body; `make` returns the answer and the number of encoded texts."""

    async def answer(request: Request) -> Response:
        began, texts, status = time.perf_counter(), 0, int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            body = await request.body()
            values, texts = await make(request, name, await run_in_threadpool(read, body) if len(body) > _LARGE else read(body))
            response = data(values)
            status = response.status_code
        except TermweaveError as error:
            response = _failed(request, error)
            status = response.status_code
        except (ClientDisconnect, HTTPException) as error:
            status = getattr(error, "status_code", CLIENT_GONE)
            raise
        finally:
            request.app.state.metrics.answered(name, status, texts, time.perf_counter() - began)
        return response

    return Route(f"/v1/{name}", answer, methods=["POST"])


async def _encoded(request: Request, name: str, body: EncodingRequest) -> tuple[dict[str, Any], int]:
    """Answer `/v1/embeddings` or `/v1/sparse`: vectors or term weights of the texts of a request, and the number of texts."""
    state = request.app.state
    model: ServedModel = state.models.recent(body.model) or await run_in_threadpool(state.models.find, body.model)
    output = next(each for each, endpoint in KINDS.items() if endpoint == name)
    if output not in model.outputs:
        endpoints = " and ".join(f"/v1/{KINDS[each]}" for each in model.outputs) or "nothing that is served"
        raise UnknownModel(f"The model {model.names[0]!r} ({model.id}) does not answer /v1/{name}.", f"It answers {endpoints}.")
    if body.dimensions not in {None, model.dimension}:
        raise UsageError(f"The vectors of {model.id} have {model.dimension} numbers.", "Leave 'dimensions' out.")
    lane = (model.encoder, model.generation and model.generation.index, name, body.kind)
    encode = partial(model.weights if output == "weights" else model.vectors, kind=body.kind)
    results = await _awaited(request, state.queue.submit(lane, encode, body.texts))
    kind, usage = "sparse", {}
    if output == "dense":
        tokens = sum(count for _, count in results)
        kind, usage = "embedding", {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
        results = [vector for vector, _ in results]
    if body.form == "base64":
        results = [pybase64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in results]
    elif body.form == "pairs":
        results = [[{"token": term, "weight": weight} for term, weight in weights.items()] for weights in results]
    rows = [{"object": kind, "index": place, "embedding": each} for place, each in enumerate(results)]
    return {"object": "list", "model": body.model, "data": rows, **usage}, len(body.texts)


async def _rewritten(request: Request, name: str, body: QueryRequest) -> tuple[dict[str, Any], int]:
    """Answer `/v1/query`: rewrite an application's query, sent by the search pipeline, into learned search; and the number of encoded texts."""
    state = request.app.state
    generation = state.models.generations.fresh(body.index) or await run_in_threadpool(state.models.generation, body.index)
    request_bodies.check_index(body, generation)
    if body.taken is None:
        return {"query": body.query}, 0
    outputs = frozenset(signal.needs for signal in generation.signals(body.signals))
    encoder = generation.encoder.only(outputs)
    encode = partial(encoder.encode, kind="query", statistics=generation.statistics)
    lane = (generation.encoder, generation.index, name, outputs)
    (encoded,) = await _awaited(request, state.queue.submit(lane, encode, [body.taken.words]))
    query = await run_in_threadpool(client_query.rewritten, generation, encoded, body.signals, body.taken.where, body.depth)
    return {"query": query}, 1


async def _awaited(request: Request, answer: Future[list[Any]]) -> Sequence[Any]:
    """Wait for the results of a request; if its client disconnects, remove the request's waiting texts from the queue.

    Raises:
        ClientDisconnect: The client has disconnected.
    """
    encoding = asyncio.wrap_future(answer)
    gone = asyncio.create_task(_client_gone(request))
    either: tuple[asyncio.Future[Any], ...] = (encoding, gone)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not encoding.done():
            raise ClientDisconnect
        return encoding.result()
    finally:
        gone.cancel()
        encoding.cancel()


async def _client_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _models(request: Request) -> Response:
    """Answer `/v1/models`: a list of the models that requests can name."""
    usual = {"object": "model", "created": 0, "owned_by": "termweave"}
    listed = [
        {"id": model.id, **usual, "hash": model.hash, "name": model.names[-1], "index": model.index or None}
        | {"kinds": [KINDS[output] for output in model.outputs], "dimension": model.dimension}
        for model in request.app.state.models.all()
    ]
    return data({"object": "list", "data": listed})


def _ready(request: Request) -> Response:
    """Answer `/ready`: status 200 if all models are open, else 503."""
    models: ServedModels = request.app.state.models
    signed_in = request.app.state.sessions.signed_in(request)  # others learn no names of indices and no addresses
    if models.ready:
        return data({"status": "ready", **({"left_out": models.left_out} if signed_in else {})})
    return data({"status": "opening", **({"reason": models.reason} if signed_in else {})}, HTTPStatus.SERVICE_UNAVAILABLE)


def _metrics(request: Request) -> Response:
    """Answer `/metrics`: counts and durations for Prometheus."""
    state = request.app.state
    return Response(state.metrics.text(len(state.queue)), media_type="text/plain; version=0.0.4")
