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
from termweave.search.catalog.application_fields import fields_read
from termweave.search.single_query import choose
from termweave.ui.connector import ml_commons
from termweave.ui.connector.parts import ENCODED, DocumentEncoding, IndexConnection, marker, model_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.engine import Engine
    from termweave.search.catalog.lineage import Lineage

#: The query with which a connection is tried. The model server encodes its word.
_TRIAL = {"match": {"text": "the"}}
_INGEST = "ingest pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options of `termweave connect`.

    Attributes:
        address: Address of the model server.
        token: What the model server asks for; None: nothing.
        mode: The mode as in `termweave search`; None: the adopted profile, else hybrid.
        candidates: How many documents each signal returns.
        fallback: Whether a search whose query cannot be rewritten runs as it was sent.
        documents: Whether an ingest pipeline encodes the documents that the application writes. One of an earlier command stays in any case.
    """

    address: str
    token: str | None = None
    mode: str | None = None
    candidates: int = 100
    fallback: bool = False
    documents: bool = False


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """What `connect` would do.

    Attributes:
        connection: The connection.
        notes: What searches through the pipeline do not have, and what stays of an earlier command.
        kept: Name of each remote model that is registered as it should be -> its id.
        outdated: Ids of remote models of earlier commands.
    """

    connection: IndexConnection
    notes: Sequence[str]
    kept: Mapping[str, str]
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
    there = [kind for path, kind in _pipelines(name).items() if _ours(engine, path, name, kind)]
    documents = None
    if options.documents or _INGEST in there:
        documents = _documents(made, name, asked=options.documents)
    if documents is not None and not options.documents:
        notes.append(f"The ingest pipeline {name}-documents of an earlier command stays (--remove removes it).")
    outputs = [output for output in ("weights", "dense", "dense_query") if output in made.models]
    needed = {signal.needs for signal in made.layout.signals if signal.name in mode.weights}
    connection = IndexConnection(
        name=name,
        address=options.address.rstrip("/"),
        models={output: made.models[output].hash for output in outputs if output.removesuffix("_query") in needed},
        weights=mode.weights,
        depth=options.candidates,
        text_fields=[*filter(None, [fields.title]), *fields.text]
        if (fields := fields_read(made))
        else ["content" if "lexical" in made.signals else "*"],
        documents=documents,
        fallback=options.fallback,
        token=options.token,
    )
    kept, outdated = {}, []
    bodies = connection.model_bodies()
    for model in model_names(name):
        # A token cannot be read back, so that a model with one is always registered anew.
        wanted = None if options.token or model not in bodies else bodies[model]["description"]
        for each in ml_commons.models(engine, model):
            if each.description == wanted and model not in kept:
                kept[model] = each.id
            elif each.description.startswith(marker(name)):
                outdated.append(each.id)
    return ConnectPlan(connection, notes, kept, outdated)


def connect(engine: Engine, planned: ConnectPlan, say: Callable[[str], None] = lambda _: None) -> None:
    """Register what is missing, try it, and write the search pipeline.

    Raises:
        EngineError: The cluster does not reach the model server, or it refuses. What was registered here is removed again, but for models
            that a pipeline names or may name once the server is done: the next command uses or removes them.
    """
    connection, name = planned.connection, planned.connection.name
    models, switching = dict(planned.kept), False
    try:
        for model, body in connection.model_bodies().items():
            if model not in models:
                models[model] = ml_commons.register(engine, body)
        _try(engine, connection, models[f"{name}-query"])
        say(f"The cluster reaches the model server at {connection.address}.")
        engine.request("PUT", f"/_scripts/{quote(connection.pipeline)}", body=connection.template_body())
        switching = True
        if connection.documents is not None:
            engine.request("PUT", f"/_ingest/pipeline/{quote(connection.ingest_pipeline)}", body=connection.ingest_body(models))
        path = f"/_search/pipeline/{quote(connection.pipeline)}"
        engine.request("PUT", path, body=connection.pipeline_body(models[f"{name}-query"]))
    except BaseException as error:
        # Only a refusal says that the server will not write a pipeline after this, as it may after a time-out or Ctrl-C.
        if not switching or (isinstance(error, EngineResponseError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR):
            written = orjson.dumps([_read(engine, path) for path in _pipelines(name)]).decode()
            for model in models.keys() - planned.kept.keys():
                if models[model] not in written:
                    ml_commons.delete(engine, models[model])
        raise
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
    for path, kind in _pipelines(name).items():
        if _ours(engine, path, name, kind):
            engine.request("DELETE", path)
            removed.append(f"{kind} {path.rpartition('/')[2]}")
    for model in model_names(name):
        for each in ml_commons.models(engine, model):
            if each.description.startswith(marker(name)):
                ml_commons.delete(engine, each.id)
                removed.append(f"remote model {model}")
        ml_commons.delete_group(engine, model, marker(name))
    if removed:
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


def _pipelines(name: str) -> dict[str, str]:
    """Path -> kind of the parts that are no models."""
    learned = quote(f"{name}-learned")
    return {
        f"/_search/pipeline/{learned}": "search pipeline",
        f"/_scripts/{learned}": "stored template",
        f"/_ingest/pipeline/{quote(f'{name}-documents')}": _INGEST,
    }


def _documents(made: Lineage, name: str, *, asked: bool) -> DocumentEncoding:
    """How an ingest pipeline encodes the documents of an index.

    Args:
        made: The lineage of the index.
        name: Its name.
        asked: Whether the user asked for it; else an earlier command made the pipeline.

    Raises:
        UsageError: termweave writes the documents itself, a field lies inside another one, or no signal can be written so.
    """
    without = "Leave --documents out" if asked else f"Remove the ingest pipeline by 'termweave connect {name} --remove'"
    fields = fields_read(made)
    if fields is None:
        raise UsageError(
            f"termweave writes the documents of {name!r} itself.", f"{without}, and update it by 'termweave index --update'."
        )
    enriching = f"{without}, and run 'termweave enrich' after changes."
    if inside := [field for field in (fields.title, *fields.text) if "." in field]:
        raise UsageError(f"{inside[0]} lies inside another field.", enriching)
    models = {
        signal.name: made.models[signal.needs].hash for signal in made.layout.signals if signal.needs and signal.name in ENCODED
    }
    if not models:
        raise UsageError(f"An ingest pipeline writes the signals weights and dense, and {name!r} has neither.", enriching)
    return DocumentEncoding(fields, models, made.source["enriched"].split())


def _read(engine: Engine, path: str) -> Mapping[str, Any] | None:
    """A part as the server has it; None if it is not registered."""
    try:
        found: Mapping[str, Any] = engine.request("GET", path)
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return found


def _ours(engine: Engine, path: str, name: str, kind: str) -> bool:
    """Whether a part is registered, by `connect`.

    Raises:
        UsageError: Another program registered it.
    """
    found = _read(engine, path)
    if found is not None and marker(name) not in orjson.dumps(found).decode():
        raise UsageError(
            f"The server has a {kind} {path.rpartition('/')[2]} that termweave did not make.",
            "Rename it: termweave does not replace the parts of others.",
        )
    return found is not None


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
