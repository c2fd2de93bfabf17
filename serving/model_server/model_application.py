"""The application of `termweave serve --models`: its endpoints, and what happens to errors."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pybase64
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from termweave.encoders.onnx.runtime import available_cores
from termweave.errors import TermweaveError, UsageError
from termweave.search.retrieval import client_query
from termweave.serving.model_server import encoding_request, openapi_document, query_request
from termweave.serving.model_server.encoding_queue import EncodingQueue, QueueFull
from termweave.serving.model_server.encoding_request import TooMuch
from termweave.serving.model_server.metrics import Metrics
from termweave.serving.model_server.model_outputs import KINDS
from termweave.serving.model_server.served_models import ServedModels, UnknownModel
from termweave.ui.protection.request_filter import RequestFilter
from termweave.ui.protection.sessions import Sessions
from termweave.ui.rendering import CLIENT_GONE, data, status_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from concurrent.futures import Future

    from starlette.requests import Request

    from termweave.engine import Engine
    from termweave.serving.model_server.encoding_request import EncodingRequest
    from termweave.serving.model_server.model_outputs import ServedModel
    from termweave.serving.model_server.query_request import QueryRequest
    from termweave.ui.serve_options import ServeOptions

#: Paths that need no token: they say only whether the server runs.
PUBLIC = frozenset({"/health", "/ready"})
#: Seconds after which a client may try again when the queue is full.
_LATER = "1"
#: Bytes of a body that is read in a thread, because it would keep other requests waiting.
_LARGE = 1 << 18
#: Status of an error -> type and code in OpenAI's form.
_ERRORS = {
    HTTPStatus.BAD_REQUEST: ("invalid_request_error", "invalid_request"),
    HTTPStatus.UNAUTHORIZED: ("invalid_request_error", "invalid_api_key"),
    HTTPStatus.FORBIDDEN: ("invalid_request_error", "forbidden"),
    HTTPStatus.NOT_FOUND: ("invalid_request_error", "not_found"),
    HTTPStatus.METHOD_NOT_ALLOWED: ("invalid_request_error", "method_not_allowed"),
    HTTPStatus.REQUEST_TIMEOUT: ("invalid_request_error", "timeout"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("invalid_request_error", "request_too_large"),
    HTTPStatus.UNPROCESSABLE_ENTITY: ("invalid_request_error", "too_much"),
    HTTPStatus.TOO_MANY_REQUESTS: ("rate_limit_error", "too_many_requests"),
}


def create(engine: Engine | None, options: ServeOptions) -> RequestFilter:
    """Make the application.

    Args:
        engine: The server whose indices are served; None: only the models that the options name.
        options: How it is served.

    Raises:
        UsageError: A model that the options name does not exist, or is not an encoder.
        ModelError: Its folder is damaged.
    """
    app = Starlette(
        routes=[
            *(
                Route(
                    f"/v1/{name}",
                    partial(_answer, name=name, read=partial(encoding_request.read, endpoint=name), make=_encoded),
                    methods=["POST"],
                )
                for name in KINDS.values()
            ),
            Route("/v1/query", partial(_answer, name="query", read=query_request.read, make=_rewritten), methods=["POST"]),
            Route("/v1/models", _models),
            Route("/health", _health),
            Route("/ready", _ready),
            Route("/metrics", _metrics),
            Route("/openapi.json", lambda _: JSONResponse(openapi_document.document())),
        ],
        exception_handlers={TermweaveError: _failed, HTTPException: _refused, Exception: _fault},
    )
    app.router.redirect_slashes = False
    app.state.engine = engine
    app.state.models = ServedModels(engine, options)
    app.state.metrics = Metrics()
    app.state.ending = lambda: False

    def ending() -> bool:
        return bool(app.state.ending())

    app.state.queue = EncodingQueue(available_cores(), app.state.metrics.batch, ending)
    app.state.warm, app.state.close = app.state.models.warm, app.state.queue.close
    app.state.sessions = Sessions(options.token)
    return RequestFilter(app, options, app.state.sessions, problem=problem, public=PUBLIC, limited=False)


def problem(request: Request, status: int, message: str, hint: str = "") -> Response:
    """Report an error in OpenAI's form."""
    del request
    kind, code = _ERRORS.get(HTTPStatus(status), ("server_error", HTTPStatus(status).phrase.lower().replace(" ", "_")))
    return _error(status, f"{message} {hint}".strip(), kind, code)


def _error(status: int, message: str, kind: str, code: str) -> Response:
    return data({"error": {"message": message, "type": kind, "param": None, "code": code}}, status)


async def _answer(
    request: Request,
    name: str,
    read: Callable[[bytes], Any],
    make: Callable[[Request, str, Any], Awaitable[tuple[Response, int]]],
) -> Response:
    """Answer `/v1/NAME`, and count the request. `read` reads its body; `make` gives the answer and the number of encoded texts."""
    began, texts, status = time.perf_counter(), 0, int(HTTPStatus.INTERNAL_SERVER_ERROR)
    try:
        body = await request.body()
        asked = await run_in_threadpool(read, body) if len(body) > _LARGE else read(body)
        response, texts = await make(request, name, asked)
        status = response.status_code
    except ClientDisconnect:
        status = CLIENT_GONE
        response = Response(status_code=status)
    except TermweaveError as error:
        response = _failed(request, error)
        status = response.status_code
    except HTTPException as error:
        status = error.status_code
        raise
    except QueueFull as full:
        status = int(HTTPStatus.SERVICE_UNAVAILABLE)
        waiting = f"{full.waiting:,} texts wait" if full.waiting else "The server is about to end"
        response = _error(status, f"{waiting}. Try again later.", "server_error", "overloaded")
        response.headers["retry-after"] = _LATER
    finally:
        request.app.state.metrics.answered(name, status, texts, time.perf_counter() - began)
    return response


async def _encoded(request: Request, name: str, asked: EncodingRequest) -> tuple[Response, int]:
    """The vectors or term weights of the texts of a request."""
    state = request.app.state
    model: ServedModel = state.models.recent(asked.model) or await run_in_threadpool(state.models.find, asked.model)
    output = next(each for each, endpoint in KINDS.items() if endpoint == name)
    if output not in model.outputs:
        given = " and ".join(f"/v1/{KINDS[each]}" for each in model.outputs) or "nothing that is served"
        raise UnknownModel(f"The model {model.names[0]!r} ({model.id}) does not give /v1/{name}.", f"It gives {given}.")
    if asked.dimensions not in {None, model.dimension}:
        raise UsageError(f"The vectors of {model.id} have {model.dimension} numbers.", "Leave 'dimensions' out.")
    lane = (model.encoder, model.generation and model.generation.index, name, asked.kind)
    encode = partial(model.weights if output == "weights" else model.counted_vectors, kind=asked.kind)
    results = await _awaited(request, state.queue.submit(lane, encode, asked.texts))
    if output == "weights":
        weights = [_as_pairs(each) for each in results] if asked.form == "pairs" else results
        rows = [{"object": "sparse", "index": place, "embedding": each} for place, each in enumerate(weights)]
        return data({"object": "list", "model": asked.model, "data": rows}), len(asked.texts)
    tokens = sum(count for _, count in results)
    vectors = [_as_base64(vector) if asked.form == "base64" else vector for vector, _ in results]
    rows = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(vectors)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return data({"object": "list", "model": asked.model, "data": rows, "usage": usage}), len(asked.texts)


async def _rewritten(request: Request, name: str, asked: QueryRequest) -> tuple[Response, int]:
    """The query of learned search for the query of an application, which a search pipeline of `termweave connect` sends."""
    state = request.app.state
    generation = state.models.known(asked.index) or await run_in_threadpool(state.models.generation, asked.index)
    query_request.check(asked, generation)
    if asked.taken is None:
        return data({"query": asked.query}), 0
    outputs = frozenset(signal.needs for signal in generation.signals(asked.signals))
    encoder = generation.encoder.only(outputs)
    encode = partial(encoder.encode, kind="query", statistics=generation.statistics)
    (encoded,) = await _awaited(
        request, state.queue.submit((generation.encoder, generation.index, name, outputs), encode, [asked.taken.words])
    )
    query = await run_in_threadpool(
        client_query.rewritten, state.engine, generation, encoded, asked.signals, asked.taken.where, asked.depth
    )
    return data({"query": query}), 1


async def _awaited(request: Request, answer: Future[list[Any]]) -> Sequence[Any]:
    """Wait for the results of a request; if its client goes away, take what waits out of the queue.

    Raises:
        ClientDisconnect: The client went away.
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


def _as_base64(vector: Any) -> str:
    return pybase64.b64encode(vector.astype("<f4").tobytes()).decode()


def _as_pairs(weights: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"token": term, "weight": weight} for term, weight in weights.items()]


def _models(request: Request) -> Response:
    """The models that requests can name."""
    return data(
        {
            "object": "list",
            "data": [
                {
                    "id": model.id,
                    "object": "model",
                    "created": 0,
                    "owned_by": "termweave",
                    "hash": model.hash,
                    "name": model.names[-1],
                    "index": model.index or None,
                    "kinds": [KINDS[output] for output in model.outputs],
                    "dimension": model.dimension,
                }
                for model in request.app.state.models.all()
            ],
        }
    )


def _health(request: Request) -> Response:
    """Whether the process answers."""
    del request
    return data({"status": "alive"})


def _ready(request: Request) -> Response:
    """Whether all models are open."""
    models: ServedModels = request.app.state.models
    known = request.app.state.sessions.known(request)  # others learn no names of indices and no addresses
    if models.ready:
        return data({"status": "ready", **({"left_out": models.left_out} if known else {})})
    return data({"status": "opening", **({"reason": models.reason} if known else {})}, HTTPStatus.SERVICE_UNAVAILABLE)


def _metrics(request: Request) -> Response:
    """Counts and times for Prometheus."""
    state = request.app.state
    return Response(state.metrics.text(len(state.queue)), media_type="text/plain; version=0.0.4")


def _failed(request: Request, error: Exception) -> Response:
    """An error that the client can act on."""
    if not isinstance(error, TermweaveError):
        raise error
    message = f"{error.message} {error.hint}".strip()
    if isinstance(error, UnknownModel):
        return _error(HTTPStatus.NOT_FOUND, message, "invalid_request_error", "model_not_found")
    return problem(request, HTTPStatus.UNPROCESSABLE_ENTITY if isinstance(error, TooMuch) else status_of(error), message)


def _refused(request: Request, error: Exception) -> Response:
    """An address that does not exist, a method that it does not take, a body that is too large or too slow."""
    if not isinstance(error, HTTPException):
        raise error
    missing = error.status_code == HTTPStatus.NOT_FOUND
    message = f"There is nothing at {request.scope['path']}." if missing else f"{error.detail}."
    answer = problem(request, error.status_code, message, "'/openapi.json' lists the addresses." if missing else "")
    answer.headers.update(error.headers or {})
    return answer


def _fault(request: Request, error: Exception) -> Response:
    """A fault in termweave itself. Starlette raises it again afterwards, so that the log has the traceback."""
    del error
    hint = "Its details are in the log of 'termweave serve'."
    return problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "A fault in termweave itself.", hint)
