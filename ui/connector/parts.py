"""The parts that `termweave connect NAME` registers: their names, their bodies, and the marker by which they are known as ours.

========================  =================================================================================
part                      what it does
========================  =================================================================================
model ``NAME-query``      a remote model with its connector: sends a query to the model server, which rewrites it
pipeline ``NAME-learned``  has each search rewritten by that model, and fuses the lists of the signals
template ``NAME-learned``  a stored search that takes the user's words only
========================  =================================================================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from termweave.search.retrieval.server_fusion import normalisation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Stored numbers, which an application does not read.
_NUMBERS = ["weights", "learned", "vector", "vector_fp16"]
#: Seconds that the server waits for a connection to the model server, and for its answer (3.6.0 counts seconds).
_CONNECT, _READ = 1, 10
#: IndexConnections that a node keeps to the model server: ml-commons refuses searches beyond them.
_CONNECTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConnection:
    """What an index is connected with.

    Attributes:
        name: Name of the index.
        address: Address of the model server, as the cluster reaches it.
        models: Output of the encoder -> hash of the model that the index was built with. The model server refuses others.
        weights: Name of a signal -> its weight.
        depth: How many documents each signal returns.
        text_fields: Fields that the template names, for a search that falls back to BM25.
        fallback: Whether a search whose query cannot be rewritten runs as it was sent.
        token: What the model server asks for; None: nothing.
    """

    name: str
    address: str
    models: Mapping[str, str]
    weights: Mapping[str, float]
    depth: int
    text_fields: Sequence[str]
    fallback: bool = False
    token: str | None = None

    @property
    def pipeline(self) -> str:
        """Name of the search pipeline and of the template."""
        return f"{self.name}-learned"

    @property
    def model(self) -> str:
        """Name of the remote model."""
        return model_name(self.name)

    def model_body(self) -> dict[str, Any]:
        """The registration of the remote model, with its connector. A token is encrypted by the server."""
        request = {"index": self.name, "models": dict(self.models), "signals": list(self.weights), "depth": self.depth}
        headers = {"Content-Type": "application/json"}
        credential = {"none": "none"}  # ml-commons insists on one
        if self.token is not None:
            headers["Authorization"] = "Bearer ${credential.token}"
            credential = {"token": self.token}
        body: dict[str, Any] = {
            "name": self.model,
            "function_name": "remote",
            "connector": {
                "name": self.model,
                "description": marker(self.name),
                "version": 1,
                "protocol": "http",
                "parameters": {},
                "client_config": {"max_connection": _CONNECTIONS, "connection_timeout": _CONNECT, "read_timeout": _READ},
                "actions": [
                    {
                        "action_type": "predict",
                        "method": "POST",
                        "url": f"{self.address}/v1/query",
                        "headers": headers,
                        # The server puts the query in the place of the last part.
                        "request_body": f'{json.dumps(request)[:-1]}, "query": ${{parameters.query}}}}',
                    }
                ],
            },
        }
        models = ", ".join(f"{output} {model}" for output, model in self.models.items())
        fingerprint = blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=8).hexdigest()
        body["description"] = f"{marker(self.name)} models {models}, fingerprint {fingerprint}"
        body["connector"]["credential"] = credential
        return body

    def pipeline_body(self, model: str) -> dict[str, Any]:
        """The search pipeline.

        Args:
            model: Id of the remote model.
        """
        rewriting = {
            "model_id": model,
            "function_name": "remote",
            "full_response_path": True,
            "input_map": [{"query": "$.query"}],
            "output_map": [{"query": "$.inference_results[0].output[0].dataAsMap.query"}],
            "ignore_failure": self.fallback,
        }
        body: dict[str, Any] = {
            "description": marker(self.name),
            "request_processors": [{"ml_inference": rewriting}],
        }
        if len(self.weights) > 1:
            body["phase_results_processors"] = [normalisation(list(self.weights.values()))]
        return body

    def template_body(self) -> dict[str, Any]:
        """The stored search template. Its parameters are query, and if they are given size and from.

        It cannot name the pipeline: the server ignores that in a template (3.6.0), so that the request has to.
        """
        query = f'{{"multi_match": {{"query": "{{{{query}}}}", "fields": {json.dumps(list(self.text_fields))}}}}}'
        pages = '"size": {{size}}{{^size}}10{{/size}}, "from": {{from}}{{^from}}0{{/from}}'
        source = f'"_source": {{"excludes": {json.dumps(_NUMBERS)}}}'
        text = f'{{{{! {marker(self.name)} }}}}{{{source}, "query": {query}, {pages}}}'
        return {"script": {"lang": "mustache", "source": text}}


def marker(name: str) -> str:
    """The text by which a part is known as one that `termweave connect` registered for this index."""
    return f"termweave connect {name}:"


def model_name(name: str) -> str:
    """Name of the remote model of an index."""
    return f"{name}-query"
