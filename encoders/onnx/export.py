"""The export of a model: its graphs in fp32, in int8 and for GPUs, and the proof that they compute what torch computes.

`export` works on any kind (`encoders.kinds`). The fp32 graph may differ from torch by at most `TOLERANCE`, and a kind may demand a
smallest cosine between int8 and fp32 vectors (`ModelKind.least_cosine`). A model that fails is refused, and nothing is written.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.kinds import kind_of
from termweave.encoders.manifest import GRAPHS, MANIFEST, ModelFolder, digest, digests, write_manifest
from termweave.encoders.onnx.graph_writer import OPSET, attention_heads, write_fp32
from termweave.encoders.onnx.parity import Parity, largest_difference
from termweave.encoders.onnx.quantisation import write_dequantised, write_int8
from termweave.encoders.onnx.runtime import OnnxModel, Outputs, Precision
from termweave.errors import ModelError, UsageError
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from termweave.encoders.kinds.base import GraphInput, ModelKind

#: Largest difference to torch, over all outputs, with which a graph is still written.
TOLERANCE = 1e-4
_WORK = ".export-"
#: Files of a folder of sentence-transformers that an export copies, so that the export loads there, too.
_COPIED = (
    "*.json",
    "*.safetensors",
    "*.txt",
    "*.model",
    "README.md",
    "LICENSE*",
    "*_*/*.json",
    "*_*/*.safetensors",
    "*_*/*.txt",
    "onnx/model.onnx",
    "onnx/model.onnx_data",
)


def export(path: Path, out: Path | None = None) -> Parity:
    """Write the graphs of a model and record digests and parity figures in its ``termweave.json``.

    Args:
        path: A folder that training wrote, or one in the layout of sentence-transformers.
        out: A new folder for the export; None: the model's own folder.

    Returns:
        The parity figures, over `parity.sample_texts`.

    Raises:
        UsageError: `out` exists and is not empty, or a folder of sentence-transformers would be altered.
        ModelError: The folder cannot be read, or a graph does not compute what torch computes; then nothing is written.
    """
    folder = ModelFolder.read(path, check=False)
    kind = kind_of(folder.manifest)
    if out is None and not (path / MANIFEST).is_file():
        raise UsageError(
            f"{path} was not written by termweave, and an export would alter it.", "Name a new folder for the export: --out DIR."
        )
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty.", "Name a new folder: --out DIR.")
    home = path if out is None else out.parent
    home.mkdir(parents=True, exist_ok=True)
    for leftover in home.glob(f"{_WORK}*"):  # of an export that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=_WORK) as work:
        scratch = Path(work) / "model"
        scratch.mkdir()
        parity = write_checked(folder, kind, scratch)
        target = path
        if out is not None:
            _copy(path, scratch)
            folder = _export_queries(folder, kind, scratch)
            target = out.resolve()
            if out.is_dir():
                out.rmdir()
            write_manifest(scratch, _described(folder.manifest, scratch, parity))
            shutil.move(scratch, target)
        else:
            for name in GRAPHS.values():
                shutil.move(scratch / name, path / name)
            write_manifest(path, _described(folder.manifest, path, parity))
    return parity


def _export_queries(folder: ModelFolder, kind: ModelKind, scratch: Path) -> ModelFolder:
    """Export the encoder of queries, if it is another one; returns the folder with the digests of its graphs."""
    query = kind.towers(folder)["query"]
    if query is folder:
        return folder
    if query.path != folder.path:  # a model folder inside this one
        export(query.path, scratch / query.path.relative_to(folder.path))
        return folder
    settings = folder.manifest.settings
    home = query.manifest.settings["transformer"]
    if home == settings["transformer"]:  # the same graph, pooled in another way
        return folder
    write_checked(query, kind, scratch / home)
    graphs = {f"{home}/{name}": digest(scratch / home / name) for name in GRAPHS.values()}
    tower = {**settings["query"], "files": {**settings["query"]["files"], **graphs}}
    files = {**folder.manifest.files, **tower["files"]}
    return replace(folder, manifest=replace(folder.manifest, settings={**settings, "query": tower}, files=files))


def write_checked(folder: ModelFolder, kind: ModelKind, scratch: Path, *, fp32_only: bool = False) -> Parity:
    """Write graphs of a model into a folder and compare each with torch.

    Args:
        folder: The model.
        kind: Its kind.
        scratch: The folder to write into.
        fp32_only: Write the fp32 graph alone, not all of `GRAPHS`.

    Raises:
        ModelError: The model cannot be exported, or a graph computes something else than torch.
    """
    model = kind.load_torch(folder)
    sample = kind.parity_sample(folder, model)
    try:
        write_fp32(model, scratch / GRAPHS["fp32"], tuple(kind.graph_outputs), pairs=kind.pairing == "pair")
    except Exception as error:  # torch raises a dozen classes for what it cannot trace
        raise ModelError(
            f"torch cannot write {folder.manifest.name!r} as an ONNX graph: {first_line(error)}.",
            "Export it with optimum, and put the graph into the model's folder as onnx/model.onnx.",
        ) from error
    expected = run_torch(model, sample)
    if not all(np.isfinite(output).all() for outputs in expected for output in outputs):
        raise ModelError(
            f"The model {folder.manifest.name!r} gives values that are no numbers (NaN or infinity).",
            "It diverged in training, or the file is damaged: copy it again, or name another model.",
        )
    difference = largest_difference(expected, _run(folder, kind, scratch, "fp32", sample))
    if not difference <= TOLERANCE:  # NaN fails, too
        raise ModelError(
            f"The ONNX graph of {folder.manifest.name!r} differs from torch by {difference:.2g}, more than {TOLERANCE:.2g}; "
            "nothing was written.",
            "Report it with the versions of torch and onnxruntime.",
        )
    if fp32_only:
        return Parity(len(sample), difference)
    write_int8(scratch / GRAPHS["fp32"], scratch / GRAPHS["int8"], heads=attention_heads(model))
    write_dequantised(*(scratch / GRAPHS[precision] for precision in ("fp32", "int8", "dequantised")))
    int8, dequantised = (
        kind.compare(folder, expected, _run(folder, kind, scratch, precision, sample)) for precision in ("int8", "dequantised")
    )
    if not int8.get("cosine_min", 1.0) >= kind.least_cosine:
        raise ModelError(
            f"The int8 graph of {folder.manifest.name!r} gives other vectors than fp32 (smallest cosine {int8['cosine_min']:.3f}, "
            f"at least {kind.least_cosine} is needed); nothing was written.",
            "Use the model's folder as it is: `--dense DIR` runs it in fp32.",
        )
    return Parity(
        texts=len(sample),
        fp32_difference=difference,
        **{f"int8_{name}": value for name, value in int8.items()},
        dequantised_cosine_min=dequantised.get("cosine_min"),
    )


def _described(manifest: Any, path: Path, parity: Parity) -> Any:
    """The manifest of an exported folder."""
    quantisation = {"method": "dynamic int8, per channel, heads in fp32", "opset": OPSET, "parity": parity.as_dict()}
    inner = {name: digest(path / name) for name in manifest.files if "/" in name and (path / name).is_file()}
    files = {**inner, **digests(path)}
    if "ndcg" in manifest.quantisation and files == manifest.files:  # measured with these very graphs
        quantisation["ndcg"] = manifest.quantisation["ndcg"]
    return replace(manifest, quantisation=quantisation, files=files)


def _copy(path: Path, scratch: Path) -> None:
    """Copy the files of a model beside its new graphs."""
    for pattern in _COPIED:
        for file in sorted(path.glob(pattern)):
            if file.is_file() and file.name not in {MANIFEST, *GRAPHS.values()}:
                target = scratch / file.relative_to(path)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)


def int8_cost(figures: Mapping[str, Any]) -> str:
    """What int8 costs in nDCG, as training measured it (`training.model_folder.quantisation_check`), in words."""
    parts = [
        f"{name} {figures[output]['fp32']:.4f} in fp32, {figures[output]['int8']:.4f} in int8 ({figures[output]['change']:+.4f})"
        for output, name in (("weights", "weights"), ("dense", "vectors"), ("scores", "the ranker"))
        if output in figures
    ]
    return f"nDCG@10 of {figures['questions']} held-out questions in {figures['documents']} documents: {'; '.join(parts)}"


def run_torch(model: Any, sample: Sequence[GraphInput]) -> Outputs:
    """Run the module on each text alone."""
    import torch  # noqa: PLC0415

    results = []
    with torch.no_grad():
        for text in sample:
            row = torch.from_numpy(text.ids)[None]
            extra = [torch.from_numpy(values)[None] for values in (text.types, text.features) if values is not None]
            outputs = model(row, torch.ones_like(row), *extra)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            results.append([np.asarray(output[0].numpy()) for output in outputs])
    return results


def _run(folder: ModelFolder, kind: ModelKind, scratch: Path, precision: Precision, sample: Sequence[GraphInput]) -> Outputs:
    """Run one of the written graphs on the sample."""
    alone = ModelFolder(scratch, folder.manifest, {precision: scratch / GRAPHS[precision]})
    features = [text.features for text in sample if text.features is not None]
    types = [text.types for text in sample if text.types is not None]
    graph = OnnxModel(alone, precision=precision)
    return graph.run([text.ids for text in sample], features or None, tuple(kind.graph_outputs), types=types or None)
