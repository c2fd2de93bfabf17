"""The manifest of a folder of shards: which corpus it holds, by which models and statistics it was encoded, and what was left out."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from termweave.errors import InputError, UsageError
from termweave.indexer.preparation.passages import Window
from termweave.indexer.shards.store import MANIFEST
from termweave.statistics import CorpusStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.indexer.shards.store import ShardStore

#: The format that this version writes and reads.
_FORMAT = 1
#: The file of the merged statistics.
STATISTICS = "statistics.bin"
#: Parts of a plan that do not change what is encoded.
_SAID = ("termweave", "notes", "warnings")
#: The names of the files below, but for that of the statistics, which is written again.
_FILES = re.compile(r"(shard|sample|entries)-\d{5}\.parquet|counts-\d{5}\.bin")


def shard_file(shard: int) -> str:
    """The file with the texts and encodings of a shard."""
    return f"shard-{shard:05}.parquet"


def sample_file(shard: int) -> str:
    """The file with those texts of a shard that are in the sample of the corpus, cut as the sample cuts them."""
    return f"sample-{shard:05}.parquet"


def entries_file(shard: int) -> str:
    """The file with the ids and digests of a shard, by which the shards find ids that occur twice."""
    return f"entries-{shard:05}.parquet"


def counts_file(shard: int) -> str:
    """The file with the counts of a shard."""
    return f"counts-{shard:05}.bin"


@dataclass(frozen=True)
class EncodingPlan:
    """What the shards of a folder hold. Every process that works on the folder makes the same plan.

    Attributes:
        source: "name" and "fingerprint" of the corpus.
        shards: Number of shards.
        block: Most documents in a block. Block number b of the corpus is row group b // shards of the file b % shards.
        models: Output -> name, hash, dimension, analysis and max_length of the model.
        passages: Size and stride of the passages; {} if texts are not cut.
        skip_bad: Whether entries that cannot be read, and the second of two documents with one id, are left out.
        analyzer: OpenSearch analyzer that suits the language.
        termweave: Version that began the folder.
        notes: What a user should know.
        warnings: What a user should not miss.
    """

    source: Mapping[str, str]
    shards: int
    block: int
    models: Mapping[str, Mapping[str, Any]]
    passages: Mapping[str, int]
    skip_bad: bool
    analyzer: str
    termweave: str
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @property
    def window(self) -> Window | None:
        """How texts are cut into passages; None: not at all."""
        return Window.of(self.passages)


@dataclass(frozen=True)
class Counted:
    """What is known when all shards are counted.

    Attributes:
        texts: Documents or passages that are encoded.
        statistics: Hash of the merged statistics; "" without a weights model.
        left_out: (id of the document, line) of the documents with the id of an earlier one.
        sample: (id, line) of the texts in the sample of the corpus.
        notes: What a user should know.
        warnings: What a user should not miss.
    """

    texts: int
    statistics: str
    left_out: Sequence[tuple[str, int | None]] = field(default_factory=list)
    sample: Sequence[tuple[str, int | None]] = field(default_factory=list)
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


def mark(plan: EncodingPlan, counted: Counted, shard: int) -> str:
    """A hash of what the file of a shard holds: corpus, models, passages, statistics and the number of the shard."""
    held = {name: value for name, value in asdict(plan).items() if name not in _SAID}
    whole = [held, counted.statistics, counted.texts, shard]
    return blake2b(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def read(store: ShardStore) -> tuple[EncodingPlan, Counted | None]:
    """Read the manifest of a folder.

    Returns:
        The plan, and the counts if all shards are counted.

    Raises:
        InputError: It is damaged, or was written by a newer version.
    """
    try:
        loaded = orjson.loads(store.read(MANIFEST))
        if loaded["format"] != _FORMAT:
            raise InputError(
                f"{store.shown} has shards of format {loaded['format']}, which this version of termweave does not read.",
                "Install the version that wrote it, or encode again.",
            )
        counted = loaded["counted"]
        if counted is not None:
            counted = Counted(
                **{**counted, **{name: [(each[0], each[1]) for each in counted[name]] for name in ("left_out", "sample")}}
            )
        plan = EncodingPlan(**loaded["plan"])
        sound = _sound(plan, counted)
    except (ValueError, KeyError, TypeError, IndexError):
        sound = False
    if not sound:
        raise InputError(f"{MANIFEST} in {store.shown} is damaged.", "Encode again, into another folder.")
    return plan, counted


def _sound(plan: EncodingPlan, counted: Counted | None) -> bool:
    """Whether the values of a manifest can be worked with; it may have been edited."""
    numbers = [plan.shards, plan.block, *([counted.texts] if counted else [])]
    tables = [plan.source, plan.models, plan.passages]
    if not all(isinstance(each, dict) for each in tables) or not all(isinstance(each, dict) for each in plan.models.values()):
        return False
    names = [plan.source.get("name"), plan.source.get("fingerprint"), plan.analyzer, *([counted.statistics] if counted else [])]
    return all(type(number) is int and number > 0 for number in numbers) and all(isinstance(name, str) for name in names)


def write(store: ShardStore, plan: EncodingPlan, counted: Counted | None = None) -> None:
    """Write the manifest of a folder."""
    content = {"format": _FORMAT, "plan": asdict(plan), "counted": asdict(counted) if counted else None}
    store.write(MANIFEST, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def begin(store: ShardStore, plan: EncodingPlan) -> tuple[EncodingPlan, Counted | None]:
    """Begin a folder, or continue one that has the same plan.

    Raises:
        UsageError: The folder holds shards of another corpus, model or option, or files of shards without a manifest.
    """
    if not store.exists(MANIFEST):
        others = sorted(name for name in store.names() if _FILES.fullmatch(name))
        if others and not store.exists(MANIFEST):  # the manifest comes first: another host may have begun in this moment
            raise UsageError(
                f"{store.shown} has files of shards, such as {others[0]}, and no {MANIFEST} that says what they are of.",
                "Name another folder with --out, or remove these files.",
            )
        write(store, plan)
        return plan, None
    before, counted = read(store)
    old, new = (orjson.loads(orjson.dumps(asdict(each))) for each in (before, plan))
    different = [name for name in new if name not in _SAID and old[name] != new[name]]
    if different:
        told = "; ".join(f"{name} was {_told(old[name])} and is {_told(new[name])}" for name in different)
        raise UsageError(
            f"{store.shown} has shards of another corpus, model or option: {told}.",
            "Repeat the command that began the folder to finish it, or name another folder with --out.",
        )
    return before, counted


def load_statistics(store: ShardStore, counted: Counted) -> CorpusStatistics | None:
    """The merged statistics of a folder; None without a weights model.

    Raises:
        InputError: They are damaged, or others than the manifest names.
    """
    if not counted.statistics:
        return None
    try:
        statistics = CorpusStatistics.from_bytes(store.read(STATISTICS))
    except ValueError as error:
        raise InputError(f"{STATISTICS} in {store.shown} is damaged.", "Encode again, into another folder.") from error
    if statistics.hash != counted.statistics:
        raise InputError(
            f"{store.shown} was encoded with the statistics {counted.statistics}, and {STATISTICS} holds {statistics.hash}.",
            "Encode again, into another folder.",
        )
    return statistics


def _told(value: Any) -> str:
    """A value of a plan in a message: names and hashes of models and sources, and everything else as it is."""
    if isinstance(value, dict) and "fingerprint" in value:
        return f"{value['name']} ({value['fingerprint'][:8]})"
    if isinstance(value, dict) and all(isinstance(each, dict) for each in value.values()) and value:
        return ", ".join(f"{output} {model['name']} ({model['hash'][:8]})" for output, model in value.items())
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value or "none")
