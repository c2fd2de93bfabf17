"""One run of `termweave train`: data, model, training, export, card, and what can be seen of the result.

A run lives in its output folder: ``run.json`` says what was asked for, ``checkpoints/`` how far it came; the rest is the model
folder that `termweave index --weights` reads.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from termweave.encoders.folder import MANIFEST, STATISTICS, TOKENIZER, Manifest, ModelFolder, digest, write_manifest
from termweave.encoders.form import Form
from termweave.errors import UsageError
from termweave.evaluation import randomisation_test
from termweave.training import card, methods
from termweave.training.pairs import most_frequent
from termweave.training.prospect import prospect
from termweave.training.sparse import bm25_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.models.anchored import HeadShape, JointModel
    from termweave.statistics import CorpusStatistics
    from termweave.training.anchored import Material
    from termweave.training.lessons import Lesson
    from termweave.training.loop import History
    from termweave.training.prospect import Prospect
    from termweave.training.scoring import Development
    from termweave.training.states import States

RUN, CHECKPOINTS = "run.json", "checkpoints"
_TABLE = 25_000


@dataclass(frozen=True)
class Result:
    """What came out.

    Attributes:
        folder: The model folder.
        hash: Of the model.
        history: Of the development figure.
        bm25: nDCG@10 of BM25 on the development questions.
        dev: Of the model, impacts stored in `bits` bits.
        dev_float: Of the model, impacts as floats.
        p: Randomisation test of `dev` against `bm25`.
        default: Whether it may be called a default: it is not significantly below BM25.
        parity: Of the export.
    """

    folder: Path
    hash: str
    history: dict[str, Any]
    bm25: float
    dev: float
    dev_float: float
    p: float
    default: bool
    parity: dict[str, float]


def train(
    method: methods.Method,
    spec: str,
    settings: Mapping[str, Any],
    out: Path,
    *,
    resume: bool = False,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[..., None] = lambda *_, **__: None,
) -> Result:
    """Run.

    Args:
        method: Of `methods`.
        spec: DATASET.
        settings: All of them (`Method.settings`).
        out: Folder of the run and of the model.
        resume: Go on with a run that is there.
        say: Told what happens.
        progress: ``(done, total, stage)``, for a bar.

    Raises:
        UsageError: `out` holds another run, or one and `resume` is not set.
        ModelError: The export's parity failed.
        KeyboardInterrupt: Ctrl-C; the run can be resumed.
    """
    _claim(out, method, spec, settings, resume=resume)
    if (out / MANIFEST).is_file() and "train" in ModelFolder.read(out, check=False).manifest.metrics:
        say(f"{out} is finished.")
        return _result(out)
    import torch  # noqa: PLC0415 - seconds

    from termweave.training.loop import fit  # noqa: PLC0415

    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    ahead = prospect(spec, settings, out, say)
    torch.manual_seed(int(settings["seed"]))  # before the heads exist: their first layers are drawn
    model = make_model(method, settings, ahead.backbone)
    material, development = prepared(method, settings, ahead, model, say)
    lesson = make_lesson(method, model, material, settings, ahead.statistics)
    bm25 = development.bm25()
    say(f"dev nDCG@10 of BM25 {bm25.mean():.4f} ({len(bm25)} questions in {len(ahead.places):,} documents)")
    history = fit(
        lesson, lambda: float(development.figures(model).mean()), settings, out / CHECKPOINTS, say=say, progress=progress
    )
    model.to("cpu").eval()
    return _finish(method, spec, settings, out, ahead, model, development, bm25, history, say)


def _claim(out: Path, method: methods.Method, spec: str, settings: Mapping[str, Any], *, resume: bool) -> None:
    """Make the run's folder this run's."""
    asked = {"method": method.name, "dataset": spec, "settings": dict(settings)}
    file = out / RUN
    if not file.is_file():
        if out.is_dir() and any(out.iterdir()):
            raise UsageError(f"{out} is not empty and holds no run.", "Name another folder with --out.")
        out.mkdir(parents=True, exist_ok=True)
        temporary = out / f".{RUN}"
        temporary.write_bytes(orjson.dumps(asked, option=orjson.OPT_INDENT_2))
        temporary.replace(file)
        return
    there = orjson.loads(file.read_bytes())
    if not resume:
        raise UsageError(f"{out} holds a run already.", "Go on with it: --resume; or name another folder with --out.")
    old = {"method": there["method"], "dataset": there["dataset"], **there["settings"]}
    new = {"method": method.name, "dataset": spec, **settings}
    differs = [name for name in new if old.get(name) != new[name]]
    if differs:
        what = "; ".join(f"{name} was {old.get(name)!r}, is {new[name]!r}" for name in differs)
        raise UsageError(f"The run in {out} is another one: {what}.", "Give the settings it was begun with, or another --out.")


def form_of(method: str, settings: Mapping[str, Any]) -> Form:
    """How the method's logits become weights."""
    if method == "bert-scorer":
        return Form(settings["anchor"], "linear", "sum", "one" if settings["target"] == "recall" else "learned")
    return Form(settings["anchor"], "log" if settings["anchor"] == "none" else "softplus", "max", settings["query"])


def shape_of(method: str, settings: Mapping[str, Any], layers: int) -> HeadShape:
    """What the method's heads look like."""
    from termweave.encoders.models.anchored import HeadShape  # noqa: PLC0415 - torch

    deep = settings["hidden"] > 0
    layer = layers // 2 if settings["layer"] < 0 else int(settings["layer"])
    if layer > layers:
        raise UsageError(f"layer={layer}, but the backbone has {layers} layers.", f"Use 0 to {layers}.")
    return HeadShape(
        layer=layer,
        hidden=int(settings["hidden"]),
        features=2 if deep else 0,
        gate=int(bool(settings.get("fcm"))),
        shared=int(bool(settings.get("shared", method == "bert-scorer"))),
        tags=int(bool(settings.get("bmes"))),
        lower=int(deep),
    )


def make_model(method: methods.Method, settings: Mapping[str, Any], backbone: Path) -> JointModel:
    """Backbone and untrained heads, with what is not to be trained frozen."""
    import torch  # noqa: PLC0415

    from termweave.encoders.models.anchored import JointModel  # noqa: PLC0415
    from termweave.encoders.models.store import load_backbone  # noqa: PLC0415

    body = load_backbone(backbone, int(settings["layers"]))
    layers = int(body.config.num_hidden_layers)
    model = JointModel(body, shape_of(method.name, settings, layers))
    trained, top = settings["top_layers"], []
    if trained > 0:
        lists = [each for each in body.modules() if isinstance(each, torch.nn.ModuleList) and len(each) == layers]
        if trained > layers or not lists:
            raise UsageError(f"top_layers={trained}, but the backbone has {layers} layers.", "Use fewer, or -1 for all of it.")
        top = list(lists[0])[-trained:]
    body.requires_grad_(trained == -1)
    for each in top:
        each.requires_grad_(requires_grad=True)
    if form_of(method.name, settings).activation == "log":
        for head in {model.heads.of("document"), model.heads.of("query")}:
            torch.nn.init.constant_(head.outer.bias, 0.5)  # at 0 and below a ReLU may never wake up (papers.md 2.4)
    return model


def prepared(
    method: methods.Method,
    settings: Mapping[str, Any],
    ahead: Prospect,
    model: JointModel,
    say: Callable[[str], None],
) -> tuple[Material, Development]:
    """Anchors, pieces, states, negatives."""
    from termweave.training import anchored, scoring, states, teachers  # noqa: PLC0415 - torch

    texts = [ahead.found.texts[place] for place in ahead.places]
    form, length = form_of(method.name, settings), _length(model, int(settings["training_length"]))
    identity = digest(ahead.backbone / "model.safetensors")
    statistics = ahead.statistics
    common = (ahead.analysis, ahead.tokenizer, statistics, ahead.bm25)
    documents = anchored.prepare(texts, *common, "document", length, form)
    questions = anchored.prepare(ahead.train.questions, *common, "query", length, form)
    asked = anchored.prepare(ahead.dev.questions, *common, "query", length, form)
    original = settings["top_layers"] == 0 or settings.get("joint", 0) > 0 or settings.get("teacher") == "dense"

    def of(pieces: Any) -> States | None:
        return states.states(model, identity, pieces, say=say) if original else None

    given, asking, judging = of(documents.pieces), of(questions.pieces), of(asked.pieces)
    negatives: list[NDArray[np.int64]] = []
    if depth := int(settings.get("negatives", 0)):
        negatives = anchored.mine(
            ahead.train.questions, texts, ahead.train.relevant, ahead.analysis, statistics, ahead.bm25, depth
        )
    teacher = None
    if settings.get("teacher"):
        teacher = teachers.read(str(settings["teacher"]), ahead, given, asking, negatives, model.backbone.config.hidden_size)
    if not model.shape.lower:
        width = int(model.backbone.config.hidden_size)
        given, asking, judging = (None if each is None else scoring.last_layer(each, width) for each in (given, asking, judging))
    live = settings["top_layers"] != 0
    material = anchored.Material("", 1.0, ahead.train, documents, questions, given, asking, negatives, teacher)
    development = scoring.Development(
        ahead.dev,
        documents,
        asked,
        None if live else given,
        None if live else judging,
        bm25_weights(texts, ahead.analysis, statistics, ahead.bm25, "document"),
        bm25_weights(ahead.dev.questions, ahead.analysis, statistics, ahead.bm25, "query"),
        int(settings["bits"]),
    )
    return material, development


def _length(model: JointModel, wanted: int) -> int:
    """Word-pieces, as far as the backbone can count them."""
    return min(wanted, int(getattr(model.backbone.config, "max_position_embeddings", wanted)))


def make_lesson(
    method: methods.Method, model: JointModel, material: Material, settings: Mapping[str, Any], statistics: CorpusStatistics
) -> Lesson:
    """What is trained."""
    from termweave.training.lessons import Contrast, Regression  # noqa: PLC0415 - torch

    if method.name == "bert-scorer":
        return Regression(model, material, settings, statistics)
    return Contrast(model, material, settings)


def _finish(
    method: methods.Method,
    spec: str,
    settings: Mapping[str, Any],
    out: Path,
    ahead: Prospect,
    model: JointModel,
    development: Development,
    bm25: Any,
    history: History,
    say: Callable[[str], None],
) -> Result:
    """Save, export, and write down what was measured; the manifest's figures come last, so that a run without them is unfinished."""
    from termweave.encoders.export import export  # noqa: PLC0415 - torch
    from termweave.encoders.models import store  # noqa: PLC0415

    dev, plain = development.figures(model), development.figures(model, bits=0)
    p = float(randomisation_test(dev, bm25))
    shutil.copyfile(ahead.backbone / TOKENIZER, out / TOKENIZER)
    (out / STATISTICS).write_bytes(most_frequent(ahead.statistics, _TABLE).to_bytes())
    form = form_of(method.name, settings)
    anchor = {**asdict(form), "k1": ahead.bm25.k1, "b": ahead.bm25.b}
    store.save(
        model,
        out,
        Manifest(
            name=out.resolve().name,
            kind="anchored",
            outputs=tuple(str(settings["outputs"]).split(",")),
            hash="",
            max_length=_length(model, int(settings["max_length"])),
            terms=str(settings["terms"]),
            analysis=ahead.analysis.id,
            anchor=anchor,
            training=card.described(method, spec, settings, ahead),
        ),
    )
    parity = export(out)
    say(f"exported: fp32 within {parity.fp32_difference:.1g} of torch, int8 rank correlation {parity.int8_rank_correlation:.4f}")
    manifest = ModelFolder.read(out, check=False).manifest
    figures = {
        "history": history.__dict__,
        "bm25": float(bm25.mean()),
        "dev": float(dev.mean()),
        "dev_float": float(plain.mean()),
        "p": p,
        "questions": len(dev),
        "documents": len(ahead.places),
        "default": not (dev.mean() < bm25.mean() and p < 0.05),
    }
    manifest = Manifest(**{**manifest.__dict__, "metrics": {"train": figures}})
    card.write(out, manifest, {})
    write_manifest(out, manifest)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return _result(out)


def _result(out: Path) -> Result:
    manifest = ModelFolder.read(out).manifest
    figures = manifest.metrics["train"]
    return Result(
        out,
        manifest.hash,
        figures["history"],
        figures["bm25"],
        figures["dev"],
        figures["dev_float"],
        figures["p"],
        figures["default"],
        manifest.quantisation["parity"],
    )
