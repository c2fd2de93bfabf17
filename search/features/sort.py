"""Sort the candidates by a field instead of by score: `--sort year`, `--sort year:desc`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from termweave.catalog.typed_fields import as_text, convert, entries
from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.search.feature import Feature, Ranking, Report
from termweave.search.retrieval.plan import MAX_DEPTH, Retrieval
from termweave.support.arguments import parsed_text


def parse(text: str) -> tuple[str, str]:
    """Read the value of `--sort`: the field and the direction. "year" and "year:asc" ascend, "year:desc" descends.

    Raises:
        UsageError: The text does not name a field.
    """
    name, colon, direction = text.rpartition(":")
    if not colon or direction not in {"asc", "desc"}:
        name, direction = text, "asc"
    if not name.strip():
        raise UsageError(f"{text!r} does not name a field to sort by.", "Write year, or year:desc for the highest first.")
    return name.removeprefix("metadata."), direction


@dataclass(frozen=True, kw_only=True)
class SortOptions:
    """An order other than that of the scores.

    Attributes:
        sort: Sort the candidates by this field instead of by score: "year", or "year:desc" for the highest first. All candidates are
            sorted, unless `min_score` leaves some out.
    """

    sort: Annotated[
        str | None,
        Setting(
            "Sort the candidates by this metadata field instead of by score; FIELD:desc begins with the highest value.",
            "FIELD",
            control="Sort by",
            example="score",
            suggests="fields",
            convert=parsed_text(parse),
        ),
    ] = None


class Sort(Feature[SortOptions]):
    """Sorts all candidates of the first round by a field."""

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask that all candidates be ordered by this feature and counted, with none pinned."""
        if plan.pin:
            raise UsageError("Sorted documents have an order of their own, so none can be put first.", "Remove --sort or --pin.")
        return replace(plan, ordered=True, counts=True)

    def rank(self, ranking: Ranking) -> Ranking:
        """Sort the ranked documents of the round by the field; those beyond the 10,000th are left out.

        Documents without a value come last; documents with equal values keep their order.
        """
        name, direction = parse(str(self.options.sort))
        generation, first = self.search.generation, ranking.places[:MAX_DEPTH]
        layout, column = generation.layout, generation.layout.usable(name)
        if column.field == layout.id_field:
            return replace(ranking, places=sorted(first, key=lambda place: place.id, reverse=direction == "desc"))
        order_of_values = {"order": direction, "missing": "_last", "unmapped_type": column.kind}
        hits = generation.columns_of([place.id for place in first], sort=[{column.field: order_of_values}]) if first else []
        steps: dict[str, int] = {}
        step, last = 0, None
        for hit in hits:
            step, last = step + (hit["sort"] != last), hit["sort"]
            steps.setdefault(str(layout.id_of(hit)), step)
        return replace(ranking, places=sorted(first, key=lambda place: steps.get(place.id, len(hits) + 1)))

    def enough(self, ranking: Ranking) -> bool:
        """Always True: a deeper search would put further, weaker documents between those that were shown."""
        del ranking
        return True

    def remarks(self, report: Report) -> Iterator[str]:
        """Say that numbers are sorted as text, if so, and how low the scores of the sorted documents go."""
        name, _ = parse(str(self.options.sort))
        if self.search.generation.layout.short_texts(name):
            values = [value for hit in report.shown for key, value in entries(hit.fields.get("metadata") or {}) if key == name]
            forms = ("decimal-comma", "decimal-point")
            numbers = [each for each in values if any(convert(form, each) is not None for form in forms)]
            if 2 * len(numbers) > len(values) and (
                len(numbers) < len(values) or len({len(as_text(each)) for each in numbers}) > 1
            ):
                yield (
                    f"The field {name!r} is sorted as text, so that 10 comes before 9, because not all of its values are numbers in one notation. "
                    f"'termweave index' with --types {name}=number, or {name}=decimal-comma, makes numbers of them."
                )
        if report.ranked and not report.last.plan.floor:
            scores = [place.score for place in report.last.places]
            yield (
                f"All candidates of the query are sorted ({report.ranked:,}), also those with low scores: the scores go from "
                f"{max(scores):.4g} down to {min(scores):.4g}. A minimum score leaves documents with low scores out."
            )
