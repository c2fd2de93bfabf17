"""Explain rankers by words: `--explain-words` scores each hit once without each of its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from termweave.declared_settings import Setting
from termweave.search.feature import Feature

if TYPE_CHECKING:
    from termweave.records import Hit
    from termweave.search.feature import Ranking
    from termweave.search.retrieval.plan import Retrieval


@dataclass(frozen=True, kw_only=True)
class WordEffectOptions:
    """How rankers are explained.

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
    """Adds the words that matter to rankers to explained hits."""

    Options = WordEffectOptions

    def plan(self, plan: Retrieval) -> Retrieval:
        """Explain, too."""
        return plan.with_explanations()

    def show(self, hits: list[Hit], ranking: Ranking) -> list[Hit]:
        """Add the words."""
        from termweave.search.results.explanation import with_word_effects  # noqa: PLC0415 - not needed by `--help`

        return with_word_effects(hits, ranking.shown)
