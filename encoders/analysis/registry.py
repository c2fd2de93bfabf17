"""The analyses there are, by id. A model folder names one; an id keeps its behaviour for ever, a change makes a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.encoders.analysis import Analysis
from termweave.encoders.chinese_words import ChineseWords
from termweave.encoders.piece_terms import PieceTerms
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

ANALYSES: Mapping[str, type[Analysis]] = {each.id: each for each in (Analysis, ChineseWords, PieceTerms)}


def analysis_of(identity: str | None, tokenizer: Any, *, model: str) -> Analysis:
    """The analysis of a model folder.

    Args:
        identity: Its id, as the manifest says it.
        tokenizer: A `tokenizers.Tokenizer`, BERT-like.
        model: Name of the model, for messages.

    Raises:
        ModelError: This termweave has no such analysis.
    """
    found = ANALYSES.get(identity or "")
    if found is None:
        raise ModelError(
            f"The model {model!r} counts on the analysis {identity!r}; this termweave has {', '.join(map(repr, ANALYSES))}.",
            "Train it again, or use the version of termweave that made it.",
        )
    return found(tokenizer)
