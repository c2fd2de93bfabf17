"""Why this hit: the parts of a score, which sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.signals.layout import engine_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.search.candidates import Candidates
    from termweave.search.ranking import Place
    from termweave.signals import DocumentLayout


def of(
    engine: Engine, index: str, layout: DocumentLayout, candidates: Candidates, places: Sequence[Place], stored: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Explain every place.

    Returns:
        Document id -> ``{"score", "parts": [{"name", "share", ...}]}``. A signal's part holds its own `score`, `rank`
        and `terms` (which sum to its own score); shares sum to the final score.
    """
    explained: dict[str, dict[str, Any]] = {place.id: {"score": place.score, "parts": []} for place in places}
    for signal in layout.signals:
        clause = candidates.clauses.get(signal.name)
        if clause is None:
            continue
        told = _ask(engine, index, clause.query, [place.id for place in places])
        for place in places:
            answer = told.get(place.id)
            said = place.signals.get(signal.name)
            if answer is None and said is None:
                continue
            raw = said.score if said else signal.score(answer["_score"], clause) if answer else 0.0
            shares = signal.explain(candidates.query, clause, stored[place.id], (answer or {}).get("_explanation"))
            explained[place.id]["parts"].append(
                {
                    "name": signal.name,
                    "score": raw,
                    "rank": said.rank if said else None,
                    "share": said.share if said else 0.0,
                    "terms": [{"term": share.term, "share": share.share} for share in shares],
                }
            )
    for place in places:
        if place.rerank is not None:
            explained[place.id]["parts"].append({"name": "rnn", **place.rerank})
    return explained


def _ask(engine: Engine, index: str, query: Mapping[str, Any], ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The engine's score and explanation of each document that the clause matches."""
    if "knn" in query:  # its explanation is a stub, and its score is known from the list
        return {}
    body = {
        "size": len(ids),
        "query": {"bool": {"must": [query], "filter": [{"ids": {"values": [engine_id(each) for each in ids]}}]}},
        "explain": True,
        "_source": False,
        "docvalue_fields": ["id"],
    }
    answer = engine.request("POST", f"/{index}/_search", body=body)
    return {hit["fields"]["id"][0]: hit for hit in answer["hits"]["hits"]}


def as_text(explanation: Mapping[str, Any], *, terms: int = 6) -> str:
    """A few lines for a terminal, heaviest part first."""
    lines = []
    for part in sorted(explanation["parts"], key=lambda part: -part["share"]):
        if part["name"] == "rnn":
            near = ", ".join(part["neighbours"][:4])
            lines.append(f"  {part['share']:+.4f}  rnn       J {part['jaccard']:.4f}, lambda {part['weight']}; shares neighbours {near or 'none'}")
            continue
        place = f"rank {part['rank']}" if part["rank"] else "not among the candidates"
        words = "  ".join(f"{each['term']} {each['share']:.4g}" for each in part["terms"][:terms])
        more = len(part["terms"]) - terms
        lines.append(f"  {part['share']:+.4f}  {part['name']:<9} {part['score']:.4f}, {place}{'; ' + words if words else ''}{f'  and {more} more' if more > 0 else ''}")
    lines.append(f"  {explanation['score']:.4f}  in all")
    return "\n".join(lines)
