"""The plan of a build: its signals, models and analyzer, and the fingerprint that tells one build from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import orjson

from termweave import __version__, encoders, plugins
from termweave.catalog import generations
from termweave.catalog.layout import DocumentLayout, signal_class
from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.contracts.signal import Fitting
from termweave.dialect import dialect_of
from termweave.encoders.backbones import expected_prompts
from termweave.encoders.kinds import read_folder
from termweave.encoders.model_lookup import NONE
from termweave.errors import UsageError
from termweave.indexer import rebuild_options
from termweave.indexer.options import BuildOptions, Window, build_settings
from termweave.indexer.preparation import language_advice, user_mapping
from termweave.indexer.preparation.language_advice import LanguageAdvice
from termweave.support import arguments

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.corpora.sources import Encodings
    from termweave.engine import Engine
    from termweave.records import Capabilities, Encoding, ModelInfo
    from termweave.statistics import CorpusStatistics

#: The order in which tables show signals: plain text first, then what needs a model.
_ORDER = (None, "weights", "dense")

#: Values that the fingerprint holds in another form than JSON gives them.
_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "passages": lambda window: window.parameters() if window else {},
    "prune": lambda pruning: [pruning.share, pruning.below],
}
#: Number of the layout of documents. It changes where a build with the same options would write other documents.
_LAYOUT = 1


@dataclass(frozen=True)
class BuildPlan:
    """The models, signals and settings of a build.

    Attributes:
        options: The options that were given.
        encoder: The models that the signals need, opened; no model if the source brings its encodings.
        models: Output -> the model that encodes, or encoded, the documents.
        signals: Names of the signals, in the order of tables.
        analyzer: OpenSearch analyzer of the text.
        fingerprint: Hash over source, models, signals and settings. Builds with equal fingerprints make equal indices.
        notes: The signals that were left out, each with the reason.
        warnings: What a user should not miss.
        stored: The options as a lineage stores them.
    """

    options: BuildOptions
    encoder: encoders.TextEncoder
    models: Mapping[str, ModelInfo]
    signals: tuple[str, ...]
    analyzer: str
    fingerprint: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    stored: Mapping[str, Any]

    def layout(
        self,
        capabilities: Capabilities,
        sample: Sequence[Encoding],
        statistics: CorpusStatistics | None,
        *,
        calibrate: bool = True,
    ) -> DocumentLayout:
        """Return the layout of the index, with its signals fitted to the corpus.

        Args:
            capabilities: Capabilities of the server.
            sample: Encodings of a sample of the documents.
            statistics: Statistics of the corpus; None: the index has no term weights.
            calibrate: Whether to calibrate a model that was not calibrated yet, which takes seconds.
        """
        calibrated = {"dense": self.encoder.dense_spread(), "weights": self.encoder.weights_spread()} if calibrate else {}
        spreads = {output: calibrated[output] or model.spread for output, model in self.models.items() if output in calibrated}
        fitting = Fitting(
            capabilities,
            sample,
            self.models["dense"].dimension if "dense" in self.models else None,
            self.analyzer,
            self.options.prune,
            self.options.vectors == "byte",
            dense_spread=spreads.get("dense", 0.0),
            weights_spread=spreads.get("weights", 0.0),
            statistics=statistics,
        )
        return DocumentLayout([signal_class(name).fit(fitting) for name in self.signals])

    def lineage(
        self, engine: Engine, name: str, layout: DocumentLayout, statistics: CorpusStatistics | None, origin: Mapping[str, str]
    ) -> Lineage:
        """Return the lineage of a new index, with the index's signals, models and statistics. `origin` becomes `Lineage.source`."""
        counts = ("hash", "analysis", "documents", "average_length")
        return Lineage(
            name=name,
            created=generations.creation_time(engine, name),
            termweave=__version__,
            source=origin,
            fingerprint="",
            signals={signal.name: signal.parameters() for signal in layout.signals},
            models={output: ModelLineage(model.name, model.hash) for output, model in self.models.items()},
            statistics={each: getattr(statistics, each) for each in counts} if statistics else {},
            fields=layout.extra,
            types=layout.types,
            notations=layout.notations,
        )


def plan(source: Source, capabilities: Capabilities, options: BuildOptions) -> BuildPlan:
    """Decide what a build will make. Nothing is written; the fingerprint and the first documents of the source are read.

    Args:
        source: The corpus.
        capabilities: Capabilities of the server.
        options: How to build.

    Raises:
        UsageError: A signal was asked for that models or server do not allow; no signal is left; or the server has no byte vectors.
        InputError: One of the first documents cannot be read.
    """
    arguments.check(source=source, options=options)
    before = options
    if options.keep_mapping:
        options = user_mapping.taken_over(source, options)
    brought = source.encodings
    if brought is None:
        encoder = encoders.load(weights=options.weights, dense=options.dense, dense_query=options.dense_query)
        signals, notes = _choose_signals(options, encoder.models, capabilities)
        advice = language_advice.advise(source, encoder, options, signals)
        models: Mapping[str, ModelInfo] = advice.encoder.models
    else:
        models, options = _models_of_corpus(source, brought, options), _adopted(source, brought, options)
        signals, notes = _choose_signals(options, models, capabilities)
        analyzer, none = options.analyzer or brought.analyzer, encoders.load(weights="none", dense="none")
        advice = LanguageAdvice(analyzer, signals, none, tuple(brought.warnings), notes=tuple(brought.notes))
    signals = advice.signals
    if options.vectors != "float" and not dialect_of(capabilities).byte_vectors:
        raise UsageError("--vectors byte needs OpenSearch, and this server is an Elasticsearch.", "Leave --vectors out.")
    needed = {signal_class(name).needs for name in signals}
    models = {output: model for output, model in models.items() if output.removesuffix("_query") in needed}
    fingerprint = _fingerprint(source, models, options, {"signals": signals, "analyzer": advice.analyzer})
    notes, warnings = (*notes, *advice.notes), (*advice.warnings, *prompt_warnings(models))
    stored = rebuild_options.stored(replace(before, passages=options.passages), models)  # an encoded corpus has its own passages
    return BuildPlan(options, advice.encoder, models, signals, advice.analyzer, fingerprint, notes, warnings, stored)


def prompt_warnings(models: Mapping[str, ModelInfo]) -> list[str]:
    """Return a warning for each dense model whose folder lacks the prompts that the model was trained with."""
    warnings = []
    for output in ("dense", "dense_query"):
        model = models.get(output)
        if model is None or model.folder is None or not (expected := expected_prompts(model.name)):
            continue
        if not read_folder(model.folder, check=False).manifest.settings.get("prompts"):
            texts = " and ".join(f"{text!r} before a {kind}" for kind, text in expected.items())
            warnings.append(
                f"The model {model.name!r} was probably trained with {texts}, and its folder has no prompts, so its vectors are worse. "
                f"Save a copy of the model with these prompts: SentenceTransformer(MODEL, prompts={dict(expected)}).save(DIR)."
            )
    return warnings


def _adopted(source: Source, brought: Encodings, options: BuildOptions) -> BuildOptions:
    """Return the build options with passages and `skip_bad` as they were decided when the corpus was encoded.

    Raises:
        UsageError: Another length of passages was asked for.
    """
    window = Window.from_lineage(brought.passages)
    if options.passages not in {None, window}:
        unit = f"passages of {window.size} words" if window else "whole documents"
        hint = "Leave --passage-size out, or run 'termweave encode' again with this --passage-size."
        raise UsageError(f"{source.name} was encoded as {unit}, and --passage-size asks for others.", hint)
    return replace(options, passages=window, skip_bad=brought.skip_bad)


def _models_of_corpus(source: Source, brought: Encodings, options: BuildOptions) -> dict[str, ModelInfo]:
    """Return output -> model for the models that a corpus was encoded with, without the models that the options switch off.

    Raises:
        UsageError: The options name another model.
    """
    choices = {"weights": options.weights, "dense": options.dense, "dense_query": options.dense_query}
    names = {output: name for output, name in choices.items() if name is not None and name not in NONE}
    weights, dense = names.get("weights", "none"), names.get("dense", "none")
    models = encoders.load(weights, dense, dense_query=names.get("dense_query")).models if names else {}
    for output, model in models.items():
        used = brought.models.get(output)
        if used is None or used.hash != model.hash:
            flag = f"--{output.replace('_', '-')}"
            how = f"with {used.name!r} ({used.hash[:8]})" if used else "without such a model"
            hint = f"Leave {flag} out, or run 'termweave encode' again with {flag}, into another folder."
            raise UsageError(f"{source.name} was encoded {how}, and {flag} names {model.name!r} ({model.hash[:8]}).", hint)
    return {output: model for output, model in brought.models.items() if choices[output.removesuffix("_query")] not in NONE}


def _choose_signals(
    options: BuildOptions, models: Mapping[str, ModelInfo], capabilities: Capabilities
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the signals to build, in the order of tables, and a note on each default signal that is left out."""
    chosen, notes = [], []
    for name in options.signals or [name for name in plugins.names("signals") if signal_class(name).default]:
        cls = signal_class(name)
        obstacle = cls.unavailable(capabilities, models["weights"].analysis if "weights" in models else None)
        if obstacle is None and cls.needs is not None and cls.needs not in models:
            by_wish = getattr(options, cls.needs) in {"none", ""}
            obstacle = f"--{cls.needs} is none" if by_wish else f"no model gives {cls.needs!r}"
        if obstacle is None:
            chosen.append(name)
        elif options.signals:
            hint = f"Remove {name} from --signals, or supply what this signal needs."
            raise UsageError(f"The signal {name!r} cannot be built: {obstacle}.", hint)
        else:
            notes.append(f"The signal {name!r} is left out: {obstacle}.")
    return tuple(sorted(chosen, key=lambda name: (_ORDER.index(signal_class(name).needs), name))), tuple(notes)


def _fingerprint(source: Source, models: Mapping[str, ModelInfo], options: BuildOptions, resolved: Mapping[str, Any]) -> str:
    """Return a hash of everything that makes one generation different from another.

    Keys and values are those of every earlier version: an unfinished build is resumed, and a finished one recognised, by this hash.
    """
    hashes = {output: model.hash for output, model in models.items()}
    parts: dict[str, Any] = {"source": source.fingerprint, "models": hashes, "schema": _LAYOUT}
    unset = BuildOptions()
    for name, setting in build_settings().items():
        value = resolved.get(name, getattr(options, name))
        if setting.fingerprint == "always" or (setting.fingerprint == "if set" and value != getattr(unset, name)):
            parts[name] = _PLAIN[name](value) if name in _PLAIN else value
    return blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()
