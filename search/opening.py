"""Open a generation for searches: read its lineage, and load its statistics and models, once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.catalog import statistics_store
from termweave.catalog.layout import DocumentLayout, among
from termweave.catalog.lineage import Lineage, layout_with_fields, read_lineage, resolve_name
from termweave.encoders.recorded_models import encoder_of

if TYPE_CHECKING:
    from termweave.contracts.signal import Signal
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.engine.client.resolved_name import ResolvedName
    from termweave.records import Encoding
    from termweave.statistics import CorpusStatistics


@dataclass(frozen=True)
class OpenGeneration:
    """A generation (one complete build of an index) that is ready to be searched.

    A search uses the same generation from the encoding of the query to the hits.

    Attributes:
        index: Name of the concrete index.
        lineage: What the generation records about its origin.
        layout: The signals and fields that the generation stores.
        statistics: The counts of the corpus, on which query weights depend; None: the generation has no model of term weights.
        encoder: The models that encode queries.
        name: The name by which the generation was opened, with the indices and filters that the name stands for.
        engine: The server, restricted to documents that the name shows.
    """

    index: str
    lineage: Lineage
    layout: DocumentLayout
    statistics: CorpusStatistics | None
    encoder: TextEncoder
    name: ResolvedName
    engine: Engine

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode queries with the models and statistics of the generation."""
        return self.encoder.encode(texts, kind="query", statistics=self.statistics)

    def signals(self, names: Collection[str]) -> list[Signal]:
        """The signals with these names, in the order in which the layout has them."""
        return [signal for signal in self.layout.signals if signal.name in names]

    def columns_of(self, documents: Sequence[str], *columns: str, **order: Any) -> list[dict[str, Any]]:
        """Read the values of some fields of documents: the server's hits, each with its id and these fields.

        A document that is cut into passages has only one hit.

        Args:
            documents: Ids of the documents, at most 10,000.
            columns: Names of the fields.
            order: The order of the hits, as the entry `sort` of the request; without it the order is not defined.
        """
        body = {"size": len(documents), "query": among(documents, self.layout), **order, "_source": False}
        body |= {"docvalue_fields": [self.layout.id_field, *columns], "track_total_hits": False}
        hits: list[dict[str, Any]] = self.engine.search(self.index, body)["hits"]["hits"]
        return hits


def open_generation(engine: Engine, name: str, models: Mapping[str, str | Path | None]) -> OpenGeneration:
    """Open the generation that a name stands for now, with its models.

    Args:
        engine: The server.
        name: An alias, or the name of a generation.
        models: Models to use in place of the models that the lineage records, as `encoder_of` takes them; {}: the recorded ones.
    """
    resolved = resolve_name(engine, name)
    index = resolved.index
    recorded = read_lineage(engine, index, name)
    encoder = encoder_of(recorded, name, models)
    layout = layout_with_fields(engine, index, recorded)
    statistics = statistics_store.load(engine, index, recorded)
    return OpenGeneration(index, recorded, layout, statistics, encoder, resolved, engine.narrowed(resolved))
