"""Measure what int8 costs on a sample of a user's own corpus: search with the fp32 and the int8 graph of a model, in memory.

The sample has at most 50 queries and 300 documents: some relevant documents of each query, and random ones. Without judged queries the
titles of the documents, or their first words, are the queries. Three figures compare both graphs: nDCG@10 (with judgements), the
share of the ten best documents that both have, and the cosine of the vectors of the documents.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave import corpora
from termweave.encoders import load
from termweave.errors import TermweaveError, UsageError
from termweave.training.data.pairs import count_terms
from termweave.training.dev_measure import encoded_rankings, ranking_measure, vectors_of

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.encoders.onnx.runtime import Precision
    from termweave.records import Document, Encoding
    from termweave.training.dev_measure import Ranking

#: Number of queries, of documents, and the most relevant documents of a query.
_QUERIES, _DOCUMENTS, _RELEVANT = 50, 300, 3
#: Words at the beginning of a document that stand for a query, where there is no title.
_WORDS = 12
#: Places at the top that are compared.
_TOP = 10


@dataclass(frozen=True)
class CorpusSample:
    """Queries and documents of a corpus.

    Attributes:
        queries: Texts of the queries.
        documents: Texts of the documents.
        gains: For each query, index of a document -> grade; empty without judgements.
    """

    queries: list[str]
    documents: list[str]
    gains: list[dict[int, int]]


def draw(spec: str) -> CorpusSample:
    """Draw a sample of the corpus that `spec` names; every call draws the same sample.

    Raises:
        UsageError: The corpus has fewer than two documents.
        TermweaveError: The corpus cannot be read.
    """
    try:
        dataset = corpora.open_dataset(spec)
        judgements = dataset.qrels()
        judged = [(query, judgements.get(query.id, {})) for query in dataset.queries()]
        judged = [(query, grades) for query, grades in judged if max(grades.values(), default=0) >= dataset.relevant_from]
        judged = [] if Path(spec).is_file() else judged  # a table of two columns would be a click log, too
    except TermweaveError:  # a corpus without judged queries
        judged = []
    if not judged:
        documents = list(_drawn(spec, corpora.open_source(spec), frozenset()).values())
        chosen = documents[:: -(-len(documents) // _QUERIES)]
        queries = [document.title or " ".join(document.text.split()[:_WORDS]) for document in chosen]
        return CorpusSample(queries, [document.content for document in documents], [])
    judged = judged[:: -(-len(judged) // _QUERIES)]
    best = [sorted(grades, key=lambda key, grades=grades: (-grades[key], key))[:_RELEVANT] for _, grades in judged]  # type: ignore[misc]
    drawn = _drawn(spec, dataset, frozenset(key for keys in best for key in keys))
    place = {key: number for number, key in enumerate(drawn)}
    gains = [{place[key]: grade for key, grade in grades.items() if key in place and grade > 0} for _, grades in judged]
    return CorpusSample([query.text for query, _ in judged], [document.content for document in drawn.values()], gains)


def cost(folder: Path, output: str, sample: CorpusSample) -> dict[str, Any]:
    """Compare the fp32 and the int8 graph of a model on a sample.

    Args:
        folder: The exported folder.
        output: "weights" or "dense".
        sample: The sample.

    Returns:
        ``{"queries", "documents", "overlap"}``, with judgements ``"ndcg": {"fp32", "int8", "change"}``, and of vectors ``"cosine_min"``
        and ``"cosine_mean"``.
    """
    precisions: tuple[Precision, ...] = ("fp32", "int8")
    (documents, fp32), (in_int8, int8) = (searched(folder, output, sample, precision) for precision in precisions)
    overlap = np.mean([np.isin(one, other).sum() / max(1, len(one)) for (one, _), (other, _) in zip(fp32, int8, strict=True)])
    figures: dict[str, Any] = {"queries": len(sample.queries), "documents": len(sample.documents), "overlap": float(overlap)}
    if sample.gains:
        exact, rounded = (float(ranking_measure(ranked, sample.gains).mean()) for ranked in (fp32, int8))
        figures["ndcg"] = {"fp32": exact, "int8": rounded, "change": rounded - exact}
    if output == "dense":
        cosines = (vectors_of(documents) * vectors_of(in_int8)).sum(axis=1)
        figures |= {"cosine_min": float(cosines.min()), "cosine_mean": float(cosines.mean())}
    return figures


def searched(
    folder: Path, output: str, sample: CorpusSample, precision: Precision | None = None
) -> tuple[list[Encoding], list[Ranking]]:
    """Search a sample with one model, and return the encoded documents and the ten best documents of each query with their scores.

    Args:
        folder: The exported folder.
        output: "weights" or "dense".
        sample: The sample.
        precision: Which graph is used; None: the graph that this machine uses by default.
    """
    weights, dense = (folder if name == output else "" for name in ("weights", "dense"))
    encoder = load(weights, dense, precision=precision)
    statistics = None
    if encoder.analysis is not None:  # weights depend on the statistics of the sample
        statistics = count_terms([sample.documents], encoder.analysis, encoder.analyse)
    documents, ranked = encoded_rankings(encoder, [output], sample.documents, sample.queries, statistics, _TOP)
    return documents, ranked[output]


def in_words(output: str, figures: Mapping[str, Any]) -> str:
    """Describe the cost of int8 in a sentence."""
    name = {"weights": "weights", "dense": "vectors"}[output]
    parts = []
    if "ndcg" in figures:
        ndcg = figures["ndcg"]
        parts.append(f"nDCG@10 {ndcg['fp32']:.4f} in fp32, {ndcg['int8']:.4f} in int8 ({ndcg['change']:+.4f})")
    parts.append(f"{figures['overlap']:.1%} of the ten best documents are the same")
    if "cosine_min" in figures:
        parts.append(f"cosine {figures['cosine_min']:.4f} at least, {figures['cosine_mean']:.4f} on average")
    return f"{name}, {figures['queries']} queries in {figures['documents']} documents: {'; '.join(parts)}"


def _drawn(spec: str, source: Source, ids: frozenset[str]) -> dict[str, Document]:
    """Return the documents with the wanted ids and random documents, by id, in the order of the source.

    Raises:
        UsageError: There are fewer than two documents.
    """
    fate = random.Random(0)  # noqa: S311 - a sample, no secret
    judged: dict[str, tuple[int, Document]] = {}
    others: list[tuple[int, Document]] = []
    for number, document in enumerate(source.documents()):
        if document.id in ids:
            judged[document.id] = (number, document)
        elif len(others) < _DOCUMENTS:
            others.append((number, document))
        elif (place := fate.randrange(number + 1)) < _DOCUMENTS:
            others[place] = (number, document)
    chosen = sorted([*judged.values(), *others[: max(0, _DOCUMENTS - len(judged))]], key=lambda pair: pair[0])
    if len(chosen) < 2:
        raise UsageError(f"{spec} has fewer than two documents, so nothing can be ranked.", "Name a larger corpus: --on DATASET.")
    return {document.id: document for _, document in chosen}
