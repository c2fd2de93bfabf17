"""Open a generation: read its lineage once, and load its statistics and models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.catalog import application_fields, statistics_store
from termweave.catalog.layout import among
from termweave.catalog.lineage import read_lineage, resolve_name
from termweave.encoders.recorded_models import encoder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from termweave.catalog.layout import DocumentLayout
    from termweave.catalog.lineage import Lineage
    from termweave.contracts.signal import Signal
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.engine.client.resolved_name import ResolvedName
    from termweave.records import Encoding
    from termweave.statistics import CorpusStatistics


@dataclass(frozen=True)
class OpenGeneration:
    """One generation, ready to be searched. A search uses the same one from the encoding of the query to the hits.

    Attributes:
        index: Name of the concrete index.
        lineage: Its lineage.
        layout: Its signals and fields.
        statistics: The counts of its corpus, which query weights depend on; None without a weights model.
        encoder: Its models.
        name: The name that it was opened by, resolved.
        engine: The server. Its requests read only the documents that the name shows.
    """

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    encoder: TextEncoder
    name: ResolvedName
    engine: Engine

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode queries with its models and statistics."""
        return self.encoder.encode(texts, kind="query", statistics=self.statistics)

    def signals(self, names: Collection[str]) -> list[Signal]:
        """The signals with these names, in the order of the layout."""
        return [signal for signal in self.layout.signals if signal.name in names]

    def columns_of(self, documents: Sequence[str], *columns: str, **order: Any) -> list[dict[str, Any]]:
        """The server's hits for documents, each with its id and these columns; a document in passages counts once.

        Args:
            documents: Ids, at most 10,000.
            columns: Names of fields.
            order: The entry `sort` of the search, if there is one.
        """
        body = {"size": len(documents), "query": among(documents, self.layout), **order, "_source": False}
        body |= {"docvalue_fields": [self.layout.id_field, *columns], "track_total_hits": False}
        hits: list[dict[str, Any]] = self.engine.search(self.index, body)["hits"]["hits"]
        return hits


def open_generation(engine: Engine, name: str, models: Mapping[str, str | Path | None]) -> OpenGeneration:
    """Open the generation that a name stands for now.

    Args:
        engine: The server.
        name: An alias, or the name of a generation.
        models: Models to use in place of the recorded ones, as `encoder_of` takes them.
    """
    resolved = resolve_name(engine, name)
    index = resolved.index
    recorded = read_lineage(engine, index, name)
    encoder = encoder_of(recorded, name, models)
    layout = application_fields.with_fields(engine, index, recorded)
    statistics = statistics_store.load(engine, index, recorded)
    return OpenGeneration(index, recorded, layout, statistics, encoder, resolved, engine.narrowed(resolved))
