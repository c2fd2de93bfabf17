"""The parameters of requests, each declared once: pages and API read them, and the OpenAPI document describes them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson
from starlette.datastructures import QueryParams

from termweave.declared_settings import settings_of
from termweave.errors import UsageError
from termweave.search.feature import Feature, known_to
from termweave.search.options import SearchOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from termweave.declared_settings import DeclaredSetting

#: Values that a form sends for a box that is ticked.
_YES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False}
_LARGEST = 2**31 - 1
#: How often a parameter may be repeated: each value is work, such as encoding a text.
MOST_TEXTS = 100
_BODY = 'Send {"q": "the query", "k": 5} with the names of the parameters.'


@dataclass(frozen=True)
class Parameter:
    """One parameter of a request.

    Attributes:
        name: Name in the address.
        about: What it says.
        kind: "text", "texts" (may be given several times), "count", "number" (perhaps with a fraction) or "flag".
        default: Value if it is missing or empty.
        least: The lowest value of a count or number.
        most: The highest value of a count or number.
        required: Whether a request without it is refused.
        option: The option of a search that it is; "": its name.
        numbers: Whether a text may be a number in JSON.
        label: Label of its control on the search page; "": it has none, or one that the page itself makes.
        example: What the empty control shows.
        suggests: What the control suggests, as `Setting.suggests`.
    """

    name: str
    about: str
    kind: str = "text"
    default: Any = None
    least: int = 0
    most: int = _LARGEST
    required: bool = False
    option: str = ""
    numbers: bool = False
    label: str = ""
    example: str = ""
    suggests: str = ""

    def read(self, given: QueryParams) -> Any:
        """The value in a request.

        Raises:
            UsageError: It cannot be read.
        """
        if self.kind == "texts":
            return tuple(text for text in _not_too_many(self.name, given.getlist(self.name)) if text.strip())
        text = given.get(self.name, "")
        if not text.strip():
            if self.required:
                raise UsageError(f"The parameter {self.name!r} is missing.", self.about)
            return False if self.kind == "flag" else self.default
        if self.kind == "flag":
            if text not in _YES:
                raise UsageError(f"The parameter {self.name!r} is 1 or 0, not {text!r}.")
            return _YES[text]
        if self.kind == "number":
            return self._number(text)
        return self._count(text) if self.kind == "count" else text

    def readable(self, given: QueryParams) -> Any:
        """The value in a request, or the default if it cannot be read."""
        try:
            return self.read(given)
        except UsageError:
            return self.default

    def _number(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most:
            raise UsageError(f"The parameter {self.name!r} is a number from {self.least} to {self.most}, not {text!r}.")
        return number

    def _count(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 11 and self.least <= int(text) <= self.most):
            raise UsageError(f"The parameter {self.name!r} is a number from {self.least} to {self.most}, not {text!r}.")
        return int(text)


#: Type of a setting -> kind of its parameter.
_KINDS = {"list": "texts", "int": "count", "float": "number", "bool": "flag"}


def _of_setting(declared: DeclaredSetting) -> Parameter:
    """The parameter of a declared option of a search; its name is that of the flag."""
    setting, name = declared.setting, declared.flag.removeprefix("--").replace("-", "_")
    label = name.replace("_", " ").capitalize() if setting.control is None else setting.control
    kind = "texts" if setting.repeatable else _KINDS.get(declared.type_name, "text")
    return Parameter(
        name,
        setting.help,
        kind,
        () if kind == "texts" else None,
        option=declared.name,
        numbers=bool({int, float} & {*declared.types}),
        label=label,
        example=setting.example,
        suggests=setting.suggests,
    )


INDEX = Parameter("index", "Name of an index, or of one of its generations. Default: the index that the server was started with.")
QUERY = Parameter("q", "Text of the query.", required=True)
_OPTIONAL_QUERY = Parameter("q", "Text of the query; may be missing if 'like' is given.", default="")
MODE = Parameter(
    "mode",
    "lexical, weights, dense, hybrid, a weighted list (weights:0.6,dense:0.4) or a tuned profile; after @ the fusion (hybrid@rrf). "
    "Default: the adopted profile, else hybrid.",
)
RERANK = Parameter(
    "rerank", "none, rnn, rnn@dense, or a reranker that the server was started with. Default: as the profile says, else none."
)
CANDIDATES = Parameter("candidates", "How many documents each signal gives.", "count", 100, 1, 10_000)
#: The features of a search: what they declare for the command line is what a request may say, unless it is not served.
_DECLARED = {
    (parameter := _of_setting(each)).name: (feature, parameter)
    for feature in known_to(SearchOptions)
    for each in settings_of(feature.Options).values()
    if each.setting.served
}
#: Those that decide which hits a list has, and in which order.
SELECTION = frozenset(name for name, (feature, _) in _DECLARED.items() if feature.rank is not Feature.rank)
FILTER = replace(
    _DECLARED.pop("filter")[1],
    about="Only documents that pass, for example: year>=2020 AND NOT kind=draft. May be repeated.",
)
REWRITE = replace(
    _DECLARED.pop("rewrite")[1],
    about='operators ("a phrase", -word), spelling, both with a comma, or none. Default: what the profile says, else nothing.',
)
FEATURES = tuple(parameter for _, parameter in _DECLARED.values())
_COMMON = (INDEX, MODE, RERANK, CANDIDATES, FILTER, REWRITE)
SEARCH = (
    _OPTIONAL_QUERY,
    *_COMMON,
    Parameter("k", "How many hits.", "count", 10, 1, 1_000, option="k"),
    Parameter("from", "How many hits to skip.", "count", 0, 0, 9_000, option="start"),
    Parameter(
        "fields",
        "Stored fields of each hit, separated by commas; may be repeated. Default: title, text and metadata.",
        "texts",
        (),
        option="fields",
    ),
    *FEATURES,
)
REQUESTS = (QUERY, *_COMMON)
EXPLAIN = (QUERY, Parameter("id", "Id of the document.", required=True), *_COMMON)
ENCODE = (Parameter("q", "Text to encode; may be repeated.", "texts", (), required=True), INDEX)
#: The second configuration of a comparison: an empty value means the same as in the first.
_SECOND = (
    Parameter("index2", "Index, or generation, of the second list. Default: the same."),
    Parameter("mode2", "Mode of the second list. Default: as in a search."),
    Parameter("rerank2", "Reranker of the second list. Default: as in a search."),
)
COMPARE = (QUERY, *_COMMON, *_SECOND)
JUDGE = (INDEX, Parameter("judge", "Name of the judge.", required=True))
JOB = (Parameter("job", "Id of the work, as /api/jobs and the addresses of the pages name it.", required=True),)
#: What the search page understands; it answers without a query, too.
PAGE = (
    _OPTIONAL_QUERY,
    *_COMMON,
    Parameter("k", "How many hits.", "count", 10, 1, 100, option="k"),
    *(each for each in SEARCH if each.name in {"from", "facet"}),
    *(each for each in FEATURES if each.label),
    Parameter("compare", "1: show two lists.", "flag"),
    *_SECOND,
    Parameter("id", "Explain this document, whether it is found or not."),
    Parameter("judge", "Rate the hits under this name."),
    Parameter("curl", "1: show the request to the server.", "flag"),
)


#: Kind of a parameter -> the JSON types that it has in a body.
_JSON = {"text": (str,), "texts": (str, list), "count": (int,), "number": (int, float), "flag": (bool,)}
_JSON_NAMES = {
    "text": "a text",
    "texts": "a text or a list of texts",
    "count": "a whole number",
    "number": "a number",
    "flag": "true or false",
}


def of_json(body: bytes, known: Iterable[Parameter]) -> QueryParams:
    """The parameters of a request whose body is a JSON object, as if they stood in its address: a list stands for a repeated parameter.

    Raises:
        UsageError: It is not such an object.
    """
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"The body is not JSON: {error}.", _BODY) from None
    if not isinstance(given, dict):
        raise UsageError("The body is not a JSON object.", _BODY)
    declared = {each.name: each for each in known}
    pairs = []
    for name, value in given.items():
        if (parameter := declared.get(name)) is None:
            raise UsageError(f"There is no parameter {name!r}.", f"Known: {', '.join(declared)}.")
        kind, allowed = parameter.kind, (*_JSON[parameter.kind], *((int, float) if parameter.numbers else ()))
        values = _not_too_many(name, value) if isinstance(value, list) else [value]
        if type(value) not in allowed or (kind == "texts" and not all(isinstance(each, str) for each in values)):
            raise UsageError(f"The parameter {name!r} is not {_JSON_NAMES[kind]}.", _BODY)
        pairs += [(name, str(int(each)) if isinstance(each, bool) else str(each)) for each in values]
    return QueryParams(pairs)


def _not_too_many(name: str, values: list[Any]) -> list[Any]:
    """The values of a parameter, if it is not repeated too often: blank ones count, too."""
    if len(values) > MOST_TEXTS:
        raise UsageError(f"The parameter {name!r} is given {len(values):,} times.", f"Give it at most {MOST_TEXTS} times.")
    return values


def read(given: QueryParams, known: Iterable[Parameter]) -> dict[str, Any]:
    """The values of all parameters of a request.

    Raises:
        UsageError: A value cannot be read, or there is no such parameter.
    """
    declared = {each.name: each for each in known}
    if unknown := [name for name in given if name not in declared]:
        raise UsageError(f"There is no parameter {unknown[0]!r}.", f"Known: {', '.join(declared)}.")
    twice = [name for name in declared if declared[name].kind != "texts" and len(given.getlist(name)) > 1]
    if twice:
        raise UsageError(f"The parameter {twice[0]!r} is given twice.", "Give it once.")
    values = {name: each.read(given) for name, each in declared.items()}
    missing = [each for each in declared.values() if each.required and not values[each.name]]
    if missing:
        raise UsageError(f"The parameter {missing[0].name!r} is missing.", missing[0].about)
    return values
