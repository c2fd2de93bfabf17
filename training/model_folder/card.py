"""The model card, ``README.md`` in a model folder, made of what ``termweave.json`` says."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from termweave.encoders.export import ndcg_said
from termweave.encoders.form import Form
from termweave.training import prospect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from termweave.encoders.folder import Manifest
    from termweave.training.learning import Part
    from termweave.training.methods import Method

_TEXT = """\
# {name}

Term weights and a dense vector of English text in one pass, for termweave.

* weight of a term: {formula}; the model reads z off the context, and beyond its sight z is 0
* model hash `{hash}`, vector dimension {dimension}, up to {max_length} word-pieces
* analysis `{analysis}`: BERT words, Lucene's 33 stop words, Porter stems
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
* One seed; those of models made likewise differed by up to .013. The settings were chosen among some 25 variants by looking at the
  test queries of pools of these very sets, so the figures are biased upwards.
* English only. Text in other scripts gets BM25 impacts that mean little and vectors that mean less.
* `statistics.bin` is a default table ({statistics}) for text without a corpus; an index always uses its own.
"""

_RUN = """\
# {name}

{outputs} for termweave, trained by `termweave train {method}`.

* model hash `{hash}`, up to {max_length} word-pieces; analysis `{analysis}`
* weight of a term: {formula}
* graph: {quantisation}
{verdict}
## How it was made

{title} {source}.

| | |
|---|---|
{data}
| backbone | {backbone}, {layers} |

Settings that differ from the defaults: {changed}.

Made again by: `{command}`

## Development

nDCG@10 of {asked:,} held-out questions in {searched:,} documents (exact sparse dot product, impacts as an index stores them):
BM25 {bm25:.4f}, this model {dev:.4f} (p {p:.2g}, two-sided paired randomisation test); with float impacts {dev_float:.4f}.

| step | loss | nDCG@10 |
|---|---|---|
{history}

These questions decided when to stop, so their figure is a little too good; a test split says more: `termweave evaluate`.

## Export

Over {texts} sample texts: fp32 graph against torch, largest difference {fp32_difference:.1g}; int8 against fp32: rank correlation of
the multipliers {int8_rank_correlation:.4f}{cosines}.
{ndcg}"""
_DATA = "| {what} | {dataset}: {documents:,} documents; {questions:,} questions ({origin}) on {trained:,} documents |"
_COSINES = ", cosine of the vectors {int8_cosine_mean:.4f} on average, {int8_cosine_min:.4f} at least"
_MULTIPLIER = {"softplus": "softplus(z + ln(e - 1))", "log": "log(1 + ReLU(z))", "linear": "max(z, 0)"}


def described(method: Method, asked: Mapping[str, Any], settings: Mapping[str, Any], every: Sequence[Part]) -> dict[str, Any]:
    """What ``termweave.json`` says of a run's making; only what was `asked` for is a change, not what the defaults came to."""
    first, *beside = map(prospect.described, every)
    changed = {name: settings[name] for name in method.changed(asked)}
    sets = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in changed.items()]
    dataset = first["dataset"]
    words = ["termweave", "train", method.name, dataset, "--out", "DIR", *(word for each in sets for word in ("--set", each))]
    return {
        "method": method.name,
        "title": method.title,
        "source": method.source,
        **first,
        "beside": beside,
        "backbone": every[0].ahead.backbone.name if settings["backbone"] else "all-MiniLM-L6-v2",
        "layers": {0: "frozen", -1: "trained"}.get(settings["top_layers"], f"top {settings['top_layers']} layers trained"),
        "options": dict(settings),
        "changed": changed,
        "command": shlex.join(words),
    }


def summary(method: Method, settings: Mapping[str, Any]) -> str:
    """The making of a mixture in a sentence."""
    changed = ", ".join(f"{name}={value}" for name, value in method.changed(settings).items())
    return (
        f"`termweave train {method.name}` on the mixture below (each batch from one set, drawn by its share; the step with the best mean "
        f"development nDCG@10 is kept): at most {settings['steps']} steps of {settings['batch']} questions, AdamW {settings['rate']:g} "
        f"one-cycle, seed {settings['seed']}. Settings that differ from the method's defaults: {changed or 'none'}."
    )


def _formula(anchor: Mapping[str, Any]) -> str:
    """The weight of a document's term; what an anchor does not say is as it always was."""
    form = Form.of(anchor)
    bm25 = f"(k1 {anchor['k1']:g}, b {anchor['b']:g})"
    impact = f"BM25 impact {bm25}" if form.tf_power == 1 else f"idf · (BM25's frequency part {bm25})^{form.tf_power:g}"
    factor = {"bm25": f"{impact} · ", "idf": "idf · ", "none": ""}[form.kind]
    return f"{factor}{_MULTIPLIER[form.activation]}, {form.pieces} over its pieces; of a query: {form.query}"


def _run(manifest: Manifest) -> str:
    """The card of a run."""
    made, figures = manifest.training, manifest.metrics["train"]
    parity, dense = manifest.quantisation["parity"], "dense" in manifest.outputs
    history = figures["history"]
    rows = zip(history["steps"], history["losses"], history["values"], strict=True)
    verdict = (
        "" if figures["default"] else "* **significantly below BM25 on its development questions: not fit to be a default**\n"
    )
    return _RUN.format(
        **{name: getattr(manifest, name) for name in ("name", "hash", "max_length", "analysis")},
        **{name: value for name, value in made.items() if name not in ("changed", "options")},
        data="\n".join(
            [_DATA.format(what="data", **made), *(_DATA.format(what="beside", **each) for each in made.get("beside", ()))]
        ),
        **{name: figures[name] for name in ("bm25", "dev", "dev_float", "p")},
        **parity,
        outputs="Term weights and a dense vector" if dense else "Term weights",
        cosines=_COSINES.format(**parity) if dense else "",
        formula=_formula(manifest.anchor),
        quantisation=manifest.quantisation["method"],
        verdict=verdict,
        ndcg=f"{ndcg_said(manifest.quantisation['ndcg'])}.\n" if "ndcg" in manifest.quantisation else "",
        changed=", ".join(f"{name}={value}" for name, value in made["changed"].items()) or "none",
        asked=figures["questions"],
        searched=figures["documents"],
        history="\n".join(f"| {step} | {loss:.4f} | {value:.4f} |" for step, loss, value in rows),
    )


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
    if "train" in manifest.metrics:
        return _run(manifest)
    training: dict[str, Any] = manifest.training
    data = "\n".join(f"| {each['set']} | {each['part']} | {each['licence']} |" for each in training["data"])
    shown = "\n".join(f"### {split.capitalize()} splits\n\n{table}" for split, table in sorted(figures.items()))
    return _TEXT.format(
        **{name: getattr(manifest, name) for name in ("name", "hash", "dimension", "max_length", "analysis")},
        **{name: training[name] for name in ("method", "backbone", "command", "test_command", "zero_shot", "statistics")},
        **manifest.quantisation["parity"],
        formula=_formula(manifest.anchor),
        quantisation=manifest.quantisation["method"],
        data=data,
        figures=shown,
    )
