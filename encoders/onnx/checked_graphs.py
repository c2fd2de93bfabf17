"""Write the graphs of a model, for an export or for the cache, and prove that each computes the same as the torch module.

The fp32 graph may differ from torch by at most `TOLERANCE`, and a kind may demand a smallest cosine between int8 and fp32 vectors
(`OpenModel.least_cosine`).

A graph reads ``input_ids`` and ``attention_mask``, int64 ``(batch, length)``, and where the model has features
``features``, float32 ``(batch, length, 2 or 3)``.

For a model folder without a graph, a graph is exported once and kept in the cache under the digest of weights and configuration. The
file is written under another name and then moved, so that two processes that export the same model do not disturb each other.
"""

from __future__ import annotations

import inspect
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.manifest import GRAPHS, ModelFolder, digest, weight_files
from termweave.encoders.onnx.quantisation import saturating, write_dequantised, write_int8
from termweave.encoders.onnx.runtime import PER_TEXT, GraphInput, OnnxModel, Outputs, Precision
from termweave.errors import ModelError
from termweave.support import paths, private_files
from termweave.support.extras import install
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.kinds.base import OpenModel

OPSET = 20  # the latest that the legacy exporter writes
#: Architectures whose attention adds nothing but the padding mask to its scores.
_PLAIN_ATTENTION = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"})
#: The packages of the extra `train` that an export needs.
_NEEDED = ("torch", "transformers", "onnx")
#: Number of texts in the sample on which graphs are compared.
_SAMPLE = 64
#: Largest difference to torch, over all outputs, with which a graph is still written.
TOLERANCE = 1e-4


def write_checked(model: OpenModel, scratch: Path, *, fp32_only: bool = False) -> Parity:
    """Write graphs of a model into a folder, compare each with torch, and return the figures of the comparison.

    Args:
        model: The model.
        scratch: The folder to write into.
        fp32_only: Write the fp32 graph alone, not all of `GRAPHS`.

    Raises:
        ModelError: The model cannot be exported, or a graph computes something else than torch.
    """
    module = model.load_torch()
    sample, name = model.parity_sample(), model.manifest.name
    try:
        write_fp32(module, scratch / GRAPHS["fp32"], model.graph_outputs)
    except Exception as error:  # torch raises a dozen classes for what it cannot trace
        hint = "Export it with optimum, and put the graph into the model's folder as onnx/model.onnx."
        raise ModelError(f"torch cannot write {name!r} as an ONNX graph: {first_line(error)}.", hint) from error
    expected = run_torch(module, sample)
    if not all(np.isfinite(output).all() for outputs in expected for output in outputs):
        raise ModelError(
            f"The model {name!r} gives values that are not numbers.", "The graph is damaged: copy the model folder again."
        )
    difference = largest_difference(expected, _run(model, scratch, "fp32", sample))
    if not difference <= TOLERANCE:  # NaN fails, too
        hint = "Nothing was written. Report it with the versions of torch and onnxruntime."
        raise ModelError(f"The ONNX graph of {name!r} differs from torch by {difference:.2g}, more than {TOLERANCE:.2g}.", hint)
    if fp32_only:
        return Parity(len(sample), difference)
    write_int8(scratch / GRAPHS["fp32"], scratch / GRAPHS["int8"], only_mask=adds_only_mask(module))
    as_it_is = "Nothing was written. Use the model's folder as it is: `--dense DIR` runs it in fp32."
    if operators := saturating(scratch / GRAPHS["int8"]):
        hint = f"{as_it_is} Report it with the model's architecture."
        raise ModelError(f"The int8 graph of {name!r} would give other numbers on other processors: {operators[0]}.", hint)
    write_dequantised(*(scratch / GRAPHS[precision] for precision in ("fp32", "int8", "dequantised")))
    int8, dequantised = (model.compare(expected, _run(model, scratch, each, sample)) for each in ("int8", "dequantised"))
    if not (cosine := int8.get("cosine_min", 1.0)) >= model.least_cosine:
        raise ModelError(f"The int8 graph of {name!r} gives other vectors than fp32 (smallest cosine {cosine:.3f}).", as_it_is)
    figures = {f"int8_{name}": value for name, value in int8.items()}
    return Parity(len(sample), difference, **figures, dequantised_cosine_min=dequantised.get("cosine_min"))


def run_torch(module: Any, sample: Sequence[GraphInput]) -> Outputs:
    """Run a torch module on each text of a sample alone; return the outputs for each text."""
    import torch  # noqa: PLC0415

    results = []
    with torch.no_grad():
        for text in sample:
            row = torch.from_numpy(text.ids)[None]
            extra = [torch.from_numpy(values)[None] for values in (text.types, text.features) if values is not None]
            outputs = module(row, torch.ones_like(row), *extra)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            results.append([np.asarray(output[0].numpy()) for output in outputs])
    return results


def _run(model: OpenModel, scratch: Path, precision: Precision, sample: Sequence[GraphInput]) -> Outputs:
    """Run the graph in `scratch` that has this precision on a sample of texts; return the outputs for each text."""
    alone = ModelFolder(scratch, model.manifest, {precision: scratch / GRAPHS[precision]})
    return OnnxModel(alone, precision=precision).start(sample, model.graph_outputs)()


def with_graph(model: OpenModel) -> ModelFolder:
    """The model's folder with a graph to run: a graph in the folder itself, one in the cache, or one that torch exports now.

    Raises:
        ModelError: The folder has no graph and torch is not installed, or the graph does not compute what torch computes.
    """
    folder = model.folder
    if any(folder.graph(precision) for precision in GRAPHS):
        return folder
    home = paths.cache() / "graphs" / _key(model)
    cached = ModelFolder(folder.path, folder.manifest, {"fp32": home / GRAPHS["fp32"]})
    if cached.graphs["fp32"].is_file():
        return cached
    if missing := " and ".join(name for name in _NEEDED if find_spec(name) is None):
        hint = f"Install the extra: {install('train')}; or add onnx/model.onnx to the model's folder."
        raise ModelError(f"The model {folder.manifest.name!r} has no ONNX graph, and without {missing} none can be made.", hint)
    home.parent.mkdir(parents=True, exist_ok=True)
    with private_files.scratch_in(home.parent, ".export-") as work:
        write_checked(model, work, fp32_only=True)
        folder.confirm()  # else the cache would keep a graph of other weights under the digest of these
        home.mkdir(exist_ok=True)
        for file in sorted(work.iterdir(), key=lambda file: file.name == GRAPHS["fp32"]):  # the graph last
            shutil.move(file, home / file.name)
    return cached


def _key(model: OpenModel) -> str:
    """The cache key of a model's graph, over all that an export depends on; models that differ only in pooling or prompts share a graph."""
    folder = model.folder
    home = str(folder.manifest.settings.get("transformer", ""))
    files = [*weight_files(folder.path / home), folder.path / home / "config.json"]
    digests = [folder.manifest.files.get(str(file.relative_to(folder.path))) or digest(file) for file in files]
    return blake2b(repr((digests, model.kind, model.graph_settings)).encode(), digest_size=8).hexdigest()


def write_fp32(model: Any, file: Path, outputs: Sequence[str]) -> None:
    """Write the fp32 graph of a module; batch and length are dynamic.

    Args:
        model: The module; its arguments are among ``input_ids``, ``attention_mask``, ``token_type_ids`` and ``features``.
        file: The file to write.
        outputs: Names of the module's outputs, in order.
    """
    import torch  # noqa: PLC0415 - only when called

    ids = torch.arange(24).reshape(2, 12) % 5  # every vocabulary has five tokens
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    arguments = inspect.signature(model.forward).parameters
    if "token_type_ids" in arguments:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    if "features" in arguments:
        inputs["features"] = torch.rand(2, 12, 3 if model.shape.tags else 2)
    axes = {name: {0: "batch"} if name in PER_TEXT else {0: "batch", 1: "length"} for name in (*inputs, *outputs)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about tracing and deprecation; the export compares texts of many lengths with torch
        names = {"input_names": list(inputs), "output_names": list(outputs), "dynamic_axes": axes}
        torch.onnx.export(model, tuple(inputs.values()), str(file), **names, opset_version=OPSET, dynamo=False)


def adds_only_mask(model: Any) -> bool:
    """Whether the attention of the backbone adds nothing but the padding mask to its scores."""
    return model.backbone.config.model_type in _PLAIN_ATTENTION


@dataclass(frozen=True)
class Parity:
    """Figures that compare the graphs of a model with torch, over the sample texts. A figure that a kind does not have is None.

    Attributes:
        texts: Number of sample texts.
        fp32_difference: Largest absolute difference between torch and the fp32 graph, over all outputs.
        int8_rank_correlation: Spearman's correlation between fp32 and int8 weights of each text, averaged over the texts; for a
            ranker the correlation between the scores of all pairs.
        int8_multiplier_difference: Mean absolute difference between the fp32 and int8 multipliers of an anchored model.
        int8_cosine_min: Smallest cosine between an fp32 and an int8 vector.
        int8_cosine_mean: Mean cosine between an fp32 and an int8 vector.
        int8_score_difference: Mean absolute difference of a ranker's scores, in standard deviations of the fp32 scores.
        dequantised_cosine_min: Smallest cosine between an fp32 vector and the vector computed in fp32 with the int8 graph's weights.
    """

    texts: int
    fp32_difference: float
    int8_rank_correlation: float | None = None
    int8_multiplier_difference: float | None = None
    int8_cosine_min: float | None = None
    int8_cosine_mean: float | None = None
    int8_score_difference: float | None = None
    dequantised_cosine_min: float | None = None

    def __str__(self) -> str:
        parts = [f"fp32 within {self.fp32_difference:.1g} of torch"]
        if self.int8_rank_correlation is not None:
            parts.append(f"int8 rank correlation {self.int8_rank_correlation:.4f}")
        elif self.int8_cosine_min is not None:
            parts.append(f"int8 cosine at least {self.int8_cosine_min:.4f}")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, float]:
        """The figures by name, for ``termweave.json`` and --json; those that the kind of model does not have are left out."""
        return {name: round(value, 8) for name, value in asdict(self).items() if value is not None}


def largest_difference(first: Outputs, second: Outputs) -> float:
    """The largest absolute difference between two models' outputs, over all texts and outputs; NaN if a difference is NaN."""
    pairs = [pair for both in zip(first, second, strict=True) for pair in zip(*both, strict=True)]
    differences = [np.abs(one - other).max() for one, other in pairs if one.size]
    return float(np.max(differences)) if differences else 0.0


def cosines(pairs: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> dict[str, float]:
    """The smallest and the mean cosine between the two unit vectors of each pair, as "cosine_min" and "cosine_mean"."""
    values = [float(one @ other) for one, other in pairs]
    return {"cosine_min": min(values), "cosine_mean": float(np.mean(values))}


def rank_correlation(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    """Spearman's correlation of each pair of value lists, averaged over the pairs; pairs of four values or fewer, or of equal values, do not count."""
    counted = [pair for pair in pairs if len(pair[0]) > 4 and np.ptp(pair[0]) > 0]
    correlations = [np.corrcoef([values.argsort().argsort() for values in pair])[0, 1] for pair in counted]
    return float(np.mean(correlations)) if correlations else 1.0


def sample_texts() -> list[str]:
    """English prose of many lengths that every Python brings along: its own language reference."""
    from pydoc_data.topics import topics  # noqa: PLC0415

    paragraphs = [" ".join(part.split()) for _, topic in sorted(topics.items()) for part in topic.split("\n\n")]
    prose = [text for text in paragraphs if len(text) > 40 and text.count(" ") > 6]
    special = ["", "word", "What is the capital of France?", " ".join(prose[:12])]
    count = _SAMPLE - len(special)
    return [*prose[:: max(1, len(prose) // count)][:count], *special]
