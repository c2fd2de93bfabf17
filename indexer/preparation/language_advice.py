"""The language check: warns if the models do not know the language of a corpus, and by default leaves such models out.

Seven languages have BM25 with their own stemmer and stop words in the place of a weights model (`encoders.languages`). Chinese text gets
the model "chinese", where it is installed and no other model is named.

The effect of the check was measured on cmrc2018 (Chinese) with the shipped English model, see docs/terms.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from termweave import encoders
from termweave.catalog.layout import signal_class
from termweave.encoders.analysis.model_familiarity import Familiarity, analyzer_of, is_chinese
from termweave.encoders.model_lookup import CHINESE, PACKAGES, language_model, registered
from termweave.support.extras import install_model
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.indexer.options import BuildOptions

#: Number of documents checked, from the beginning of the source, so that a plan need not read all of it.
_SAMPLE = 256
_DEFAULT_ANALYZER = "english"


@dataclass(frozen=True, slots=True)
class LanguageAdvice:
    """The consequences of a corpus's language for a build.

    Attributes:
        analyzer: Analyzer of the text: the one in the options, else the one that suits the language.
        signals: Signals to build, without those whose model does not know the language, unless the user asked for them.
        encoder: The models that these signals need.
        warnings: Sentences about models that do not know the language.
        notes: Sentences about a model or an analyzer that was chosen by the language and that no warning names.
        instead: Output -> name of the model that replaces a model which does not know the language.
    """

    analyzer: str
    signals: tuple[str, ...]
    encoder: encoders.TextEncoder
    warnings: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def advise(source: Source, encoder: encoders.TextEncoder, options: BuildOptions, signals: tuple[str, ...]) -> LanguageAdvice:
    """Check the language of the first documents of a source, and decide which signals to build.

    Signals that the user asked for are built, with a warning. Otherwise signals of a model that does not know the language are left out,
    or BM25 gives the term weights, if it has the words of the language.

    Args:
        source: The corpus.
        encoder: The models.
        options: The build options.
        signals: The signals that options, models and server allow.

    Raises:
        InputError: One of the first documents cannot be read.
    """
    texts = [document.content for document in islice(source.documents(), _SAMPLE)]
    if not encoder.models:
        analyzer = options.analyzer or analyzer_of(texts)
        return LanguageAdvice(analyzer, signals, encoder, notes=_chosen(analyzer, options))
    coverage = encoder.familiarity(texts)
    instead, notes = {}, []
    if registered(CHINESE) and _takes_chinese(texts, coverage.values(), options):
        instead = dict.fromkeys(encoder.models.keys() - {"dense_query"}, CHINESE)
        encoder = encoders.load(CHINESE, CHINESE, dense_query=options.dense_query).only(encoder.models.keys())
        coverage = encoder.familiarity(texts)
        notes.append(f"The text is Chinese: term weights and vectors are those of the model {CHINESE!r} (--model names another).")
    analyzer = options.analyzer or next(iter(coverage.values())).analyzer
    needed = {signal_class(name).needs for name in signals}
    foreign = {output for output, each in coverage.items() if each.verdict == "foreign" and output in needed}
    chosen = {"weights": options.weights is not None, "dense": options.dense is not None}
    guess = coverage["weights"].guess if "weights" in foreign and not chosen["weights"] else None
    if guess and (words := language_model(guess)):
        instead = {"weights": words}
    dropped = {output for output in foreign - instead.keys() if not (chosen[output] or options.signals)}
    signals = tuple(name for name in signals if signal_class(name).needs not in dropped)
    names = {output: model.name for output, model in encoder.models.items() if output in coverage.keys() & needed}
    warnings: list[str] = []
    for model in dict.fromkeys(names.values()):
        outputs = [output for output, name in names.items() if name == model]
        words = instead.get("weights") if "weights" in outputs else None
        effect = _effect([output for output in outputs if output in dropped], words)
        warnings += _warnings(model, source.name, coverage[outputs[0]], effect)
    if foreign:
        warnings[-1] += f" Signals that are built: {', '.join(signals)}. The text is analysed with {analyzer!r} (--analyzer)."
        if not registered(CHINESE) and _takes_chinese(texts, coverage.values(), options):
            warnings[-1] += f" The model {CHINESE!r} knows this language: {install_model(CHINESE, PACKAGES[CHINESE])}"
        if instead:
            dense = instead.get("dense", options.dense)
            encoder = encoders.load(weights=instead["weights"], dense=dense, dense_query=options.dense_query)
    encoder = encoder.only({signal_class(name).needs for name in signals})  # no model runs for nothing
    notes += () if foreign else _chosen(analyzer, options)
    return LanguageAdvice(analyzer, signals, encoder, tuple(warnings), instead, tuple(notes))


def _takes_chinese(texts: Sequence[str], coverage: Iterable[Familiarity], options: BuildOptions) -> bool:
    """Whether to take the model for Chinese: the user named no model, and the text is Chinese."""
    chosen = options.weights is not None or options.dense is not None
    return not chosen and any(each.script == "CJK" for each in coverage) and is_chinese(texts)


def _warnings(model: str, corpus: str, familiarity: Familiarity, effect: str) -> Iterator[str]:
    """Yield a warning if a model does not know the language of a corpus, or may not know it."""
    if familiarity.verdict == "mixed":
        yield f"The model {model!r} knows the language of {corpus} only in part: {familiarity.reason}."
    elif familiarity.verdict == "foreign":
        yield f"The model {model!r} does not know the language of {corpus} ({familiarity.reason}): {effect}."
    elif familiarity.doubtful:
        yield (
            f"Whether the model {model!r} knows the language of {corpus} cannot be told from {counted(familiarity.words, 'word')}. "
            "If the text is not English, name its analyzer with --analyzer and leave the model out: --signals lexical."
        )


def _chosen(analyzer: str, options: BuildOptions) -> tuple[str, ...]:
    """Return a sentence about an analyzer that the user did not name and may not expect; (): there is no such analyzer."""
    if analyzer == (options.analyzer or _DEFAULT_ANALYZER):
        return ()
    return (f"The text is analysed with {analyzer!r}, chosen by its words and script (--analyzer names another).",)


def _effect(omitted: Sequence[str], instead: str | None) -> str:
    """Return a clause about the consequence of a language that a model does not know: signals that are left out, or BM25 in the place of the model."""
    without = f"no signal {' or '.join(omitted)} is built, unless --signals names it" if omitted else ""
    if instead:
        language = instead.partition("-")[2].capitalize()
        bm25 = f"term weights are BM25's, with the stemmer and stop words of {language} (--weights {instead})"
        return f"{bm25}, and {without}" if without else bm25
    return without or "its results may be poor"
