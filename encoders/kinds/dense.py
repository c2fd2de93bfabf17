"""The kind "dense": any transformer encoder with pooling; one encoder for all texts, or one for documents and one for queries.

    vector = normalise(layers(pool(states of the tokens)))

The graph gives the states of all tokens, as exporters of such models write it; pooling (on a GPU: `onnx.pooling_graph`), dense layers
and length 1 are computed here. `DenseSettings` says how texts are read. What a folder in the layout of sentence-transformers means is in `sentence_layout`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.kinds.base import OpenModel, PromptSettings
from termweave.encoders.kinds.pooling import ACTIVATIONS, MODES, DenseLayer, pool, token_factors, unit
from termweave.encoders.manifest import GRAPHS, TOKENIZER, ModelFolder
from termweave.encoders.onnx.parity import cosines, sample_texts
from termweave.encoders.onnx.pooling_graph import POOLED, STATES, states_of
from termweave.encoders.onnx.runtime import GraphInput
from termweave.errors import ModelError
from termweave.support.messages import is_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.manifest import Manifest
    from termweave.encoders.onnx.runtime import Outputs, Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind

#: What `DenseSettings.query` holds.
_TOWER = {"hash", "max_length", "pooling", "settings", "files"}
_EXPORT = "Export the model with `termweave export`, or with optimum's task feature-extraction."
_OTHER_MODEL = "The graph belongs to another model: export it again with `termweave export`."


@dataclass(frozen=True)
class DenseSettings(PromptSettings):
    """How a dense model reads texts and makes vectors: `Manifest.settings` of the kind.

    Attributes:
        include_prompt: Whether the tokens of the prompt take part in the pooling.
        layers: Dense layers after the pooling, in order: ``{"file": ..., "activation": ..., "residual": ...}``.
        truncated: How many numbers of a vector are kept, before it gets length 1 (Matryoshka); 0: all.
        query_folder: Subfolder with a model folder for queries; "" for one encoder.
        query: The encoder of queries that lies in the same folder (a router of sentence-transformers): ``{"hash", "max_length",
            "pooling", "settings", "files"}``; empty for one encoder.
    """

    include_prompt: bool = True
    layers: list[dict[str, Any]] = field(default_factory=list)
    truncated: int = 0
    query_folder: str = ""
    query: dict[str, Any] = field(default_factory=dict)

    def problem(self, manifest: Manifest) -> str:
        """What is wrong with prompts, pooling or layers; "" if nothing is."""
        if problem := super().problem(manifest):
            return problem
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


class DenseModel(OpenModel):
    """One folder of the kind "dense", with one encoder or two."""

    kind: ClassVar[str] = "dense"
    graph_outputs: ClassVar[tuple[str, ...]] = (STATES,)
    least_cosine: ClassVar[float] = 0.9

    def __init__(self, folder: ModelFolder, threads: int | None = None, precision: Precision | None = None) -> None:
        super().__init__(folder, threads, precision)
        self.settings = DenseSettings.from_manifest(self.manifest)
        self.tokenizer = ModelTokenizer(folder.path / self.settings.transformer / TOKENIZER, lower=self.settings.lower)
        self._layers = [
            (
                layer["file"],
                DenseLayer.read(folder.path / layer["file"], layer["activation"], residual=bool(layer.get("residual"))),
            )
            for layer in self.settings.layers
        ]
        self._prompt_tokens: dict[str, int] = {}
        query = self.query_folder(folder)
        self._query = DenseModel(query, threads, precision) if query else None
        if self._query and self._query.manifest.dimension != self.manifest.dimension:
            raise ModelError(
                f"The query encoder of {self.manifest.name!r} gives {self._query.manifest.dimension} numbers, "
                f"the document encoder {self.manifest.dimension}.",
                "Name two encoders that were trained together.",
            )

    @classmethod
    def query_folder(cls, folder: ModelFolder) -> ModelFolder | None:
        """The folder of the encoder of queries: a model folder inside this one, or this folder with other files; None: one encoder."""
        settings = DenseSettings.from_manifest(folder.manifest)
        if settings.query_folder:
            return ModelFolder.read(folder.path / settings.query_folder)
        return _second_tower(folder, settings) if settings.query else None

    @property
    def query_model(self) -> OpenModel | None:
        """The encoder of queries inside this folder, where queries have one of their own."""
        return self._query

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text."""
        if kind == "query" and self._query is not None:
            return self._query.embed(texts, kind)
        started = []
        pooled = POOLED in self.graph.outputs and "max" not in self.manifest.pooling.split("+")
        output = POOLED if pooled else self._states_output
        for block in self.blocks(texts):
            inputs, prompt = self._read(block, kind)
            if pooled:
                inputs = [text._replace(pooling=token_factors(len(text.ids), self.manifest.pooling, prompt)) for text in inputs]
            started.append((prompt, self.graph.start(inputs, [output])))
        return [
            self._vector(result[0].ravel() if pooled else self._pooled(result[0], prompt))
            for prompt, finish in started
            for result in finish()
        ]

    @cached_property
    def _states_output(self) -> str:
        """The name under which the graph gives the states of the tokens."""
        names = self.graph.outputs
        if (output := states_of(names)) is None:
            raise ModelError(
                f"The graph of {self.manifest.name!r} gives {', '.join(names)}, and not the states of its tokens ({STATES}).",
                _EXPORT,
            )
        return output

    def _read(self, texts: Sequence[str], kind: Kind) -> tuple[list[GraphInput], int]:
        """What the graph reads of each text with its prompt, and how many of the first tokens the pooling leaves out."""
        prompt = self.settings.prompt(kind)
        ids = self.tokenizer.encode([prompt + text for text in texts], self.manifest.max_length)
        left_out = 0 if self.settings.include_prompt or not prompt else self._tokens_of(prompt)
        return [GraphInput(row) for row in ids], left_out

    def _pooled(self, states: NDArray[np.float32], prompt: int = 0) -> NDArray[np.float32]:
        """The states of one text in one vector: ``(n, d)`` -> ``(d,)``, or ``(m * d,)`` for m modes of pooling."""
        if states.ndim != 2:
            raise ModelError(
                f"The graph of {self.manifest.name!r} gives one vector as {self._states_output}, and not the states of its tokens.",
                _EXPORT,
            )
        return pool(states, self.manifest.pooling, prompt)

    def _vector(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The unit vector of one text, from its pooled states: ``(m * d,) -> (dimension,)``."""
        for name, layer in self._layers:
            if len(vector) != layer.weight.shape[1]:
                raise ModelError(
                    f"The dense layer {name} of {self.manifest.name!r} takes vectors of {layer.weight.shape[1]} numbers, "
                    f"and what comes before it gives {len(vector)}.",
                    _OTHER_MODEL,
                )
            vector = layer(vector)
        vector = vector[: self.settings.truncated or None]
        if len(vector) != self.manifest.dimension:
            raise ModelError(
                f"The graph of {self.manifest.name!r} gives vectors of {len(vector)} numbers, "
                f"but its description says {self.manifest.dimension}.",
                _OTHER_MODEL,
            )
        return unit(vector)

    def _tokens_of(self, prompt: str) -> int:
        """Tokens of a prompt with the special tokens before it; the special token behind it does not count."""
        if prompt not in self._prompt_tokens:
            (ids,) = self.tokenizer.encode([prompt], self.manifest.max_length)
            (bare,) = self.tokenizer.encode([""], self.manifest.max_length)
            ends = len(bare) > 0 and len(ids) > 0 and ids[-1] == bare[-1]
            self._prompt_tokens[prompt] = len(ids) - ends
        return self._prompt_tokens[prompt]

    def load_torch(self) -> Any:
        """The transformer as a module that gives the states of its last layer."""
        from termweave.encoders.models.transformer import StatesOfTokens  # noqa: PLC0415 - torch

        return StatesOfTokens.load(self.folder.path / self.settings.transformer)

    def parity_sample(self) -> list[GraphInput]:
        """Sample texts for the comparison of the graphs, read as documents."""
        return [text for text in self._read(sample_texts(), "document")[0] if len(text.ids)]

    def compare(self, expected: Outputs, given: Outputs) -> dict[str, float]:
        """The cosines of the vectors."""
        pairs = zip(expected, given, strict=True)
        return cosines([(self._vector(self._pooled(one[0])), self._vector(self._pooled(other[0]))) for one, other in pairs])


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
