"""The OpenAPI document of the model server."""

from __future__ import annotations

from typing import Any, get_args

from termweave import __version__
from termweave.encoders.term_weighting import Kind
from termweave.serving.model_server.encoding_request import FORMATS, LONGEST, LONGEST_NAME, MOST_TEXTS

_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "\\S"}
_REQUEST: dict[str, Any] = {
    "type": "object",
    "required": ["model", "input"],
    "additionalProperties": False,
    "properties": {
        "model": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_NAME,
            "description": "Hash or name of a model; HASH@INDEX for the numbers of an index.",
        },
        "input": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_TEXTS}]},
        "input_type": {"enum": [*get_args(Kind), None], "default": "query"},
        "dimensions": {"type": ["integer", "null"], "description": "The length of the model's vectors, or nothing."},
        "user": {"description": "Is not read."},
    },
}
_REQUESTS = {
    name: {
        **_REQUEST,
        "properties": {**_REQUEST["properties"], "encoding_format": {"enum": [*forms, None], "default": forms[0]}},
    }
    for name, forms in FORMATS.items()
}
_OBJECT = {"type": "object"}
_QUERY = {
    "type": "object",
    "required": ["index", "models", "signals", "depth", "query"],
    "additionalProperties": False,
    "properties": {
        "index": {"type": "string"},
        "models": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Output -> hash of the model."},
        "signals": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "depth": {"type": "integer", "minimum": 1, "maximum": 10_000},
        "query": _OBJECT,
    },
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "code": {"type": "string"}},
        }
    },
}
_VECTOR = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]}
_PAIR = {
    "type": "object",
    "required": ["token", "weight"],
    "properties": {"token": {"type": "string"}, "weight": {"type": "number"}},
}
_WEIGHTS = {"anyOf": [{"type": "object", "additionalProperties": {"type": "number"}}, {"type": "array", "items": _PAIR}]}
_COUNT = {"type": "integer", "minimum": 0}
_USAGE = {
    "type": "object",
    "required": ["prompt_tokens", "total_tokens"],
    "properties": {"prompt_tokens": _COUNT, "total_tokens": _COUNT},
}
_MODEL = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by", "hash", "name", "index", "kinds", "dimension"],
    "properties": {
        "hash": {"type": "string"},
        "name": {"type": "string"},
        "index": {"type": ["string", "null"]},
        "kinds": {"type": "array", "items": {"enum": ["embeddings", "sparse"]}},
        "dimension": {"type": ["integer", "null"]},
    },
}


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    embeddings = {"required": ["data", "usage"], "properties": {"data": _rows(_VECTOR), "usage": _USAGE}}
    sparse = {"required": ["data"], "properties": {"data": _rows(_WEIGHTS)}}
    status = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "termweave models",
            "version": __version__,
            "description": "The model server: 'termweave serve --models'.",
        },
        "paths": {
            "/v1/embeddings": {
                "post": _operation(
                    "embeddings", "Vectors of texts, as OpenAI's API gives them.", embeddings, _REQUESTS["embeddings"]
                )
            },
            "/v1/sparse": {"post": _operation("sparse", "Term weights of texts.", sparse, _REQUESTS["sparse"])},
            "/v1/query": {
                "post": _operation(
                    "query",
                    "A query of OpenSearch, rewritten to learned search.",
                    {"required": ["query"], "properties": {"query": _OBJECT}},
                    _QUERY,
                )
            },
            "/v1/models": {
                "get": _operation(
                    "models", "The models that requests can name.", {"properties": {"data": {"type": "array", "items": _MODEL}}}
                )
            },
            "/health": {"get": _operation("health", "Whether the process answers.", status)},
            "/ready": {"get": _operation("ready", "Whether all models are open.", status)},
            "/metrics": {"get": _operation("metrics", "Counts and times for Prometheus.", None)},
        },
        "components": {"schemas": {"error": _ERROR}, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _rows(embedding: dict[str, Any]) -> dict[str, Any]:
    row = {
        "type": "object",
        "required": ["object", "index", "embedding"],
        "properties": {"object": {"type": "string"}, "index": _COUNT, "embedding": embedding},
    }
    return {"type": "array", "items": row}


def _operation(name: str, about: str, answer: dict[str, Any] | None, body: dict[str, Any] | None = None) -> dict[str, Any]:
    kind, schema = ("text/plain", {"type": "string"}) if answer is None else ("application/json", {"type": "object", **answer})
    failed = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/error"}}}}
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": about,
        "responses": {"200": {"description": "The answer.", "content": {kind: {"schema": schema}}}},
    }
    failures = {"401": "The token is missing or wrong."}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        failures |= {
            "400": "The body is not what the API takes.",
            "403": "The request came from a page of another site, or its body is not said to be JSON.",
            "404": "No model of this name is served.",
            "413": "The body is too large.",
            "422": "Too many texts, or one that is too long, or a query that is nested too deep.",
            "500": "The model is damaged.",
            "503": "Too many texts wait, or the cluster does not answer; Retry-After says when to try again.",
        }
    operation["responses"] |= {status: {"description": text, **failed} for status, text in failures.items()}
    return operation
