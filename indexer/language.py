"""What is done about a corpus whose language the models do not know: nothing silently, and no bad vectors by default.

Measured on cmrc2018 (Chinese) under the shipped English model: docs/terms.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from termweave.signals import signal_class

if TYPE_CHECKING:
    from termweave.corpora import Source
    from termweave.encoders import TextEncoder
    from termweave.indexer.plan import Options

#: Documents looked at, from the beginning of the source: a plan must not cost a pass over it.
_SAMPLE = 256
_DEFAULT_ANALYZER = "english"


@dataclass(frozen=True, slots=True)
class Advice:
    """What the language of a corpus means for a build.

    Attributes:
        analyzer: Of the text: the one asked for, or else what suits it.
        signals: The only ones to build, where the models would do harm and nobody asked for them; else None.
        warnings: What a user should know.
    """

    analyzer: str
    signals: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()


def advise(source: Source, encoder: TextEncoder, options: Options) -> Advice:
    """Look at the first documents of a source.

    Models or signals that were asked for are built, with a warning; by default, text that the models do not know
    gets the lexical signal alone.

    Raises:
        InputError: One of these documents cannot be read.
    """
    analyzer = options.analyzer or _DEFAULT_ANALYZER
    if not encoder.models:
        return Advice(analyzer)
    found = encoder.familiarity([document.content for document in islice(source.documents(), _SAMPLE)])
    if found is None or found.verdict == "known":
        return Advice(analyzer)
    model = next(iter(encoder.models.values())).name
    if found.verdict == "mixed":
        return Advice(analyzer, warnings=(f"The model {model!r} knows {source.name} only in part: {found.reason}.",))
    said = f"The model {model!r} does not know the language of {source.name}: {found.reason}."
    analyzer = options.analyzer or found.analyzer
    chosen = "" if options.analyzer else f"; the text is analysed with {analyzer!r} (--analyzer for another)"
    if options.signals is None and options.weights is None and options.dense is None:
        hint = f"Only the lexical signal is built{chosen}. Models for its language: --weights, --dense."
        return Advice(analyzer, ("lexical",), (f"{said} {hint}",))
    hint = f"What it gives for such text may mean little{chosen}. BM25 alone: --signals lexical."
    return Advice(analyzer, warnings=(f"{said} {hint}",) if _models_needed(options) else ())


def _models_needed(options: Options) -> bool:
    return options.signals is None or any(signal_class(name).needs for name in options.signals)
