"""Run the searches of queries in one generation: build the requests, send them, and search deeper where needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from termweave.catalog.typed_fields import LONGEST_KEYWORD
from termweave.errors import EngineError, UsageError
from termweave.rerank.rerankers import METADATA, SIGNAL, WORDS, IndexTerms, Need
from termweave.search.filters import documents
from termweave.search.retrieval import clause_limit, hybrid_query
from termweave.search.retrieval.candidates import Candidates, SignalRequests, gather, signal_requests
from termweave.search.retrieval.plan import MAX_DEPTH, Retrieval, further
from termweave.signals.fusion import FusedList
from termweave.support.messages import few
from termweave.support.normal_form import in_all_forms

if TYPE_CHECKING:
    from termweave.catalog.layout import DocumentLayout
    from termweave.records import Encoding
    from termweave.search.opening import OpenGeneration


class AliasMoved(EngineError):
    """Raised if an alias points at another generation than the one for which the query was encoded."""


def retrieve(generation: OpenGeneration, target: str, queries: Sequence[Encoding], plan: Retrieval) -> list[Candidates]:
    """Find the candidates of each query with one `_msearch`, or with several where passages need a deeper search.

    Args:
        generation: The generation that the queries were encoded for.
        target: The name to search: the alias, or the concrete index.
        queries: Encoded queries.
        plan: What the signals are asked for.

    Raises:
        AliasMoved: Another generation answered.
    """
    engine, signals = generation.engine, generation.signals(plan.searched)
    answering = signals if plan.server_fusion is None else [FusedList()]
    reach = first_reach(generation, plan.depth)
    while True:
        prepared = prepare(generation, queries, plan, reach)
        try:
            gathered, seen = gather(engine, target, prepared, answering, plan.window or plan.depth)
        except EngineError as error:
            if plan.where and not error.hint:
                clause = 'it is a clause of OpenSearch\'s query DSL, for example {"term": {FIELD: VALUE}}.'
                error.hint = f"If the filter caused this, correct it: {clause}"
            raise
        if seen - {*generation.name.indices}:
            raise AliasMoved(f"The alias {target!r} has moved from {generation.index!r}.", "Run the command again.")
        if target != generation.index:
            # Each search of the request resolves the alias by itself, and an empty list does not say which index was searched.
            # Those searches are sent again, to the index itself; if one has hits now, the alias had moved meanwhile.
            # (Elasticsearch finds nothing where another generation lacks the signal's field; OpenSearch answers with an error.)
            again = [
                replace(requests, bodies=empty, clauses={name: requests.clauses[name] for name in empty})
                for requests, each in zip(prepared, gathered, strict=True)
                if (empty := {name: body for name, body in requests.bodies.items() if not each.lists[name].scores})
            ]
            if again and gather(engine, generation.index, again, answering)[1]:
                raise AliasMoved(f"The alias {target!r} has moved from {generation.index!r}.", "Run the command again.")
        if reach is None or reach >= MAX_DEPTH or not any(each.short for each in gathered):
            return [_completed(generation, query, plan, each) for query, each in zip(queries, gathered, strict=True)]
        reach = further(reach)  # the nearest passages belong to too few documents: search deeper


def _completed(generation: OpenGeneration, query: Encoding, plan: Retrieval, candidates: Candidates) -> Candidates:
    """Add to the candidates what the ranking needs besides, such as the ids of pinned documents that the index holds and that pass the filters.

    The lists of signals that only a reranker reads are put aside, so that fusion, facets and explanations see only the mode's signals.
    """
    of_query, where = (query.rewritten.pinned, query.rewritten.where) if query.rewritten else ((), ())
    ids = in_all_forms([*plan.pin, *of_query])
    pinned = documents.documents_passing(generation.engine, generation.index, generation.layout, ids, [*plan.where, *where])
    terms = IndexTerms(generation.encoder.analyse, generation.statistics.idf) if generation.statistics else None
    aside = set(plan.searched).difference(plan.signals) if plan.server_fusion is None else set[str]()
    beside = {name: ranked for name, ranked in candidates.lists.items() if name in aside}
    lists = {name: ranked for name, ranked in candidates.lists.items() if name not in aside}
    return replace(candidates, lists=lists, beside=beside, pinned=pinned, index=generation.index, index_terms=terms)


def first_reach(generation: OpenGeneration, depth: int) -> int | None:
    """The number of passages that k-NN looks for at first; None: documents are not cut into passages."""
    return further(depth) if generation.lineage.passages else None


def check_needs(name: str, layout: DocumentLayout, needs: Collection[Need]) -> None:
    """Check that an index has the data that a reranker needs.

    Args:
        name: Name of the index.
        layout: Signals and fields of the index.
        needs: Names of the data that the reranker needs.

    Raises:
        UsageError: The index has no vectors, no such metadata entry or field, or no terms.
    """
    if "vectors" in needs and not any(signal.needs == "dense" for signal in layout.signals):
        hint = "Use --rerank none, or index with a dense model."
        raise UsageError("The reranker needs the documents' vectors, and this index has none.", hint)
    for need in sorted(needs):
        if need.startswith(WORDS):
            _check_words(name, layout, need.removeprefix(WORDS))
        if not need.startswith(METADATA):
            continue
        try:
            layout.usable(entry := need.removeprefix(METADATA), "read")
        except UsageError as error:
            message = f"The reranker reads the metadata entry {entry!r}, but {error.message[0].lower()}{error.message[1:]}"
            advice = "A rule must name an entry of this index, a ranker be trained on it. --rerank none searches without them."
            raise UsageError(message, f"{error.hint} {advice}") from None


def _check_words(name: str, layout: DocumentLayout, field: str) -> None:
    """Check that an index has terms, and the field in which the rule `match` looks for the query's terms. Errors as in `check_needs`."""
    if not any(signal.needs == "weights" for signal in layout.signals):
        hint = "Index with weights, or leave match out."
        raise UsageError(f"The rule match needs the terms of the signal weights, which the index {name!r} does not have.", hint)
    if not layout.paths(field):
        fields = list(dict.fromkeys((*layout.text_fields, *sorted(filter(layout.paths, layout.columns)))))
        longer = f"A metadata entry with longer texts than {LONGEST_KEYWORD} characters needs a --mapping."
        hint = layout.nearest(field, fields) or f"The index has {few(fields, 8)}. {longer}"
        raise UsageError(f"The rule match reads the field {field!r}, but the index {name!r} has no text of this name.", hint)


def prepare(
    generation: OpenGeneration, queries: Sequence[Encoding], plan: Retrieval, reach: int | None, *, joined: bool = False
) -> list[SignalRequests]:
    """Build the searches of each query.

    Args:
        generation: The generation that the queries were encoded for.
        queries: Encoded queries.
        plan: What the signals are asked for.
        reach: How many passages k-NN looks for; None: documents are not cut into passages.
        joined: Whether the caller joins all clauses of a query into one query, which has a single clause limit, as the server's fusion does.

    Raises:
        UsageError: A reranker needs data that the index does not have, or the server cannot fuse as asked.
    """
    signals = generation.signals(plan.searched)
    check_needs(generation.lineage.name, generation.layout, plan.needs)
    capabilities = generation.engine.capabilities
    if plan.server_fusion is not None:
        if any(need.startswith(SIGNAL) for need in plan.needs):
            hint = "Remove --server-fusion."
            raise UsageError("The reranker reads the list of each signal, and with --server-fusion there is one list.", hint)
        hybrid_query.check(capabilities, plan.server_fusion)
    if joined or plan.server_fusion is not None:
        of_words = sum(signal.needs != "dense" for signal in signals)  # these share one query, and its clause limit
        capabilities = replace(capabilities, max_clause_count=capabilities.max_clause_count // max(1, of_words))
    prepared = []
    for query in queries:
        # k-NN must look for the nearest of the documents that the name shows: a filter after it would leave fewer.
        where = [*plan.where, *(query.rewritten.where if query.rewritten else ()), *generation.name.filters]
        fitting, left_out = clause_limit.fit(generation, query, signals, where, capabilities)
        requests = signal_requests(
            fitting, signals, capabilities, depth=plan.depth, where=where, needs=plan.needs, reach=reach, layout=generation.layout
        )
        if fitting is not query:
            requests = clause_limit.restored(requests, query, left_out, signals)
        if plan.server_fusion is not None:
            requests = hybrid_query.fused(requests, plan.server_fusion, plan.depth)
        prepared.append(requests)
    return prepared
