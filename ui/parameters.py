"""The parameters that requests to pages and API may have, each declared once; the OpenAPI document describes the same parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson
from annotated_types import Ge, Le
from starlette.datastructures import QueryParams

from termweave.declared_settings import LARGEST, DeclaredSetting, settings_of
from termweave.errors import UsageError
from termweave.search.feature import Feature, known_to
from termweave.search.options import SearchOptions

#: Values that a form sends for a box that is ticked.
_YES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False}
_DIGITS = re.compile(r"[0-9]{1,10}")
#: How often a parameter may be repeated: each value is work, such as encoding a text.
MOST_TEXTS = 100
_BODY = 'Send {"q": "the query", "k": 5} with the names of the parameters.'
#: Kind of a parameter -> the JSON types that it has in a body, and what messages call them.
_JSON: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "texts": ((str, list), "a text or a list of texts"),
    "count": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "flag": ((bool,), "true or false"),
}
#: Type of a setting -> kind of its parameter.
_KINDS = {"list": "texts", "int": "count", "float": "number", "bool": "flag"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a request.

    Attributes:
        name: Name of the parameter in the address.
        about: What a value of the parameter means, in words.
        kind: "text", "texts" (may be given several times), "count", "number" (perhaps with a fraction) or "flag".
        default: Value if the parameter is missing or empty; for "texts" always (), for a "flag" False.
        least: The lowest value of a count or number.
        most: The highest value of a count or number.
        required: Whether a request without the parameter is refused.
        option: Name of the search option that the parameter sets; "": it sets no search option.
        numbers: Whether a JSON body may give a number in place of a text.
        label: Label of the generated control on the search page; "": no control is generated for the parameter.
        example: The example that the control shows while it is empty.
        suggests: The kind of values that the control suggests, as in `Setting.suggests`.
    """

    name: str
    about: str
    kind: str = "text"
    default: Any = None
    least: float = 0
    most: float = LARGEST
    required: bool = False
    option: str = ""
    numbers: bool = False
    label: str = ""
    example: str = ""
    suggests: str = ""

    def read(self, query: QueryParams) -> Any:
        """Read the value of this parameter from the query string of a request.

        Raises:
            UsageError: The value cannot be read, or a required parameter is missing.
        """
        values = query.getlist(self.name)
        if self.kind != "texts" and len(values) > 1:
            raise UsageError(f"The parameter {self.name!r} is given twice.", "Give it once.")
        texts = tuple(text for text in _not_too_many(self.name, values) if text.strip())
        if not texts and self.required:
            raise UsageError(f"The parameter {self.name!r} is missing.", self.about)
        if self.kind == "texts":
            return texts
        if not texts:
            return False if self.kind == "flag" else self.default
        (text,) = texts
        if self.kind != "flag":
            return text if self.kind == "text" else self._number(text)
        if text not in _YES:
            raise UsageError(f"The parameter {self.name!r} must be 1 or 0, not {text!r}.")
        return _YES[text]

    def readable(self, query: QueryParams) -> Any:
        """Read the value of this parameter from the query string of a request, or return the default if the value cannot be read."""
        try:
            return self.read(query)
        except UsageError:
            return () if self.kind == "texts" else self.default

    def _number(self, text: str) -> float:
        try:
            number = float(text) if self.kind == "number" else int(text) if _DIGITS.fullmatch(text) else math.nan
        except ValueError:
            number = math.nan
        if not self.least <= number <= self.most:
            raise UsageError(f"The parameter {self.name!r} must be a number from {self.least} to {self.most}, not {text!r}.")
        return number


#: What some options say in a request, where the command line allows more, and their highest values.
_ABOUT = {
    "k": "How many hits.",
    "fields": "Stored fields of each hit, separated by commas; may be repeated. Default: title, text and metadata.",
    "rerank": "none, rnn, rnn@dense, or a reranker that the server was started with. Default: as the profile says, else none.",
    "rewrite": 'operators ("a phrase", -word), spelling, both with a comma, or none. Default: what the profile says, else nothing.',
}
_MOST = {"k": 1_000, "from": 9_000}
#: The parameters that choose and order the documents, but for those of features; the page has controls of its own for most of them.
RANKING = ("mode", "rerank", "candidates", "filter", "rewrite")
_PAGE_OF_HITS = ("k", "from", "fields")


def _name(declared: DeclaredSetting) -> str:
    """The name of the parameter for a declared option: its flag on the command line without dashes in front, the others as underscores."""
    return declared.flag.lstrip("-").replace("-", "_")


def _of_setting(declared: DeclaredSetting) -> Parameter:
    """Make the parameter for a declared search option."""
    setting, name = declared.setting, _name(declared)
    kind = "texts" if setting.repeatable else _KINDS.get(declared.type_name, "text")
    bounds = {type(each): each for each in declared.annotation.__metadata__}
    default_text = f" Default: {setting.default_text}." if setting.default_text and kind != "flag" else ""
    label = name.replace("_", " ").capitalize() if setting.control is None else setting.control
    return Parameter(
        name,
        _ABOUT.get(name, setting.help + default_text),
        kind,
        default=declared.default if kind == "count" else None,
        least=bounds[Ge].ge if Ge in bounds else 0,
        most=_MOST.get(name, bounds[Le].le if Le in bounds else LARGEST),
        option=declared.name,
        numbers=kind == "text" and bool({int, float} & {*declared.types}),
        label=label,
        example=setting.example,
        suggests=setting.suggests,
    )


#: What the options of a search declare for the command line, a request may say, unless it is not served. Whoever starts the server decides
#: how long a ranker may take.
_SERVED = [each for each in settings_of(SearchOptions).values() if each.setting.served and each.name != "rerank_budget"]
_DECLARED = {_name(each): _of_setting(each) for each in _SERVED}
#: Those of features that decide which hits a list has, and in which order.
SELECTION = _DECLARED.keys() & {
    _name(each)
    for feature in known_to(SearchOptions)
    if feature.rank is not Feature.rank
    for each in settings_of(feature.Options).values()
}
FEATURES = tuple(each for name, each in _DECLARED.items() if name not in {*RANKING, *_PAGE_OF_HITS})
#: The options for which the search page makes controls as they are declared.
CONTROLS = tuple(each for each in (_DECLARED["rewrite"], *FEATURES) if each.label)
INDEX = Parameter("index", "Name of an index, or of one of its generations. Default: the index that the server was started with.")
JOB = Parameter("job", "Id of the work, as /api/jobs and the addresses of the pages name it.", required=True)
JUDGE = Parameter("judge", "Name of the judge.", required=True)
QUERY = Parameter("q", "Text of the query.", required=True)
_OPTIONAL_QUERY = Parameter("q", "Text of the query; may be missing if 'like' is given.", default="")
_COMMON = (INDEX, *(_DECLARED[name] for name in RANKING))
SEARCH = (_OPTIONAL_QUERY, *_COMMON, *(_DECLARED[name] for name in _PAGE_OF_HITS), *FEATURES)
REQUESTS = (QUERY, *_COMMON)
EXPLAIN = (QUERY, Parameter("id", "Id of the document.", required=True), *_COMMON)
ENCODE = (Parameter("q", "Text to encode; may be repeated.", "texts", required=True), INDEX)
#: The second configuration of a comparison: an empty value means the same index, and otherwise the default.
_SECOND = (
    Parameter("index2", "Index, or generation, of the second list. Default: the same."),
    Parameter("mode2", "Mode of the second list. Default: as in a search."),
    Parameter("rerank2", "Reranker of the second list. Default: as in a search."),
)
COMPARE = (QUERY, *_COMMON, *_SECOND)
#: What the search page understands; it answers without a query, too.
PAGE = (
    _OPTIONAL_QUERY,
    *_COMMON,
    replace(_DECLARED["k"], most=100),
    _DECLARED["from"],
    *(each for each in FEATURES if each.label or each.name == "facet"),
    Parameter("compare", "1: show two lists.", "flag"),
    *_SECOND,
    Parameter("id", "Explain this document, whether it is found or not."),
    Parameter("judge", "Rate the hits under this name."),
    Parameter("curl", "1: show the request to the server.", "flag"),
)


def of_json(body: bytes, parameters: Iterable[Parameter]) -> QueryParams:
    """Convert a JSON object, the body of a request, into parameters as in a query string: a list becomes a repeated parameter.

    Raises:
        UsageError: The body is not a JSON object of declared parameters with values of their types.
    """
    fields = json_object(body, _BODY)
    declared, pairs = _checked(fields, parameters), []
    for name, value in fields.items():
        parameter = declared[name]
        types, called = _JSON[parameter.kind]
        values = _not_too_many(name, value) if isinstance(value, list) else [value]
        texts = parameter.kind != "texts" or all(isinstance(each, str) for each in values)
        if not texts or type(value) not in (*types, *((int, float) if parameter.numbers else ())):
            raise UsageError(f"The parameter {name!r} is not {called}.", _BODY)
        pairs += [(name, str(int(each)) if isinstance(each, bool) else str(each)) for each in values]
    return QueryParams(pairs)


def json_object(body: bytes, advice: str) -> dict[str, Any]:
    """Parse the body of a request as a JSON object.

    Raises:
        UsageError: The body is not a JSON object; `advice` is the hint of the error.
    """
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"The body is not JSON: {error}.", advice) from None
    if not isinstance(fields, dict):
        raise UsageError("The body is not a JSON object.", advice)
    return fields


def _not_too_many(name: str, values: list[Any]) -> list[Any]:
    """Return the values of a parameter, or raise `UsageError` if there are more than `MOST_TEXTS`, blank values included."""
    if len(values) > MOST_TEXTS:
        raise UsageError(f"The parameter {name!r} is given {len(values):,} times.", f"Give it at most {MOST_TEXTS} times.")
    return values


def _checked(names: Iterable[str], parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    """Return name -> parameter of all declared parameters, or raise `UsageError` if a request names one that is not declared."""
    declared = {each.name: each for each in parameters}
    if unknown := [name for name in names if name not in declared]:
        raise UsageError(f"There is no parameter {unknown[0]!r}.", f"Known: {', '.join(declared)}.")
    return declared


def read(query: QueryParams, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Read the values of all given parameters from the query string of a request: name -> value.

    Raises:
        UsageError: A value cannot be read, or the request names a parameter that is not declared.
    """
    return {name: each.read(query) for name, each in _checked(query, parameters).items()}
