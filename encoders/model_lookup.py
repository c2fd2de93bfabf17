"""Find the folder of a model by its name: a path, "shipped", a name in the models folder, an installed package or ``hf:OWNER/NAME``.

Packages made from ``models/`` of this repository bring further models. Each registers a short name ("small") in the entry points
`termweave.models`; its folder answers to its own name, too.

`resolve` is for names that the user gave and may download from the hub. `resolve_local` is for names that an index on a server
gave: it opens only what this host already has. `known_models` lists all that commands take.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from termweave import plugins
from termweave.encoders import backbones, calibration, hub
from termweave.encoders.analysis.analyses import ANALYSES
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import MANIFEST
from termweave.errors import ModelError, UsageError
from termweave.support import extras, paths

#: The name that ``weights=None`` and ``dense=None`` stand for.
DEFAULT = "shipped"
#: Short names of models: the folder that comes with termweave, or the package that brings the model.
SHORT = {"fast": "minilm-l6-anchored"}
CHINESE = "chinese"
PACKAGES = {"small": "termweave-model-small", CHINESE: "termweave-model-chinese"}
_SHIPPED, _LANGUAGES = (Path(__file__).parent / name for name in ("shipped", "languages"))
#: Names that switch an output off.
NONE = ("", "none")


def resolve(name: str | Path) -> Path:
    """Return the folder of a model that the user named.

    A name that begins with ``hf:`` is a model on the Hugging Face hub (`hub.fetch`), and one that is written as a path is a folder
    (`paths.written_as_path`). Others are tried as "shipped" or the name of a folder that comes with termweave (``bm25-german``, too), as a folder
    in `paths.models()`, as a short name ("small", "fast"), as a backbone (`backbones.fetch`), and as an installed package that holds a model
    folder (the package itself, or its ``model/``). A folder of the working folder never answers to a bare name: what lies there may be a download.

    Raises:
        UsageError: No model has this name; the message lists the known ones.
        ModelError: The model is on the hub and cannot be fetched.
    """
    path, is_path = paths.expanded(name), isinstance(name, Path) or paths.written_as_path(name)
    name = str(name)
    if hub.is_hub_name(name):
        return hub.fetch(name)
    if is_path:
        if path.is_dir():
            return path.resolve()
        raise UsageError(f"There is no model folder {name!r}.", "Give one that training, export or sentence-transformers wrote.")
    if name == DEFAULT:
        return _model_folders(_SHIPPED)[0]
    if (folder := _by_name(name) or _by_name(SHORT.get(name, "")) or registered(name)) is not None:
        return folder
    if name in PACKAGES:
        raise UsageError(f"The model {name!r} is not installed.", f"Install it: {extras.install_model(name, PACKAGES[name])}.")
    if name in backbones.BACKBONES:
        return backbones.fetch(name)
    if (folder := _package(name)) is not None:
        return folder
    if path.is_dir():
        raise UsageError(f"There is no model named {name!r}.", f"For the folder of this name write ./{name}.")
    names = [DEFAULT, *SHORT, *PACKAGES, *backbones.BACKBONES, *(folder.name for folder in _named_folders())]
    raise UsageError(f"There is no model named {name!r}.", f"Known: {', '.join(names)}; or give a folder.")


def resolve_local(name: str) -> Path | None:
    """Return the folder of a model that this host already has, for a name that comes from an index on a server.

    It is a shipped model, a folder in `paths.models()`, the package of an installed distribution, or a model in the hub's local
    cache. A path opens nothing, no code of a package runs, and nothing is downloaded.
    """
    if hub.is_hub_name(name):
        return hub.cached(name)
    if (folder := _by_name(name)) is not None:
        return folder
    if name in backbones.BACKBONES:
        return backbones.BACKBONES[name].folder if backbones.BACKBONES[name].fetched() else None
    package = name.replace("-", "_")
    installed = metadata.packages_distributions()  # else a folder in the working directory would count as a package
    return _package(package) if package.partition(".")[0] in installed else None


def _by_name(name: str) -> Path | None:
    """The model folder with the given name, among those looked up by name (`_named_folders`); None: no folder has it.

    The name is compared, never joined to a path.
    """
    return next((folder for folder in _named_folders() if folder.name == name), None)


def is_taken(name: str) -> bool:
    """Whether a name cannot be given to a new model of the user: it is reserved, or is no bare name, or a folder already has it."""
    reserved = name in {DEFAULT, *NONE, *SHORT, *PACKAGES, *plugins.modules("models"), *backbones.BACKBONES}
    other_form = hub.is_hub_name(name) or paths.written_as_path(name)
    return reserved or other_form or _by_name(name) is not None or (paths.models() / name).exists()


def language_model(language: str) -> str | None:
    """The name of the shipped model folder that is BM25 with the words of a language ("bm25-german"); None: no such folder is shipped."""
    return next((folder.name for folder in _model_folders(_LANGUAGES) if folder.name == f"bm25-{language}"), None)


def _named_folders() -> list[Path]:
    """All model folders that are looked up by their names: shipped with termweave, in `paths.models()`, and in installed packages."""
    packaged = (folder for _, module in sorted(plugins.modules("models").items()) for folder in _packaged_models(module))
    return [*shipped_folders(), *own_folders(), *packaged]


def registered(name: str) -> Path | None:
    """The model folder of the package that registered a short name ("small"); None: no installed package registered the name."""
    return next(iter(_packaged_models(plugins.modules("models").get(name, ""))), None)


def _packaged_models(module: str) -> list[Path]:
    """The model folders in the folder of an installed package."""
    return [folder for home in _package_folders(module)[:1] for folder in _model_folders(home)]


def _package_folders(module: str) -> list[Path]:
    """The folders of an installed package's files. The package is located, but its code never runs."""
    try:
        spec = importlib.util.find_spec(module) if module.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    return [Path(home) for home in (spec.submodule_search_locations or ())] if spec else []


def shipped_folders() -> list[Path]:
    """The model folders that come with termweave."""
    return [folder for home in (_SHIPPED, _LANGUAGES) for folder in _model_folders(home)]


def own_folders() -> list[Path]:
    """The user's model folders that are looked up by their names: those in `paths.models()`."""
    return _model_folders(paths.models())


def _model_folders(home: Path) -> list[Path]:
    """The subfolders of `home` that are model folders, sorted by name."""
    return sorted({file.parent for mark in (MANIFEST, "modules.json") for file in home.glob(f"*/{mark}")})


def _package(name: str) -> Path | None:
    """The model folder that an installed package ships; None: the package is not installed, or ships none.

    Only the first part of a dotted name is looked up: to look up ``a.b``, Python would import ``a``. The other parts are folders.
    """
    top, *inner = name.replace("-", "_").split(".")
    for home in _package_folders(top) if all(part.isidentifier() for part in inner) else ():
        if home.parent.resolve() == Path.cwd():  # interactive Python looks for packages in the working folder
            continue
        package = home.joinpath(*inner)
        for folder in (package, package / "model"):
            if (folder / MANIFEST).is_file() or (folder / "modules.json").is_file():
                return folder
    return None


@dataclass(frozen=True)
class KnownModel:
    """A model that commands take.

    Attributes:
        name: The name that commands take: a short name where there is one, or a path.
        model: The name in the model's description; "": the model is not on this host.
        origin: "shipped", "package", "own" (`paths.models()`), "fetched", "used" (an index of this host was built with it) or "to fetch".
        outputs: "weights", "dense", "scores".
        language: The language of the model's terms or of its training texts; "": no description tells the language.
        bytes: Size of the model's folder in bytes, or of the download if the model is not on this host.
        calibration: The spread of the model's similarities (`calibration.spread`); None: not measured yet, or the model has no vectors.
        folder: The model's folder; None: the model is not on this host.
        saturates: Whether the model's outputs depend on the processor (`ModelFolder.saturates`).
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
    """Say in a sentence which models give other numbers on other processors, and what to do; "" if no model does."""
    names = ", ".join(each.name for each in models if each.saturates)
    advice = "The int8 graph gives other numbers on processors without VNNI; export the trained model again, and build its indices again."
    return f"{names}: {advice}" if names else ""


def known_models() -> list[KnownModel]:
    """All models that commands take, in the order in which names are looked up. A folder that cannot be read is left out."""
    models: dict[Path, KnownModel] = {}
    for name, origin, folder in _folders():
        if folder not in models and (model := _described(name, origin, folder)) is not None:
            models[folder] = model
    absent = [each for each in backbones.BACKBONES.values() if not each.fetched()]
    to_fetch = [
        KnownModel(each.name, "", "to fetch", ("dense",), each.language, each.megabytes * 10**6, None, None) for each in absent
    ]
    return [*models.values(), *to_fetch]


def _folders() -> Iterator[tuple[str, str, Path]]:
    """Name, origin and folder of each model on this host."""
    short = {folder: name for name, folder in SHORT.items()}
    for folder in shipped_folders():
        yield short.get(folder.name, folder.name), "shipped", folder
    for name in sorted(plugins.modules("models")):
        if packaged := registered(name):
            yield name, "package", packaged
    for folder in own_folders():
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
    manifest = model.manifest
    source = backbones.BACKBONES.get(name) or ANALYSES.get(manifest.analysis or "")
    language = (source.language if source else None) or ""
    spread = calibration.noted(folder, [manifest.hash]) if "dense" in manifest.outputs else None
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return KnownModel(name, manifest.name, origin, manifest.outputs, language, size, spread, folder, model.saturates)
