"""The OpenAPI document of the API, from the declared parameters and the JSON schemas of docs/schemas.

`make docs` writes it to `ui/static/openapi.json`, because tools/ is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave import __version__
from termweave.ui import parameters
from termweave.ui.api.endpoints import ENDPOINTS, takes_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.ui.api.endpoints import Endpoint
    from termweave.ui.parameters import Parameter

#: Names of all schemas in docs/schemas that the document holds; "error" is the answer to a request that failed.
SCHEMAS = [*(endpoint.schema or name for name, endpoint in ENDPOINTS.items()), "error"]
_FAILURES = {
    "400": "The request cannot be understood, or asks for something that does not exist.",
    "401": "The token is missing or wrong.",
    "429": "Too many requests.",
    "502": "The OpenSearch server responded with an error.",
    "503": "The OpenSearch server cannot be reached, or this server has too much to do.",
    "504": "The answer took too long.",
}


def document(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        schemas: Name in docs/schemas -> the JSON schema, for all of `SCHEMAS`.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "termweave", "version": __version__, "description": "The JSON API of 'termweave serve'."},
        "paths": {f"/api/{name}": _operations(name, endpoint) for name, endpoint in ENDPOINTS.items()},
        "components": {
            "schemas": {
                name: {key: value for key, value in schema.items() if key != "$schema"} for name, schema in schemas.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operations(name: str, endpoint: Endpoint) -> dict[str, Any]:
    """The methods of an address: a POST has the parameters as the fields of its body."""
    asked = _operation(name, endpoint)
    if not takes_body(endpoint):
        return {"get": asked}
    declared = [_parameter(each) for each in endpoint.parameters]
    kinds: dict[str, dict[str, Any]] = {
        "flag": {"type": "boolean"},
        "texts": {"type": ["string", "array"], "items": {"type": "string"}, "maxItems": parameters.MOST_TEXTS},
    }
    fields = {
        each["name"]: {
            **kinds.get(parameter.kind, each["schema"]),
            **({"type": ["string", "number"]} if parameter.numbers else {}),
            "description": each["description"],
        }
        for each, parameter in zip(declared, endpoint.parameters, strict=True)
    }
    required = [each["name"] for each in declared if each["required"]]
    schema = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
    posted = {name: value for name, value in asked.items() if name != "parameters"} | {
        "operationId": f"{name}_post",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }
    return {"get": asked, "post": posted}


def _operation(name: str, endpoint: Endpoint) -> dict[str, Any]:
    failures = {status: _answer(text, "error") for status, text in _FAILURES.items()}
    return {
        "operationId": name,
        "summary": endpoint.about,
        "parameters": [_parameter(each) for each in endpoint.parameters],
        "responses": {"200": _answer("The answer.", endpoint.schema or name), **failures},
    }


def _answer(about: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    text = {"type": "string"}
    kinds: dict[str, dict[str, Any]] = {
        "text": text,
        "texts": {"type": "array", "items": text, "maxItems": parameters.MOST_TEXTS},
        "count": {"type": "integer", "minimum": parameter.least, "maximum": parameter.most},
        "number": {"type": "number", "minimum": parameter.least, "maximum": parameter.most},
        "flag": {"enum": ["0", "1"]},
    }
    schema = kinds[parameter.kind]
    if parameter.kind == "count":
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.about,
        "schema": schema,
    }
