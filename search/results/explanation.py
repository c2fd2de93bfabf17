"""Explain the score of a hit: the parts whose sum is the score, and the words of the text, shaded by their share of the score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from termweave.dialect import dialect_of
from termweave.errors import EngineError
from termweave.records import Encoding, Hit, SignalScore
from termweave.search.retrieval.candidates import Candidates, grouped
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.contracts.signal import Clause, Signal
    from termweave.search.opening import OpenGeneration
    from termweave.search.ranking.order import Place

    #: Start and end of each word in the text, in characters, and the signal's term for it.
    Located = Iterable[tuple[int, int, str]]

#: Names that all parts have, and those that only parts of signals have: details of a reranker do not replace them.
_RESERVED = frozenset({"name", "share", "rank", "terms"})
#: The passages per document that an explanation requests, and the most neighbours that a k-NN search returns.
_PASSAGES, _REACH = 100, 10_000
_EXCLUDED = "excluded by a filter or the rewriting"
#: Characters of a text that the server analyses: `_analyze` refuses more than 10,000 tokens.
_ANALYSED = 9_000


def explain(
    generation: OpenGeneration, candidates: Candidates, places: Sequence[Place], *, words: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Explain the scores of ranked documents by their parts.

    Args:
        generation: The generation that was searched.
        candidates: The candidates that were ranked.
        places: The documents to explain.
        words: Term -> the word of the query from which the term was made.

    Returns:
        Document id -> ``{"score", "parts": [{"name", "share", ...}]}``. The shares sum to the final score. The part of a signal has the signal's
        `score`, the document's `rank`, and `terms`, whose shares sum to the signal's score. If signals are fused, ``share = normalised * counts``:
        `normalised` is the score or rank mapped to [0, 1], and `counts` is how much the signal counts. `lowest` is the score that is mapped to 0: the
        last candidate's, or the signal's floor if the list is short. The part of a signal that did not return the document has the score that the
        signal would give it, rank None and share 0. `approximate` is set if the signal's search can miss documents.
    """
    explained: dict[str, dict[str, Any]] = {place.id: {"score": place.score, "parts": []} for place in places}
    for signal in generation.layout.signals:
        clause, ranked = candidates.clauses.get(signal.name), candidates.lists.get(signal.name)
        if clause is None or ranked is None:
            continue
        unscored = [place.id for place in places if signal.engine_explains or place.signals.get(signal.name) is None]
        answers = _request(generation, signal, clause, candidates.query, unscored) if unscored else {}
        for place in places:
            listed, answer = place.signals.get(signal.name), answers.get(place.id)
            if listed is None and answer is None:
                continue
            score = signal.score(answer["_score"], clause) if answer else 0.0
            answer = answer or {}
            stored = generation.layout.of_signals(answer.get("_source", {}))
            shares = signal.explain(candidates.query, clause, stored, answer.get("_explanation"))
            part = {
                "name": signal.name,
                **_signal_part(listed or SignalScore(score, None, 0.0), clause),
                "lowest": ranked.low,
                "terms": [{"term": each.term, "word": words.get(each.term, each.term), "share": each.share} for each in shares],
            }
            if (number := ranked.passages.get(place.id)) is not None:
                part["passage"] = number
            explained[place.id]["parts"].append(part)
    for place in places:
        for stage in place.reranked:
            details = {key: value for key, value in stage.details().items() if key not in _RESERVED}
            explained[place.id]["parts"].append({"name": stage.name, "share": float(stage.share), **details})
    return explained


def _signal_part(scored: SignalScore, clause: Clause) -> dict[str, Any]:
    """The part of an explanation that a signal's score gives: score, rank and share, and the limits of the signal's search."""
    part: dict[str, Any] = {"score": scored.score, "rank": scored.rank, "share": scored.share}
    if scored.counts is not None:
        part |= {"normalised": scored.normalised, "counts": scored.counts}
    if clause.reach is not None:
        part["approximate"] = True
    if clause.dropped:
        part["dropped"] = list(clause.dropped)
    return part


def _request(
    generation: OpenGeneration, signal: Signal, clause: Clause, query: Encoding, ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Score documents by a signal's clause: document id -> the server's hit for the document's best passage.

    The hit has a score and, if the signal needs it, the server's explanation. A document that the clause does not match is left out.
    """
    engine, layout = generation.engine, generation.layout
    size = min(_REACH, _PASSAGES * len(ids))  # k of a k-NN clause must be large enough for every passage
    body = {
        "size": len(ids),
        "query": signal.restricted(clause, query, [layout.with_ids(ids)], size=size, capabilities=engine.capabilities),
        "explain": signal.engine_explains,
        "_source": dialect_of(engine.capabilities).source([f"{signal.prefix}{name}" for name in signal.explains_from]),
        **(grouped(["id"]) if layout.application is None else {}),
    }
    return {str(layout.id_of(hit)): hit for hit in engine.search(generation.index, body)["hits"]["hits"]}


def with_own_score(hit: Hit) -> Hit:
    """Replace the score of a hit by the signal's own score, for a document that a search by this one signal did not return."""
    explained = hit.explanation or {"parts": []}
    parts = [{**part, "share": part["score"]} for part in explained["parts"]]
    score = float(sum(part["score"] for part in parts))
    signals = {part["name"]: SignalScore(part["score"], None, part["score"]) for part in parts}
    return replace(hit, score=score, signals=signals, explanation={**explained, "score": score, "parts": parts})


def place(hit: Hit) -> str:
    """Say the rank of an explained document in words, or why it has none."""
    if (hit.explanation or {}).get("excluded"):
        return _EXCLUDED
    return f"rank {hit.rank}" if hit.rank else "not among the candidates of any signal"


def as_text(explanation: Mapping[str, Any], *, terms: int = 6) -> str:
    """Write an explanation as lines of text: a line for each part, largest share first, then the score."""
    rows = as_rows(explanation, terms=terms)
    width = max((len(name) for _, name, _ in rows), default=0)
    lines = [f"  {share:+.4f}  {name:<{width}}  {sentence}" for share, name, sentence in rows]
    return "\n".join([*lines, f"  {explanation['score']:.4f}  in all"])


def as_rows(explanation: Mapping[str, Any], *, terms: int = 6) -> list[tuple[float, str, str]]:
    """Turn an explanation into rows: share, name and description of each part, largest share first."""
    parts = sorted(explanation["parts"], key=lambda part: -part["share"])
    excluded = explanation.get("excluded", False)
    return [(part["share"], part["name"], _description(part, terms, excluded=excluded)) for part in parts]


def _description(part: Mapping[str, Any], terms: int, *, excluded: bool) -> str:
    """Describe a part of a score in one line."""
    if "rank" not in part:
        kind = part["name"].partition("@")[0]
        return next((describe for key, describe in _RERANKERS.get(kind, {}).items() if key in part), _any_reranker)(part, terms)
    place = f"rank {part['rank']}"
    if excluded:
        place = _EXCLUDED
    elif part["rank"] is None:
        place = _missed(part)
    elif "counts" in part:
        place += f", normalised {part['normalised']:.4f} x {part['counts']:.4f}"
    place += f", passage {part['passage']}" if "passage" in part else ""
    words = [f"{term['word']} {term['share']:.4g}" for term in part["terms"]]
    more = f"  and {len(words) - terms} more" if len(words) > terms else ""
    left_out = len(part.get("dropped", ()))
    more += f"; {counted(left_out, 'term')} left out, more than the server allows" if left_out else ""
    return f"{part['score']:.4f}, {place}{'; ' if words else ''}{'  '.join(words[:terms])}{more}"


def _neighbours(part: Mapping[str, Any], _: int) -> str:
    names, further = ", ".join(part["neighbours"][:4]), len(part["neighbours"]) - 4
    more = f" and {further} more" if further > 0 else ""
    shared = f"shares neighbours {names}{more}" if names else "shares no neighbours"
    return f"similarity {part['similarity']:.4f}, Jaccard {part['jaccard']:.4f}, lambda {part['weight']}; {shared}"


def _logit(part: Mapping[str, Any], terms: int) -> str:
    effects = "  ".join(f"{each['word']} {each['effect']:+.2f}" for each in part.get("effects", ())[:terms])
    return f"logit {part['logit']:.4f}, weight {part['weight']}{f'; depends on {effects}' if effects else ''}"


def _features(part: Mapping[str, Any], terms: int) -> str:
    shown = "  ".join(f"{each['feature']} {_short(each['value'])} {each['share']:+.2f}" for each in part["features"][:terms])
    rest = part["features"][terms:]
    more = f"  and {len(rest)} more {sum(each['share'] for each in rest):+.2f}" if rest else ""
    return f"{shown}{more}  base {part['base']:+.2f}"


def _rule_value(part: Mapping[str, Any], _: int) -> str:
    value = "no value" if part["value"] is None else f"{part['field']} {part['value']}"
    return f"{value} is worth {part['worth']:.4f}, weight {part['weight']}"


def _matched(part: Mapping[str, Any], terms: int) -> str:
    shown = "  ".join(part["matched"][:terms]) or "none of the query's terms"
    more = f" and {len(part['matched']) - terms} more" if len(part["matched"]) > terms else ""
    return f"{part['field']} holds {shown}{more}: {part['worth']:.4f} of their idf, weight {part['weight']}"


def _repeated(part: Mapping[str, Any], _: int) -> str:
    return f"cosine {part['cosine']:.4f} with {part['of']}, which stands above" if part["of"] else "nothing like it stands above"


def _any_reranker(part: Mapping[str, Any], _: int) -> str:
    details = [(key, value) for key, value in part.items() if key not in {"name", "share"}]
    line = ", ".join(f"{key} {value:.4f}" if isinstance(value, float) else f"{key} {value}" for key, value in details)
    return line or "beyond the candidates that it reranks"


#: Reranker -> a key of its details -> what describes them; details without the key, and those of other rerankers, are listed.
_RERANKERS: Mapping[str, Mapping[str, Callable[[Mapping[str, Any], int], str]]] = {
    "rnn": {"jaccard": _neighbours},
    "ranker": {"logit": _logit, "scored": lambda *_: "not scored: it has no text, or the time budget ended"},
    "ltr": {"features": _features},
    "boost": {"worth": _rule_value},
    "decay": {"worth": _rule_value},
    "match": {"matched": _matched},
    "diverse": {"of": _repeated},
    "pin": {"pinned": lambda part, _: f"pinned in place {part['pinned']}"},
}


def _short(value: float | None) -> str:
    """Write the value of a feature in few digits; a dash if the value is missing."""
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _missed(part: Mapping[str, Any]) -> str:
    """Say why a signal did not return a document."""
    if part["score"] <= part["lowest"] + 1e-6 + 1e-5 * abs(part["lowest"]):  # the server's scores vary by this much
        return f"not among its candidates, the last of which has the score {part['lowest']:.4f}"
    return f"passed over, although its last candidate has the score {part['lowest']:.4f}: k-NN search is approximate"


def shade(text: str, parts: Sequence[Mapping[str, Any]], generation: OpenGeneration) -> list[dict[str, Any]]:
    """Find the words of a text that contribute to the score of a hit.

    The share of a word is the sum of its terms' contributions to the final score, over all signals. A term that occurs several times has the
    same share at each place. If no signal contributes to the final score (the hit is the last candidate of every list), the shares
    are those of the signals' own scores.

    Args:
        text: Title and text of the document, as they were indexed.
        parts: The parts of the explanation.
        generation: The generation that was searched: its models find the terms of learned signals, and its server finds the terms of text fields.

    Returns:
        The words as ``{"start", "end", "term", "share"}`` in reading order, without overlaps; start and end are offsets in characters of `text`.
    """
    scored = [part for part in parts if part.get("terms") and part["score"] > 0]
    no_share = not any(part["share"] > 0 for part in scored)
    words: dict[tuple[int, int], dict[str, Any]] = {}
    fields = {signal.name: signal.source_fields for signal in generation.layout.signals}
    for part in scored:
        factor = (1.0 if no_share else part["share"]) / part["score"]
        shares = {entry["term"]: entry["share"] * factor for entry in part["terms"]}
        sought = fields.get(part["name"])
        analysed = {span for field in sought or () for span in _analysed(text, field, generation)}
        located = analysed if sought else generation.encoder.locate(text)
        for start, end, term in located:
            if (share := shares.get(term)) is not None:
                word = words.setdefault((start, end), {"start": start, "end": end, "term": term, "share": 0.0})
                word["share"] += share
    return list(without_overlaps([words[span] for span in sorted(words)]))


def without_overlaps(words: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Replace overlapping words, given in reading order, by words that do not overlap.

    Words overlap because signals cut a text differently ("3.5", or "3" and "5"), and because the analyzer for Chinese makes a term of
    every two neighbouring characters.
    """
    group: list[dict[str, Any]] = []
    reach = 0
    for word in words:
        if word["start"] >= reach:
            yield from _split(group)
            group = []
        group.append(word)
        reach = max(reach, word["end"])
    yield from _split(group)


def _split(group: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Split overlapping words at their edges into pieces; the share of a piece is the sum over the words that cover it.

    If one word contains all others, this word becomes the only piece.
    """
    if len(group) < 2:
        yield from group
        return
    edges = sorted({word["start"] for word in group} | {word["end"] for word in group})
    if any(word["start"] == edges[0] and word["end"] == edges[-1] for word in group):
        edges = [edges[0], edges[-1]]
    for start, end in pairwise(edges):
        over = [word for word in group if word["start"] < end and word["end"] > start]
        widest = max(over, key=lambda word: word["end"] - word["start"])
        yield {"start": start, "end": end, "term": widest["term"], "share": sum(word["share"] for word in over)}


def _analysed(text: str, field: str, generation: OpenGeneration) -> Located:
    """The terms that the server's analyzer makes of a text, each with start and end in characters. [] if the user may not analyse texts.

    Lucene counts offsets in UTF-16 units, of which an emoji has two.
    """
    text = text[:_ANALYSED]
    try:
        answer = generation.engine.request(
            "POST", f"/{generation.name.indices[-1]}/_analyze", body={"field": field, "text": text}
        )
    except EngineError:
        return []  # a role may be allowed to search and not to analyse: the text is not shaded then
    offsets = characters(text)
    return [(offsets[token["start_offset"]], offsets[token["end_offset"]], token["token"]) for token in answer["tokens"]]


def characters(text: str) -> Sequence[int]:
    """For each UTF-16 offset of a text the offset in characters, because the server counts offsets in UTF-16."""
    if len(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2:
        return range(len(text) + 1)
    offsets: list[int] = []
    for place, character in enumerate(text):
        offsets += [place] * (2 if character > "\uffff" else 1)
    return [*offsets, len(text)]


def window(text: str, words: Sequence[Mapping[str, Any]], width: int) -> tuple[int, int]:
    """Start and end of the part of a text, about `width` characters long, whose words have the largest sum of shares.

    The text is cut between words if possible.

    Example:
        >>> window("a very long beginning and then the answer", [{"start": 35, "end": 41, "share": 1.0}], 20)
        (22, 41)
    """
    if len(text) <= width:
        return 0, len(text)
    best, begin = -1.0, 0
    for first in words:
        limit = first["start"] + width
        total = sum(word["share"] for word in words if first["start"] <= word["start"] and word["end"] <= limit)
        if total > best:
            best, begin = total, first["start"]
    # Begin some words earlier, for context, but keep every counted word.
    last = max((word["end"] for word in words if begin <= word["start"] and word["end"] <= begin + width), default=begin)
    begin = max(0, min(begin - min(width // 4, width - (last - begin)), len(text) - width))
    end = min(len(text), begin + width)
    if begin:
        space = text.find(" ", begin - 1, begin + 20)
        begin = space + 1 if space >= 0 else begin
    if end < len(text):
        space = text.rfind(" ", end - 20, end + 1)
        end = space if space >= 0 else end
    return begin, end
