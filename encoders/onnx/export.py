"""A trained model folder -> its graphs in fp32, in int8 and for GPUs, and the proof that they say the same.

One graph: inputs ``input_ids`` and ``attention_mask`` int64 ``(batch, length)``, ``features`` float32 ``(batch, length, 2)``;
outputs ``document`` and ``query`` ``(batch, length)`` and ``dense`` ``(batch, d)``. The int8 one, which only a CPU runs, takes one text
and no mask, and its attention is one operator (`encoders.single`: 10 % less time).

Measured on MiniLM-L6 (AMD EPYC with VNNI, 2 threads, one text at a time, mean length 175, texts/s; cosine of the vector to fp32):

=====================================  ======  ===========  =============
graph                                  fp32    int8         cosine (min)
=====================================  ======  ===========  =============
legacy exporter, eager attention       45.3    **99.8**     .989
dynamo exporter                        40.7    88.3         .989
legacy, uint8 weights                  --      58.9         .989
legacy, MatMulNBits 8 bit, blocks 64   --      58.6         .999
=====================================  ======  ===========  =============
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.folder import GRAPHS, TOKENIZER, ModelFolder, digests, write_manifest
from termweave.encoders.form import place_tags
from termweave.encoders.pieces import PieceTokenizer
from termweave.encoders.runtime import OnnxModel, Outputs, Precision, onnx_runtime
from termweave.encoders.single import write_single
from termweave.encoders.weighting import multiplier
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

OUTPUTS = ("document", "query", "dense")
OPSET = 20  # the latest the legacy exporter writes
#: Largest difference to torch, over all outputs, with which a graph is still written.
TOLERANCE = 1e-4
#: Texts that the graphs are compared on.
_SAMPLE = 64
_WORK = ".export-"


@dataclass(frozen=True)
class Parity:
    """How close the graphs are to torch, over the sample texts.

    Attributes:
        texts: Number of sample texts.
        fp32_difference: Largest absolute difference between torch and the fp32 graph, over all outputs.
        int8_rank_correlation: Spearman's, between fp32 and int8 document multipliers, over the pieces of each text; mean.
        int8_multiplier_difference: Mean absolute difference of the multipliers.
        int8_cosine_min: Smallest cosine between an fp32 and an int8 vector.
        int8_cosine_mean: Mean of the same.
        dequantised_cosine_min: Smallest cosine between an fp32 vector and one of int8's weights computed in fp32.
    """

    texts: int
    fp32_difference: float
    int8_rank_correlation: float
    int8_multiplier_difference: float
    int8_cosine_min: float
    int8_cosine_mean: float
    dequantised_cosine_min: float

    def __str__(self) -> str:
        return f"fp32 within {self.fp32_difference:.1g} of torch, int8 rank correlation {self.int8_rank_correlation:.4f}"

    def as_dict(self) -> dict[str, float]:
        """For ``termweave.json`` and --json."""
        return {name: round(value, 8) for name, value in asdict(self).items()}


def export(path: Path) -> Parity:
    """Write the graphs into a trained model folder and record digests and parity in its ``termweave.json``.

    Args:
        path: A folder that training wrote.

    Returns:
        The parity figures, over `sample_texts`.

    Raises:
        ModelError: The folder cannot be read, or the fp32 graph differs from torch by more than `TOLERANCE`; then nothing is written.
    """
    from termweave.encoders.models.store import load  # noqa: PLC0415 - torch

    model, folder = load(path)
    sample = sample_texts()
    pieces = PieceTokenizer(path / TOKENIZER).encode(sample, folder.manifest.max_length)
    ids = [each.ids for each in pieces]
    rng = np.random.default_rng(0)
    features = [rng.uniform(0, 1, (len(each), 2)).astype(np.float32) for each in ids]
    if model.shape.tags:
        features = [np.column_stack((each, place_tags(piece.words))) for each, piece in zip(features, pieces, strict=True)]
    for left in path.glob(f"{_WORK}*"):  # of an export that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path, prefix=_WORK) as work:
        scratch = Path(work)
        write_fp32(model, scratch / GRAPHS["fp32"])
        expected = run_torch(model, ids, features)
        difference = largest_difference(expected, _run(folder, scratch, "fp32", ids, features))
        if not difference <= TOLERANCE:  # NaN fails too
            raise ModelError(
                f"The ONNX graph differs from torch by {difference:.2g}, more than {TOLERANCE:.2g}; nothing was written.",
                "Report it with the versions of torch and onnxruntime.",
            )
        write_int8(scratch / GRAPHS["fp32"], scratch / GRAPHS["int8"], heads=attention_heads(model))
        write_dequantised(*(scratch / GRAPHS[each] for each in ("fp32", "int8", "dequantised")))
        int8, dequantised = (_run(folder, scratch, each, ids, features) for each in ("int8", "dequantised"))
        parity = _compare(expected, int8, dequantised, difference)
        for name in GRAPHS.values():
            shutil.move(scratch / name, path / name)
    quantisation = {"method": "dynamic int8, per channel, heads in fp32", "opset": OPSET, "parity": parity.as_dict()}
    files, before = digests(path), folder.manifest
    if "ndcg" in before.quantisation and files == before.files:  # measured with these very graphs
        quantisation["ndcg"] = before.quantisation["ndcg"]
    write_manifest(path, replace(before, quantisation=quantisation, files=files))
    return parity


def ndcg_said(found: Mapping[str, Any]) -> str:
    """What int8 costs, as training measured it (`training.precision`), in words."""
    parts = [
        f"{name} {found[output]['fp32']:.4f} in fp32, {found[output]['int8']:.4f} in int8 ({found[output]['change']:+.4f})"
        for output, name in (("weights", "weights"), ("dense", "vectors"))
        if output in found
    ]
    return f"nDCG@10 of {found['questions']} held-out questions in {found['documents']} documents: {'; '.join(parts)}"


def write_fp32(model: Any, file: Path, outputs: Sequence[str] = OUTPUTS) -> None:
    """The fp32 graph of a `JointModel` or a `StatesOnly`, batch and length dynamic."""
    import torch  # noqa: PLC0415 - only when called

    ids = torch.arange(24).reshape(2, 12) % 5  # any vocabulary has five pieces
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if "states" not in outputs:
        inputs["features"] = torch.rand(2, 12, 3 if model.shape.tags else 2)
    axes = {name: {0: "batch"} if name == "dense" else {0: "batch", 1: "length"} for name in (*inputs, *outputs)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about tracing and deprecation; parity over many lengths is checked by `export`
        torch.onnx.export(
            model,
            tuple(inputs.values()),
            str(file),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def attention_heads(model: Any) -> int:
    """Of each layer of the backbone."""
    return int(model.backbone.config.num_attention_heads)


def write_int8(fp32: Path, file: Path, *, heads: int) -> None:
    """Quantise all matrices and the embedding tables, per channel; the weight heads stay as they are (100 kB, and all of the weights).

    Args:
        fp32: The graph `write_fp32` wrote.
        file: To be written; for one text at a time (`encoders.single`).
        heads: Of an attention.
    """
    import onnx  # noqa: PLC0415

    onnx_runtime()
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415

    kept = [node.name for node in onnx.load(fp32, load_external_data=False).graph.node if "/heads/" in node.name]
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it recommends a pre-processing that changes nothing here
    try:
        quantize_dynamic(fp32, file, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=kept)
    finally:
        logging.root.setLevel(level)
    write_single(file, file, heads)


def write_dequantised(fp32: Path, int8: Path, file: Path) -> None:
    """A graph that computes in fp32 with the weights of the int8 one: for GPUs, which have no kernels for dynamic int8.

    The weights are not stored twice: the graph points into the int8 file beside it (ONNX external data) and turns them back
    by ``DequantizeLinear``, so that it adds 2 % to what is shipped and not 90 MB.

    Args:
        fp32: The graph `write_fp32` wrote.
        int8: The graph `write_int8` made of it; it must lie beside `file`.
        file: To be written.
    """
    import onnx  # noqa: PLC0415

    graph = onnx.load(fp32)
    content = int8.read_bytes()
    stored = {each.name: each for each in onnx.load(int8).graph.initializer}
    kept, nodes = [], []
    for weight in graph.graph.initializer:
        quantised = stored.get(f"{weight.name}_quantized")
        if quantised is None:
            kept.append(weight)
            continue
        parts = [stored[f"{weight.name}{part}"] for part in ("_quantized", "_scale", "_zero_point")]
        # Per channel means per column (`quantize_dynamic`); a table of embeddings has one scale.
        axis = {"axis": len(quantised.dims) - 1} if parts[1].dims else {}
        nodes.append(onnx.helper.make_node("DequantizeLinear", [part.name for part in parts], [weight.name], **axis))
        length = len(quantised.raw_data)
        offset = content.find(quantised.raw_data)
        onnx.external_data_helper.set_external_data(quantised, int8.name, offset, length)
        quantised.ClearField("raw_data")
        kept += parts
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
    nodes += graph.graph.node
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    file.write_bytes(graph.SerializeToString())


def run_torch(model: Any, ids: Sequence[NDArray[np.int64]], features: Sequence[NDArray[np.float32]]) -> Outputs:
    """What torch says, text by text."""
    import torch  # noqa: PLC0415

    results = []
    with torch.no_grad():
        for each, scalars in zip(ids, features, strict=True):
            row = torch.from_numpy(each)[None]
            outputs = model(row, torch.ones_like(row), torch.from_numpy(scalars)[None])
            results.append([output[0].numpy() for output in outputs])
    return results


def largest_difference(first: Outputs, second: Outputs) -> float:
    """Over all texts and outputs."""
    return max(
        float(np.abs(a - b).max()) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )


def sample_texts() -> list[str]:
    """English prose of many lengths that every Python brings along: its own language reference."""
    from pydoc_data.topics import topics  # noqa: PLC0415

    paragraphs = [" ".join(part.split()) for _, topic in sorted(topics.items()) for part in topic.split("\n\n")]
    prose = [each for each in paragraphs if len(each) > 40 and each.count(" ") > 6]
    special = ["", "word", "What is the capital of France?", " ".join(prose[:12])]
    count = _SAMPLE - len(special)
    return [*prose[:: max(1, len(prose) // count)][:count], *special]


def _run(
    folder: ModelFolder,
    scratch: Path,
    precision: Precision,
    ids: Sequence[NDArray[np.int64]],
    features: Sequence[NDArray[np.float32]],
) -> Outputs:
    alone = ModelFolder(scratch, replace(folder.manifest, files={GRAPHS[precision]: ""}))
    return OnnxModel(alone, precision=precision).run(ids, features, OUTPUTS)


def _compare(expected: Outputs, int8: Outputs, dequantised: Outputs, difference: float) -> Parity:
    pairs = [
        (multiplier(one[0].astype(float)), multiplier(other[0].astype(float))) for one, other in zip(expected, int8, strict=True)
    ]
    correlations = [_spearman(one, other) for one, other in pairs if len(one) > 4 and np.ptp(one) > 0]
    cosines, on_gpu = (
        [float(one[2] @ other[2]) for one, other in zip(expected, given, strict=True)] for given in (int8, dequantised)
    )
    return Parity(
        texts=len(expected),
        fp32_difference=difference,
        int8_rank_correlation=float(np.mean(correlations)) if correlations else 1.0,
        int8_multiplier_difference=float(np.mean(np.abs(np.concatenate([one - other for one, other in pairs])))),
        int8_cosine_min=min(cosines),
        int8_cosine_mean=float(np.mean(cosines)),
        dequantised_cosine_min=min(on_gpu),
    )


def _spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    ranks = [values.argsort().argsort().astype(np.float64) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
