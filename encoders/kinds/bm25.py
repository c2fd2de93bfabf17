"""The kind "bm25": term weights without a model, for texts in a language that no model knows. The folder has no graph.

    document:  weight(t, d) = bm25(t, d)          query:  weight(t, q) = occurrences of t

What is left of a weights model is its analysis: the stemmer and the stop words of the language. Folders of this kind come with termweave
(`encoders.languages`), and `index` chooses one by the language of the corpus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.model_familiarity import Familiarity
from termweave.encoders.kinds.base import OpenModel
from termweave.encoders.term_weighting import BM25, anchored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from termweave.encoders.term_weighting import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics

_UNSEEN = np.zeros(0, dtype=np.float32)
_NO_PIECES = np.zeros(0, dtype=np.int64)


class Bm25Model(OpenModel):
    """One folder of the kind "bm25"."""

    kind: ClassVar[str] = "bm25"
    label: ClassVar[str] = "BM25 with the words of a language"

    def open(self) -> None:
        """Make the tokeniser that splits words, and the analysis."""
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415 - compiled libraries load when an encoder does

        tokenizer = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self.tokenizer = tokenizer
        self.analysis = analysis_of(self.manifest.analysis, tokenizer, model=self.manifest.name)
        self._bm25 = BM25.from_anchor(self.manifest.anchor)

    @property
    def vocabulary(self) -> Any:
        """The tokeniser that splits words; it has no vocabulary."""
        return self.tokenizer

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """0 for each text: whole texts are read, however long they are."""
        return [0] * len(texts)

    def familiarity(self, texts: Sequence[str]) -> Familiarity:
        """Every text counts as one in the language of the analysis, because somebody chose it."""
        assert self.analysis is not None
        language = self.analysis.language
        return Familiarity(0, 0.0, None, None, 0.0, 0.0, language, language.lower() if language else None)

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """The term weights of each text: BM25's impacts for a document, numbers of occurrences for a query; and no vectors."""
        assert self.analysis is not None
        anchors = (anchored(words, statistics, self._bm25, kind) for words in self.analysis.words(texts))
        return [anchor.weights(_UNSEEN, _NO_PIECES, kind) for anchor in anchors], []
