"""The kind "dense": any transformer encoder with pooling; one encoder for all texts, or one for documents and one for queries.

    vector = normalise(layers(pool(states of the tokens)))

The graph gives the states of all tokens, as exporters of such models write it; pooling, dense layers and length 1 are computed
here. `DenseSettings` says how texts are read. What a folder in the layout of sentence-transformers means is in `sentence_layout`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.kinds import graph_cache
from termweave.encoders.kinds.base import GraphInput, KindSettings, ModelKind, OpenModel
from termweave.encoders.kinds.pooling import ACTIVATIONS, MODES, DenseLayer, apply, pool, unit
from termweave.encoders.manifest import GRAPHS, TOKENIZER, ModelFolder
from termweave.encoders.onnx.parity import cosines, sample_texts
from termweave.errors import ModelError
from termweave.support.messages import is_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import Manifest
    from termweave.encoders.onnx.runtime import Outputs, Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind

#: The output of our own exports, and the names other exporters give it, best first.
STATES = "last_hidden_state"
_STATES_NAMES = (STATES, "token_embeddings", "hidden_states")
#: What `DenseSettings.query` holds.
_TOWER = {"hash", "max_length", "pooling", "settings", "files"}


@dataclass(frozen=True)
class DenseSettings(KindSettings):
    """How a dense model reads texts and makes vectors: `Manifest.settings` of the kind.

    Attributes:
        prompts: "query" and "document" -> the text that is put before every text of that sort.
        include_prompt: Whether the tokens of the prompt take part in the pooling.
        layers: Dense layers after the pooling, in order: ``{"file": ..., "activation": ..., "residual": ...}``.
        truncated: How many numbers of a vector are kept, before it gets length 1 (Matryoshka); 0: all.
        query_folder: Subfolder with a model folder for queries; "" for one encoder.
        query: The encoder of queries that lies in the same folder (a router of sentence-transformers): ``{"hash", "max_length",
            "pooling", "settings", "files"}``; empty for one encoder.
    """

    prompts: dict[str, str] = field(default_factory=dict)
    include_prompt: bool = True
    layers: list[dict[str, Any]] = field(default_factory=list)
    truncated: int = 0
    query_folder: str = ""
    query: dict[str, Any] = field(default_factory=dict)

    def problem(self, manifest: Manifest) -> str:
        """What is wrong with prompts, pooling or layers; "" if nothing is."""
        if not all(isinstance(text, str) for text in self.prompts.values()):
            return "prompts are texts"
        if not all(isinstance(getattr(self, name), sort) for name, sort in (("truncated", int), ("query", dict))):
            return "truncated is a number, and query a table"
        if self.query and not (self.query.keys() == _TOWER and is_hash(self.query["hash"])):
            return "query describes an encoder"
        if any(mode not in MODES for mode in manifest.pooling.split("+")):
            return f"pooling is one of {', '.join(MODES)}"
        if any(layer["activation"] not in ACTIVATIONS for layer in self.layers):
            return f"an activation is one of {', '.join(ACTIVATIONS)}"
        return ""

    def names(self) -> list[str]:
        """The files and subfolders that the settings name."""
        query = [self.query_folder] if self.query_folder else []
        return [*super().names(), *query, *(layer["file"] for layer in self.layers)]

    def prompt(self, kind: Kind) -> str:
        """The text that is put before a query or a document."""
        return self.prompts.get(kind, "")


class DenseModel(OpenModel):
    """One folder of the kind "dense", with one encoder or two."""

    def __init__(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> None:
        super().__init__(folder, threads, precision)
        self.settings = DenseSettings.from_manifest(self.manifest)
        self.reader = DenseReader(folder, self.settings)
        towers = DenseKind().towers(folder)
        self._query: DenseModel | None = None
        if towers["query"] is not folder:
            self._query = DenseModel(towers["query"], threads, precision)
            if self._query.manifest.dimension != self.manifest.dimension:
                raise ModelError(
                    f"The query encoder of {self.manifest.name!r} gives {self._query.manifest.dimension} numbers, "
                    f"the document encoder {self.manifest.dimension}.",
                    "Name two encoders that were trained together.",
                )
        self._output: str | None = None

    @property
    def query_model(self) -> OpenModel | None:
        """The encoder of queries inside this folder, where queries have one of their own."""
        return self._query

    @property
    def vocabulary(self) -> Any:
        """The `tokenizers.Tokenizer` behind the model."""
        return self.reader.tokenizer.tokenizer

    def runnable_folder(self) -> ModelFolder:
        """The folder with a graph: its own, or one that torch exported into the cache."""
        return graph_cache.with_graph(self.folder, DenseKind())

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included, however many of them the model reads."""
        return self.reader.tokenizer.lengths(texts)

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text."""
        if kind == "query" and self._query is not None:
            return self._query.embed(texts, kind)
        output = self._states_output()
        started = []
        for block in self.blocks(texts):
            ids, prompt = self.reader.read(block, kind)
            started.append((prompt, self.graph.start(ids, None, [output])))
        return [self.reader.vector(result[0], prompt) for prompt, finish in started for result in finish()]

    def _states_output(self) -> str:
        """The name under which the graph gives the states of the tokens."""
        if self._output is None:
            names = self.graph.outputs
            self._output = next((name for name in _STATES_NAMES if name in names), None)
            if self._output is None:
                raise ModelError(
                    f"The graph of {self.manifest.name!r} gives {', '.join(names)}, and not the states of its tokens ({STATES}).",
                    "Export the model with `termweave export`, or with optimum's task feature-extraction.",
                )
        return self._output


class DenseReader:
    """What surrounds the graph of a dense model: from texts to token ids, and from states to the vector."""

    def __init__(self, folder: ModelFolder, settings: DenseSettings) -> None:
        self.manifest, self.settings = folder.manifest, settings
        self.tokenizer = ModelTokenizer(folder.path / settings.transformer / TOKENIZER, lower=settings.lower)
        self.layers = [
            DenseLayer.read(folder.path / layer["file"], layer["activation"], residual=bool(layer.get("residual")))
            for layer in settings.layers
        ]
        self._prompt_tokens: dict[str, int] = {}

    def read(self, texts: Sequence[str], kind: Kind) -> tuple[list[NDArray[np.int64]], int]:
        """Token ids of each text with its prompt, and how many of the first tokens the pooling leaves out."""
        prompt = self.settings.prompt(kind)
        ids = self.tokenizer.encode([prompt + text for text in texts], self.manifest.max_length)
        return ids, 0 if self.settings.include_prompt or not prompt else self._tokens_of(prompt)

    def vector(self, states: NDArray[np.float32], prompt: int = 0) -> NDArray[np.float32]:
        """The unit vector of one text: states ``(n, d)`` -> ``(dimension,)``."""
        vector = apply(self.layers, pool(states, self.manifest.pooling, prompt)) if self._fits(states) else states[0]
        vector = vector[: self.settings.truncated or None]
        if len(vector) != self.manifest.dimension:
            raise ModelError(
                f"The graph of {self.manifest.name!r} gives vectors of {states.shape[-1]} numbers, "
                f"but its description says {self.manifest.dimension}.",
                "The graph belongs to another model: export it again with `termweave export`.",
            )
        return unit(vector)

    def _fits(self, states: NDArray[np.float32]) -> bool:
        """Whether the first dense layer reads vectors of the length that the pooling makes."""
        return not self.layers or self.layers[0].weight.shape[1] == states.shape[1] * len(self.manifest.pooling.split("+"))

    def _tokens_of(self, prompt: str) -> int:
        """Tokens of a prompt with the special tokens before it; the special token behind it does not count."""
        if prompt not in self._prompt_tokens:
            (ids,) = self.tokenizer.encode([prompt], self.manifest.max_length)
            (bare,) = self.tokenizer.encode([""], self.manifest.max_length)
            ends = len(bare) > 0 and len(ids) > 0 and ids[-1] == bare[-1]
            self._prompt_tokens[prompt] = len(ids) - ends
        return self._prompt_tokens[prompt]


class DenseKind(ModelKind):
    """The declaration of the kind "dense", which the docstring of this file describes."""

    name: ClassVar[str] = "dense"
    outputs: ClassVar[tuple[str, ...]] = ("dense",)
    graph_outputs: ClassVar[dict[str, bool]] = {STATES: True}
    least_cosine: ClassVar[float] = 0.9

    def open(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> DenseModel:
        """Open a folder for encoding."""
        return DenseModel(folder, threads, precision)

    def load_torch(self, folder: ModelFolder) -> Any:
        """The transformer as a module that gives the states of its last layer."""
        from termweave.encoders.models.transformer import StatesOfTokens  # noqa: PLC0415 - torch

        return StatesOfTokens.load(folder.path / DenseSettings.from_manifest(folder.manifest).transformer)

    def parity_sample(self, folder: ModelFolder, module: Any) -> list[GraphInput]:
        """Sample texts for the comparison of the graphs, read as documents."""
        del module
        ids, _ = DenseReader(folder, DenseSettings.from_manifest(folder.manifest)).read(sample_texts(), "document")
        return [GraphInput(row) for row in ids if len(row)]

    def compare(self, folder: ModelFolder, expected: Outputs, given: Outputs) -> dict[str, float]:
        """The cosines of the vectors."""
        reader = DenseReader(folder, DenseSettings.from_manifest(folder.manifest))
        pairs = zip(expected, given, strict=True)
        return cosines([(reader.vector(one[0]), reader.vector(other[0])) for one, other in pairs])

    def towers(self, folder: ModelFolder) -> dict[str, ModelFolder]:
        """The encoder of documents and the encoder of queries; the latter may be a model folder inside this one."""
        settings = DenseSettings.from_manifest(folder.manifest)
        if settings.query_folder:
            return {"document": folder, "query": ModelFolder.read(folder.path / settings.query_folder)}
        return {"document": folder, "query": _second_tower(folder, settings) if settings.query else folder}


def _second_tower(folder: ModelFolder, settings: DenseSettings) -> ModelFolder:
    """The encoder of queries that lies in the same folder; its graphs lie beside its weights."""
    own = {**settings.query["settings"], "query": {}}
    manifest = replace(folder.manifest, **{**settings.query, "settings": own})
    home = str(own.get("transformer", ""))
    if home == settings.transformer:
        return ModelFolder(folder.path, manifest, {name: graph for name in GRAPHS if (graph := folder.graph(name))})
    names = {name: f"{home}/{file}" for name, file in GRAPHS.items()}
    return ModelFolder(
        folder.path, manifest, {name: folder.path / file for name, file in names.items() if file in manifest.files}
    )
