"""Whether the statistics that weigh a live generation have grown old: an update keeps them, a build counts anew (docs/impacts.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from termweave.indexer import generations
from termweave.indexer.passages import Window
from termweave.search import lineage, stored_statistics

if TYPE_CHECKING:
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.statistics import CorpusStatistics

#: Documents of a sample that hold a term whose idf is then known to .5: its standard error is about 1 / sqrt(16).
_KNOWN = 16


@dataclass(frozen=True)
class Standing:
    """What the weights of a live generation stand on.

    Attributes:
        index: The generation.
        model: Hash of its weights model.
        passages: How its texts are cut; None: not at all.
        statistics: Of the corpus as it was when the generation was built.
    """

    index: str
    model: str
    passages: Window | None
    statistics: CorpusStatistics


def standing(engine: Engine, name: str) -> Standing | None:
    """What the live generation of `name` stands on; None where there is none, or none with weights.

    Raises:
        TermweaveError: Its lineage or its statistics cannot be read.
    """
    if (index := generations.live(engine, name)) is None:
        return None
    found = lineage.read(engine, index)
    if (statistics := stored_statistics.load(engine, index, found)) is None:
        return None
    return Standing(index, found.models["weights"].hash, Window.of(found.passages), statistics)


def drifted(kept: CorpusStatistics | None, counted: CorpusStatistics | None) -> list[str]:
    """What an update says at its end; nothing where the statistics are still good, or where there are none."""
    if kept is None or counted is None or not (drift := kept.drift(counted)).large:
        return []
    return [f"The corpus has drifted: {drift} A new build, without --update, counts again."]


def ahead(
    live: Standing | None, encoder: TextEncoder, passages: Window | None, counted: CorpusStatistics | None, first: int | None
) -> list[str]:
    """What a plan says of an update that the user might prefer to the build.

    Nothing where an update is out of the question: it keeps the model and the passages of the generation.

    Args:
        live: What there is.
        encoder: Of the plan.
        passages: Of the plan.
        counted: Of the source, or of its first documents.
        first: How many documents these are; None: all of them. They know rare terms too badly to be asked about them.
    """
    if live is None or counted is None or live.model != encoder.models["weights"].hash or live.passages != passages:
        return []
    drift = live.statistics.drift(counted, least=1 if first is None else _KNOWN)
    if not drift.large:
        return []
    said = f"The corpus has drifted from the statistics that weigh {live.index}: {drift} "
    if first is not None:
        said += f"So say its first {first:,} documents of terms that {_KNOWN} of them hold; in a source sorted by subject they say little of the rest. "
    return [f"{said}Build anew, which counts again; --update would weigh by the old ones."]
