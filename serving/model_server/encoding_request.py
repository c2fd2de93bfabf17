"""What a request to `/v1/embeddings` or `/v1/sparse` says, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import orjson

from termweave.encoders.term_weighting import Kind
from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Texts of a request, characters of a text, and characters of a model's name: a path of a folder and the name of an index.
MOST_TEXTS, LONGEST, LONGEST_NAME = 2048, 1_000_000, 5_000
_FIELDS = {"model", "input", "input_type", "encoding_format", "dimensions", "user"}
#: Endpoint -> the forms of its numbers; the first one is the default. "pairs" is the form that Elasticsearch's service `custom` reads.
FORMATS = {"embeddings": ("float", "base64"), "sparse": ("float", "pairs")}


class TooMuch(UsageError):
    """A request asks for more than the server does at a time."""


@dataclass(frozen=True)
class EncodingRequest:
    """What a request asks for.

    Attributes:
        model: Hash or name of the model, with ``@INDEX`` for the numbers of an index.
        texts: The texts, at least one.
        kind: "query" or "document".
        form: "float"; "base64": vectors as base64 of little-endian float32; "pairs": term weights as a list of objects with `token` and
            `weight`.
        dimensions: The length that vectors must have; None: any.
    """

    model: str
    texts: tuple[str, ...]
    kind: Kind
    form: str = "float"
    dimensions: int | None = None


def read(body: bytes, endpoint: str) -> EncodingRequest:
    """Read the body of a request to an endpoint, a key of `FORMATS`.

    Raises:
        TooMuch: It has too many texts, or one that is too long.
        UsageError: It is not what the API takes; the message says where.
    """
    given = read_object(body, 'Send {"model": ..., "input": ...} as UTF-8.')
    if unknown := sorted(given.keys() - _FIELDS):
        raise UsageError(f"There is no field {unknown[0]!r}.", f"Known: {', '.join(sorted(_FIELDS))}.")
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise UsageError("'model' is not a name.", "Send the id of a model that /v1/models lists.")
    check_length("'model'", model, LONGEST_NAME, "Send the id of a model that /v1/models lists.")
    kind = given.get("input_type")
    if kind not in (None, *get_args(Kind)):
        raise UsageError(f"'input_type' is {_type(kind)} and neither 'query' nor 'document'.", "The default is 'query'.")
    form = given.get("encoding_format")
    forms = FORMATS[endpoint]
    if form not in (None, *forms):
        neither = " nor ".join(map(repr, forms))
        raise UsageError(f"'encoding_format' is {_type(form)} and neither {neither}.", f"The default is {forms[0]!r}.")
    dimensions = given.get("dimensions")
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool)):
        raise UsageError(f"'dimensions' is {_type(dimensions)}, not a whole number.", "Leave it out.")
    return EncodingRequest(model, _texts(given), kind or "query", form or forms[0], dimensions)


def read_object(body: bytes, advice: str) -> dict[str, Any]:
    """Read a body that is a JSON object.

    Raises:
        UsageError: It is not; `advice` is its hint.
    """
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"The body is not JSON: {error}.", advice) from None
    if not isinstance(given, dict):
        raise UsageError(f"The body is {_type(given)}, not an object.", advice)
    return given


def _texts(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The field `input` as a tuple of texts."""
    if "input" not in given:
        raise UsageError("'input' is missing.", "Send a text, or a list of texts.")
    texts = given["input"]
    listed = isinstance(texts, list)
    texts = texts if listed else [texts]
    if not texts:
        raise UsageError("'input' is an empty list.", "Send a text, or a list of texts.")
    if len(texts) > MOST_TEXTS:
        raise TooMuch(f"'input' has {len(texts):,} texts; the most is {MOST_TEXTS:,}.", "Send them in several requests.")
    for place, text in enumerate(texts):
        where = f"'input[{place}]'" if listed else "'input'"
        if not isinstance(text, str):
            raise UsageError(f"{where} is {_type(text)}, not a text.", "Send a text, or a list of texts; tokens are not taken.")
        if not text.strip():
            raise UsageError(f"{where} is an empty text.", "Leave it out: it has nothing to search for.")
        check_length(where, text, LONGEST, "Cut it into passages.")
    return tuple(texts)


def check_length(where: str, text: str, most: int, advice: str) -> None:
    """Refuse a text that is too long.

    Raises:
        TooMuch: It has more than `most` characters.
    """
    if len(text) > most:
        raise TooMuch(f"{where} has {len(text):,} characters; the most is {most:,}.", advice)


def _type(value: Any) -> str:
    """What a JSON value is, for messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
