"""Requests to OpenSearch's plugin ml-commons that a connection with a model server needs (tried on 3.6.0).

`serving.connector.inference` has the same functions for Elasticsearch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import EngineError, UsageError
from termweave.serving.connector.registrations import ConnectOptions, IndexConnection, RemoteModel, answer_of, marker

if TYPE_CHECKING:
    from termweave.engine import Engine

#: The class of a connection on this server.
CONNECTION = IndexConnection
INGEST = "ingest pipeline"
_MODELS, _GROUPS = "/_plugins/_ml/models", "/_plugins/_ml/model_groups"
#: The query with which a connection is tried. The model server encodes its word.
_TRIAL = {"match": {"text": "the"}}
#: Seconds in which a remote model is deployed: nothing is loaded, but each node notes it.
_PATIENCE = 60.0
#: A part of a message of ml-commons, and what to do about it.
_HINTS = {
    "trusted connector endpoint": "Let the cluster call this address: PUT _cluster/settings with "
    '{"persistent": {"plugins.ml_commons.trusted_connector_endpoints_regex": ["^http://HOST:PORT/.*$"]}}.',
    "private ip": 'Let the cluster call private addresses: PUT _cluster/settings with {"persistent": '
    '{"plugins.ml_commons.connector.private_ip_enabled": true}}.',
    "No eligible node": 'The cluster has no node of the role ml: PUT _cluster/settings with {"persistent": '
    '{"plugins.ml_commons.only_run_on_ml_node": false}}.',
    "can only contain": "Models are named after the index: give the index another name, or connect an alias of plain letters and digits.",
}


def check_server(engine: Engine, _options: ConnectOptions | None = None) -> None:
    """Check that the cluster can ask a model server.

    Raises:
        UsageError: The cluster lacks a plugin.
    """
    capabilities = engine.capabilities
    if (capabilities.plugins and "opensearch-ml" not in capabilities.plugins) or not capabilities.neural_sparse:
        advice = "Install both, or start the embedded node with: termweave node start --ml."
        raise UsageError(f"The server at {engine.url} lacks the plugin ml-commons or neural-search.", advice)


def parts(name: str) -> dict[str, str]:
    """Path -> kind of the parts of a connection other than models: pipelines and template."""
    learned = quote(f"{name}-learned")
    return {
        f"/_search/pipeline/{learned}": "search pipeline",
        f"/_scripts/{learned}": "stored template",
        f"/_ingest/pipeline/{quote(f'{name}-documents')}": INGEST,
    }


def models(engine: Engine, name: str, path: str = _MODELS) -> list[RemoteModel]:
    """The remote models with this name; with the path of model groups, the groups with this name."""
    body = {"query": {"term": {"name.keyword": name}}, "size": 1000, "_source": ["description"]}
    answer = answer_of(engine, "POST", f"{path}/_search", body)
    hits = answer["hits"]["hits"] if answer else ()  # the plugin makes its index with the first model
    return [RemoteModel(hit["_id"], str(hit["_source"].get("description", ""))) for hit in hits]


def register(engine: Engine, body: Mapping[str, Any]) -> str:
    """Register a remote model, deploy it, and return its id.

    Raises:
        EngineError: The cluster may not call the model's address, or does not deploy the model.
    """
    try:
        model: str = engine.request("POST", f"{_MODELS}/_register", body=body)["model_id"]
    except EngineResponseError as error:
        raise explained(error) from error
    try:
        # With ?deploy=true it is a matter of time whether the user or ml-commons itself needs the permission to deploy (3.6.0).
        engine.request("POST", f"{_MODELS}/{quote(model)}/_deploy")
    except EngineResponseError as error:
        delete(engine, model)
        raise explained(error) from error
    until = time.monotonic() + _PATIENCE
    while (state := engine.request("GET", f"{_MODELS}/{quote(model)}").get("model_state")) != "DEPLOYED":
        if state == "DEPLOY_FAILED" or time.monotonic() > until:
            delete(engine, model)
            raise EngineError(f"The remote model {body['name']!r} is not deployed: {state}.", "Look at the log of the cluster.")
        time.sleep(0.2)
    return model


def check_answer(engine: Engine, name: str, models: Mapping[str, str]) -> None:
    """Test the connection: have the cluster ask the model server to rewrite one query.

    Args:
        engine: The server.
        name: Name of the index.
        models: Name of a remote model -> its id.

    Raises:
        EngineResponseError: The model server cannot be reached, or refuses.
        EngineError: The answer is not that of a model server of termweave.
    """
    body = {"parameters": {"query": orjson.dumps(_TRIAL).decode()}}
    answer = engine.request("POST", f"{_MODELS}/{quote(models[f'{name}-query'])}/_predict", body=body, retry=False)
    output = answer["inference_results"][0]["output"][0].get("dataAsMap") or {}
    if not isinstance(output.get("query"), dict):
        message = f"--model-server is not a model server of termweave: it answered /v1/query with {sorted(output)}."
        raise EngineError(message, "Name the address of 'termweave serve --models'.")


def delete(engine: Engine, model: str) -> None:
    """Delete a remote model, deployed or not; a model that does not exist is no error."""
    until = time.monotonic() + _PATIENCE
    while True:
        answer_of(engine, "POST", f"{_MODELS}/{quote(model)}/_undeploy")
        try:
            answer_of(engine, "DELETE", f"{_MODELS}/{quote(model)}")
        except EngineResponseError as error:
            # ml-commons also answers the first request if it could not note the new state, for example while its periodic check writes it.
            if "deployed state" not in str(error.body) or time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


def delete_group(engine: Engine, model: str, name: str) -> None:
    """Delete the model group that ml-commons made for a model name, if the group belongs to the connection of the index `name`."""
    for group in models(engine, model, _GROUPS):
        if group.description.startswith(marker(name)):
            engine.request("DELETE", f"{_GROUPS}/{quote(group.id)}")


def explained(error: EngineResponseError) -> EngineResponseError:
    """Give an error of ml-commons a hint about the cluster setting that causes it, and return the error."""
    text = str(error.body)
    error.hint = next((hint for part, hint in _HINTS.items() if part.lower() in text.lower()), error.hint)
    return error
