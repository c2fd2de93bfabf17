"""Filters as an option of a search: `--filter "year>=2020 AND kind=class"`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from termweave.declared_settings import Setting
from termweave.dialect import dialect_of
from termweave.errors import UsageError
from termweave.search.feature import Feature
from termweave.search.filters import documents, grammar
from termweave.support.arguments import entries
from termweave.support.messages import clipped, counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.catalog.layout import DocumentLayout
    from termweave.search.feature import Report
    from termweave.search.filters.grammar import FilterExpression
    from termweave.search.opening import OpenGeneration
    from termweave.search.retrieval.plan import Retrieval
else:  # a command reads the annotations to print its help, and must not wait for this module
    FilterExpression = Any

#: Filters: a text of the filter grammar, or a list of such texts and of clauses of the query DSL.
Where = str | Mapping[str, Any] | FilterExpression | Sequence[str | Mapping[str, Any] | FilterExpression]
_HINT = 'Write year>=2020, or {"range": {"typed.year": {"gte": 2020}}}.'
#: The most characters of a value that a remark shows.
_LONG = 40


def _filters(where: Any) -> list[Mapping[str, Any] | FilterExpression]:
    """Parse the filters that a user gives, and refuse a filter that cannot be a clause of the query DSL."""
    import orjson  # noqa: PLC0415 - not needed by `--help`

    entered = [where] if isinstance(where, str | Mapping | grammar.FilterExpression) else entries("where", "filters", where)
    filters = [_filter(each) for each in entered]
    try:
        orjson.dumps([each for each in filters if isinstance(each, Mapping)], option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        hint = "Use texts, numbers, lists and dicts."
        raise UsageError(f"A filter has a value that JSON cannot represent: {error}.", hint) from None
    return filters


def _filter(clause: Any) -> Mapping[str, Any] | FilterExpression:
    """Read one filter: an expression, or a clause of the query DSL as a dict or as JSON. A clause has one key, whose value is an object."""
    import orjson  # noqa: PLC0415 - not needed by `--help`

    if isinstance(clause, grammar.FilterExpression):
        return clause
    if isinstance(clause, str):
        if not clause.lstrip().startswith("{"):
            return grammar.parse(clause)
        try:
            clause = orjson.loads(clause)
        except orjson.JSONDecodeError as error:
            raise UsageError(f"The filter {clause!r} is not JSON: {error}.", _HINT) from None
    if not isinstance(clause, Mapping):
        raise UsageError(f"A filter is a text or a clause of the query DSL, not {type(clause).__name__}.", _HINT)
    if len(clause) != 1:
        raise UsageError(f"The filter {clause!r} is not one clause of the query DSL.", _HINT)
    ((key, value),) = clause.items()
    if not isinstance(value, Mapping):
        shown = f"{key}={value}" if isinstance(value, str | int | float) else f"{key}=VALUE"
        hint = f'As an expression it is "{shown}".'
        raise UsageError(f"The filter {clause!r} is not a clause of the query DSL: {key!r} must have an object.", hint)
    return clause


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """The filters of a search.

    Attributes:
        where: Filters; all must match. Each is a text such as "year>=2020 AND kind=class" (`termweave.search.filters.grammar`) or a clause
            of the query DSL as a dict or as JSON. One filter alone needs no list.
    """

    where: Annotated[
        Where,
        Setting(
            'Only documents that pass, for example kind=function or "year>=2020 AND (lang=en OR lang=de) AND NOT exists(draft)". '
            "Operators: = != < <= > >=. Or a clause of the query DSL (JSON), for which metadata are texts in metadata.FIELD and typed "
            "values in typed.FIELD. Given several times, all must pass.",
            "EXPRESSION",
            heading="Candidates",
            flag="--filter",
            repeatable=True,
            control="",
            convert=_filters,
        ),
    ] = ()


class Filters(Feature[FilterOptions]):
    """Restricts a search to documents that pass the user's filters."""

    local = False

    def plan(self, plan: Retrieval) -> Retrieval:
        """Add the filters to the plan, as clauses for the server."""
        return replace(plan, where=[*plan.where, *translated(self.options.where, self.search.generation)])

    def remarks(self, report: Report) -> Iterator[str]:
        """Say which filter leaves no document, and why."""
        empty, shown = not report.ranked and not report.last.ranked, [hit.id for hit in report.shown]
        return on_filters(self.search.generation, self.options.where, empty=empty, shown=shown)


def translated(where: Any, generation: OpenGeneration) -> list[Any]:
    """Translate filters into clauses for the server.

    Raises:
        UsageError: A value does not have the type of its field, or a comparison names a field that neither the mapping nor any document has.
    """
    for name in _unknown_to_filters(generation, where, grammar.Comparison).values():
        raise UsageError(*_nowhere(name, generation.layout))
    return grammar.clauses(where, generation.layout, dialect_of(generation.engine.capabilities))


def on_filters(generation: OpenGeneration, where: Any, *, empty: bool, shown: Sequence[str] = ()) -> Iterator[str]:
    """Remarks on filters, for example that a field is unknown. If the search found nothing, they say which filter leaves no document, and why.

    Args:
        generation: The generation that answered.
        where: The filters.
        empty: Whether the search found nothing.
        shown: Ids of the hits on the page; (): there is no page.
    """
    import orjson  # noqa: PLC0415 - not needed by `--help`

    layout = generation.layout
    dialect = dialect_of(generation.engine.capabilities)
    clauses = grammar.clauses(where, layout, dialect)
    expressions = [each for each in where if isinstance(each, grammar.FilterExpression)]
    plain = len(expressions) == len(where)  # a clause of the query DSL names metadata.FIELD, and so do remarks on it
    unknown = _unknown_to_filters(generation, expressions, grammar.Exists)
    yield from (" ".join(filter(None, _nowhere(name, layout))) for name in unknown.values())
    missing = list(unknown)
    if empty and where:
        nowhere, unmatched = documents.unmet(generation, clauses)
        if new := [name for name in nowhere if name not in missing]:
            yield f"The filter matches nothing: no document has {listed_fields(new)}."
        for value in unmatched:
            others = ", ".join(repr(clipped(other, _LONG)) for other in value.others)
            examples = f"; other documents have {others}" if others else ""
            field = _short(value.field) if plain else value.field
            yield f"No document has {value.value!r} in {field!r}{examples}. Filters match only the exact value."
        missing += nowhere
        alone = [grammar.clauses([each], layout, dialect)[0] for each in where]
        if not missing and not unmatched and (counts := documents.passing(generation, alone, clauses)):
            written = [orjson.dumps(each, default=str).decode() if isinstance(each, Mapping) else str(each) for each in where]
            yield _left([clipped(each) for each in written], *counts)
    for name in documents.times_as_numbers(generation, clauses):
        yield (
            f"The filter compares {_short(name)!r} with a year, but the numbers of this field seem to be seconds since 1970: 'termweave index' with "
            f"--types {_short(name)}=epoch-seconds, or epoch-milliseconds, makes dates of them."
        )
    prefix = "metadata." if layout.application is None else ""
    if not empty and (objects := [prefix + each for each in sorted(grammar.objects(expressions)) if not layout.is_nested(each)]):
        page = [layout.with_ids(shown)] if shown else []
        for each in documents.lists_of_objects(generation, [*clauses, *page], objects):
            yield (
                f"{each.removeprefix(prefix)!r} is a list of objects: the filter also passes a document in which one object has one "
                "of the values and another object has the other (docs/filters.md)."
            )
    typed = plain and bool(layout.types)
    if texts := [name for name in documents.compared_as_texts(clauses, years=typed) if name not in unknown]:
        shown = ", ".join(repr(_short(name) if plain else name) for name in texts)
        why = (
            "Not all values are numbers or dates: 'termweave index' names the others, and --types FIELD=number or FIELD=date leaves them out."
            if plain
            else "To compare numbers or dates, write the filter as FIELD>=VALUE, or name typed.FIELD in its JSON. "
            "A field has no typed.FIELD if some of its values are not numbers or dates."
        )
        yield (
            f"Metadata are compared as text, so that 10 comes before 9: the range filter on {shown} may match "
            f"other documents than you meant. {why}"
        )


def _unknown_to_filters(
    generation: OpenGeneration, where: Sequence[Any], kind: type[grammar.Comparison | grammar.Exists]
) -> dict[str, str]:
    """The fields that filter expressions name and no document has: name of the stored field -> name as the user wrote it.

    Only parts of the given kind, comparisons or exists(), are read. Typed fields need no request.
    """
    layout = generation.layout
    pairs = [pair for each in where if isinstance(each, grammar.FilterExpression) for pair in each.fields(kind).items()]
    if layout.application is not None:
        return {name: name for name, _ in pairs if not layout.may_hold(name)}
    doubtful = {stored: name for name, stored in pairs if name != "id" and not layout.column(name)}
    return {stored: doubtful[stored] for stored in documents.absent(generation, list(doubtful))}


def _nowhere(name: str, layout: DocumentLayout) -> tuple[str, str]:
    """A message that no document has a field, and a hint which field may be meant."""
    if name in {"title", "text"} and layout.application is None:
        return f"Filters read the metadata and the id, not the {name}.", f"Write words of the {name} into the query."
    able = layout.able("filter")
    return f"No document has a field {name!r}.", layout.nearest(name, able) or f"There are: {few(able, 10)}." * bool(able)


def _short(name: str) -> str:
    """The name of a metadata entry in a filter expression, without "metadata."; an entry "id" keeps the prefix, because "id" is the document's id."""
    inner = name.removeprefix("metadata.")
    return name if inner == "id" else inner


def _left(labels: Sequence[str], counts: Sequence[int], together: int) -> str:
    """Say which filter no document passes, or that no document passes all filters together, or that only the query finds nothing."""
    if nothing := [label for label, count in zip(labels, counts, strict=True) if not count]:
        return f"No document passes the filter {few(nothing, between=' nor ')}."
    if not together:
        alone = "; ".join(f"{label}: {count:,}" for label, count in zip(labels, counts, strict=True))
        return f"No document passes all filters together. Documents that pass each one alone: {alone}."
    return (
        f"{counted(together, 'document')} {'passes' if together == 1 else 'pass'} the filter, and the query finds none of them."
    )


def listed_fields(names: Sequence[str]) -> str:
    """Names of fields as a part of a sentence: "a field 'a'" or "fields 'a', 'b'"."""
    return f"{'a field' if len(names) == 1 else 'fields'} {', '.join(map(repr, names))}"
