"""The plan of a build: which signals on which models, and the fingerprint that tells two builds apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from termweave import doors, encoders, plugins
from termweave.errors import UsageError
from termweave.indexer import language
from termweave.indexer.passages import Window
from termweave.search import lineage
from termweave.signals import signal_class
from termweave.signals.pruning import Pruning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.records import Capabilities

#: Which options are of which kind, and an example of it.
_KINDS: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("signals",), tuple | list | None, '("lexical", "dense")'),
    (("prune",), Pruning, 'Pruning.parse("30%"), from termweave.signals'),
    (("shards", "workers", "neighbours"), int, "2"),
    (("replicas",), int | None, "1"),
    (("saturation",), float | int | None, "0.75"),
    (("settings", "mapping"), Mapping, "{...}"),
    (("passages",), Window | None, "Window(160, 120), from termweave.indexer.passages"),
)
#: As at the command line: more neighbours are asked for by mistake, and a larger saturation changes nothing until it overflows.
_MOST_NEIGHBOURS, _MOST_SATURATION = 100, 1000
#: Plain text first, then what stands on models: the order in which tables show signals.
_ORDER = (None, "weights", "dense")


@dataclass(frozen=True)
class Options:
    """How to build.

    Attributes:
        weights: Weights model; None: the shipped one; "none": no weights.
        dense: Dense model, likewise.
        signals: Names of signals; None: all that models and server allow.
        analyzer: OpenSearch analyzer of the text; None: english, or what suits the corpus where the models do not know its language.
        prune: Which impacts are not stored.
        shards: Primary shards.
        replicas: Copies; None: 1 where there are several data nodes, else 0.
        settings: Further index settings, flat keys that begin with "index.".
        mapping: Further mapping; properties that are not termweave's are filled from the metadata of that name.
        workers: Connections that send at once.
        patience: Seconds to keep trying while the engine is overloaded or away and nothing goes through.
        loading: While loading neither refresh nor copy to replicas; both are restored before verification.
        allow_refused: Share of the documents, 0 to 1, that the engine may refuse without the generation being held back.
        fresh: Throw an unfinished generation away instead of resuming it.
        skip_bad: Leave out what cannot be read, and the second of two documents with one id.
        passages: How long texts are cut; None: not at all.
        neighbours: How many of its nearest documents each document is given words of (`indexer.expanding`).
        saturation: `WeightedTerms.saturation` of the weights signal; None: impacts are stored in proportion.
    """

    weights: str | Path | None = None
    dense: str | Path | None = None
    signals: tuple[str, ...] | None = None
    analyzer: str | None = None
    prune: Pruning = field(default_factory=Pruning)
    shards: int = 1
    replicas: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mapping: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 4
    patience: float = 120.0
    loading: bool = True
    allow_refused: float = 0.0
    fresh: bool = False
    skip_bad: bool = False
    passages: Window | None = None
    neighbours: int = 0
    saturation: float | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for values of another kind, which would end far inside."""
        for names, kind, example in _KINDS:
            for name in names:
                if not isinstance(value := getattr(self, name), kind):
                    raise UsageError(f"Options.{name} cannot be {value!r}.", f"Write {name}={example}.")
        if not 0 <= self.neighbours <= _MOST_NEIGHBOURS:
            raise UsageError(
                f"Options.neighbours cannot be {self.neighbours}.",
                f"Write neighbours=5, at most {_MOST_NEIGHBOURS}, or 0 for none.",
            )
        if self.saturation is not None and not 0 < self.saturation <= _MOST_SATURATION:
            raise UsageError(
                f"Options.saturation cannot be {self.saturation}.",
                f"Write saturation=0.75, above 0 and at most {_MOST_SATURATION:,}, or None for none.",
            )


@dataclass(frozen=True)
class Plan:
    """What a build will do.

    Attributes:
        options: As they were given.
        encoder: The models, opened.
        signals: Names of the signals, in the order of tables.
        analyzer: OpenSearch analyzer of the text.
        fingerprint: Over source, models, signals and settings: equal ones make equal indices.
        notes: Which signals were left out, and why.
        made_of: What the fingerprint is over, each part in words, by the name of its flag.
        warnings: What a user should not miss.
    """

    options: Options
    encoder: TextEncoder
    signals: tuple[str, ...]
    analyzer: str
    fingerprint: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    made_of: Mapping[str, str] = field(default_factory=dict)


def plan(source: Source, capabilities: Capabilities, options: Options) -> Plan:
    """Decide what a build will do. Nothing is written; of the source the fingerprint and the first documents are read.

    Raises:
        UsageError: A signal was asked for that model or server do not allow, or none is left, or `prune` would do nothing.
        InputError: One of the first documents cannot be read.
    """
    doors.check(source=source, options=options)
    encoder = encoders.load(weights=options.weights, dense=options.dense)
    possible, notes = _choose(options.signals, encoder, capabilities)
    advice = language.advise(source, encoder, options, possible)
    signals = advice.signals
    if options.prune != Pruning() and not any(signal_class(name).needs == "weights" for name in signals):
        raise UsageError(
            f"--prune leaves light term weights out, and an index of {' and '.join(signals)} has none.",
            "Leave --prune out, or index with a weights model and its signal.",
        )
    if options.neighbours and not {"weights", "dense"} <= {signal_class(name).needs for name in signals}:
        raise UsageError(
            f"--neighbours needs term weights and vectors, and an index of {' and '.join(signals)} has not both.",
            "Leave --neighbours out, or index with models and signals for both.",
        )
    if options.saturation is not None and "weights" not in signals:
        raise UsageError(
            f"--saturation is of the weights signal, and an index of {' and '.join(signals)} has none.",
            "Leave --saturation out, or index with a weights model and its signal.",
        )
    # A model that no signal stands on would run for nothing.
    encoder = encoder.only({signal_class(name).needs for name in signals})
    fingerprint = _fingerprint(source, encoder, signals, advice.analyzer, options)
    made_of = _in_words(source, encoder, signals, advice.analyzer, options)
    return Plan(options, encoder, signals, advice.analyzer, fingerprint, notes, advice.warnings, made_of)


def _choose(
    asked: Sequence[str] | None, encoder: TextEncoder, capabilities: Capabilities
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    chosen, notes = [], []
    for name in asked or [name for name in plugins.names("signals") if signal_class(name).default]:
        cls = signal_class(name)
        why = cls.unavailable(capabilities)
        if why is None and cls.needs is not None and cls.needs not in encoder.models:
            why = f"no model gives {cls.needs!r}"
        if why is None:
            chosen.append(name)
        elif asked:
            raise UsageError(
                f"The signal {name!r} cannot be built: {why}.", "Leave it out of --signals, or supply what it needs."
            )
        else:
            notes.append(f"The signal {name!r} is left out: {why}.")
    if not chosen:
        raise UsageError("No signal is left to index with.", "Name some with --signals lexical,weights,dense.")
    return tuple(sorted(chosen, key=lambda name: (_ORDER.index(signal_class(name).needs), name))), tuple(notes)


def _fingerprint(source: Source, encoder: TextEncoder, signals: Sequence[str], analyzer: str, options: Options) -> str:
    parts = {
        "source": source.fingerprint,
        "models": {output: model.hash for output, model in encoder.models.items()},
        "signals": list(signals),
        "analyzer": analyzer,
        "shards": options.shards,
        "settings": dict(options.settings),
        "mapping": dict(options.mapping),
        "skip_bad": options.skip_bad,
        "passages": options.passages.parameters() if options.passages else {},
        "schema": lineage.SCHEMA,
    }
    if options.prune != Pruning():
        parts["prune"] = [options.prune.share, options.prune.below]
    if options.neighbours:
        parts["neighbours"] = options.neighbours
    if options.saturation is not None:
        parts["saturation"] = float(options.saturation)
    return blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def _in_words(source: Source, encoder: TextEncoder, signals: Sequence[str], analyzer: str, options: Options) -> dict[str, str]:
    """The parts of the fingerprint as a user knows them: what differs between two builds differs here."""
    models = {
        f"--{output}": f"{encoder.models[output].name} ({encoder.models[output].hash[:8]})"
        if output in encoder.models
        else "none"
        for output in ("weights", "dense")
    }
    cut = options.passages
    return {
        "source": f"{source.name} ({source.fingerprint[:8]})",
        **models,
        "--signals": ",".join(signals),
        "--analyzer": analyzer,
        "--shards": str(options.shards),
        "--settings": orjson.dumps(dict(options.settings), option=orjson.OPT_SORT_KEYS).decode() if options.settings else "none",
        "--mapping": orjson.dumps(dict(options.mapping), option=orjson.OPT_SORT_KEYS).decode() if options.mapping else "none",
        "--skip-bad": "yes" if options.skip_bad else "no",
        "--passage-size": str(cut.size) if cut else "none",
        "--passage-stride": str(cut.stride) if cut else "none",
        "--prune": str(options.prune),
        "--neighbours": str(options.neighbours),
        "--saturation": "none" if options.saturation is None else f"{options.saturation:g}",
        "layout": str(lineage.SCHEMA),
    }
