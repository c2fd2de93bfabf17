"""Read the parameters of a BERT encoder from an ONNX graph, and make a folder in the layout of sentence-transformers of the graph.

Training and export need the weights as safetensors; `write_weights` reads the weights from the graph when they are first needed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.encoders.kinds.sentence_modules import written
from termweave.encoders.manifest import SENTENCE_GRAPH, TOKENIZER, WEIGHTS, weight_files
from termweave.encoders.onnx.runtime import open_session
from termweave.errors import ModelError
from termweave.support import paths
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The parameter whose shape is the vocabulary by the width of the states.
_WORDS = "embeddings.word_embeddings.weight"
#: Entry of config.json -> the parameter whose length it is.
_LENGTHS = {
    "intermediate_size": "encoder.layer.0.intermediate.dense.bias",
    "max_position_embeddings": "embeddings.position_embeddings.weight",
    "type_vocab_size": "embeddings.token_type_embeddings.weight",
}
#: The heads that an imported model may have, the most frequent numbers first.
_HEADS = (12, 8, 16, 4, 6, 2, 20, 24, 32, 1)
#: The largest difference between the hidden states of an imported graph and those of torch with the weights read from it.
_TOLERANCE = 1e-3
_AGAIN = "Give the ONNX graph of a BERT encoder that was exported without optimisations."


def write_folder(
    folder: Path, graph: bytes, tokenizer: bytes, shape: Mapping[str, int], pooling: str, prompts: Mapping[str, str]
) -> None:
    """Write a model's folder in the layout of sentence-transformers. Afterwards the folder is complete, or it does not exist.

    Args:
        folder: The folder to write; an existing one is replaced.
        graph: ONNX graph from token ids to hidden states.
        tokenizer: Content of tokenizer.json.
        shape: Entries of BERT's config.json.
        pooling: "mean" or "cls".
        prompts: "query" and "document" -> text before a query or document.

    Raises:
        OSError: The folder cannot be written.
    """
    vocabulary = json.loads(tokenizer)["model"]["vocab"]
    length = 512
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "intermediate_size": 4 * shape["hidden_size"],
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": length,
        "type_vocab_size": 2,
        "vocab_size": len(vocabulary),
        **shape,
    }
    files: dict[str, Any] = {
        "config.json": config,
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "model_max_length": length},
        **written(shape["hidden_size"], pooling, length, prompts),
    }
    staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        for name, content in files.items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
        (staging / TOKENIZER).write_bytes(tokenizer)
        (staging / SENTENCE_GRAPH).parent.mkdir()
        (staging / SENTENCE_GRAPH).write_bytes(graph)
        shutil.rmtree(folder, ignore_errors=True)
        staging.chmod(0o755)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_weights(folder: Path) -> None:
    """Write the weights of a folder's graph as ``model.safetensors``, unless this file exists.

    Raises:
        ModelError: The graph does not hold the parameters of a BERT encoder.
    """
    if weight_files(folder) or not (folder / SENTENCE_GRAPH).is_file():
        return
    from safetensors.numpy import save_file  # noqa: PLC0415 - the extra `train`

    staging = folder / f".{WEIGHTS}"
    save_file(parameters(folder / SENTENCE_GRAPH), staging, metadata={"format": "pt"})
    staging.replace(folder / WEIGHTS)


def parameters(graph: Path) -> dict[str, NDArray[np.float32]]:
    """The parameters of a BERT encoder in an ONNX graph, by the names of transformers' BertModel.

    Biases, embeddings and normalisations keep their names in a graph. The matrix of a product is anonymous and transposed: it is the
    weight of the layer whose bias is added next.

    Raises:
        ModelError: The graph is damaged, or is not that of a BERT encoder.
    """
    import onnx  # noqa: PLC0415 - the extra `train`

    try:
        model = onnx.load(str(graph))
        tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    except Exception as error:  # protobuf's errors have no common class; the bytes of a tensor may be other than its shape says
        raise ModelError(f"{graph} is not an ONNX graph, or was cut short: {first_line(error)}.", _AGAIN) from error
    consumers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    matrices = {}
    for node in model.graph.node:
        if node.op_type != "MatMul" or len(node.input) != 2 or not node.output or node.input[1] not in tensors:
            continue
        added = [name for after in consumers.get(node.output[0], []) if after.op_type == "Add" for name in after.input]
        biases = [name for name in added if name in tensors]
        if len(biases) == 1 and biases[0].endswith(".bias"):
            matrices[biases[0].removesuffix("bias") + "weight"] = node.input[1]
    state = {name: array for name, array in tensors.items() if name.endswith((".weight", ".bias"))}
    state |= {name: np.ascontiguousarray(tensors[source].T) for name, source in matrices.items()}
    prefix = next((name.removesuffix(_WORDS) for name in state if name.endswith(_WORDS)), "")
    state = {name.removeprefix(prefix): array for name, array in state.items() if array.dtype == np.float32}
    if _WORDS not in state or "encoder.layer.0.attention.self.query.weight" not in state:
        raise ModelError(f"{graph} does not hold the parameters of a BERT encoder.", _AGAIN)
    return state


def shape_of(state: Mapping[str, NDArray[np.float32]], heads: int) -> dict[str, int]:
    """The entries of BERT's config.json that follow from the parameters `state` and the number of attention heads.

    Raises:
        ModelError: A parameter is missing or has another shape. A name alone makes no layers: "encoder.layer.1000000000" would fill the memory.
    """
    layers = {name.split(".")[2] for name in state if name.startswith("encoder.layer.")}
    shape = {"num_hidden_layers": len(layers), "num_attention_heads": heads}
    with suppress(ValueError, KeyError, TypeError):
        shape["vocab_size"], shape["hidden_size"] = state[_WORDS].shape
        shape |= {key: len(state[name]) for key, name in _LENGTHS.items()}
    if not _LENGTHS.keys() <= shape.keys() or not all(shape.values()) or layers != set(map(str, range(len(layers)))):
        raise ModelError("The graph does not hold all parameters of a BERT encoder, each in its shape.", _AGAIN)
    return shape


def import_graph(graph: Path, tokenizer: Path, name: str, *, pooling: str, prompts: Mapping[str, str]) -> Path:
    """Make a model folder of a user's own BERT graph in `paths.models`, where models are looked up by name; return the folder.

    The number of attention heads is found by trial: with the right number torch computes the same states as the graph.

    Raises:
        ModelError: The graph is not that of a BERT encoder, or torch computes other states from the graph's parameters.
        OSError: A file cannot be read or written.
    """
    try:
        vocabulary = dict(json.loads(tokenizer.read_bytes())["model"]["vocab"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{tokenizer} is not a tokenizer.json of BERT.", "Put the one of the graph beside it.") from error
    state = parameters(graph)
    dimension = shape_of(state, 1)["hidden_size"]
    if len(vocabulary) > (words := len(state[_WORDS])):
        raise ModelError(f"{tokenizer} has {len(vocabulary):,} tokens, the graph {words:,}.", "Use the graph's tokenizer.json.")
    heads = next((heads for heads in _HEADS if dimension % heads == 0 and _same_states(graph, state, heads)), None)
    if heads is None:
        hint = "Save the model with sentence-transformers and give that folder."
        raise ModelError(f"torch computes other states than {graph} from its parameters, so it is not a plain BERT.", hint)
    folder = paths.models() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_folder(folder, graph.read_bytes(), tokenizer.read_bytes(), shape_of(state, heads), pooling, prompts)
    write_weights(folder)
    return folder


def _same_states(graph: Path, state: Mapping[str, NDArray[np.float32]], heads: int) -> bool:
    """Whether torch computes the hidden states of the graph with this number of heads."""
    import torch  # noqa: PLC0415 - seconds; the extra `train`
    from transformers import BertConfig, BertModel  # noqa: PLC0415

    model = BertModel(BertConfig(**shape_of(state, heads)), add_pooling_layer=False).eval()
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if other := [name for name, shape in shapes.items() if name not in state or state[name].shape != shape]:
        raise ModelError(f"{graph} lacks parameters of BERT, or has them in another shape: {', '.join(other[:3])}.", _AGAIN)
    model.load_state_dict({name: torch.from_numpy(state[name].copy()) for name in shapes})
    ids = np.arange(1000, 1012, dtype=np.int64)[None] % len(state[_WORDS])
    session = open_session(graph)
    feed = {each.name: np.zeros_like(ids) if "type" in each.name else np.ones_like(ids) for each in session.get_inputs()}
    feed["input_ids"] = ids
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).last_hidden_state.numpy()
    try:
        states = np.asarray(session.run(None, feed)[0], np.float32)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise ModelError(f"{graph} cannot be run on token ids: {first_line(error)}.", _AGAIN) from error
    return bool(states.shape == expected.shape and np.abs(states - expected).max() < _TOLERANCE)
