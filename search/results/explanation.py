"""Why this hit: the parts of a score, which sum to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.records import SignalScore
from termweave.search.candidates import grouped
from termweave.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.engine import Engine
    from termweave.records import Encoding, Hit
    from termweave.search.candidates import Candidates
    from termweave.search.ranking import Place
    from termweave.signals import Clause, Signal

#: Passages of one document that an explanation has room for, and the most that k-NN gives.
_PASSAGES, _REACH = 100, 10_000


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
        Document id -> ``{"score", "parts": [{"name", "share", ...}]}``. A signal's part holds its own `score`, the `rank`, and
        `terms`, which sum to the signal's score; shares sum to the final score. Where signals are fused, ``share = normalised *
        counts``: what the method makes of score or rank, from 0 to 1, and how much the signal counts. `lowest` is the score that
        counts 0: the last candidate's, or the floor of a list that is short. A signal that did not return the document
        says all the same what it gives it, with rank None and share 0; `approximate` if its search may pass documents over.
    """
    explained: dict[str, dict[str, Any]] = {place.id: {"score": place.score, "parts": []} for place in places}
    for signal in signals:
        clause, ranked = candidates.clauses.get(signal.name), candidates.lists.get(signal.name)
        if clause is None or ranked is None:
            continue
        wanted = [place.id for place in places if signal.engine_explains or place.signals.get(signal.name) is None]
        told = _ask(engine, index, signal, clause, candidates.query, wanted) if wanted else {}
        for place in places:
            said, answer = place.signals.get(signal.name), told.get(place.id)
            if said is None and answer is None:
                continue
            score = signal.score(answer["_score"], clause) if answer else 0.0
            answer = answer or {}
            shares = signal.explain(candidates.query, clause, answer.get("_source", {}), answer.get("_explanation"))
            part = {
                "name": signal.name,
                **_standing(said or SignalScore(score, None, 0.0), clause),
                "lowest": ranked.low,
                "terms": [{"term": each.term, "word": words.get(each.term, each.term), "share": each.share} for each in shares],
            }
            if (number := ranked.passages.get(place.id)) is not None:
                part["passage"] = number
            explained[place.id]["parts"].append(part)
    for place in places:
        if place.rerank is not None:
            explained[place.id]["parts"].append({**place.rerank, "neighbours": place.neighbours()})
    return explained


def _standing(said: SignalScore, clause: Clause) -> dict[str, Any]:
    """What a signal said of a document, and what is to be known of the clause that asked."""
    told: dict[str, Any] = {"score": said.score, "rank": said.rank, "share": said.share}
    if said.counts is not None:
        told |= {"normalised": said.normalised, "counts": said.counts}
    if clause.reach is not None:
        told["approximate"] = True
    if clause.dropped:
        told["dropped"] = list(clause.dropped)
    return told


def _ask(
    engine: Engine, index: str, signal: Signal, clause: Clause, query: Encoding, ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The engine's score of each document that the clause matches, of its best passage, and its explanation where it has one."""
    only = {"terms": {"id": list(ids)}}
    if signal.engine_explains:
        asked = {"bool": {"must": [clause.query], "filter": [only]}}
    else:  # k-NN looks among the nearest first: the filter has to be inside it, and room for every passage
        inside = signal.clause(query, size=min(_REACH, _PASSAGES * len(ids)), where=[only], capabilities=engine.capabilities)
        asked = (inside or clause).query
    body = {
        "size": len(ids),
        "query": asked,
        "explain": signal.engine_explains,
        "_source": list(signal.explains_from) or False,
        **grouped(["id", "passage"]),
    }
    answer = engine.request("POST", f"/{index}/_search", body=body)
    return {hit["fields"]["id"][0]: hit for hit in answer["hits"]["hits"]}


def beyond(hit: Hit) -> Hit:
    """A document that a search by one signal did not return, with the score that signal gives it."""
    told = hit.explanation or {"parts": []}
    parts = [{**part, "share": part["score"]} for part in told["parts"]]
    score = float(sum(part["score"] for part in parts))
    said = {part["name"]: SignalScore(part["score"], None, part["score"]) for part in parts}
    return replace(hit, score=score, signals=said, explanation={**told, "score": score, "parts": parts})


def place(hit: Hit) -> str:
    """Where an explained document stands, for readers."""
    if (hit.explanation or {}).get("excluded"):
        return "excluded by the filter"
    return f"rank {hit.rank}" if hit.rank else "not among the candidates of any signal"


def as_text(explanation: Mapping[str, Any], *, terms: int = 6) -> str:
    """A few lines for a terminal, heaviest part first."""
    rows = as_rows(explanation, terms=terms)
    wide = max((len(name) for _, name, _ in rows), default=0)
    lines = [f"  {share:+.4f}  {name:<{wide}}  {said}" for share, name, said in rows]
    return "\n".join([*lines, f"  {explanation['score']:.4f}  in all"])


def as_rows(explanation: Mapping[str, Any], *, terms: int = 6) -> list[tuple[float, str, str]]:
    """Share, name and a sentence for each part, heaviest first."""
    parts = sorted(explanation["parts"], key=lambda part: -part["share"])
    return [(part["share"], part["name"], _said(part, terms, excluded=explanation.get("excluded", False))) for part in parts]


def _said(part: Mapping[str, Any], terms: int, *, excluded: bool) -> str:
    if "jaccard" in part:
        near = part["neighbours"]
        named = ", ".join(near[:4]) + (f" and {len(near) - 4} more" if len(near) > 4 else "")
        return (
            f"s {part['similarity']:.4f}, J {part['jaccard']:.4f}, lambda {part['weight']}; "
            f"shares {f'neighbours {named}' if near else 'no neighbours'}"
        )
    place = f"rank {part['rank']}"
    if excluded:
        place = "excluded by the filter"
    elif part["rank"] is None:
        place = _missed(part)
    elif "counts" in part:
        place += f", normalised {part['normalised']:.4f} x {part['counts']:.4f}"
    place += f", passage {part['passage']}" if "passage" in part else ""
    words = [f"{each['word']} {each['share']:.4g}" for each in part["terms"]]
    more = f"  and {len(words) - terms} more" if len(words) > terms else ""
    left_out = len(part.get("dropped", ()))
    more += f"; {counted(left_out, 'term')} left out, more than the server allows" if left_out else ""
    return f"{part['score']:.4f}, {place}{'; ' if words else ''}{'  '.join(words[:terms])}{more}"


def _missed(part: Mapping[str, Any]) -> str:
    """Why a signal did not return a document."""
    if part["score"] <= part["lowest"] + 1e-6 + 1e-5 * abs(part["lowest"]):  # the engine's own scores differ by as much
        return f"not among its candidates, the last of which has {part['lowest']:.4f}"
    why = "k-NN search is approximate" if "approximate" in part else "two-phase search retrieves by the heavy terms only"
    return f"passed over, although its last candidate has {part['lowest']:.4f}: {why}"
