"""The OpenAPI document of the API, from the declared parameters and the JSON schemas of docs/schemas.

`docs/generate.py` writes it to `ui/static/openapi.json`, because docs/ is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave import __version__
from termweave.ui import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.ui.parameters import Parameter

#: Endpoint -> what it is for, and its parameters.
_ENDPOINTS: dict[str, tuple[str, Sequence[Parameter]]] = {
    "search": ("The best documents for a query, as 'termweave search --json'.", parameters.SEARCH),
    "explain": ("Why a document has its score for a query, as 'termweave explain --json'.", parameters.EXPLAIN),
    "compare": ("How far two ways to search agree on a query.", parameters.COMPARE),
    "candidates": (
        "The candidates of every signal, to be ranked again with other weights by the one who asks.",
        parameters.KEPT,
    ),
    "requests": (
        "The requests that a search sends to the server, for applications that send them themselves.",
        parameters.REQUESTS,
    ),
    "encode": ("Term weights and vectors of queries.", parameters.ENCODE),
    "indices": ("All indices, as 'termweave list --json'.", ()),
    "generations": ("The generations of an index, as 'termweave generations --json'.", parameters.GENERATIONS),
    "book": ("The judged queries of an index, with their pools, and how far judges agree.", parameters.BOOK),
    "grades": ("Every grade of every judge, with notes.", parameters.BOOK),
    "judge": ("How far a judge is, and the document to judge next.", parameters.JUDGE),
    "snapshots": ("Saved lists of the queries of a book, and how two of them differ.", parameters.SNAPSHOTS),
    "jobs": ("The evaluations and other work that pages began, the newest first.", ()),
    "evaluate": ("The result of an evaluation, as 'termweave evaluate --json'.", parameters.JOB),
    "tune": ("The result of tuning, as 'termweave tune --json'.", parameters.JOB),
    "learn": (
        "The result of learning: what was tried, the gain on test questions, and the generation to promote.",
        parameters.JOB,
    ),
}
#: Endpoint -> its schema in docs/schemas; "" is the answer to a request that failed.
ANSWERS = {name: name for name in _ENDPOINTS} | {"indices": "list", "": "error"}
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
        schemas: Name in docs/schemas -> the JSON schema, for all values of `ANSWERS`.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "termweave", "version": __version__, "description": "The JSON API of 'termweave serve'."},
        "paths": {f"/api/{name}": {"get": _operation(name, about, known)} for name, (about, known) in _ENDPOINTS.items()},
        "components": {
            "schemas": {
                name: {key: value for key, value in schema.items() if key != "$schema"} for name, schema in schemas.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(name: str, about: str, known: Sequence[Parameter]) -> dict[str, Any]:
    failures = {status: _answer(text, "error") for status, text in _FAILURES.items()}
    return {
        "operationId": name,
        "summary": about,
        "parameters": [_parameter(each) for each in known],
        "responses": {"200": _answer("The answer.", ANSWERS[name]), **failures},
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
