"""Read and check the bodies of requests: texts to encode, and queries in the query DSL that a search pipeline of the cluster sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError
from termweave.search.retrieval import client_query
from termweave.serving.model_server.served_models import UnknownModel
from termweave.ui.parameters import json_object

if TYPE_CHECKING:
    from termweave.encoders.term_weighting import Kind
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.client_query import ClientQuery

#: Texts of a request, characters of a text, and characters of a model's name: a path of a folder and the name of an index.
MOST_TEXTS, LONGEST, LONGEST_NAME = 2048, 1_000_000, 5_000
FIELDS = {"model", "input", "input_type", "encoding_format", "dimensions", "user"}
_KINDS: tuple[Kind, ...] = ("query", "document")
#: Endpoint -> the forms of its numbers; the first one is the default. "pairs" is the form that Elasticsearch's service `custom` reads.
FORMATS = {"embeddings": ("float", "base64"), "sparse": ("float", "pairs")}
#: Objects and lists inside one another in a query. The answer has a few more, and orjson writes at most 254.
_DEEPEST = 200
#: Bytes of the filters of an answer, which has them once for each signal.
_MOST_FILTERS = 1 << 24
_ADVICE = "Run 'termweave connect' for the index again."


class TooMuch(UsageError):
    """A request asks for more than the model server does for one request."""


@dataclass(frozen=True)
class EncodingRequest:
    """A request to `/v1/embeddings` or `/v1/sparse`.

    Attributes:
        model: Hash or name of the model; ``@INDEX`` behind it asks for numbers as this index stores and searches them.
        texts: The texts, at least one.
        kind: Whether the texts are each a "query" or a "document".
        form: Form of the answer. "float": vectors as lists of numbers, term weights as objects; "base64": vectors as base64 of little-endian
            float32; "pairs": term weights as a list of objects with `token` and `weight`.
        dimensions: The length that vectors must have; None: any length is accepted.
    """

    model: str
    texts: tuple[str, ...]
    kind: Kind
    form: str
    dimensions: int | None


@dataclass(frozen=True)
class QueryRequest:
    """A request of a search pipeline to `/v1/query`.

    Attributes:
        index: Name of the index.
        models: Output of the encoder ("weights", "dense" ...) -> hash of the model that the index must have.
        signals: Names of the signals, in the order of the pipeline's weights.
        depth: How many documents each signal returns.
        query: The query that the application sent.
        taken: The words and filters of the query; None: the query has no words, or a syntax of its own, and is not rewritten.
    """

    index: str
    models: Mapping[str, str]
    signals: tuple[str, ...]
    depth: int
    query: Mapping[str, Any]
    taken: ClientQuery | None


def read_encoding(body: bytes, endpoint: str) -> EncodingRequest:
    """Read the body of a request to an endpoint, a key of `FORMATS`.

    Raises:
        TooMuch: The request has too many texts, or a text that is too long.
        UsageError: The body is not as the API requires; the message names the field.
    """
    fields = json_object(body, 'Send {"model": ..., "input": ...} as UTF-8.')
    if unknown := sorted(fields.keys() - FIELDS):
        raise UsageError(f"There is no field {unknown[0]!r}.", f"Known: {', '.join(sorted(FIELDS))}.")
    model, dimensions = fields.get("model"), fields.get("dimensions")
    if not isinstance(model, str) or not model:
        raise UsageError("'model' is not a name.", "Send the id of a model that /v1/models lists.")
    _check_length("'model'", model, LONGEST_NAME, "Send the id of a model that /v1/models lists.")
    kind, form = _choice(fields, "input_type", _KINDS), _choice(fields, "encoding_format", FORMATS[endpoint])
    if dimensions is not None and type(dimensions) is not int:
        raise UsageError(f"'dimensions' is {_type(dimensions)}, not a whole number.", "Leave it out.")
    return EncodingRequest(model, _texts(fields), kind, form, dimensions)


def read_query(body: bytes) -> QueryRequest:
    """Read the body of a request to `/v1/query`.

    Raises:
        TooMuch: The query is nested too deep, or its filters would make the answer too large.
        UsageError: The body is not as the API requires, or the words of the query cannot be extracted; the message says where.
    """
    fields = json_object(body, _ADVICE)
    kinds = {"index": str, "models": dict, "signals": list, "depth": int, "query": dict}
    if fields.keys() != kinds.keys() or not all(isinstance(fields[name], kind) for name, kind in kinds.items()):
        raise UsageError(f"The body is not {', '.join(f'{name} ({kind.__name__})' for name, kind in kinds.items())}.", _ADVICE)
    signals = fields["signals"]
    texts = all(isinstance(text, str) for text in (*fields["models"].values(), *signals))
    if not texts or not 1 <= fields["depth"] <= 10_000 or not 0 < len(set(signals)) == len(signals):
        raise UsageError("'models', 'signals' or 'depth' has an invalid value.", _ADVICE)
    _check_depth(fields["query"])
    taken = client_query.read(fields["query"])
    if taken is not None:
        _check_length("The text of the query", taken.words, LONGEST, "Search for fewer words.")
        if (size := len(orjson.dumps(taken.where)) * len(signals)) > _MOST_FILTERS:
            message = f"The filters of the query take {size:,} bytes for all signals; the most is {_MOST_FILTERS:,}."
            raise TooMuch(message, "Send fewer clauses.")
    return QueryRequest(fields["index"], fields["models"], tuple(signals), fields["depth"], fields["query"], taken)


def check_index(request: QueryRequest, generation: OpenGeneration) -> None:
    """Check that the search pipeline that sent a request fits the index as it is now: same models and signals, no passages.

    Raises:
        UnknownModel: The pipeline does not fit. With another model scores would be wrong.
    """
    index, built = request.index, {output: model.hash for output, model in generation.lineage.models.items()}
    for output, model in request.models.items():
        if built.get(output) != model:
            reason = f"has the {output} model {built.get(output, 'none')}, and its search pipeline was made for {model}"
            raise UnknownModel(f"The index {index!r} {reason}.", _ADVICE)
    if generation.lineage.passages:
        advice = "Index without --passage-size, or search with termweave."
        raise UnknownModel(f"The index {index!r} holds passages now, which the server cannot group by document.", advice)
    stored = {signal.name for signal in generation.layout.signals}
    if missing := [name for name in request.signals if name not in stored]:
        raise UnknownModel(f"The index {index!r} does not have the signal {missing[0]!r} any more.", _ADVICE)


def _choice(fields: Mapping[str, Any], name: str, choices: Sequence[Any]) -> Any:
    """The value of a field that must be one of `choices`; the first choice if the field is missing."""
    value = fields.get(name)
    if value not in (None, *choices):
        raise UsageError(f"{name!r} is {_type(value)} and neither {' nor '.join(map(repr, choices))}.", "It may be left out.")
    return value or choices[0]


def _texts(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the field `input`, a text or a list of texts, as a tuple of texts."""
    if "input" not in fields:
        raise UsageError("'input' is missing.", "Send a text, or a list of texts.")
    listed = isinstance(fields["input"], list)
    texts = fields["input"] if listed else [fields["input"]]
    if not texts:
        raise UsageError("'input' is an empty list.", "Send a text, or a list of texts.")
    if len(texts) > MOST_TEXTS:
        raise TooMuch(f"'input' has {len(texts):,} texts; the most is {MOST_TEXTS:,}.", "Send them in several requests.")
    for place, text in enumerate(texts):
        where = f"'input[{place}]'" if listed else "'input'"
        if not isinstance(text, str):
            raise UsageError(
                f"{where} is {_type(text)}, not a text.", "Send a text, or a list of texts. Tokens are not accepted."
            )
        if not text.strip():
            raise UsageError(f"{where} is an empty text.", "Leave this text out.")
        _check_length(where, text, LONGEST, "Cut it into passages.")
    return tuple(texts)


def _check_length(where: str, text: str, most: int, advice: str) -> None:
    """Check that a text is not too long; `where` names the text and `advice` is the hint in the error.

    Raises:
        TooMuch: The text has more than `most` characters.
    """
    if len(text) > most:
        raise TooMuch(f"{where} has {len(text):,} characters; the most is {most:,}.", advice)


def _check_depth(query: Mapping[str, Any]) -> None:
    level: list[Any] = [query]
    for _ in range(_DEEPEST):
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return
    raise TooMuch(f"The query has more than {_DEEPEST} objects and lists inside one another.", "Put its clauses into one bool.")


def _type(value: Any) -> str:
    """The kind of a JSON value in words, for messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
