"""Export a model: write a folder with its graphs in fp32, in int8 and for GPUs, and with the figures that compare them with torch.

`export` works on any kind of model (`encoders.kinds`). If a graph computes something else than torch (`checked_graphs`), nothing is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.encoders import calibration
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.manifest import GRAPHS, MANIFEST, SENTENCE_GRAPH, Manifest, ModelFolder, digest, digests, write_manifest
from termweave.encoders.onnx.checked_graphs import OPSET, Parity, write_checked
from termweave.encoders.text_encoder import load
from termweave.errors import UsageError
from termweave.support import private_files

if TYPE_CHECKING:
    from termweave.encoders.kinds.base import OpenModel


#: Files of a folder of sentence-transformers that an export copies, so that the export loads there, too. A graph may have files of tensors.
_COPIED = [f"{folder}*.{ending}" for folder in ("", "*_*/") for ending in ("json", "safetensors", "txt")]
_COPIED += ["*.model", "README.md", "LICENSE*", f"{SENTENCE_GRAPH}*"]


def export(path: Path, out: Path | None = None) -> Parity:
    """Write the graphs of a model and record digests and parity figures in its ``termweave.json``.

    Args:
        path: A folder that training wrote, or one in the layout of sentence-transformers.
        out: A new folder for the export; None: the model's own folder.

    Returns:
        The figures that compare the graphs with torch, over `checked_graphs.sample_texts`.

    Raises:
        UsageError: `out` exists and is not empty, or a folder of sentence-transformers would be altered.
        ModelError: The folder cannot be read, or a graph computes something else than torch; then nothing is written.
    """
    folder = read_folder(path, check=False)
    if out is None and not (path / MANIFEST).is_file():
        raise UsageError(f"{path} was not written by termweave, and an export would alter it.", "Name a new folder: --out DIR.")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty.", "Name a new folder: --out DIR.")
    home = path if out is None else out.parent
    home.mkdir(parents=True, exist_ok=True)
    with private_files.scratch_in(home, ".export-") as work:
        staging = work / "model"
        staging.mkdir()
        model = kind_of(folder.manifest)(folder)
        parity = write_checked(model, staging)
        target = path
        if out is not None:
            _copy(path, staging)
            folder = _export_queries(model, staging)
            target = out.resolve()
            if out.is_dir():
                out.rmdir()
            write_manifest(staging, _described(folder.manifest, staging, parity))
            shutil.move(staging, target)
        else:
            if (query := model.query_model) is not None and query.folder.path != path:
                export(query.folder.path)
            for name in GRAPHS.values():
                shutil.move(staging / name, path / name)
            write_manifest(path, _described(folder.manifest, path, parity))
    if "dense" in folder.manifest.outputs:
        calibration.write(load(weights="none", dense=target))
    return parity


def _export_queries(model: OpenModel, staging: Path) -> ModelFolder:
    """Export the separate query encoder, if the model has one; return the model's folder, its manifest with the digests of the new graphs."""
    folder, query = model.folder, model.query_model
    if query is None:
        return folder
    if query.folder.path != folder.path:  # a model folder inside this one
        export(query.folder.path, staging / query.folder.path.relative_to(folder.path))
        return folder
    settings = folder.manifest.settings
    home = query.manifest.settings["transformer"]
    if home == settings["transformer"]:  # the same graph, pooled in another way
        return folder
    write_checked(query, staging / home)
    graphs = {f"{home}/{name}": digest(staging / home / name) for name in GRAPHS.values()}
    tower = {**settings["query"], "files": {**settings["query"]["files"], **graphs}}
    files = {**folder.manifest.files, **tower["files"]}
    return replace(folder, manifest=replace(folder.manifest, settings={**settings, "query": tower}, files=files))


def _described(manifest: Manifest, path: Path, parity: Parity) -> Manifest:
    """The manifest of an exported folder: `manifest` with the digests of the files and the parity figures."""
    method = "dynamic int8, per channel, without saturation"
    quantisation = {"method": method, "saturates": False, "opset": OPSET, "parity": parity.as_dict()}
    inner = {name: digest(path / name) for name in manifest.files if "/" in name and (path / name).is_file()}
    files = {**inner, **digests(path)}
    if "ndcg" in manifest.quantisation and files == manifest.files:  # measured with these very graphs
        quantisation["ndcg"] = manifest.quantisation["ndcg"]
    return replace(manifest, quantisation=quantisation, files=files)


def _copy(path: Path, staging: Path) -> None:
    """Copy the files of a model, except its old graphs and manifest, into the folder `staging`, which has the new graphs."""
    for pattern in _COPIED:
        for file in sorted(path.glob(pattern)):
            if file.is_file() and file.name not in {MANIFEST, *GRAPHS.values()}:
                target = staging / file.relative_to(path)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)


def int8_cost(figures: Mapping[str, Any]) -> str:
    """Say in a sentence how much nDCG the int8 graph loses; `figures` come from `training.dev_measure.DevelopmentSet.int8_cost`."""
    parts = []
    for output, name in (("weights", "weights"), ("dense", "vectors"), ("scores", "the ranker")):
        if measured := figures.get(output):
            parts.append(f"{name} {measured['fp32']:.4f} in fp32, {measured['int8']:.4f} in int8 ({measured['change']:+.4f})")
            if "shipped" in measured:
                parts[-1] += f", the shipped model {measured['shipped']:.4f} (p {measured['shipped_p']:.2g})"
    return f"nDCG@10 of {figures['questions']} held-out questions in {figures['documents']} documents: {'; '.join(parts)}"
