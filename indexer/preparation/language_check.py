"""What is done about a corpus whose language the models do not know: nothing silently, and no bad vectors by default.

Measured on cmrc2018 (Chinese) under the shipped English model: docs/terms.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from termweave.signals import signal_class

if TYPE_CHECKING:
    from collections.abc import Collection

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
        signals: Those to build: all that can be, less those whose models would do harm and nobody asked for.
        warnings: What a user should know.
    """

    analyzer: str
    signals: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def advise(source: Source, encoder: TextEncoder, options: Options, signals: tuple[str, ...]) -> Advice:
    """Look at the first documents of a source.

    What was asked for is built, with a warning; by default a model that does not know the text is left out.

    Args:
        source: The corpus.
        encoder: The models.
        options: What was asked for.
        signals: What models and server allow of it, or of the default.

    Raises:
        InputError: One of these documents cannot be read.
    """
    if not encoder.models:
        return Advice(options.analyzer or _DEFAULT_ANALYZER, signals)
    found = encoder.familiarity([document.content for document in islice(source.documents(), _SAMPLE)])
    analyzer = options.analyzer or next(iter(found.values())).analyzer
    needed = {signal_class(name).needs for name in signals}
    foreign = {output for output, each in found.items() if each.verdict == "foreign" and output in needed}
    asked = {"weights": options.weights is not None, "dense": options.dense is not None}
    dropped = {output for output in foreign if not (asked[output] or options.signals)}
    kept = tuple(name for name in signals if signal_class(name).needs not in dropped)
    said = []
    for model, outputs in _by_model(encoder, found.keys() & needed).items():
        each = found[outputs[0]]
        if each.verdict == "mixed":
            said.append(f"The model {model!r} knows {source.name} only in part: {each.reason}.")
        elif each.verdict == "foreign":
            gone = [output for output in outputs if output in dropped]
            what = (
                f"no {' and no '.join(gone)} by it, unless --signals asks for them" if gone else "what it gives may mean little"
            )
            said.append(f"The model {model!r} does not know the language of {source.name} ({each.reason}): {what}.")
    if foreign:
        said[-1] += f" Built: {', '.join(kept)}; the text is analysed with {analyzer!r} (--analyzer)."
    return Advice(analyzer, kept, tuple(said))


def _by_model(encoder: TextEncoder, outputs: Collection[str]) -> dict[str, list[str]]:
    """Name of a model -> those of these outputs that it gives."""
    found: dict[str, list[str]] = {}
    for output, model in encoder.models.items():
        if output in outputs:
            found.setdefault(model.name, []).append(output)
    return found
