"""What a request to `/v1/query` says, checked: a query of the server's own language that a search pipeline has rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import UsageError
from termweave.search.retrieval import client_query
from termweave.serving.model_server.encoding_request import LONGEST, TooMuch, check_length, read_object
from termweave.serving.model_server.served_models import UnknownModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.client_query import ClientQuery

#: Objects and lists inside one another in a query. The answer has a few more, and orjson writes at most 254.
_DEEPEST = 200
#: Bytes of the filters of an answer, which has them once for each signal.
_MOST_FILTERS = 1 << 24
_ADVICE = "Run 'termweave connect' for the index again."


@dataclass(frozen=True)
class QueryRequest:
    """What a search pipeline asks for.

    Attributes:
        index: Name of the index.
        models: Output -> hash of the model that the index must have.
        signals: Names of the signals, in the order of the pipeline's weights.
        depth: How many documents each signal returns.
        query: The query that the application sent.
        taken: Its words and filters; None if it runs as it is.
    """

    index: str
    models: Mapping[str, str]
    signals: tuple[str, ...]
    depth: int
    query: Mapping[str, Any]
    taken: ClientQuery | None


def read(body: bytes) -> QueryRequest:
    """Read the body of a request.

    Raises:
        TooMuch: The query is nested too deep, or its filters would make the answer too large.
        UsageError: It is not what the API takes, or its words cannot be taken out; the message says where.
    """
    given = read_object(body, _ADVICE)
    kinds = {"index": str, "models": dict, "signals": list, "depth": int, "query": dict}
    if given.keys() != kinds.keys():
        raise UsageError(f"The body does not have exactly the fields {', '.join(kinds)}.", _ADVICE)
    for name, kind in kinds.items():
        if not isinstance(given[name], kind):
            raise UsageError(f"{name!r} is not of the type {kind.__name__}.", _ADVICE)
    texts = [*given["models"].values(), *given["signals"]]
    if not all(isinstance(text, str) for text in texts) or not 1 <= given["depth"] <= 10_000 or not given["signals"]:
        raise UsageError("'models', 'signals' or 'depth' has a value that it cannot have.", _ADVICE)
    if len(given["signals"]) > len(set(given["signals"])):
        raise UsageError("'signals' names a signal twice.", _ADVICE)
    _check_depth(given["query"])
    taken = client_query.read(given["query"])
    if taken is not None:
        check_length("The text of the query", taken.words, LONGEST, "Search for fewer words.")
        if (size := len(orjson.dumps(taken.where)) * len(given["signals"])) > _MOST_FILTERS:
            raise TooMuch(
                f"The filters of the query take {size:,} bytes for {len(given['signals'])} signals; the most is {_MOST_FILTERS:,}.",
                "Send fewer clauses.",
            )
    return QueryRequest(given["index"], given["models"], tuple(given["signals"]), given["depth"], given["query"], taken)


def _check_depth(query: Mapping[str, Any]) -> None:
    level: list[Any] = [query]
    for _ in range(_DEEPEST):
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return
    raise TooMuch(f"The query has more than {_DEEPEST} objects and lists inside one another.", "Put its clauses into one bool.")


def check(asked: QueryRequest, generation: OpenGeneration) -> None:
    """Refuse a request whose pipeline was made for other models or signals than the index has now, or for documents without passages.

    Raises:
        UnknownModel: It was. Another model would give wrong scores.
    """
    built = {output: model.hash for output, model in generation.lineage.models.items()}
    for output, wanted in asked.models.items():
        if built.get(output) != wanted:
            raise UnknownModel(
                f"The index {asked.index!r} was built with the {output} model {built.get(output, 'none')}, and its search pipeline was made "
                f"for {wanted}.",
                _ADVICE,
            )
    if generation.lineage.passages:
        raise UnknownModel(
            f"The index {asked.index!r} holds passages now, which the server cannot group by document.",
            "Index without --passage-size, or search with termweave.",
        )
    stored = {signal.name for signal in generation.layout.signals}
    if missing := [name for name in asked.signals if name not in stored]:
        raise UnknownModel(f"The index {asked.index!r} does not have the signal {missing[0]!r} any more.", _ADVICE)
