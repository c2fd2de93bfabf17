"""Read ``ubi:FOLDER`` and ``ubi:opensearch``: a log of user behaviour as judgements for `evaluate`, and as a click log for `train`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from termweave.corpora.behaviour import ubi
from termweave.corpora.file_source import JudgementSource
from termweave.corpora.formats import lines
from termweave.corpora.formats.addresses import parse_index
from termweave.corpora.formats.fields import BadLine
from termweave.corpora.index.pages import Pace, PageReader, slices_of
from termweave.corpora.index.point_in_time import PointInTime, open_views
from termweave.corpora.judgements import Judged, Judgements, check_split, query_id
from termweave.corpora.readers.jsonl import parse
from termweave.corpora.sources import DEFAULT_SPLIT, IndexReading
from termweave.engine.client.connection import connect, quote
from termweave.engine.client.resolved_name import shared_pipeline
from termweave.errors import InputError, UsageError
from termweave.records import Query

PREFIX = "ubi:"
#: Names of the two logs, as indices and as files; and of a file for both, a body of `_bulk` requests as OpenSearch's sample data are.
QUERIES, EVENTS, _BOTH = "ubi_queries", "ubi_events", "ubi_queries_events"
#: Ends of the names of files, each also with .gz and .zst.
_ENDS = (".jsonl", ".ndjson")
_CLUSTER = ("opensearch", "elasticsearch", "http://", "https://")
#: With the click model, and without.
_SPLITS = ("corrected", "raw")


class UbiLog(Judged, JudgementSource):
    """A log of user behaviour: a `Dataset` without documents, and the reader that recognises it."""

    LABEL: ClassVar[str] = "`ubi:FOLDER` or `ubi:opensearch` (data sets only)"
    KIND: ClassVar[str] = "ubi/1"
    PREFIX: ClassVar[str] = PREFIX
    THING: ClassVar[str] = "A log of user behaviour"
    USE: ClassVar[str] = "Use the log with 'termweave evaluate' and with --set clicks=ubi:FOLDER."

    def __init__(self, spec: str, split: str = DEFAULT_SPLIT) -> None:
        super().__init__()
        self._place = spec.removeprefix(PREFIX)
        # As the user wrote it, but without a password.
        self.name = spec
        if "://" in self._place:
            self.name = f"{PREFIX}{parse_index(f'{self._place}/{EVENTS}').shown.rpartition('/')[0]}"
        self.split = _SPLITS[0] if split == DEFAULT_SPLIT else split
        check_split(self.name, self.split, _SPLITS)

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> UbiLog:
        """Open the log as judged queries."""
        if split.isdigit():  # the port of an address
            spec, split = f"{spec}:{split}", DEFAULT_SPLIT
        return cls(spec, split)

    def splits(self) -> list[str]:
        """Return the names of the splits: "corrected" (grades by the click model) and "raw" (grades by raw counts)."""
        return list(_SPLITS)

    def counts(self) -> dict[str, dict[str, float]]:
        """Return the clicks of each query and document; in the split "corrected", each is divided by the probability that its position is looked at."""
        counts: dict[str, dict[str, float]] = {}
        for (query, document), count in zip(self.behaviour.pairs, self.behaviour.clicks(self.model).tolist(), strict=True):
            if count:
                counts.setdefault(query, {})[document] = count
        return counts

    @cached_property
    def _judged(self) -> Judgements:
        """The queries with a click, in the order of the log, and grades of 0 to 3 for every document that was shown."""
        queries = {Query(query_id(text), text): of for text, of in self.behaviour.qrels(self.model).items()}
        remarks = self.behaviour.remarks(self.model, corrected=self.split == _SPLITS[0])
        return Judgements(list(queries), {query.id: of for query, of in queries.items()}, remarks)

    @cached_property
    def behaviour(self) -> ubi.Behaviour:
        """The behaviour of the users in the log.

        Raises:
            InputError: No search of the log has a click.
        """
        records = _of_cluster if self._place.startswith(_CLUSTER) else _of_files
        behaviour = ubi.behaviour_of(records(self._place, QUERIES), records(self._place, EVENTS))
        if not behaviour.impressions.clicked.any():
            shown, actions = f"{len(behaviour.pairs):,} pairs of query and document were", ", ".join(sorted(ubi.CLICKS))
            hint = f"A click is an event with the query_id of a search, an object_id, and one of the actions {actions}."
            raise InputError(f"{self.name} holds no click on a document that was shown ({shown}).", hint)
        return behaviour

    @cached_property
    def model(self) -> Any:
        """The click model of the split: fitted for "corrected", without correction for "raw"."""
        return self.behaviour.model(corrected=self.split == _SPLITS[0])


def _of_files(place: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines: bare, below ``_source`` (exports of an index), or behind action lines (requests of `_bulk`).

    Raises:
        UsageError: There is no such file.
        InputError: A line is damaged.
    """
    folder = Path(place)
    names = (f"{stem}{end}" for stem in (name, _BOTH) for end in _ENDS)
    file = next((path for each in names if (path := lines.plain_or_packed(folder, each))), None) if folder.is_dir() else None
    if file is None:
        files = f"{QUERIES}.jsonl and {EVENTS}.jsonl, or {_BOTH}.ndjson (each perhaps as .gz or .zst)"
        raise UsageError(f"There is no {name}.jsonl in {folder}.", f"Put {files} there, or read indices by ubi:opensearch.")
    is_ours = True
    for number, line in lines.lines(file):
        try:
            record = parse(line)
        except BadLine as bad:
            raise bad.at(str(file), number, skips=False) from None
        action = next(iter(record.values())) if len(record) == 1 and record.keys() <= {"index", "create"} else None
        if isinstance(action, dict):
            is_ours = not file.name.startswith(_BOTH) or action.get("_index") == name
        elif is_ours:
            source = record.get("_source")
            yield source if isinstance(source, dict) else record


def _of_cluster(place: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the records of an index, alias or data stream, from a point in time, always in the same order, so that sums of clicks do not vary."""
    at = parse_index(f"{place.rstrip(':/')}:{name}" if "://" not in place else f"{place.rstrip('/')}/{name}")
    with connect(IndexReading().settings_for(at.url)) as engine:
        indices = engine.of_indices(f"/{quote(at.index)}/_mapping", "mappings")
        query = {"bool": {"filter": list(shared_pipeline(engine, indices).filters)}}
        with closing(PointInTime(engine, query, open_views(engine, at.index, indices, query))) as point:
            for page in PageReader(point, slices_of(point.views), {}, (), Pace(None), readers=1):
                yield from (hit["_source"] for hit in page.hits if hit["_source"])
