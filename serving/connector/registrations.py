"""The parts that `termweave connect NAME` registers: their names, their bodies, and the marker that tells them from parts of other programs.

===============================  ==========================================================================
part                             what it does
===============================  ==========================================================================
model ``NAME-query``             a remote model with its connector: has the model server rewrite a query
search pipeline ``NAME-learned``  has each search rewritten by that model, and fuses the lists of the signals
template ``NAME-learned``        a stored search that takes the user's words only
models ``NAME-weights``, ``-dense``  for documents: have the model server encode a text
ingest pipeline ``NAME-documents``  has each document encoded that an application writes itself
===============================  ==========================================================================

Elasticsearch has neither search pipelines nor such models: see `serving.connector.inference`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.engine import EngineResponseError
from termweave.engine.client.connection import quote
from termweave.engine.client.resolved_name import OURS
from termweave.search.retrieval.hybrid_query import normalisation

if TYPE_CHECKING:
    from termweave.catalog.layout import ApplicationFields
    from termweave.engine import Engine

#: Stored numbers, which an application does not read; in an enriched index they stand in one object.
_NUMBERS = ["weights", "learned", "vector", "vector_fp16"]
#: Seconds that the server waits for a connection to the model server, and for its answer (3.6.0 counts seconds).
_CONNECT, _READ = 1, 10
#: Connections that a node keeps to the model server: ml-commons refuses searches beyond them.
CONNECTIONS = 100
#: The tag of each processor of ours: the others of a pipeline are those that somebody added.
_TAG = {"tag": OURS}
#: Signals that an ingest pipeline writes -> the processor that encodes, and the field without the signal's prefix.
ENCODED = {"weights": ("sparse_encoding", "weights"), "dense": ("text_embedding", "vector")}
#: The field that holds a document's text while it is encoded (`_PREPARE` fills it), and documents of a bulk request that are encoded at a time.
_TEXT, _BATCH = "termweave_text", 16
#: Takes out what a document holds of an earlier encoding, gives it the id that searches order by, and makes the text of
#: `Document.content` of what `corpora.index.entries` and `corpora.formats.fields.Mapper` read. (A fraction below .001 or from ten
#: million on is written otherwise than there.) A document with an object in the place of a text gets no numbers: `enrich` cannot read it.
_PREPARE = Path(__file__).parent / "prepare_document.painless"


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model registered in the cluster that passes requests on to the model server; its description begins with our `marker`."""

    id: str
    description: str


@dataclass(frozen=True, slots=True)
class DocumentEncoding:
    """The fields and models with which an ingest pipeline encodes documents.

    Attributes:
        fields: The application's fields of title and text.
        models: Name of each signal that the pipeline writes into documents -> hash of its model.
        written: The fields that `termweave enrich` writes.
        prefix: Prefix of the fields of signals, `Signal.prefix`.
    """

    fields: ApplicationFields
    models: Mapping[str, str]
    written: Sequence[str]
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options of `termweave connect`.

    Attributes:
        address: Address of the model server.
        token: The token that the model server asks for; None: the model server asks for no token.
        mode: The mode as in `termweave search`; None: the profile in force decides, or mode hybrid if there is no profile.
        candidates: How many documents each signal returns.
        fallback: Whether a search runs with its original query if the model server cannot rewrite the query.
        documents: Whether an ingest pipeline encodes the documents that the application writes. The pipeline of an earlier command stays in any case.
    """

    address: str
    token: str | None = None
    mode: str | None = None
    candidates: int = 100
    fallback: bool = False
    documents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConnection:
    """The parts that `connect` registers for an index (models, pipelines and template), and the values that these parts contain.

    Attributes:
        name: Name of the index.
        options: The options of `termweave connect`.
        models: Output of the encoder that queries need -> hash of the model of the index. The model server refuses other models.
        weights: Name of each signal that is searched -> its weight in the fusion.
        text_fields: Fields that the template searches by BM25, in case the query is not rewritten.
        prefix: Prefix of the fields of signals in the index, `Signal.prefix`.
        documents: Fields and models of the ingest pipeline; None: no ingest pipeline is registered.
        filters: Filter queries of the index's default search pipeline, repeated here because a search runs only one pipeline.
    """

    name: str
    options: ConnectOptions
    models: Mapping[str, str]
    weights: Mapping[str, float]
    text_fields: Sequence[str]
    prefix: str = ""
    documents: DocumentEncoding | None = None
    filters: Sequence[Mapping[str, Any]] = ()

    @property
    def address(self) -> str:
        """Address of the model server, as the cluster reaches it, without a slash at the end."""
        return self.options.address.rstrip("/")

    @property
    def pipeline(self) -> str:
        """Name of the search pipeline and of the template."""
        return f"{self.name}-learned"

    @property
    def ingest_pipeline(self) -> str:
        """Name of the ingest pipeline."""
        return f"{self.name}-documents"

    def model_bodies(self) -> dict[str, dict[str, Any]]:
        """Name -> registration of each remote model, with its connector. The cluster stores a token encrypted."""
        query = {"index": self.name, "models": dict(self.models), "signals": list(self.weights), "depth": self.options.candidates}
        bodies = {f"{self.name}-query": self._remote(f"{self.name}-query", "query", query, "query")}
        for signal, model in self.documents.models.items() if self.documents else ():
            request = {"model": f"{model}@{self.name}", "input_type": "document"}
            endpoint = {"weights": "sparse", "dense": "embeddings"}[signal]
            bodies[f"{self.name}-{signal}"] = self._remote(f"{self.name}-{signal}", endpoint, request, "input")
        return bodies

    def _remote(self, name: str, endpoint: str, request: Mapping[str, Any], last: str) -> dict[str, Any]:
        """The registration of a remote model that sends a request to an endpoint of the model server; the cluster fills in the last field, `last`.

        The fingerprint in the description changes whenever the registration changes, except for the token.
        """
        bearer = {"Authorization": "Bearer ${credential.token}"} if self.options.token else {}
        action = {
            "action_type": "predict",
            "method": "POST",
            "url": f"{self.address}/v1/{endpoint}",
            "headers": {"Content-Type": "application/json", **bearer},
            "request_body": f'{json.dumps(request)[:-1]}, "{last}": ${{parameters.{last}}}}}',
        }
        parameters = {}
        if endpoint != "query":
            action["pre_process_function"] = "connector.pre_process.openai.embedding"
        if endpoint == "embeddings":
            action["post_process_function"] = "connector.post_process.openai.embedding"
        if endpoint == "sparse":
            parameters = {"response_filter": "$.data[*].embedding"}
        connector = {
            "version": 1,
            "protocol": "http",
            "parameters": parameters,
            "client_config": {"max_connection": CONNECTIONS, "connection_timeout": _CONNECT, "read_timeout": _READ},
            "actions": [action],
        }
        body = {"function_name": "remote", "connector": connector}
        models = ", ".join(f"{output} {model}" for output, model in self.models.items())
        fingerprint = blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=8).hexdigest()
        description = f"{marker(self.name)} models {models}, fingerprint {fingerprint}"
        credential = {"token": self.options.token} if self.options.token else {"none": "none"}  # ml-commons insists on one
        connector |= {"name": name, "description": marker(self.name), "credential": credential}
        return {**body, "name": name, "description": description}

    def bodies(self, models: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Path -> body of each part other than models, in the order in which they are written: the search pipeline last.

        A search by the template must name the search pipeline itself: the server ignores a pipeline that a template names (3.6.0).

        Args:
            models: Name of a remote model -> its id.
        """
        query = {"multi_match": {"query": "{{query}}", "fields": list(self.text_fields), "lenient": True}}
        template = stored_template(self.name, f'"query": {json.dumps(query)}', self.prefix)
        bodies = {f"/_scripts/{quote(self.pipeline)}": template}
        if self.documents is not None:
            bodies[f"/_ingest/pipeline/{quote(self.ingest_pipeline)}"] = self.ingest_body(models)
        return {**bodies, f"/_search/pipeline/{quote(self.pipeline)}": self.pipeline_body(models[f"{self.name}-query"])}

    def ingest_body(self, models: Mapping[str, str]) -> dict[str, Any]:
        """The ingest pipeline: it adds the id and the text as `termweave enrich` does, encodes the text, and removes the text again.

        Args:
            models: Name of a remote model -> its id.
        """
        documents = self.documents
        assert documents is not None
        fields, written = documents.fields, [*documents.written]
        params = {"line": "\n", "title": fields.title, "text": [*fields.text], "joined": fields.joined, "written": written}
        params["object"] = documents.prefix.removesuffix(".")
        source = {"lang": "painless", "source": _PREPARE.read_text(encoding="utf-8"), "params": params}
        processors: list[dict[str, Any]] = [{"script": source | _TAG}]
        for signal in documents.models:
            kind, field = ENCODED[signal]
            field_map = {_TEXT: f"{documents.prefix}{field}"}
            encoding = {"model_id": models[f"{self.name}-{signal}"], "field_map": field_map, "batch_size": _BATCH}
            processors.append({kind: {**encoding, "ignore_failure": self.options.fallback, **_TAG}})
        processors.append({"remove": {"field": _TEXT, "ignore_missing": True, **_TAG}})
        return {"description": marker(self.name), "processors": processors}

    def pipeline_body(self, model: str) -> dict[str, Any]:
        """The search pipeline: it has the remote model rewrite each query, and fuses the lists of several signals.

        Args:
            model: Id of the remote model.
        """
        rewriting = {
            "model_id": model,
            "function_name": "remote",
            "full_response_path": True,
            "input_map": [{"query": "$.query"}],
            "output_map": [{"query": "$.inference_results[0].output[0].dataAsMap.query"}],
            "ignore_failure": self.options.fallback,
            **_TAG,
        }
        processors = [*({"filter_query": {"query": each, **_TAG}} for each in self.filters), {"ml_inference": rewriting}]
        body: dict[str, Any] = {"description": marker(self.name), "request_processors": processors}
        if len(self.weights) > 1:
            ((kind, fusion),) = normalisation(list(self.weights.values())).items()
            body["phase_results_processors"] = [{kind: fusion | _TAG}]
            body["response_processors"] = [{"hybrid_score_explanation": dict(_TAG)}]  # otherwise `explain` adds the scores up
        return body


def with_additions(body: dict[str, Any], registered: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a new pipeline with processors that a user added to the registered one: processors in front of ours stay in front, others come behind.

    Args:
        body: The pipeline that `connect` makes.
        registered: The pipeline that the server has now.
    """
    lists = {section: processors for section, processors in registered.items() if isinstance(processors, list)}
    ours = {section: [_TAG.items() <= next(iter(each.values())).items() for each in lists[section]] for section in lists}
    if not any(map(any, ours.values())):  # made before processors had tags
        return body
    whole = {**registered, **body}
    for section, processors in lists.items():
        first = ours[section].index(True) if any(ours[section]) else 0
        after = [each for each, is_ours in zip(processors[first:], ours[section][first:], strict=True) if not is_ours]
        whole[section] = [*processors[:first], *body.get(section, []), *after]
    return {key: value for key, value in whole.items() if value}


def stored_template(name: str, search: str, prefix: str) -> dict[str, Any]:
    """A stored search template with the parameters size and from; hits come without vectors and weights. `search` is the JSON of the search itself."""
    numbers = [prefix.removesuffix(".")] if prefix else _NUMBERS
    pages = '"size": {{size}}{{^size}}10{{/size}}, "from": {{from}}{{^from}}0{{/from}}'
    source = f'"_source": {{"excludes": {json.dumps(numbers)}}}'
    text = f"{{{{! {marker(name)} }}}}{{{source}, {search}, {pages}}}"
    return {"script": {"lang": "mustache", "source": text}}


def marker(name: str) -> str:
    """The text in each part that tells that `termweave connect` registered the part for the index `name`."""
    return f"termweave connect {name}:"


def model_names(name: str) -> list[str]:
    """The names of all remote models that `connect` may register for an index."""
    return [f"{name}-{part}" for part in ("query", "weights", "dense")]


def answer_of(engine: Engine, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Send a request and return the answer; None: the server answered 404 Not Found."""
    try:
        return engine.request(method, path, body=body)
    except EngineResponseError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
