"""The models that this host knows: shipped, from packages, the user's own, fetched, used for an index, and those that can be fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave import plugins
from termweave.encoders import backbones, calibration, model_lookup
from termweave.encoders.analysis.registry import ANALYSES
from termweave.encoders.layouts import read_folder
from termweave.errors import ModelError
from termweave.support import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class KnownModel:
    """A model that commands take.

    Attributes:
        name: The name that commands take: a short name where there is one, or a path.
        model: The name in its description; "" for one that is not on this host.
        origin: "shipped", "package", "own" (`paths.models()`), "fetched", "used" (an index of this host was built with it) or "to fetch".
        outputs: "weights", "dense", "scores".
        language: The language of its terms or of its training texts; "" if nothing says it.
        bytes: Size of its folder, or of the download.
        calibration: How far its similarities lie apart (`calibration.dense_spread`); None: not measured yet, or it has no vectors.
        folder: Where it is; None: not on this host.
        saturates: Whether its numbers depend on the processor (`ModelFolder.saturates`).
    """

    name: str
    model: str
    origin: str
    outputs: tuple[str, ...]
    language: str
    bytes: int
    calibration: float | None
    folder: Path | None
    saturates: bool = False


def dependence(models: Iterable[KnownModel]) -> str:
    """Say which models give other numbers on other processors, and what to do; "" if none does."""
    names = ", ".join(each.name for each in models if each.saturates)
    advice = "The int8 graph gives other numbers on processors without VNNI; export the trained model again, and build its indices again."
    return f"{names}: {advice}" if names else ""


def known_models() -> list[KnownModel]:
    """All models, in the order in which names are looked up. A folder that cannot be read is left out."""
    models: dict[Path, KnownModel] = {}
    for name, origin, folder in _folders():
        if folder not in models and (model := _described(name, origin, folder)) is not None:
            models[folder] = model
    absent = [
        KnownModel(each.name, "", "to fetch", ("dense",), each.language, each.megabytes * 10**6, None, None)
        for each in backbones.BACKBONES.values()
        if not each.fetched()
    ]
    return [*models.values(), *absent]


def _folders() -> Iterator[tuple[str, str, Path]]:
    """Name, origin and folder of each model on this host."""
    short = {folder: name for name, folder in model_lookup.SHORT.items()}
    for folder in model_lookup.shipped_folders():
        yield short.get(folder.name, folder.name), "shipped", folder
    for name in sorted(plugins.modules("models")):
        if packaged := model_lookup.registered(name):
            yield name, "package", packaged
    for folder in model_lookup.own_folders():
        yield folder.name, "own", folder
    for backbone in backbones.BACKBONES.values():
        if backbone.fetched():
            yield backbone.name, "fetched", backbone.folder
    notes = paths.state() / "models"
    for note in sorted(notes.iterdir()) if notes.is_dir() else ():
        folder = Path(os.fsdecode(note.read_bytes()))
        if folder.is_dir():
            yield str(folder), "used", folder


def _described(name: str, origin: str, folder: Path) -> KnownModel | None:
    try:
        model = read_folder(folder, check=False)
    except ModelError:
        return None
    named, manifest = backbones.BACKBONES.get(name), model.manifest
    analysis = ANALYSES.get(manifest.analysis or "")
    language = named.language if named else (analysis.language if analysis else None) or ""
    spread = calibration.noted(folder, [manifest.hash]) if "dense" in manifest.outputs else None
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return KnownModel(name, manifest.name, origin, manifest.outputs, language, size, spread, folder, model.saturates)
