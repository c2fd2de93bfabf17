"""The model folder that a run leaves: its files, its card ``README.md`` with the picture ``curves.svg``, and whether int8 is kept.

The card is made of ``termweave.json`` alone.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.declared_settings import written
from termweave.encoders import hub
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import GRAPHS, MANIFEST, STATISTICS, TOKENIZER, Manifest, write_manifest
from termweave.encoders.onnx.export import int8_cost
from termweave.evaluation.html_page import svg
from termweave.support import atomic_files, paths
from termweave.training.methods.base import Method, card_of

if TYPE_CHECKING:
    from termweave.statistics import CorpusStatistics
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.mixture import DataPart
    from termweave.training.setup import RunSetup

#: The largest loss of nDCG@10 by int8 with which a model is used in int8.
MOST_LOST = 0.005
#: What a run says where it is larger, and the card with it.
ONLY_FP32 = (
    f"int8 costs more than {MOST_LOST:g} of nDCG@10, so the folder keeps the fp32 graph alone, which is two to three times as slow on a CPU. "
    "`termweave export FOLDER` writes int8 again."
)
_INT8 = (GRAPHS["int8"], GRAPHS["dequantised"])


@dataclass(frozen=True)
class FolderContents:
    """The contents of a model folder other than the weights.

    Attributes:
        name: Name of the model.
        settings: All settings, with the values that were used for automatic ones.
        setup: Setup of the first data set, with backbone, tokeniser and analysis.
        statistics: Document frequencies for texts without a corpus.
        training: Description of the training for the manifest.
    """

    name: str
    settings: Any
    setup: RunSetup
    statistics: CorpusStatistics
    training: Mapping[str, Any]


def write(method: Method, model: Any, folder: Path, contents: FolderContents) -> None:
    """Write the folder of a model that a method trained, without the exported graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(contents.setup.backbone / TOKENIZER, folder / TOKENIZER)
    (folder / STATISTICS).write_bytes(contents.statistics.to_bytes())
    method.save(model, folder, contents)


def loses_too_much(figures: Mapping[str, Any]) -> bool:
    """Return whether int8 costs an output of a model too much nDCG@10; `figures` are those of `DevelopmentSet.int8_cost`."""
    return any(isinstance(each, dict) and each["change"] < -MOST_LOST for each in figures.values())


def remove_int8(folder: Path) -> None:
    """Remove the int8 graph from a model folder and the folders of its towers, so that the fp32 graph is used."""
    for file in folder.rglob(MANIFEST):
        manifest = read_folder(file.parent).manifest
        files = {name: digest for name, digest in manifest.files.items() if not name.endswith(_INT8)}
        write_manifest(file.parent, replace(manifest, files=files))
    for name in _INT8:
        for graph in folder.rglob(name):
            graph.unlink()


_RUN = """\
# {name}

{title_of_outputs} for termweave, trained by `termweave train {method}`.

* model hash `{hash}`, up to {max_length} word-pieces; analysis `{analysis}`
{lines}
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

{measure} of {asked:,} held-out questions in {searched:,} documents ({measured}):
this model {dev:.4f}; at step 0 {start:.4f} (p {start_p:.2g}), BM25 {bm25:.4f} (p {p:.2g}){unrounded}.
p: two-sided paired randomisation test against this model.

| step | loss | {measure} |
|---|---|---|
{history}

![loss and development measure by step](curves.svg)

These questions decided when to stop, so their figure is a little too good; a test split says more: `termweave evaluate`.

## Export

Over {texts} sample texts: fp32 graph against torch, largest difference {fp32_difference:.1g}; int8 against fp32: {export}.
{ndcg}"""
_DATA = "| {what} | {dataset}: {documents:,} documents; {questions:,} questions ({origin}) on {trained:,} documents |"


def described(
    method: Method, requested: TrainingParameters, settings: TrainingParameters, data: Sequence[DataPart]
) -> dict[str, Any]:
    """Describe for ``termweave.json`` how a model was trained.

    Args:
        method: The training method.
        requested: The settings that the user gave; they decide which settings count as changed.
        settings: All settings, with the values that were used for automatic ones.
        data: The data sets.
    """
    first, *beside = (part.described() for part in data)
    changed = {name: getattr(settings, name) for name in method.changed(requested)}
    sets = [f"{name}={written(value)}" for name, value in changed.items()]
    dataset = first["dataset"]
    words = ["termweave", "train", method.name, dataset, "--out", "DIR", *(word for each in sets for word in ("--set", each))]
    words += flags_of(settings.reading)
    return {
        "method": method.name,
        "title": method.title,
        "source": method.source,
        **first,
        "beside": beside,
        "backbone": name_of(settings.backbone, data[0].setup.backbone),
        "layers": {0: "frozen", -1: "trained"}.get(settings.top_layers, f"top {settings.top_layers} layers trained"),
        "options": asdict(settings),
        "changed": changed,
        "command": shlex.join(words),
    }


def name_of(name: str, folder: Path) -> str:
    """Return the name that the model card gives to a backbone: the setting itself, or, if the setting is a path, the name of the folder."""
    is_path = paths.written_as_path(name) and not hub.is_hub_name(name)
    return folder.name if is_path else name or "all-MiniLM-L6-v2"


def flags_of(reading: Mapping[str, Any]) -> list[str]:
    """Return the command-line flags that say how a corpus was read."""
    words = ["--skip-bad"] if reading.get("skip_bad") else []
    for name, values in reading.items():
        flag = f"--{name.removesuffix('s').replace('_', '-')}"
        for value in [values] if isinstance(values, str) else values if isinstance(values, list | tuple) else []:
            words += [flag, value]
    return words


def summary(method: Method, settings: TrainingParameters) -> str:
    """Describe in a few words how a model was trained on several data sets."""
    changed = ", ".join(f"{name}={value}" for name, value in method.changed(settings).items())
    return (
        f"`termweave train {method.name}` on the mixture below (each batch from one set, drawn by its share; the step with the best mean "
        f"development nDCG@10 is kept): at most {settings.steps} steps of {settings.batch} questions, AdamW {settings.rate:g} "
        f"one-cycle, seed {settings.seed}. Settings that differ from the method's defaults: {changed or 'none'}."
    )


def card(manifest: Manifest) -> str:
    """Format the card of a model that `termweave train` made, as Markdown."""
    training, figures = manifest.training, manifest.metrics["train"]
    parity, text = manifest.quantisation["parity"], card_of(manifest)
    history, ndcg = figures["history"], manifest.quantisation["ndcg"]
    sets = [("data", training), *(("beside", each) for each in training["beside"])]
    rows = zip(history["steps"], history["losses"], history["values"], strict=True)
    verdict = "" if figures["default"] else "* **significantly below BM25 on its held-out questions: not fit to be a default**\n"
    return _RUN.format(
        **{name: getattr(manifest, name) for name in ("name", "hash", "max_length", "analysis")},
        **{name: value for name, value in training.items() if name not in ("changed", "options")},
        data="\n".join(_DATA.format(what=what, **each) for what, each in sets),
        **{name: figures[name] for name in ("measure", "bm25", "start", "start_p", "dev", "p")},
        measured=text.measured,
        unrounded=f"; with {text.unrounded} {figures['dev_float']:.4f}" if text.unrounded else "",
        **parity,
        title_of_outputs=text.title,
        lines="\n".join(f"* {line}" for line in text.lines),
        export=text.export,
        quantisation=manifest.quantisation["method"],
        verdict=verdict,
        ndcg=f"{int8_cost(ndcg)}. {ONLY_FP32 if loses_too_much(ndcg) else ''}".rstrip() + "\n",
        changed=", ".join(f"{name}={written(value)}" for name, value in training["changed"].items()) or "none",
        asked=figures["questions"],
        searched=figures["documents"],
        history="\n".join(f"| {step} | {loss:.4f} | {value:.4f} |" for step, loss, value in rows),
    )


def write_curves(folder: Path, history: Mapping[str, Any], measure: str) -> None:
    """Write the curves of a run: the loss and the development measure by step.

    Args:
        folder: The model folder.
        history: The fields steps, losses, values and best of `trainer.early_stopping.History`; the loss at step 0 is not known.
        measure: Name of the development measure.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - 300 ms

    steps, values, best = history["steps"], history["values"], int(history["best"])
    figure = Figure(figsize=(6.6, 4.6), layout="constrained")
    loss, development = figure.subplots(2, sharex=True)
    loss.plot(steps[1:], history["losses"][1:], marker=".", gid="loss")
    loss.set_title("mean loss since the evaluation before", fontsize=9)
    development.plot(steps, values, marker=".", gid="development")
    development.plot(steps[best], values[best], "o", markersize=12, markerfacecolor="none", color="#c2410c", gid="kept")
    development.set_title(f"development {measure} (the ring marks the step that was kept)", fontsize=9)
    development.set_xlabel("step", fontsize=8)
    atomic_files.write(folder / "curves.svg", svg(figure, "curves").encode())
