"""What a data set's judgements can say of an index, and what they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.errors import InputError, UsageError
from termweave.evaluation.wording import queries
from termweave.sequences import in_parts
from termweave.words import counted, few

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from termweave.corpora import Dataset
    from termweave.records import Qrels, Query, Run
    from termweave.search import Index

#: Judged documents a request asks after.
_IDS = 10_000
#: In fewer queries a poor run may well have found nothing judged.
_FEWEST = 5


def lacking(index: Index, name: str, qrels: Qrels) -> list[str]:
    """Judgements about other documents than the index holds would give a table of zeros that means nothing.

    The index itself is asked: that a system finds nothing judged is a result, not another data set.

    Args:
        index: It.
        name: Of the data set.
        qrels: Its judgements.

    Returns:
        What to say of those it lacks.

    Raises:
        InputError: It holds not one of the judged documents.
    """
    judged = sorted({document for grades in qrels.values() for document in grades})
    held = 0
    for part in in_parts(judged, _IDS):
        body = {
            "size": _IDS,
            "query": {"terms": {"id": part}},
            "collapse": {"field": "id"},  # a document may lie in several passages
            "stored_fields": "_none_",
            "track_total_hits": False,
        }
        held += len(index.engine.request("POST", f"/{index.generation}/_search", body=body)["hits"]["hits"])
    if judged and not held:
        raise InputError(
            f"Not one judged document of {name} is in the index {index.name!r}.",
            "Is this the data set the index was made from?",
        )
    lost = len(judged) - held
    if lost <= 0:
        return []
    told = f"{lost:,} of {counted(len(judged), 'judged document')} {'is' if lost == 1 else 'are'} not in the index"
    return [f"{told} and cannot be found."]


def unjudged(dataset: Dataset) -> list[str]:
    """Queries of the file that the split says nothing of, where the reader counts them."""
    count = getattr(dataset, "unjudged", 0)
    if not count:
        return []
    verbs = ("has", "is") if count == 1 else ("have", "are")
    return [f"{queries(count)} of the set {verbs[0]} no judgement in {dataset.split!r} and {verbs[1]} left out."]


def left_out(dataset: Dataset) -> str:
    """What goes behind a sentence that a split has too few queries: judgements it has, and nobody can use."""
    return "".join(f" {note}" for note in dataset.notes)


def other_splits(dataset: Dataset) -> str:
    """What goes behind the advice to judge more: the other splits, where there are."""
    others = [split for split in dataset.splits() if split != dataset.split]
    return f", or name another split: {', '.join(others)}" if others else ""


def wordless(asked: Sequence[Query]) -> list[str]:
    """Queries without a text, which find nothing."""
    empty = [repr(query.id) for query in asked if not query.text.strip()]
    return [f"{queries(len(empty))} without text, counted as 0: {few(empty, 3)}."] if empty else []


def tuned_here(index: Index, modes: Collection[str], dataset: Dataset) -> list[str]:
    """Profiles that were fitted on half of these very queries: what they gain here proves nothing."""
    of = f"{dataset.name}:{dataset.split}"
    return [
        f"The profile {name!r} was fitted on half of these queries ({of}): 'termweave profiles' has its held-out figures."
        for name, profile in index.lineage.profiles.items()
        if name in modes and profile.get("fitted", {}).get("dataset") == of
    ]


def idle(qrels: Qrels, relevant_from: int) -> list[str]:
    """Queries that no system can score on."""
    count = sum(max(grades.values(), default=0) < relevant_from for grades in qrels.values())
    if not count:
        return []
    told = f"{count:,} of {queries(len(qrels))} {'has' if count == 1 else 'have'} no relevant document"
    return [f"{told} (from grade {relevant_from}): all systems get 0 there."]


def uncovered(run: Run, ids: Sequence[str], qrels: Qrels) -> list[str]:
    """Queries that a saved run says nothing of.

    Raises:
        UsageError: It says nothing of any, or is of another corpus.
    """
    absent = sum(query not in run.scores for query in ids)
    if absent == len(ids):
        raise UsageError(
            f"The run {run.name} has none of the {queries(absent)}, such as {ids[0]!r}: it is of another data set.",
            "Compare with a run of the same data set and split.",
        )
    of_this_corpus(run, ids, qrels)
    if not absent:
        return []
    counts = "it counts" if absent == 1 else "they count"
    return [f"The run {run.name} has no results for {absent:,} of {queries(len(ids))}; {counts} 0."]


def of_this_corpus(run: Run, ids: Sequence[str], qrels: Qrels) -> None:
    """Refuse a saved run of another corpus: ids of queries are often 1, 2, 3, and beside its zeros everything is a gain.

    Raises:
        UsageError: Not one document of it is judged for its query, in so many queries that this is no poor result.
    """
    both = [query for query in ids if run.scores.get(query)]
    if len(both) < _FEWEST or any(not qrels[query].keys().isdisjoint(run.scores[query]) for query in both):
        return
    document = next(iter(run.scores[both[0]]))
    raise UsageError(
        f"Not one document of the run {run.name} is judged for its query, such as {document!r} for {both[0]!r}: "
        "it is of another corpus.",
        "Compare with a run of the same data set and split.",
    )
