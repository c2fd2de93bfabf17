"""From a model's name to its folder: a path, "shipped", a name in the models folder, an installed package or ``hf:OWNER/NAME``.

`resolve` is for names that the user gave and may download from the hub. `resolve_local` is for names that an index on a server
gave: it opens only what this host already has.
"""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

from termweave.encoders import backbones, hub
from termweave.encoders.manifest import MANIFEST
from termweave.errors import UsageError
from termweave.support import paths

#: The name that ``weights=None`` and ``dense=None`` stand for.
DEFAULT = "shipped"
#: Names that switch an output off.
NONE = ("", "none")


def resolve(name: str | Path) -> Path:
    """Return the folder of a model that the user named.

    A name that begins with ``hf:`` is a model on the Hugging Face hub (`hub.fetch`), and one that is written as a path is a folder
    (`paths.written_as_path`). Others are tried as "shipped" or the name of a folder that comes with termweave (``bm25-german``, too), as a folder
    in `paths.models()`, as a backbone (`backbones.fetch`), and as an installed package that holds a model folder (the package itself, or its
    ``model/``). A folder of the working folder never answers to a bare name: what lies there may be a download.

    Raises:
        UsageError: No model has this name; the message lists the known ones.
        ModelError: The model is on the hub and cannot be fetched.
    """
    path = Path(name).expanduser()
    written = isinstance(name, Path) or paths.written_as_path(name)
    name = str(name)
    if hub.named(name):
        return hub.fetch(name)
    if written:
        if path.is_dir():
            return path.resolve()
        raise UsageError(
            f"There is no model folder {name!r}.", "Give a folder that training, export or sentence-transformers wrote."
        )
    shipped = _shipped()
    if name == DEFAULT and shipped:
        return shipped[0]
    if (folder := _by_name(name)) is not None:
        return folder
    if name in backbones.BACKBONES:
        return backbones.fetch(name)
    if (folder := _package(name)) is not None:
        return folder
    if path.is_dir():
        raise UsageError(f"There is no model named {name!r}.", f"For the folder of this name write ./{name}.")
    names = [DEFAULT, *backbones.BACKBONES, *(folder.name for folder in (*shipped, *_languages(), *_in_models()))]
    raise UsageError(f"There is no model named {name!r}.", f"Known: {', '.join(names)}; or give a folder.")


def resolve_local(name: str) -> Path | None:
    """Return the folder of a model that this host already has, for a name that comes from an index on a server.

    It is a shipped model, a folder in `paths.models()`, the package of an installed distribution, or a model in the hub's local
    cache. A path opens nothing, no code of a package runs, and nothing is downloaded.
    """
    if hub.named(name):
        return hub.cached(name)
    if (folder := _by_name(name)) is not None:
        return folder
    if name in backbones.BACKBONES:
        return backbones.BACKBONES[name].folder if backbones.BACKBONES[name].fetched() else None
    package = name.replace("-", "_")
    installed = metadata.packages_distributions()  # else a folder in the working directory would count as a package
    return _package(package) if package.partition(".")[0] in installed else None


def _by_name(name: str) -> Path | None:
    """The shipped folder or folder in `paths.models()` of that name. The name is compared, never joined to a path."""
    return next((folder for folder in (*_shipped(), *_languages(), *_in_models()) if folder.name == name), None)


def of_language(language: str) -> str | None:
    """The name of the folder that is BM25 with the words of a language; None if there is none."""
    name = f"bm25-{language}"
    return name if any(folder.name == name for folder in _languages()) else None


def _languages() -> list[Path]:
    """The folders of the kind "bm25" that come with termweave, sorted by name."""
    return sorted(file.parent for file in (Path(__file__).parent / "languages").glob(f"*/{MANIFEST}"))


def _shipped() -> list[Path]:
    """Model folders inside the package, sorted by name."""
    home = Path(__file__).parent / "shipped"
    return sorted(file.parent for file in home.glob(f"*/{MANIFEST}"))


def _in_models() -> list[Path]:
    """Model folders in `paths.models()`, sorted by name."""
    folders = {file.parent for mark in (MANIFEST, "modules.json") for file in paths.models().glob(f"*/{mark}")}
    return sorted(folders)


def _package(name: str) -> Path | None:
    """The model folder that an installed package ships. The package is located, its code never runs.

    Only the first part of a dotted name is looked up: to look up ``a.b``, Python would import ``a``. The other parts are folders.
    """
    top, *inner = name.replace("-", "_").split(".")
    if not all(part.isidentifier() for part in (top, *inner)):
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for home in (spec.submodule_search_locations or ()) if spec else ():
        if Path(home).parent.resolve() == Path.cwd():  # interactive Python looks for packages in the working folder
            continue
        package = Path(home, *inner)
        for folder in (package, package / "model"):
            if (folder / MANIFEST).is_file() or (folder / "modules.json").is_file():
                return folder
    return None
