"""Candidates that are kept: what a page needs to rank them again with other weights, without asking for anything.

The arithmetic is that of `search.ranking.fusion` and `search.ranking.rnn`; ui/static/sliders.js repeats it in the browser, and
tests/browser/test_sliders.py holds both to the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from termweave.evaluation.book.reader import BookDataset
from termweave.search.catalog import profiles
from termweave.search.ranking import fusion
from termweave.search.ranking.modes import Mode
from termweave.search.ranking.order import head_size, order
from termweave.search.ranking.rerankers import Reranking
from termweave.search.ranking.rnn import ReciprocalNeighbours
from termweave.ui import searching
from termweave.ui.workspace import check_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave import answers
    from termweave.evaluation.book.store import JudgementBook
    from termweave.search import Index
    from termweave.search.ranking.rerankers import Need
    from termweave.search.retrieval.candidates import Candidates

#: Candidates of each signal, and judged queries of the book whose candidates are kept.
DEPTH, QUERIES = 100, 100
#: Ranks that the measure counts.
_RANKS = 10


@dataclass(frozen=True)
class SliderSetting:
    """A way to rank.

    Attributes:
        weights: Signal -> weight, for all signals of the index; they need not sum to 1.
        fusion: Name of the fusion method.
        neighbours: The parameters of rNN; its weight is lambda, and 1 leaves rNN out. None: the index has no vectors.
    """

    weights: Mapping[str, float]
    fusion: str
    neighbours: ReciprocalNeighbours | None

    @property
    def reranking(self) -> Reranking | None:
        """The rerankers of this setting."""
        return None if self.neighbours is None or self.neighbours.weight == 1 else Reranking((self.neighbours,))

    @property
    def mode(self) -> Mode:
        """The signals that count, with weights that sum to 1."""
        total = sum(self.weights.values())
        return Mode("sliders", {name: each / total for name, each in self.weights.items() if each > 0}, self.fusion)


@dataclass(frozen=True)
class KeptQuery:
    """A query, its candidates, and its grades; the id is "" for the query that is shown."""

    id: str
    text: str
    candidates: Candidates
    grades: Mapping[str, int]


def setting_of(index: Index, mode: str | None) -> SliderSetting:
    """The setting of a mode; None: the one that searches use without a mode.

    Raises:
        UsageError: This index does not have the mode.
    """
    chosen, reranking = index.choose(mode)
    stages = [stage for stage in (reranking.stages if reranking else ()) if isinstance(stage, ReciprocalNeighbours)]
    neighbours = stages[0] if stages else replace(ReciprocalNeighbours(), weight=1.0)
    has_vectors = "dense" in index.signals and neighbours.similarity == "fused"
    return SliderSetting(
        {name: chosen.weights.get(name, 0.0) for name in index.signals}, chosen.fusion, neighbours if has_vectors else None
    )


def left_out(index: Index, mode: str | None) -> list[str]:
    """What a search in a mode does and the sliders do not: rerankers other than rNN of the fused score, rules, and pins."""
    reranking, rewriting = index.choose(mode)[1], profiles.rewriting(index.lineage, mode)
    neighbours = setting_of(index, mode).neighbours
    stages = [stage.name for stage in (reranking.stages if reranking else ()) if stage != neighbours]
    return [*stages, *(["pins"] if rewriting is not None and rewriting.pins else [])]


def keep(index: Index, text: str, book: JudgementBook | None, where: Sequence[str], mode: str | None) -> list[KeptQuery]:
    """Fetch the candidates of a query, and of the judged queries of a book, from every signal.

    Args:
        index: The index.
        text: The query; "" for none.
        book: The book; None: no judged queries.
        where: Filters of the query; judged queries are not filtered.
        mode: Queries are rewritten as searches in this mode are.
    """
    judged = BookDataset(f"{BookDataset.PREFIX}{book.name}", book) if book is not None and book.qrels() else None
    needs: tuple[Need, ...] = ("vectors",) if "dense" in index.signals else ()
    rewrite = profiles.rewriting(index.lineage, mode)

    def fetch(texts: Sequence[str], where: Sequence[str] = ()) -> list[Candidates]:
        """Their candidates; documents that are pinned stay where their scores put them."""
        lists = index.candidates(texts, index.signals, depth=DEPTH, where=where, needs=needs, rewrite=rewrite)
        return [replace(each, pinned=()) for each in lists]

    kept = []
    if check_query(text).strip():
        (candidates,) = fetch([text], where)
        kept.append(KeptQuery("", text, candidates, {}))
    if judged is not None:
        qrels, queries = judged.qrels(), judged.queries()[:QUERIES]
        lists = fetch([query.text for query in queries])
        kept += [KeptQuery(each.id, each.text, lists[place], qrels[each.id]) for place, each in enumerate(queries)]
    return kept


def ranked(query: KeptQuery, setting: SliderSetting) -> list[tuple[str, float]]:
    """The documents of a query with their scores in [0, 1], best first."""
    if setting.reranking is not None:
        return [(place.id, place.score) for place in order(query.candidates, setting.mode, setting.reranking)]
    mode = setting.mode
    lists = {name: query.candidates.lists[name] for name in mode.weights}
    return fusion.fuse(lists, mode.weights, mode.fusion).ranking


def measure(kept: Sequence[KeptQuery], setting: SliderSetting) -> tuple[float | None, int]:
    """The mean nDCG@10 of the judged queries among these, None if there is none; and their number."""
    from termweave.evaluation.measures import per_query  # noqa: PLC0415 - numpy comes with it
    from termweave.records import Run  # noqa: PLC0415 - as above

    judged = [query for query in kept if query.grades]
    if not judged:
        return None, 0
    run = Run("sliders", {query.id: dict(ranked(query, setting)) for query in judged})
    name = f"nDCG@{_RANKS}"
    values = per_query(run, {query.id: dict(query.grades) for query in judged}, [query.id for query in judged], measures=(name,))
    return float(values[name].mean()), len(judged)


def as_data(index: Index, kept: Sequence[KeptQuery], setting: SliderSetting) -> answers.Candidates:
    """`candidates/1`: all that a browser needs to rank them again."""
    return {
        "schema": "termweave.candidates/1",
        "index": index.generation,
        "fusion": setting.fusion,
        "weights": dict(setting.weights),
        "rnn": None if setting.neighbours is None else setting.neighbours.weight,
        "queries": [_query(index, query, setting) for query in kept],
    }


def _query(index: Index, query: KeptQuery, setting: SliderSetting) -> answers.CandidateQuery:
    lists, method = query.candidates.lists, fusion.method(setting.fusion)
    documents = sorted({document for each in lists.values() for document in each.scores})
    numbers = {document: number for number, document in enumerate(documents)}
    grades = sorted((grade for grade in query.grades.values() if grade > 0), reverse=True)
    titles = {} if query.id else searching.titles(index, documents)
    return {
        "id": query.id,
        "text": query.text,
        "documents": documents,
        "titles": [] if query.id else [titles.get(document, document) for document in documents],
        "lists": {
            name: {
                "extent": method.extent(each),
                "within": each.within,
                "documents": [numbers[document] for document in each.scores],
                "values": method.values(each),
            }
            for name, each in lists.items()
        },
        "jaccard": _jaccard(query, setting, documents),
        "grades": [query.grades.get(document, 0) for document in documents],
        "ideal": sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades[:_RANKS], 1)),
    }


def _jaccard(query: KeptQuery, setting: SliderSetting, documents: Sequence[str]) -> list[float | None] | None:
    """J of the documents that rNN reranks at these weights; None for the others, and where rNN cannot run."""
    rnn = setting.neighbours
    if rnn is None or query.candidates.query.vector is None:
        return None
    from termweave.rerank import neighbourhood  # noqa: PLC0415 - loads numpy

    mode = setting.mode
    fused = fusion.fuse({name: query.candidates.lists[name] for name in mode.weights}, mode.weights, mode.fusion)
    head = [document for document, _ in fused.ranking[: head_size(fused, rnn.candidates)]]
    if not head:
        return [None] * len(documents)
    vectors = query.candidates.matrix(query.candidates.keys(head, mode.weights, "dense"))
    jaccard = neighbourhood(query.candidates.query.vector, vectors, rnn.rules).jaccard.tolist()
    of_head = dict(zip(head, jaccard, strict=True))
    return [of_head.get(document) for document in documents]
