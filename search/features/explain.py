"""Explain each score of the page now: `--explain`. Without the option, `Hit.explain` requests the explanation of one hit later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from termweave.declared_settings import Setting
from termweave.search.feature import Feature, Ranking

if TYPE_CHECKING:
    from termweave.records import Hit
    from termweave.search.retrieval.plan import Retrieval


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions:
    """Whether scores are explained.

    Attributes:
        explain: Explain each score now, in place of when `Hit.explain` is called.
    """

    explain: Annotated[
        bool, Setting("Show the parts of each score, and shade the words that contributed to it.", heading="Options", control="")
    ] = False


class Explanation(Feature[ExplanationOptions]):
    """Explains the scores of hits if the user asks for explanations, or if another feature does (by the plan)."""

    always = True  # another feature may ask for explanations

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask for the texts of the hits, in which an explanation shades words."""
        return plan.with_explanations() if self.options.explain else plan

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Add an explanation to each hit."""
        from termweave.search.results.hits import explained  # noqa: PLC0415 - not needed by `--help`

        if not (ranking.plan.explained and hits):
            return hits
        parts = explained(self.search.generation, ranking.candidates, ranking.shown, ranking.stored)
        return [replace(hit, explanation=parts[hit.id]) for hit in hits]
