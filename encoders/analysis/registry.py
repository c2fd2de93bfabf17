"""The analyses, by id. A model folder names one. The behaviour of an id never changes; a changed analysis gets a new id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.encoders.analysis.chinese_words import ChineseWords
from termweave.encoders.analysis.piece_terms import PieceTerms
from termweave.encoders.analysis.snowball_words import OF_LANGUAGE
from termweave.encoders.analysis.vocabulary_terms import VocabularyTerms
from termweave.encoders.analysis.words import Analysis
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALL: tuple[type[Analysis], ...] = (Analysis, ChineseWords, PieceTerms, VocabularyTerms, *OF_LANGUAGE.values())
ANALYSES: Mapping[str, type[Analysis]] = {analysis.id: analysis for analysis in _ALL}


def analysis_of(identity: str | None, tokenizer: Any, *, model: str) -> Analysis:
    """Make the analysis of a model folder.

    Args:
        identity: The id that the manifest names.
        tokenizer: The model's `tokenizers.Tokenizer`, BERT-like but for `VocabularyTerms`.
        model: The name of the model, for messages.

    Raises:
        ModelError: This termweave has no such analysis.
    """
    analysis = ANALYSES.get(identity or "")
    if analysis is None:
        raise ModelError(
            f"The model {model!r} needs the analysis {identity!r}; this termweave has {', '.join(map(repr, ANALYSES))}.",
            "Train it again, or use the version of termweave that made it.",
        )
    return analysis(tokenizer)
