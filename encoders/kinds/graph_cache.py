"""Graphs that torch exports for models that bring none: made once, kept in the cache under the digest of weights and configuration.

The file is written beside its place and moved there, so that two processes that export the same model do not disturb each other.
"""

from __future__ import annotations

import shutil
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING

from termweave.encoders.manifest import GRAPHS, ModelFolder, digest, weight_files
from termweave.encoders.onnx.checked_graphs import write_checked
from termweave.errors import ModelError
from termweave.support import paths, private_files
from termweave.support.extras import install

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.encoders.kinds.base import OpenModel

#: The packages of the extra `train` that an export needs.
NEEDED = ("torch", "transformers", "onnx")


def with_graph(model: OpenModel) -> ModelFolder:
    """The folder of a model with a graph to run: one of its own, the one in the cache, or one that torch exports now.

    Raises:
        ModelError: The folder has no graph and torch is not installed, or the graph does not compute what torch computes.
    """
    folder = model.folder
    if any(folder.graph(precision) for precision in GRAPHS):
        return folder
    home = paths.cache() / "graphs" / _key(model)
    graph = home / GRAPHS["fp32"]
    if not graph.is_file():
        _export(model, home)
    return ModelFolder(folder.path, folder.manifest, {"fp32": graph})


def _key(model: OpenModel) -> str:
    """A name for what torch would export: models that differ only in pooling or prompts share a graph."""
    folder = model.folder
    home = str(folder.manifest.settings.get("transformer", ""))
    files = [*weight_files(folder.path / home), folder.path / home / "config.json"]
    digests = [folder.manifest.files.get(str(file.relative_to(folder.path))) or digest(file) for file in files]
    return blake2b(repr((digests, model.kind, model.graph_settings)).encode(), digest_size=8).hexdigest()


def _export(model: OpenModel, home: Path) -> None:
    """Export the fp32 graph into the cache, compared with torch."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"The model {model.manifest.name!r} has no ONNX graph, and without {' and '.join(missing)} none can be made.",
            f"Install the extra: {install('train')}; or add onnx/model.onnx to the model's folder.",
        )

    home.parent.mkdir(parents=True, exist_ok=True)
    with private_files.scratch_in(home.parent, ".export-") as work:
        graphs = work / "graph"
        graphs.mkdir()
        write_checked(model, graphs, fp32_only=True)
        model.folder.confirm()  # else the cache would keep a graph of other weights under the digest of these
        home.mkdir(exist_ok=True)
        for file in sorted(graphs.iterdir(), key=lambda file: file.name == GRAPHS["fp32"]):  # the graph last
            shutil.move(file, home / file.name)
