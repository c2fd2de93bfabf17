"""Whether a corpus has drifted from the statistics of the live generation: an update keeps them, a build counts anew (docs/impacts.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.catalog import statistics_store
from termweave.indexer.preparation.passages import Window

if TYPE_CHECKING:
    from termweave.catalog.generations import LiveGeneration
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.statistics import CorpusStatistics

    #: A live generation, and the statistics that were counted when it was built, on which its weights are based.
    LiveStatistics = tuple[LiveGeneration, CorpusStatistics]

#: A term's idf is known to .5 if this many documents of a sample hold it: its standard error is about 1 / sqrt(16).
_KNOWN = 16


def of_live(engine: Engine, live: LiveGeneration | None) -> LiveStatistics | None:
    """The live generation and its statistics; None if there is none, or if it has no term weights.

    Raises:
        TermweaveError: They cannot be read.
    """
    if live is None or (statistics := statistics_store.load(engine, live.index, live.lineage)) is None:
        return None
    return live, statistics


def drift_after_update(kept: CorpusStatistics | None, counted: CorpusStatistics | None) -> list[str]:
    """The warning at the end of an update; none if the kept statistics are still good, or if there are none."""
    if kept is None or counted is None or not (drift := kept.drift(counted)).large:
        return []
    return [f"The corpus has drifted: {drift} A new build, without --update, counts again."]


def drift_before_build(
    live: LiveStatistics | None,
    encoder: TextEncoder,
    passages: Window | None,
    counted: CorpusStatistics | None,
    first: int | None,
) -> list[str]:
    """The warning of a plan to a user who might prefer an update to the build.

    There is none if an update is not possible: it keeps the model and the passages of the generation.

    Args:
        live: The statistics of the live generation; None: there are none.
        encoder: The models of the plan.
        passages: How the plan cuts texts.
        counted: Statistics of the source, or of its first documents.
        first: How many documents were counted; None: all. A part of the source says too little about rare terms.
    """
    if live is None or counted is None:
        return []
    (generation, statistics), made = live, live[0].lineage
    if made.models["weights"].hash != encoder.models["weights"].hash or Window.from_lineage(made.passages) != passages:
        return []
    drift = statistics.drift(counted, least=1 if first is None else _KNOWN)
    if not drift.large:
        return []
    sentence = f"The corpus has drifted from the statistics that weigh {generation.index}: {drift} "
    if first is not None:
        sentence += (
            f"This compares its first {first:,} documents, in terms that {_KNOWN} of them hold; if the source is sorted by subject, "
            "they say little about the rest. "
        )
    return [f"{sentence}Build anew, which counts again; --update would weigh by the old ones."]
