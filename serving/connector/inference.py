"""Requests to Elasticsearch's inference API, and the endpoints and template that a connection registers there.

The service `custom` (8.19, 9.1 and newer) sends a query's text to the model server and gets vectors or term weights back; a stored search
template asks this service and fuses the lists of the signals in a retriever `linear`. The archives that the tests run lack the API, so
requests and answers are shaped as in Elastic's documentation. In Elasticsearch's source the normalizer `minmax` gives a list of equal scores 1
or, in later versions, leaves such scores as they are.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.errors import UsageError
from termweave.serving.connector.registrations import (
    ConnectOptions,
    IndexConnection,
    RemoteModel,
    answer_of,
    marker,
    stored_template,
)
from termweave.signals.dense import reach

if TYPE_CHECKING:
    from termweave.engine import Engine

_LICENCES = frozenset({"enterprise", "trial"})
#: Signal -> its task, the model server's endpoint, the form of the numbers, and the places of the numbers in an answer.
_TASKS: Mapping[str, tuple[str, str, str, Mapping[str, str]]] = {
    "weights": (
        "sparse_embedding",
        "sparse",
        "pairs",
        {"token_path": "$.data[*].embedding[*].token", "weight_path": "$.data[*].embedding[*].weight"},
    ),
    "dense": ("text_embedding", "embeddings", "float", {"text_embeddings": "$.data[*].embedding[*]"}),
}
#: The placeholder of the user's words in a template; the server writes them as JSON.
_WORDS = "{{query}}"


def check_server(engine: Engine, options: ConnectOptions | None = None) -> None:
    """Check that the cluster can ask a model server, and supports the options of a connection.

    Args:
        engine: The server.
        options: The options of the connection; None: a connection is removed, which needs no checks.

    Raises:
        UsageError: The licence of the cluster does not cover the inference API, the cluster lacks the API, or an option is not supported.
    """
    if options is None:
        return
    without = "Search through 'termweave serve', or send the numbers of 'termweave serve --models' as query_vector."
    try:
        licence = engine.request("GET", "/_license")["license"]["type"]
    except EngineResponseError:  # this role may not ask: the server will refuse the endpoints
        licence = "trial"
    if licence not in _LICENCES:
        raise UsageError(f"With the licence {licence!r} Elasticsearch asks no model server; 'enterprise' can.", without)
    if _endpoints(engine) is None:
        raise UsageError(f"The server at {engine.url} lacks the inference API.", without)
    if options.fallback:
        raise UsageError("Elasticsearch has no fallback search.", "Leave --fallback out: the application can send its own query.")
    if options.documents:
        advice = "Leave --documents out, and run 'termweave enrich' after changes."
        raise UsageError("termweave makes no ingest pipeline on Elasticsearch.", advice)


def parts(name: str) -> dict[str, str]:
    """Path -> kind of the parts of a connection other than models: here the search template."""
    return {f"/_scripts/{quote(f'{name}-learned')}": "stored template"}


def models(engine: Engine, name: str) -> list[RemoteModel]:
    """The inference endpoints that `connect` registered under this model name."""
    endpoints = []
    for endpoint in _endpoints(engine) or ():
        parameters = (endpoint.get("task_settings") or {}).get("parameters") or {}
        if parameters.get("name") == name:
            endpoints.append(RemoteModel(endpoint["inference_id"], str(parameters.get("termweave", ""))))
    return endpoints


def _endpoints(engine: Engine) -> list[dict[str, Any]] | None:
    """List all inference endpoints of the server; None: the server lacks the inference API."""
    try:
        endpoints: list[dict[str, Any]] = engine.request("GET", "/_inference/_all")["endpoints"]
    except EngineResponseError as error:
        if error.status == HTTPStatus.METHOD_NOT_ALLOWED or "no handler found" in str(error.body):  # 8.19, 9.2
            return None
        raise
    return endpoints


def register(engine: Engine, body: Mapping[str, Any]) -> str:
    """Register an inference endpoint and return its id. The cluster first tries it, by one text that it sends to the model server.

    Raises:
        EngineResponseError: The cluster does not reach the model server, or the model server refuses.
    """
    engine.request("PUT", f"/_inference/{body['task']}/{quote(body['id'])}", body=body["endpoint"])
    return str(body["id"])


def check_answer(engine: Engine, _name: str, models: Mapping[str, str]) -> None:
    """Test every endpoint: have the cluster ask the model server for the vector or term weights of one word.

    Raises:
        EngineResponseError: The model server cannot be reached, or refuses.
    """
    for model in models.values():
        engine.request("POST", f"/_inference/{quote(model)}", body={"input": ["the"]}, retry=False)


def delete(engine: Engine, model: str) -> None:
    """Delete an inference endpoint; an endpoint that does not exist is no error."""
    answer_of(engine, "DELETE", f"/_inference/{quote(model)}")


def delete_group(_engine: Engine, _model: str, _name: str) -> None:
    """Do nothing: inference endpoints have no groups, unlike the models of `serving.connector.ml_commons`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceConnection(IndexConnection):
    """The parts that `connect` registers on Elasticsearch: an inference endpoint for each signal with a model, and a template that uses them."""

    def model_bodies(self) -> dict[str, dict[str, Any]]:
        """Name -> registration of each endpoint. A changed registration gets another id, so that the template decides which endpoint is asked."""
        bodies = {}
        for signal in self.weights:
            if signal not in _TASKS:
                continue
            task, endpoint, form, places = _TASKS[signal]
            model = self.models.get(f"{signal}_query", self.models[signal])
            request = {"model": f"{model}@{self.name}", "input_type": "query", "encoding_format": form}
            settings: dict[str, Any] = {
                "url": f"{self.address}/v1/{endpoint}",
                "headers": {"Content-Type": "application/json"},
                "request": f'{json.dumps(request)[:-1]}, "input": ${{input}}}}',
                "response": {"json_parser": dict(places)},
            }
            fingerprint = blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8).hexdigest()
            if self.options.token:
                settings["headers"]["Authorization"] = "Bearer ${token}"
                settings["secret_parameters"] = {"token": self.options.token}
                fingerprint = secrets.token_hex(8)  # a token cannot be read back and compared
            name = f"{self.name}-{signal}"
            description = f"{marker(self.name)} model {model}, fingerprint {fingerprint}"
            parameters = {"parameters": {"name": name, "termweave": description}}
            body = {"service": "custom", "service_settings": settings, "task_settings": parameters}
            slug = re.sub(r"[^a-z0-9]+", "-", self.name).strip("-")[:20]
            identity = f"termweave-{slug}-{signal}-{fingerprint}"
            bodies[name] = {"id": identity, "task": task, "endpoint": body, "description": description}
        return bodies

    def bodies(self, models: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Path -> body of the stored search template, which names the endpoints by their ids in `models` (name -> id)."""
        retrievers = [self._retriever(signal, models.get(f"{self.name}-{signal}", "")) for signal in self.weights]
        retriever = retrievers[0]
        if len(retrievers) > 1:
            pairs = zip(retrievers, self.weights.values(), strict=True)
            weighted = [{"retriever": each, "weight": weight, "normalizer": "minmax"} for each, weight in pairs]
            retriever = {"linear": {"retrievers": weighted, "rank_window_size": self.options.candidates}}
        (path,) = parts(self.name)
        return {path: stored_template(self.name, f'"retriever": {json.dumps(retriever)}', self.prefix)}

    def _retriever(self, signal: str, endpoint: str) -> dict[str, Any]:
        """The retriever that searches one signal; `endpoint` is the id of the endpoint that encodes the user's words."""
        if signal == "dense":
            builder = {"text_embedding": {"model_id": endpoint, "model_text": _WORDS}}
            depths = dict.fromkeys(("k", "num_candidates"), reach(self.options.candidates))
            return {"knn": {"field": f"{self.prefix}vector", "query_vector_builder": builder, **depths}}
        query: dict[str, Any] = {"multi_match": {"query": _WORDS, "type": "most_fields", "fields": list(self.text_fields)}}
        if signal == "weights":
            field = f"{self.prefix}weights"
            query = {"sparse_vector": {"field": field, "inference_id": endpoint, "query": _WORDS, "prune": False}}
        return {"standard": {"query": query}}


#: The class of a connection on this server.
CONNECTION = InferenceConnection
