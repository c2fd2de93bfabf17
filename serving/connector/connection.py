"""Connect an index with a model server, and remove the connection.

The search pipeline is written last and in one request: until then searches work as before. Parts that an earlier, killed command left behind
are found by name and marker, and are used or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from termweave.catalog import audit
from termweave.catalog.lineage import Lineage, check_one, read_lineage, resolve_index
from termweave.engine import EngineResponseError
from termweave.engine.client.resolved_name import shared_pipeline
from termweave.errors import EngineError, UsageError
from termweave.search import profiles
from termweave.search.single_query import choose
from termweave.serving.connector import inference, ml_commons, registrations

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.rerank.rerankers import Reranking
    from termweave.search.rewriting.configuration import Rewriting
    from termweave.serving.connector.registrations import ConnectOptions, DocumentEncoding, IndexConnection
    from termweave.signals.modes import Mode

#: Section of the cluster's state -> what its entries are. Of an index only the settings that name pipelines are read.
_SECTIONS: Mapping[str, str] = {
    "indices": "index",
    "templates": "index template",
    "index_template": "index template",
    "component_template": "component template",
    "ingest": "ingest pipeline",
    "search_pipeline": "search pipeline",
}
#: Ends of the keys that name a pipeline or a model.
_KEYS = ("pipeline", "name", "_id")
#: What stands around the settings of an index and of a template.
_WRAPPERS = frozenset({"", "settings", "template"})


@dataclass(frozen=True, slots=True)
class ConnectPlan:
    """A checked plan of a connection: what is to be registered, what is registered already, and what is outdated.

    Attributes:
        connection: The parts to register.
        notes: Sentences about features that searches through the pipeline lack, and about parts of an earlier command that stay.
        registered: Name of each remote model that is already registered with the right content -> its id.
        outdated: Ids of remote models of earlier commands, which are deleted at the end.
    """

    connection: IndexConnection
    notes: Sequence[str]
    registered: Mapping[str, str]
    outdated: Sequence[str]


def plan(engine: Engine, name: str, options: ConnectOptions) -> ConnectPlan:
    """Check that an index can be connected, and plan the connection. Nothing is written.

    Raises:
        UsageError: The server, the index or the mode does not allow a connection, or a pipeline or template of that name exists that
            termweave did not make.
    """
    registry = _registry(engine)
    registry.check_server(engine, options)
    index = resolve_index(engine, name)
    record = read_lineage(engine, index)
    if record.passages:
        advice = "Index without --passage-size, or search with termweave."
        raise UsageError(f"The index {name!r} holds passages, and the server cannot group them by document.", advice)
    mode, reranking = choose(record, options.mode, None)
    notes = _left_out(mode, reranking, profiles.rewriting(record, options.mode))
    parts, documents = _registered(engine, name), None
    if options.documents:
        documents = _documents(record, name, "Leave --documents out")
    elif ml_commons.INGEST in parts.values():
        documents = _documents(record, name, f"Remove the ingest pipeline by 'termweave connect {name} --remove'")
        notes.append(f"The ingest pipeline {name}-documents of an earlier command stays (--remove removes it).")
    outputs = [output for output in ("weights", "dense", "dense_query") if output in record.models]
    needed = {signal.needs for signal in record.layout.signals if signal.name in mode.weights}
    connection: IndexConnection = registry.CONNECTION(
        name=name,
        options=options,
        models={output: record.models[output].hash for output in outputs if output.removesuffix("_query") in needed},
        weights=mode.weights,
        text_fields=_text_fields(record),
        prefix=record.layout.prefix,
        documents=documents,
        filters=shared_pipeline(engine, index.split(",")).filters,
    )
    registered, outdated = {}, []
    bodies = connection.model_bodies()
    for model in registrations.model_names(name):
        # A token cannot be read back, so that a model with one is always registered anew.
        description = None if options.token or model not in bodies else bodies[model]["description"]
        for each in registry.models(engine, model):
            if each.description == description and model not in registered:
                registered[model] = each.id
            elif each.description.startswith(registrations.marker(name)):
                outdated.append(each.id)
    for user in references(engine, {connection.pipeline, connection.ingest_pipeline, *outdated}) if outdated else ():
        if user.part in outdated:
            outdated.remove(user.part)
            notes.append(f"A remote model of an earlier command stays, because {user} names it.")
    return ConnectPlan(connection, notes, registered, outdated)


def _left_out(mode: Mode, reranking: Reranking | None, rewriting: Rewriting | None) -> list[str]:
    """Sentences about features of `termweave search` (fusion, reranking, rewriting) that the search pipeline lacks."""
    notes = []
    if not mode.single and mode.fusion != "min-max":
        notes.append(f"The server fuses by min-max, not by {mode.fusion}.")
    if reranking is not None:
        notes.append(f"The server does not rerank by {reranking.name}.")
    if rewriting is not None:
        notes.append(f"The server does not rewrite queries ({rewriting}).")
    return notes


def connect(engine: Engine, planned: ConnectPlan, say: Callable[[str], None] = lambda _: None) -> None:
    """Register the missing models, try them, write the pipelines and the template, and delete outdated models.

    Raises:
        EngineError: The cluster does not reach the model server, or the model server refuses. New models are deleted again, except those
            that a pipeline names or may name once the server is done: the next command uses or removes these.
    """
    connection, registry = planned.connection, _registry(engine)
    models, switching = dict(planned.registered), False
    try:
        _register(engine, connection, models)
        say(f"The cluster reaches the model server at {connection.address}.")
        switching = True
        for path, body in connection.bodies(models).items():
            registered = registrations.answer_of(engine, "GET", path) if "/pipeline/" in path else None
            if registered is not None:
                body = registrations.with_additions(body, next(iter(registered.values())))  # noqa: PLW2901
            engine.request("PUT", path, body=body)
    except BaseException as error:
        # Only a refusal says that the server will not write a part after this, as it may after a time-out or Ctrl-C.
        if not switching or (isinstance(error, EngineResponseError) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR):
            parts = [registrations.answer_of(engine, "GET", path) for path in registry.parts(connection.name)]
            written = orjson.dumps(parts).decode()
            for model in models.keys() - planned.registered.keys():
                if models[model] not in written:
                    registry.delete(engine, models[model])
        raise
    for outdated in planned.outdated:
        registry.delete(engine, outdated)
    audit.write(engine, "connect", connection.name, after=connection.pipeline)


def remove(engine: Engine, name: str) -> list[str]:
    """Remove everything that `connect` registered for an index name; return kind and name of each removed part. The index need not exist any more.

    Raises:
        UsageError: A pipeline or template of that name was not made by termweave, or an index, a template or another pipeline uses a part
            that would be removed. Nothing is removed then.
    """
    registry = _registry(engine)
    registry.check_server(engine)
    check_one(name)
    removed = []
    registered = _registered(engine, name)
    models = {
        each.id: model
        for model in registrations.model_names(name)
        for each in registry.models(engine, model)
        if each.description.startswith(registrations.marker(name))
    }
    if (registered or models) and (users := references(engine, {f"{name}-learned", f"{name}-documents", *models})):
        advice = 'First remove these references. In an index: PUT INDEX/_settings with {"index.search.default_pipeline": null}.'
        raise UsageError(f"{', '.join(map(str, users))} would fail without the parts of 'termweave connect {name}'.", advice)
    for path, kind in registered.items():
        engine.request("DELETE", path)
        removed.append(f"{kind} {path.rpartition('/')[2]}")
    for key, model in models.items():
        registry.delete(engine, key)
        removed.append(f"remote model {model}")
    for model in registrations.model_names(name):
        registry.delete_group(engine, model, name)
    if removed:
        audit.write(engine, "disconnect", name, before=f"{name}-learned")
    return removed


def _registry(engine: Engine) -> ModuleType:
    """The module that registers models: `ml_commons` for OpenSearch, `inference` for Elasticsearch. Both have the same functions."""
    return inference if engine.capabilities.distribution == "elasticsearch" else ml_commons


def _documents(record: Lineage, name: str, without: str) -> DocumentEncoding:
    """The fields and models with which an ingest pipeline encodes the documents of an index.

    Args:
        record: The lineage of the index.
        name: The name of the index.
        without: Advice how to do without the ingest pipeline, as the beginning of a sentence of a hint.

    Raises:
        UsageError: termweave itself writes the documents, a field lies inside another field, or the index has no signal that such a pipeline
            can write.
    """
    if (fields := record.application_fields) is None:
        advice = f"{without}, and update it by 'termweave index --update'."
        raise UsageError(f"termweave writes the documents of {name!r} itself.", advice)
    enriching = f"{without}, and run 'termweave enrich' after changes."
    if inside := [field for field in (fields.title, *fields.text) if "." in field]:
        raise UsageError(f"The field {inside[0]} lies inside another field, where no ingest pipeline finds it.", enriching)
    needs = {each.name: each.needs for each in record.layout.signals if each.needs and each.name in registrations.ENCODED}
    models = {signal: record.models[output].hash for signal, output in needs.items()}
    if not models:
        raise UsageError(f"An ingest pipeline writes the signals weights and dense; the index {name!r} has neither.", enriching)
    return registrations.DocumentEncoding(fields, models, record.source["enriched"].split(), record.layout.prefix)


def _text_fields(record: Lineage) -> list[str]:
    """The fields that BM25 searches, each as NAME or NAME^WEIGHT."""
    if words := next((signal for signal in record.layout.signals if signal.source_fields), None):
        return [name if weight == 1 else f"{name}^{weight:g}" for name, weight in words.text_fields.items()]
    fields = record.application_fields
    return [*filter(None, [fields.title]), *fields.text] if fields else ["*"]


def _registered(engine: Engine, name: str) -> dict[str, str]:
    """Path -> kind of each part that `connect` registered for an index name, without models.

    Raises:
        UsageError: A part with such a path exists that termweave did not make.
    """
    registered = {}
    for path, kind in _registry(engine).parts(name).items():
        if (part := registrations.answer_of(engine, "GET", path)) is None:
            continue
        if registrations.marker(name) not in orjson.dumps(part).decode():
            advice = "termweave replaces no part of others: give the index an alias of another name, and connect this alias."
            raise UsageError(f"The server has a {kind} {path.rpartition('/')[2]} that termweave did not make.", advice)
        registered[path] = kind
    return registered


def _register(engine: Engine, connection: IndexConnection, models: dict[str, str]) -> None:
    """Register the missing models, add their ids to `models` (name -> id), and have the cluster ask the model server as a test.

    Raises:
        EngineError: The cluster cannot ask the model server, or gets an answer that no model server of termweave gives.
    """
    registry = _registry(engine)
    try:
        for model, body in connection.model_bodies().items():
            if model not in models:
                models[model] = registry.register(engine, body)
        registry.check_answer(engine, connection.name, models)
    except EngineResponseError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            raise
        hint = error.hint or f"Start it with 'termweave serve {connection.name} --models' at an address that the cluster reaches."
        if error.status == HTTPStatus.UNAUTHORIZED:  # of the model server: the cluster itself has answered this user before
            token = "another token than this one" if connection.options.token else "a token"
            hint = f"The model server asks for {token}: give the file that 'termweave serve --models' got, as --token-file."
        raise EngineError(f"The cluster cannot use the model server at {connection.address}: {error.reason}.", hint) from error


class Reference(NamedTuple):
    """A setting or parameter in the cluster that names a pipeline or a model.

    Attributes:
        kind: Kind of the object with the setting: "index", "ingest pipeline" ...
        name: Name of this index, template or pipeline.
        key: Name of the setting or parameter, such as ``index.search.default_pipeline``.
        part: Name of the pipeline, or id of the model, that the setting names.
    """

    kind: str
    name: str
    key: str
    part: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.key}: {self.part})"


def references(engine: Engine, parts: Collection[str]) -> list[Reference]:
    """Find all settings in the cluster that name one of `parts`, pipelines (by name) and models (by id), without those inside these pipelines.

    Raises:
        EngineError: The user of the connection may not read the cluster's state.
    """
    paths = [f"metadata.{section}" + (".*.settings.*pipeline" if section == "indices" else "") for section in _SECTIONS]
    params = {"flat_settings": True, "filter_path": ",".join(paths)}
    metadata = engine.request("GET", "/_cluster/state/metadata", params=params).get("metadata", {})
    return [
        Reference(kind, name, key, text)
        for section, kind in _SECTIONS.items()
        for name, entry in _entries(metadata.get(section, {}))
        for key, text in _texts(entry)
        if text in parts and key.endswith(_KEYS) and not (kind.endswith("pipeline") and name in parts)
    ]


def _entries(section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and content of each entry in a section of the cluster's state; the state writes sections in three ways."""
    for name, entry in section.items():
        if name == "pipeline" and isinstance(entry, list):
            yield from ((each["id"], each["config"]) for each in entry)
        elif name in _SECTIONS:
            yield from entry.items()
        else:
            yield name, entry


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted key and value of each text inside a JSON value."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _texts(each, f"{key}.{name}" if key not in _WRAPPERS else name)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, key)
    elif isinstance(value, str):
        yield key, value
