"""Explain rankers by words: with `--explain-words` a ranker scores each hit again, once without each of its words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from termweave.declared_settings import Setting
from termweave.search.feature import Feature, Ranking

if TYPE_CHECKING:
    from termweave.records import Hit
    from termweave.search.retrieval.plan import Retrieval


@dataclass(frozen=True, kw_only=True)
class WordEffectOptions:
    """Whether rankers are explained by words.

    Attributes:
        explain_words: Explain, and add the words that the logit of a ranker depends on most: it scores the text once without each word.
    """

    explain_words: Annotated[
        bool,
        Setting(
            "Explain, with the words that the logit of a ranker depends on most. It scores each hit once without each of up to 64 words, "
            "which takes seconds.",
            heading="Options",
            served=False,
        ),
    ] = False


class WordEffects(Feature[WordEffectOptions]):
    """Adds to the explanation of a hit the words that a ranker's score depends on most."""

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask for explanations, to which the words are added."""
        return plan.with_explanations()

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Add the words that each reranker's score depends on most to the explanation of each hit: ``"effects": [{"word", "effect"}]``."""
        shown = []
        for hit, place in zip(hits, ranking.shown, strict=True):
            explained = hit.explanation or {"parts": []}
            first = len(explained["parts"]) - len(place.reranked)  # the rerankers' parts are the last ones
            parts = list(explained["parts"][:first])
            for stage, part in zip(place.reranked, explained["parts"][first:], strict=True):
                effects = stage.word_effects()
                parts.append({**part, "effects": effects} if effects else part)
            shown.append(replace(hit, explanation={**explained, "parts": parts}))
        return shown
