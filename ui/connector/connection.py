"""Connect an index with a model server, and remove the connection.

The search pipeline is written last and in one request: until then searches do what they did before. What an earlier command left when it
was killed is found by name and marker; it is used or removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import EngineError, UsageError
from termweave.indexer.generations import audit
from termweave.search.catalog import lineage
from termweave.search.single_query import choose
from termweave.ui.connector import ml_commons
from termweave.ui.connector.parts import IndexConnection, marker, model_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.engine import Engine
    from termweave.search.catalog.lineage import Lineage

#: The query with which a connection is tried. Every model server answers it without encoding anything.
_TRIAL = {"match": {"text": "the"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options of `termweave connect`.

    Attributes:
        address: Address of the model server.
        token: What the model server asks for; None: nothing.
        mode: The mode as in `termweave search`; None: the adopted profile, else hybrid.
        candidates: How many documents each signal returns.
        fallback: Whether a search whose query cannot be rewritten runs as it was sent.
    """

    address: str
    token: str | None = None
    mode: str | None = None
    candidates: int = 100
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """What `connect` would do.

    Attributes:
        connection: The connection.
        notes: What searches through the pipeline do not have.
        kept: Id of the remote model that is registered as it should be; None: there is none.
        outdated: Ids of remote models of earlier commands.
    """

    connection: IndexConnection
    notes: Sequence[str]
    kept: str | None
    outdated: Sequence[str]


def plan(engine: Engine, name: str, options: ConnectOptions) -> ConnectPlan:
    """Check that an index can be connected. Nothing is written.

    Raises:
        UsageError: The server, the index or the mode does not allow it, or another program has a pipeline or a template of that name.
    """
    _check_server(engine)
    made = lineage.read(engine, lineage.resolve(engine, name))
    if made.passages:
        raise UsageError(
            f"{name!r} holds passages, and a search pipeline cannot group them by document.",
            "Index without --passage-size, or search with termweave.",
        )
    mode, reranking = choose(made, options.mode, None)
    notes = []
    if not mode.single and mode.fusion != "min-max":
        notes.append(f"The server fuses by min-max, not by {mode.fusion}.")
    if reranking is not None:
        notes.append(f"The server does not rerank by {reranking.name}.")
    outputs = [output for output in ("weights", "dense", "dense_query") if output in made.models]
    needed = {signal.needs for signal in made.layout.signals if signal.name in mode.weights}
    connection = IndexConnection(
        name=name,
        address=options.address.rstrip("/"),
        models={output: made.models[output].hash for output in outputs if output.removesuffix("_query") in needed},
        weights=mode.weights,
        depth=options.candidates,
        text_fields=_text_fields(made),
        fallback=options.fallback,
        token=options.token,
    )
    _ours(engine, f"/_search/pipeline/{quote(connection.pipeline)}", name, "search pipeline")
    _ours(engine, f"/_scripts/{quote(connection.pipeline)}", name, "stored template")
    registered = [each for each in ml_commons.models(engine, connection.model) if each.description.startswith(marker(name))]
    # A token cannot be read back, so that a model with one is always registered anew.
    wanted = None if options.token else connection.model_body()["description"]
    kept = next((each.id for each in registered if each.description == wanted), None)
    return ConnectPlan(connection, notes, kept, [each.id for each in registered if each.id != kept])


def connect(engine: Engine, planned: ConnectPlan, say: Callable[[str], None] = lambda _: None) -> None:
    """Register what is missing, try it, and write the search pipeline.

    Raises:
        EngineError: The cluster does not reach the model server, or it refuses. What was registered here is removed again.
    """
    connection = planned.connection
    model = planned.kept or ml_commons.register(engine, connection.model_body())
    try:
        _try(engine, connection, model)
    except BaseException:
        if model != planned.kept:
            ml_commons.delete(engine, model)
        raise
    say(f"The cluster reaches the model server at {connection.address}.")
    engine.request("PUT", f"/_scripts/{quote(connection.pipeline)}", body=connection.template_body())
    engine.request("PUT", f"/_search/pipeline/{quote(connection.pipeline)}", body=connection.pipeline_body(model))
    for outdated in planned.outdated:
        ml_commons.delete(engine, outdated)
    audit.write(engine, "connect", connection.name, after=connection.pipeline)


def remove(engine: Engine, name: str) -> list[str]:
    """Remove what `connect` registered for a name; return what was removed. The index need not exist any more.

    Raises:
        UsageError: Another program has a pipeline or a template of that name.
    """
    _check_server(engine)
    lineage.check_one(name)
    removed = []
    pipeline = quote(f"{name}-learned")
    for path, kind in ((f"/_search/pipeline/{pipeline}", "search pipeline"), (f"/_scripts/{pipeline}", "stored template")):
        if _ours(engine, path, name, kind):
            engine.request("DELETE", path)
            removed.append(f"{kind} {name}-learned")
    for model in ml_commons.models(engine, model_name(name)):
        if model.description.startswith(marker(name)):
            ml_commons.delete(engine, model.id)
            removed.append(f"remote model {model_name(name)}")
    if removed:
        ml_commons.delete_group(engine, model_name(name), marker(name))
        audit.write(engine, "disconnect", name, before=f"{name}-learned")
    return removed


def _check_server(engine: Engine) -> None:
    """Refuse a server that cannot ask a model server.

    Raises:
        UsageError: It is Elasticsearch, or has no ml-commons.
    """
    capabilities = engine.capabilities
    if capabilities.distribution == "elasticsearch":
        raise UsageError(
            "Elasticsearch has no search pipelines.",
            "Search from any client with the signal learned, or through 'termweave serve'.",
        )
    if (capabilities.plugins and "opensearch-ml" not in capabilities.plugins) or not capabilities.neural_sparse:
        raise UsageError(
            f"The server at {engine.url} lacks the plugin ml-commons or neural-search.",
            "Install both, or start the embedded node with: termweave node start --ml.",
        )


def _text_fields(made: Lineage) -> list[str]:
    """The fields that a search for words names: those of the application in an enriched index."""
    if fields := made.source.get("fields"):
        read = orjson.loads(fields)
        return [field for key in ("title", "text") for field in _listed(read.get(key))] or ["*"]
    return ["content"] if "lexical" in made.signals else ["*"]


def _listed(value: Any) -> list[str]:
    return [] if not value else [value] if isinstance(value, str) else list(value)


def _ours(engine: Engine, path: str, name: str, kind: str) -> bool:
    """Whether a part is registered, by `connect`.

    Raises:
        UsageError: Another program registered it.
    """
    try:
        found: Mapping[str, Any] = engine.request("GET", path)
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return False
        raise
    if marker(name) not in orjson.dumps(found).decode():
        raise UsageError(
            f"The server has a {kind} {name}-learned that termweave did not make.",
            "Rename it: termweave does not replace the parts of others.",
        )
    return True


def _try(engine: Engine, connection: IndexConnection, model: str) -> None:
    """Have the cluster ask the model server for one query.

    Raises:
        EngineError: It cannot, or the model server answers with something else.
    """
    try:
        answer = ml_commons.predict(engine, model, {"query": orjson.dumps(_TRIAL).decode()})
    except EngineResponseError as error:
        raise EngineError(
            f"The cluster cannot use the model server at {connection.address}: {error.reason}.",
            f"Start it with 'termweave serve {connection.name} --models', at an address that the cluster can reach.",
        ) from error
    if not isinstance(answer.get("query"), dict):
        raise EngineError(
            f"{connection.address} is not a model server of termweave: it answered /v1/query with {sorted(answer)}.",
            "Check --model-server.",
        )
