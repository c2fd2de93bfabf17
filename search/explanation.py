"""Why this hit: the parts of a score, which sum to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.search.candidates import grouped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.search.candidates import Candidates
    from termweave.search.ranking import Place
    from termweave.signals import Clause, Signal


def of(
    engine: Engine,
    index: str,
    signals: Sequence[Signal],
    candidates: Candidates,
    places: Sequence[Place],
    *,
    words: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    """Explain every place.

    Args:
        engine: Where the index is.
        index: The concrete index.
        signals: Its signals.
        candidates: What was found.
        places: What to explain.
        words: Term -> the word of the query that it stands for.

    Returns:
        Document id -> ``{"score", "parts": [{"name", "share", ...}]}``. A signal's part holds its own `score`, `rank`
        and `terms` (which sum to its own score); shares sum to the final score.
    """
    explained: dict[str, dict[str, Any]] = {place.id: {"score": place.score, "parts": []} for place in places}
    for signal in signals:
        clause = candidates.clauses.get(signal.name)
        if clause is None:
            continue
        told = _ask(engine, index, signal, clause, [place.id for place in places]) if signal.engine_explains else {}
        for place in places:
            said, answer = place.signals.get(signal.name), told.get(place.id)
            if said is None and answer is None:
                continue
            score = said.score if said else signal.score(answer["_score"], clause) if answer else 0.0
            answer = answer or {}
            shares = signal.explain(candidates.query, clause, answer.get("_source", {}), answer.get("_explanation"))
            part: dict[str, Any] = {
                "name": signal.name,
                "score": score,
                "rank": said.rank if said else None,
                "share": said.share if said else 0.0,
                "terms": [{"term": each.term, "word": words.get(each.term, each.term), "share": each.share} for each in shares],
            }
            ranked = candidates.lists.get(signal.name)
            number = ranked.passages.get(place.id) if ranked else None
            if number is not None:
                part["passage"] = number
            explained[place.id]["parts"].append(part)
    for place in places:
        if place.rerank is not None:
            explained[place.id]["parts"].append({"name": "rnn", **place.rerank})
    return explained


def _ask(engine: Engine, index: str, signal: Signal, clause: Clause, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The engine's score and explanation of each document that the clause matches: of its best passage, as in the search."""
    body = {
        "size": len(ids),
        "query": {"bool": {"must": [clause.query], "filter": [{"terms": {"id": list(ids)}}]}},
        "explain": True,
        "_source": list(signal.explains_from) or False,
        **grouped(["id", "passage"]),
    }
    answer = engine.request("POST", f"/{index}/_search", body=body)
    return {hit["fields"]["id"][0]: hit for hit in answer["hits"]["hits"]}


def as_text(explanation: Mapping[str, Any], *, terms: int = 6) -> str:
    """A few lines for a terminal, heaviest part first."""
    parts = sorted(explanation["parts"], key=lambda part: -part["share"])
    lines = [f"  {part['share']:+.4f}  {part['name']:<9} {_said(part, terms)}" for part in parts]
    return "\n".join([*lines, f"  {explanation['score']:.4f}  in all"])


def _said(part: Mapping[str, Any], terms: int) -> str:
    if part["name"] == "rnn":
        near = ", ".join(part["neighbours"][:4]) or "none"
        return f"J {part['jaccard']:.4f}, lambda {part['weight']}; shares neighbours {near}"
    place = f"rank {part['rank']}" if part["rank"] else "not among the candidates"
    place += f", passage {part['passage']}" if "passage" in part else ""
    words = [f"{each['word']} {each['share']:.4g}" for each in part["terms"]]
    more = f"  and {len(words) - terms} more" if len(words) > terms else ""
    return f"{part['score']:.4f}, {place}{'; ' if words else ''}{'  '.join(words[:terms])}{more}"
