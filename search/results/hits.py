"""From places in an order to hits: their stored fields, their passages, and how their scores come about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from termweave.errors import EngineError, UsageError
from termweave.records import Hit, Passage
from termweave.search import explanation, lineage, shading, stored_statistics
from termweave.search.models import encoder_of
from termweave.signals.layout import as_written, engine_id, stored_metadata, stored_passage, stored_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.search.candidates import Candidates
    from termweave.search.lineage import Lineage
    from termweave.search.ranking import Place
    from termweave.signals import DocumentLayout
    from termweave.statistics import CorpusStatistics

#: What an explanation shades.
_SHADED = ("title", "text")
#: A title with one of these at its end is a sentence; the last five are those of full width, and the ellipsis.
_ENDS = tuple(".?!:\u3002\uff1f\uff01\uff1a\u2026")


class DocumentGone(EngineError):
    """Between a search and the reading of its hits one of them was deleted."""


@dataclass(frozen=True)
class Answer:
    """Hits, and what a user should know of how they were found.

    Attributes:
        hits: Best first.
        dropped: Signal -> query terms it left out because the server allows no more clauses, heaviest first.
        remarks: Sentences: no word of the query found anything, a field asked for or filtered by is not there.
    """

    hits: list[Hit]
    dropped: Mapping[str, tuple[str, ...]]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """One generation, ready to be searched."""

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    encoder: TextEncoder


def opened(engine: Engine, name: str, models: Mapping[str, str | Path | None]) -> Opened:
    """The generation that a name means now.

    Args:
        engine: Where it is.
        name: An alias, or the generation's own name.
        models: "weights" and "dense" -> where the model is, if not where the generation says.
    """
    index = lineage.resolve(engine, name)
    found = lineage.read(engine, index)
    encoder = encoder_of(found, name, models)
    return Opened(index, found, found.layout, stored_statistics.load(engine, index, found), encoder)


def of(
    engine: Engine,
    opened: Opened,
    places: Sequence[Place],
    candidates: Candidates,
    *,
    first: int,
    fields: Sequence[str],
    explain: bool,
) -> list[Hit]:
    """The hits at some places.

    Args:
        engine: Where the index is.
        opened: The generation that was searched.
        places: Best first.
        candidates: What they were chosen from.
        first: Rank of the first place.
        fields: Stored fields to bring along.
        explain: Bring along how each score comes about, too; else a hit asks when it is asked.

    Raises:
        UsageError: The index does not hold one of the documents.
        DocumentGone: It held it when it was searched.
    """
    if not places:
        return []
    stored = _stored(engine, opened, candidates, places, (*fields, *_SHADED) if explain else fields)
    parts = _explained(engine, opened, candidates, places, stored) if explain else {}
    roots = {each.partition(".")[0] for each in fields}
    return [
        Hit(
            id=place.id,
            score=place.score,
            rank=rank,
            fields=_fields(stored[place.id], roots),
            signals=place.signals,
            explanation=parts.get(place.id),
            explainer=partial(_explain_later, engine, opened, candidates, place),
            passage=stored_passage(stored[place.id]),
            reranked=place.rerank["share"] if place.rerank else 0.0,
        )
        for rank, place in enumerate(places, first)
    ]


def wanted(fields: Sequence[str]) -> list[str]:
    """Stored fields to ask for: those named, long metadata, and what says which passage it is."""
    long = [each.replace("metadata", "metadata_long", 1) for each in fields if each.partition(".")[0] == "metadata"]
    return sorted({*fields, *long, "id", "passage", "passage_start", "passage_end"})


def _stored(
    engine: Engine, opened: Opened, candidates: Candidates, places: Sequence[Place], fields: Sequence[str]
) -> dict[str, Any]:
    """Document id -> the stored fields; of a document in passages those of the one found, or else of the first."""
    keys: dict[str, str] = {}
    for place in places:
        number = candidates.passage(place.id, place.signals) if opened.lineage.passages else None
        keys[engine_id(Passage.key(place.id, number))] = place.id
        if not place.signals and opened.lineage.passages:
            keys[engine_id(Passage.key(place.id, 1))] = place.id
    # As searches see it: what was deleted or changed since the last refresh is found still, and by what it said then.
    params = {"_source_includes": ",".join(wanted(fields)), "realtime": False}
    answer = engine.request("POST", f"/{candidates.index}/_mget", params=params, body={"ids": list(keys)})
    stored = {
        document: as_written(found["_source"])
        for document, found in zip(keys.values(), answer["docs"], strict=True)
        if found.get("found") and found["_source"].get("id") == document  # the key of a passage is no document
    }
    missing = [place for place in places if place.id not in stored]
    if gone := [place.id for place in missing if place.signals]:
        raise DocumentGone(
            f"{opened.lineage.name!r} found {gone[0]!r} and does not hold it: it was deleted meanwhile, or is damaged.",
            "Run it again; if that does not help, 'termweave verify' says what is damaged.",
        )
    if missing:
        raise UsageError(
            f"The index {opened.lineage.name!r} has no document {missing[0].id!r}.",
            "Ids are those of the source; 'termweave search' shows them.",
        )
    return stored


def _explained(
    engine: Engine, opened: Opened, candidates: Candidates, places: Sequence[Place], stored: Mapping[str, Any]
) -> dict[str, Any]:
    words = _words(opened, candidates.query.text)
    explained = explanation.of(engine, candidates.index, opened.layout.signals, candidates, places, words=words)
    for document, said in explained.items():
        source = stored[document]
        said["text"] = _joined(stored_text(source, "title"), stored_text(source, "text"))
        said["words"] = shading.shade(said["text"], said["parts"], encoder=opened.encoder, engine=engine, index=candidates.index)
    return explained


def _joined(title: str, text: str) -> str:
    """Title and text as a reader sees them: models see them joined by a full stop always (`Document.content`)."""
    if not (title.strip() and text.strip()):
        return title if title.strip() else text
    return f"{title}{' ' if title.rstrip().endswith(_ENDS) else '. '}{text}"


def _explain_later(engine: Engine, opened: Opened, candidates: Candidates, place: Place) -> Mapping[str, Any]:
    stored = _stored(engine, opened, candidates, [place], _SHADED)
    explained: Mapping[str, Any] = _explained(engine, opened, candidates, [place], stored)[place.id]
    return explained


def _words(opened: Opened, query: str) -> dict[str, str]:
    """Term -> the word of the query it stands for: people read "delay", not "delai"."""
    if opened.encoder.analysis is None:
        return {}
    shaded = opened.encoder.shade(query, statistics=opened.statistics, kind="query")
    return {each.term: query[each.start : each.end] for each in shaded}


def _fields(stored: Mapping[str, Any], roots: Collection[str]) -> dict[str, Any]:
    """The fields of these names, metadata in one piece."""
    fields = {name: value for name, value in stored.items() if name in roots}
    if "metadata" in roots and (metadata := stored_metadata(stored)):
        fields["metadata"] = metadata
    return fields


def flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a hit by the names that `fields` takes: entries of the metadata with a dot.

    Example:
        >>> dict(flat({"title": "Timer", "metadata": {"kind": "class"}}))
        {'title': 'Timer', 'metadata.kind': 'class'}
    """
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
