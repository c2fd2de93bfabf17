"""The model card, ``README.md`` in a model folder, made of what ``termweave.json`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.encoders.folder import Manifest

_TEXT = """\
# {name}

Term weights and a dense vector of English text in one pass, for termweave. A document's term is worth its BM25 impact times
a multiplier that the model reads off the context; a query's term likewise. Untrained, the weights are exactly BM25.

* model hash `{hash}`, vector dimension {dimension}, up to {max_length} word-pieces; words beyond keep their BM25 impact
* analysis `{analysis}`: BERT words, Lucene's 33 stop words, Porter stems; BM25 k1 {k1}, b {b}
* graph: {quantisation}

## How it was made

{method}

| data | part used | licence |
|---|---|---|
{data}

Backbone: {backbone}

Made again by: `{command}`

## Export

Over {texts} sample texts: fp32 graph against torch, largest difference {fp32_difference:.1g}; int8 against fp32: rank correlation of
the multipliers {int8_rank_correlation:.4f}, cosine of the vectors {int8_cosine_mean:.4f} on average, {int8_cosine_min:.4f} at least.

## Figures

nDCG@10 of exact sparse dot products (no engine), 100 documents a query; p: two-sided paired randomisation test against BM25;
hybrids: min-max, equal weights. Document frequencies are those of the whole collection. "Searched" is the part searched:
all of it, or a pool (squad: all test passages and 1,500 others; medquad: 400 questions' answers and BM25's ten best of each, so its
gain is an upper estimate; trec-dl: the judged passages).

{figures}
Test figures were made by `{test_command}`.

## What the figures do not say

* {zero_shot}
* One seed, and no choice was made on test sets; seeds differ by up to .013 (design notes, term_weights.md).
* English only. Text in other scripts gets BM25 impacts that mean little and vectors that mean less.
* `statistics.bin` is a default table ({statistics}) for text without a corpus; an index always uses its own.
"""


def write(path: Path, manifest: Manifest, figures: Mapping[str, str]) -> None:
    """Write the card.

    Args:
        path: The model folder.
        manifest: What it says.
        figures: Split -> Markdown tables.
    """
    (path / "README.md").write_text(render(manifest, figures), encoding="utf-8")


def render(manifest: Manifest, figures: Mapping[str, str]) -> str:
    """The card as text."""
    training: dict[str, Any] = manifest.training
    data = "\n".join(f"| {each['set']} | {each['part']} | {each['licence']} |" for each in training["data"])
    shown = "\n".join(f"### {split.capitalize()} splits\n\n{table}" for split, table in sorted(figures.items()))
    return _TEXT.format(
        **{name: getattr(manifest, name) for name in ("name", "hash", "dimension", "max_length", "analysis")},
        **{name: training[name] for name in ("method", "backbone", "command", "test_command", "zero_shot", "statistics")},
        **manifest.quantisation["parity"],
        k1=manifest.anchor["k1"],
        b=manifest.anchor["b"],
        quantisation=manifest.quantisation["method"],
        data=data,
        figures=shown,
    )
