"""Keep only the best documents of each value of a field: `--collapse brand`, `--collapse brand:2`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from termweave.declared_settings import Setting
from termweave.errors import UsageError
from termweave.search.feature import Feature, Ranking, Report
from termweave.search.retrieval.plan import MAX_DEPTH
from termweave.support.arguments import parsed_text

_COUNT = re.compile(r"\d{1,9}", re.ASCII)


def parse(text: str) -> tuple[str, int]:
    """Read the value of `--collapse`: the field, and how many documents of each value are kept.

    "brand" keeps the best document of each brand, "brand:2" the best two.

    Raises:
        UsageError: The text does not name a field, or keeps no document.
    """
    name, colon, count = text.strip().removeprefix("metadata.").rpartition(":")
    if not colon or not _COUNT.fullmatch(count):
        name, count = text.strip().removeprefix("metadata."), "1"
    if not name or not int(count):
        raise UsageError(
            f"{text!r} does not name a field to collapse by.", "Write brand, or brand:2 for the best two of each brand."
        )
    return name, int(count)


@dataclass(frozen=True, kw_only=True)
class CollapseOptions:
    """Whether documents of one value follow each other.

    Attributes:
        collapse: Keep the best document of each value of this field: "brand", or "brand:2" for the best two. Documents without a value stay.
    """

    collapse: Annotated[
        str | None,
        Setting(
            "Keep the best document of each value of this metadata field; FIELD:2 the best two. Documents without a value stay.",
            "FIELD",
            control="Collapse by",
            example="no field",
            suggests="fields",
            convert=parsed_text(parse),
        ),
    ] = None


class Collapse(Feature[CollapseOptions]):
    """Keeps only the best documents of each value of a field, over all rounds of a search."""

    def rank(self, ranking: Ranking) -> Ranking:
        """Keep a document if fewer than the wanted number of documents above it have its value, or if it has no value.

        All documents below the 10,000th are left out.
        """
        name, most = parse(str(self.options.collapse))
        generation, first = self.search.generation, ranking.places[:MAX_DEPTH]
        layout, field = generation.layout, generation.layout.usable(name).field
        values: dict[str, Any] = {place.id: place.id for place in first}
        if field != layout.id_field and first:
            hits = generation.columns_of([*values], field)
            values = {str(layout.id_of(hit)): hit["fields"][field][0] for hit in hits if field in hit.get("fields", ())}
        counts = ranking.memory.setdefault(self, Counter[Any]())
        places = []
        for place in first:
            if (value := values.get(place.id)) is not None:
                counts[value] += 1
            if value is None or counts[value] <= most:
                places.append(place)
        return replace(ranking, places=places)

    def remarks(self, report: Report) -> Iterator[str]:
        """Say that nothing was left out, because no document has a value of the field."""
        if report.last.ranked and not report.last.memory[self]:
            field, _ = parse(str(self.options.collapse))
            yield f"No document of this answer has a value of {field!r}, so that collapsing leaves none out."
