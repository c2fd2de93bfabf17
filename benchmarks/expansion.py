"""Terms that a text does not hold: which words of the vocabulary are worth indexing with it, and what they cost.

    python benchmarks/expansion.py SETS cranfield nfcorpus          (folders of data sets)

The shipped model's weights and vectors, exact search in memory. Each document gets up to N further words of the corpus, with weight
``factor * idf * score``, the score scaled so that the best word of the document has 1:

    vectors     words whose own vector, as that of a text of one word, is nearest to the document's vector
    tied        whole words that the backbone's word embeddings give the largest product with the mean state of the document
    neighbours  words of the five nearest documents, as `index --neighbours 5` does: mean weight times cosine, without idf

Words are stems that at least two documents hold, and at most a tenth of them (20 in a small set). p is a paired randomisation test against no further words.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter

from termweave.encoders import load
from termweave.encoders.analysis.registry import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.manifest import TOKENIZER, ModelFolder
from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import per_query
from termweave.records import Run, TermWeights
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.pairs import Collection
from termweave.training.data.teacher_scores import minmax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: A source of words: document, number of words -> places in the vocabulary and scores.
    Source = Callable[[int, int], tuple[np.ndarray, np.ndarray]]

_COUNTS, _FACTORS = (10, 30), (0.1, 0.25)
_NEIGHBOURS = 5
_MEASURES = ("nDCG@10", "recall@100")


class ExpandedCollection:
    """A data set, encoded, and the words that its documents may be given."""

    def __init__(self, folder: Path) -> None:
        self.collection = Collection(folder)
        encoder = load("shipped", "shipped")
        model = ModelFolder.read(encoder.models["weights"].folder, check=False)
        analysis = analysis_of(
            model.manifest.analysis, PieceTokenizer(model.path / TOKENIZER).tokenizer, model=model.manifest.name
        )
        self.statistics = self.collection.statistics(analysis)
        self.queries, self.qrels = self.collection.judged("test")
        encoded = encoder.encode(self.collection.texts, kind="document", statistics=self.statistics)
        self.weights = [each.weights for each in encoded]
        self.vectors = np.stack([each.vector for each in encoded])
        asked = encoder.encode([query.text for query in self.queries], kind="query", statistics=self.statistics)
        self.asked = [each.weights for each in asked]
        self.cosines = minmax(np.stack([each.vector for each in asked]) @ self.vectors.T)
        spellings: dict[str, Counter[str]] = {}
        for text, words in zip(self.collection.texts, analysis.words(self.collection.texts), strict=True):
            for start, end, term in zip(words.starts, words.ends, words.terms, strict=True):
                if term:
                    spellings.setdefault(term, Counter())[text[start:end].lower()] += 1
        most = max(20, len(self.collection.texts) // 10)
        self.words = [term for term in spellings if 2 <= self.statistics.document_frequency.get(term, 0) <= most]
        self.idf = BM25().idf(self.words, self.statistics)
        self.spelled = [spellings[term].most_common(1)[0][0] for term in self.words]
        self.word_vectors = np.stack([each.vector for each in encoder.encode(self.spelled, kind="document")])

    def by_vectors(self) -> Source:
        """Words whose vectors are nearest."""

        def nearest(document: int, count: int) -> tuple[np.ndarray, np.ndarray]:
            return _best(self.word_vectors @ self.vectors[document], count, self.idf)

        return nearest

    def by_embeddings(self) -> Source:
        """Words by the tied embeddings. The direction of the vector is that of the mean state."""
        import torch
        from transformers import AutoModel, AutoTokenizer

        from termweave.training.backbone import lookup

        folder = lookup.find("", [], Path(), {})
        table = AutoModel.from_pretrained(folder).get_input_embeddings().weight.detach()
        table = torch.nn.functional.normalize(table - table.mean(dim=0), dim=1).numpy()
        pieces = AutoTokenizer.from_pretrained(folder).get_vocab()
        known = np.array([pieces.get(word, -1) for word in self.spelled])
        of_word = np.where(known[:, None] >= 0, table[known], 0.0)

        def tied(document: int, count: int) -> tuple[np.ndarray, np.ndarray]:
            return _best(of_word @ self.vectors[document], count, self.idf)

        return tied

    def by_neighbours(self) -> Source:
        """Words of the nearest documents."""
        place = {term: row for row, term in enumerate(self.words)}

        def near(document: int, count: int) -> tuple[np.ndarray, np.ndarray]:
            cosines = self.vectors @ self.vectors[document]
            cosines[document] = -1.0
            total: Counter[int] = Counter()
            for other in np.argsort(-cosines)[:_NEIGHBOURS]:
                for term, weight in zip(self.weights[other].terms, self.weights[other].weights, strict=True):
                    if term in place:
                        total[place[term]] += float(weight * cosines[other]) / _NEIGHBOURS
            best = total.most_common(count)
            return np.array([row for row, _ in best], dtype=int), np.array([value for _, value in best])

        return near

    def expanded(self, source: Source, count: int, factor: float) -> Iterator[TermWeights]:
        """The documents' weights with up to so many further words."""
        for document, own in enumerate(self.weights):
            held = set(own.terms)
            rows, values = source(document, count + len(held))
            new = [
                (self.words[row], factor * value)
                for row, value in zip(rows, values, strict=True)
                if self.words[row] not in held and value > 0
            ]
            terms, weights = zip(*new[:count], strict=True) if new else ((), ())
            yield TermWeights((*own.terms, *terms), np.concatenate((own.weights, np.array(weights, np.float32))))

    def measured(self, documents: list[TermWeights]) -> dict[str, dict[str, np.ndarray]]:
        """Measures of weights and hybrid (min-max) for each query."""
        index = SparseIndex(documents)
        words = np.stack([index.scores(query) for query in self.asked])
        return {
            name: self._figures(name, scores) for name, scores in (("weights", words), ("hybrid", minmax(words) + self.cosines))
        }

    def _figures(self, name: str, scores: np.ndarray) -> dict[str, np.ndarray]:
        run = {}
        for query, row in zip(self.queries, scores, strict=True):
            best = np.argsort(-row, kind="stable")[:100]
            run[query.id] = {self.collection.ids[place]: float(row[place]) for place in best if row[place] > 0}
        return per_query(Run(name, run), self.qrels, [query.id for query in self.queries], measures=_MEASURES)


def _best(scores: np.ndarray, count: int, idf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.argsort(-scores)[:count]
    return rows, idf[rows] * scores[rows] / max(float(scores[rows[0]]), 1e-9)


def main() -> None:
    """Print a table for every set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path, help="folders of data sets")
    parser.add_argument("--sources", default="vectors,tied,neighbours")
    given = parser.parse_args()
    columns = [f"{system}, {measure}" for system in ("weights", "hybrid") for measure in _MEASURES]
    print(
        f"| set | words | most | factor | postings | {' | '.join(columns)} |\n|---|---|---:|---:|---:|{'---:|' * 4}", flush=True
    )
    for folder in given.sets:
        data = ExpandedCollection(folder)
        plain, size = data.measured(data.weights), sum(map(len, data.weights))
        cells = [f"{plain[system][measure].mean():.4f}" for system in plain for measure in _MEASURES]
        print(f"| {folder.name} | none | | | 1.00 x | {' | '.join(cells)} |", flush=True)
        makers = {"vectors": data.by_vectors, "tied": data.by_embeddings, "neighbours": data.by_neighbours}
        for name in given.sources.split(","):
            source = makers[name]()
            for count in _COUNTS:
                for factor in (1.0,) if name == "neighbours" else _FACTORS:
                    documents = list(data.expanded(source, count, factor))
                    found = data.measured(documents)
                    cells = []
                    for system, own in found.items():
                        for measure in _MEASURES:
                            p = randomisation_test(own[measure], plain[system][measure])
                            cells.append(f"{own[measure].mean() - plain[system][measure].mean():+.4f} ({p:.2g})")
                    ratio = sum(map(len, documents)) / size
                    print(f"| | {name} | {count} | {factor:g} | {ratio:.2f} x | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    enter(main)
