"""Checks of a data set's judgements against an index and against saved runs, and remarks on what the judgements cannot show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from termweave.catalog.layout import among
from termweave.corpora.index.ubi_indices import UbiLog
from termweave.errors import InputError, UsageError
from termweave.evaluation.measures import queries
from termweave.rerank.feature_ranker import FeatureReranker, open_feature_ranker
from termweave.search.results import notices
from termweave.support.batching import in_parts
from termweave.support.messages import counted, few

if TYPE_CHECKING:
    from termweave.corpora import Dataset
    from termweave.records import Qrels, Query, Run
    from termweave.rerank.rerankers import Reranker
    from termweave.search import Index

#: Most judged documents in one request.
_IDS = 10_000
#: With fewer queries, a poor run may well contain no judged document.
_FEWEST = 5
#: The advice for a saved run of other queries or documents.
OTHER_RUN = "Compare with a run of the same data set and split."


def judged_queries(dataset: Dataset) -> list[Query]:
    """Return the judged queries of a data set.

    Raises:
        InputError: The data set has no judged query.
    """
    if not (judged := dataset.queries()):
        message = " ".join([f"{dataset.name} has no judged queries in the split {dataset.split!r}.", *dataset.notes])
        raise InputError(message, f"Judge queries of the data set, under the ids that they have there{other_splits(dataset)}.")
    return judged


def absent_from_index(index: Index, name: str, qrels: Qrels) -> list[str]:
    """Check that the judged documents are in the index; otherwise all figures would be a meaningless 0.

    The check looks the documents up in the index. Searches that find no judged document would prove nothing: they may just be poor.

    Args:
        index: The index that is evaluated.
        name: Name of the data set.
        qrels: Judgements of the data set.

    Returns:
        A remark if some of the judged documents are not in the index, and a remark if the application of an enriched index is ahead of the enrichment.

    Raises:
        InputError: The index holds none of the judged documents.
    """
    judged = sorted({document for grades in qrels.values() for document in grades})
    behind = [str(lag)] if (lag := notices.enrichment_lag(index.open_generation)) else []
    if lag:
        lag.check_empty(lag.documents - lag.lacking)
    present = 0
    for part in in_parts(judged, _IDS):
        query = among(part, index.layout)
        body = {"size": _IDS, "query": query, "stored_fields": "_none_", "track_total_hits": False}
        present += len(index.engine.search(index.generation, body)["hits"]["hits"])
    if judged and not present:
        message = f"Not one judged document of {name} is in the index {index.name!r}."
        raise InputError(message, "Name the data set that the index was made from.")
    lost = len(judged) - present
    if lost <= 0:
        return behind
    verb = "is" if lost == 1 else "are"
    return [*behind, f"{lost:,} of {counted(len(judged), 'judged document')} {verb} not in the index and cannot be found."]


def without_judgement(dataset: Dataset) -> list[str]:
    """Return a remark on how many queries of the data set the split does not judge; [] if it judges all, or if the reader does not count them."""
    count = getattr(dataset, "unjudged", 0)
    if not count:
        return []
    verbs = ("has", "is") if count == 1 else ("have", "are")
    return [f"{queries(count)} of the set {verbs[0]} no judgement in {dataset.split!r} and {verbs[1]} left out."]


def other_splits(dataset: Dataset) -> str:
    """Return the end of the advice to judge more queries: the names of other splits, if there are any."""
    others = [split for split in dataset.splits() if split != dataset.split]
    return f", or name another split: {', '.join(others)}" if others else ""


def without_text(judged: Sequence[Query]) -> list[str]:
    """Return a remark if queries have no text, because a query without text finds nothing."""
    empty = [repr(query.id) for query in judged if not query.text.strip()]
    return [f"{queries(len(empty))} without text, counted as 0: {few(empty, 3)}."] if empty else []


def profiles_fitted_on(index: Index, modes: Collection[str], dataset: Dataset) -> list[str]:
    """Return a remark if the index learned from these queries, and for each evaluated profile that was fitted on half of them.

    The gain of such a profile on these queries proves nothing.
    """
    of = f"{dataset.name}:{dataset.split}"
    learned = [
        f"The index learned from these queries ({of}): the report of 'termweave learn' has the figures of the other queries."
        for fitted in (profile.get("fitted", {}) for profile in index.lineage.profiles.values())
        if fitted.get("learned") and f" and {of} and " in f" and {fitted.get('dataset')} and "
    ]
    return learned[:1] + [
        f"The profile {name!r} was fitted on half of these queries ({of}): 'termweave profiles' has its held-out figures."
        for name, profile in index.lineage.profiles.items()
        if name in modes and profile.get("fitted", {}).get("dataset") == of and not profile["fitted"].get("learned")
    ]


def check_clicks(rerankers: Iterable[Reranker], dataset: Dataset) -> None:
    """Check that the judgements cannot come from the same clicks as features of a feature ranker.

    Raises:
        InputError: The data set is a log of user behaviour that does not begin after the log that the ranker's clicks come from.
    """
    if not isinstance(dataset, UbiLog):
        return
    for reranker in rerankers:
        until = open_feature_ranker(reranker.model, reranker.hash).clicks_until if isinstance(reranker, FeatureReranker) else None
        if until is not None and not dataset.behaviour.first > until:
            raise InputError(
                f"{reranker.name} may have learned from the clicks of {dataset.name}: this log does not begin after the log of its training.",
                "Name a later log with times (timestamp) or judgements that people made, or leave the ranker out: --rerank none.",
            )


def without_relevant(qrels: Qrels, relevant_from: int) -> list[str]:
    """Return a remark if queries have no relevant document, because every system scores 0 on such queries; nDCG counts lower grades, too."""
    count = sum(max(grades.values(), default=0) < relevant_from for grades in qrels.values())
    if not count:
        return []
    verb = "has" if count == 1 else "have"
    zero = "all systems get 0" if relevant_from == 1 else "MRR and recall of all systems are 0"
    return [f"{count:,} of {queries(len(qrels))} {verb} no relevant document (from grade {relevant_from}): {zero} there."]


def absent_from_run(run: Run, ids: Sequence[str], qrels: Qrels) -> list[str]:
    """Return a remark if a saved run has no results for some of the queries.

    Raises:
        UsageError: The run has none of the queries, or belongs to another corpus.
    """
    absent = sum(query not in run.scores for query in ids)
    if absent == len(ids):
        raise UsageError(f"The run {run.name} has none of the {queries(absent)}, such as {ids[0]!r}.", OTHER_RUN)
    check_corpus(run, ids, qrels)
    if not absent:
        return []
    counts = "it counts" if absent == 1 else "they count"
    return [f"The run {run.name} has no results for {absent:,} of {queries(len(ids))}; {counts} 0."]


def check_corpus(run: Run, ids: Sequence[str], qrels: Qrels) -> None:
    """Check that a saved run is of the corpus of the judgements.

    Many data sets number their queries 1, 2, 3, so the query ids may match. The run would then score 0, and everything
    compared with it would look like a gain.

    Raises:
        UsageError: No document of the run is judged for its query, and there are too many queries for this to be a poor result.
    """
    both = [query for query in ids if run.scores.get(query)]
    if len(both) < _FEWEST or any(not qrels[query].keys().isdisjoint(run.scores[query]) for query in both):
        return
    document = next(iter(run.scores[both[0]]))
    message = f"No document of the run {run.name} is judged for its query, such as {document!r} for {both[0]!r}: it is of another corpus."
    raise UsageError(message, OTHER_RUN)
