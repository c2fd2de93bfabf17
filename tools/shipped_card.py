"""The card of the model that ships with termweave, made of its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.training.methods.base import card_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.encoders.manifest import Manifest

_TEXT = """\
# {name}

Term weights and a dense vector of {language} text in one pass, for termweave.

{lines}; the model reads z off the context, and beyond its sight z is 0
* model hash `{hash}`, vector dimension {dimension}, up to {max_length} word-pieces
* analysis `{analysis}`: {words}
* graph: {quantisation}

## How it was made

{method}

| data | part used | licence |
|---|---|---|
{data}

Backbone: {backbone}

Made again by: `{command}`

## Export

Over {texts} sample texts: fp32 graph against torch, largest difference {fp32_difference:.1g}; int8 against fp32: {export}.

## Figures

nDCG@10 of exact sparse dot products (no engine), 100 documents a query; p: two-sided paired randomisation test against BM25;
hybrids: min-max, equal weights. Document frequencies are those of the whole collection. "Searched" is the part searched:
all of it, or a pool ({pools}).

{figures}
Test figures were made by `{test_command}`.

## What the figures do not say

* {zero_shot}
* One seed; those of models made likewise differed by up to .013. {chosen}
* {language} only. Text in other scripts gets BM25 impacts that mean little and vectors that mean less.
* `statistics.bin` is a default table ({statistics}) for text without a corpus; an index always uses its own.
"""


#: What a language changes in the text.
_OF_LANGUAGE = {
    "English": {
        "words": "BERT words, Lucene's 33 stop words, Porter stems",
        "pools": "squad: all test passages and 1,500 others; medquad: 400 questions' answers and BM25's ten best of each, so its\n"
        "gain is an upper estimate; trec-dl: the judged passages",
        "chosen": "The settings were chosen among some 25 variants by looking at the\n"
        "  test queries of pools of these very sets, so the figures are biased upwards.",
    },
    "Chinese": {
        "words": "words by jieba, those in Latin letters by BERT, without Lucene's 33 stop words, as Porter stems",
        "pools": "sentences: the answers of 1,000 questions of the test split and 10,000 others",
        "chosen": "The settings are those of the English recipe; none was chosen on Chinese text.",
    },
}


def render(manifest: Manifest, figures: Mapping[str, str]) -> str:
    """The card as text; `figures`: split -> Markdown tables."""
    training: dict[str, Any] = manifest.training
    language = training.get("language", "English")
    text = card_of(manifest)
    data = "\n".join(f"| {each['set']} | {each['part']} | {each['licence']} |" for each in training["data"])
    shown = "\n".join(f"### {split.capitalize()} splits\n\n{table}" for split, table in sorted(figures.items()))
    return _TEXT.format(
        **{name: getattr(manifest, name) for name in ("name", "hash", "dimension", "max_length", "analysis")},
        **{name: training[name] for name in ("method", "backbone", "command", "test_command", "zero_shot", "statistics")},
        **manifest.quantisation["parity"],
        lines="\n".join(f"* {line}" for line in text.lines),
        export=text.export,
        quantisation=manifest.quantisation["method"],
        data=data,
        figures=shown,
        language=language,
        **_OF_LANGUAGE[language],
    )
