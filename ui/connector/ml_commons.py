"""Requests to OpenSearch's plugin ml-commons, as far as a connection needs them (tried on 3.6.0)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.engine import Engine

_MODELS, _GROUPS = "/_plugins/_ml/models", "/_plugins/_ml/model_groups"
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
}


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A remote model of the cluster.

    Attributes:
        id: Its id.
        description: Its description.
    """

    id: str
    description: str


def models(engine: Engine, name: str) -> list[RemoteModel]:
    """The models with this name."""
    return [RemoteModel(key, description) for key, description in _named(engine, _MODELS, name)]


def _named(engine: Engine, path: str, name: str) -> list[tuple[str, str]]:
    """Ids and descriptions of what has this name."""
    body = {"query": {"term": {"name.keyword": name}}, "size": 1000, "_source": ["description"]}
    try:
        answer = engine.request("POST", f"{path}/_search", body=body)
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:  # the plugin makes its index with the first model
            return []
        raise
    return [(hit["_id"], str(hit["_source"].get("description", ""))) for hit in answer["hits"]["hits"]]


def register(engine: Engine, body: Mapping[str, Any]) -> str:
    """Register a remote model and deploy it; return its id.

    Raises:
        EngineError: The cluster may not call its address, or does not deploy it.
    """
    try:
        answer = engine.request("POST", f"{_MODELS}/_register", params={"deploy": True}, body=body)
    except EngineResponseError as error:
        raise explained(error) from error
    model: str = answer["model_id"]
    until = time.monotonic() + _PATIENCE
    while (state := engine.request("GET", f"{_MODELS}/{quote(model)}").get("model_state")) != "DEPLOYED":
        if state == "DEPLOY_FAILED" or time.monotonic() > until:
            delete(engine, model)
            raise EngineError(
                f"The cluster does not deploy the remote model {body['name']!r}: it is {state}.",
                "Look at the log of the cluster.",
            )
        time.sleep(0.2)
    return model


def predict(engine: Engine, model: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The answer of a remote model.

    Raises:
        EngineError: The model server cannot be reached, or refuses.
    """
    answer = engine.request("POST", f"{_MODELS}/{quote(model)}/_predict", body={"parameters": dict(parameters)}, retry=False)
    output: dict[str, Any] = answer["inference_results"][0]["output"][0].get("dataAsMap") or {}
    return output


def delete(engine: Engine, model: str) -> None:
    """Delete a model, deployed or not. One that is gone already is not an error."""
    for method, path in (("POST", "/_undeploy"), ("DELETE", "")):
        try:
            engine.request(method, f"{_MODELS}/{quote(model)}{path}")
        except EngineResponseError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise


def delete_group(engine: Engine, name: str, marker: str) -> None:
    """Delete the group that ml-commons made for models of this name, if its description begins with the marker."""
    for group, description in _named(engine, _GROUPS, name):
        if description.startswith(marker):
            engine.request("DELETE", f"{_GROUPS}/{quote(group)}")


def explained(error: EngineResponseError) -> EngineResponseError:
    """The error with a hint about the setting that it comes from."""
    text = str(error.body)
    error.hint = next((hint for part, hint in _HINTS.items() if part.lower() in text.lower()), error.hint)
    return error
