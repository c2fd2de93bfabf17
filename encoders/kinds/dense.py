"""The kind "dense": a transformer encoder with pooling; one encoder serves all texts, or documents and queries have one each.

    vector = normalise(layers(pool(states of the tokens)))

The graph gives the states of all tokens, as exporters of such models write it; pooling (on a GPU: `onnx.runtime.with_pooling`), dense layers
and length 1 are computed here. `DenseSettings` says how texts are read. What a folder in the layout of sentence-transformers means is in `sentence_layout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.encoders.kinds.base import OpenModel, PromptSettings
from termweave.encoders.kinds.pooling import ACTIVATIONS, MODES, DenseLayer, pool, token_factors, unit
from termweave.encoders.manifest import GRAPHS, TOKENIZER, Manifest, ModelFolder
from termweave.encoders.onnx.checked_graphs import cosines, sample_texts
from termweave.encoders.onnx.runtime import POOLED, STATES, GraphInput, Outputs, states_of
from termweave.errors import ModelError
from termweave.support.messages import is_hash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.term_weighting import Kind

#: What `DenseSettings.query` holds.
_TOWER = {"hash", "max_length", "pooling", "settings", "files"}
_EXPORT = "Export the model with `termweave export`, or with optimum's task feature-extraction."


@dataclass(frozen=True)
class DenseSettings(PromptSettings):
    """The settings of a dense model (`Manifest.settings`): the way from a text to its vector.

    Attributes:
        include_prompt: Whether the tokens of the prompt take part in the pooling.
        layers: Dense layers after the pooling, in order: ``{"file": ..., "activation": ..., "residual": ...}``.
        truncated: How many numbers of a vector are kept before it is scaled to length 1 (Matryoshka models); 0: all.
        query_folder: Subfolder that is the model folder of a separate query encoder; "": there is no such subfolder.
        query: Description of a separate query encoder in the same folder (a router of sentence-transformers): ``{"hash",
            "max_length", "pooling", "settings", "files"}``; {}: there is none.
    """

    include_prompt: bool = True
    layers: list[dict[str, Any]] = field(default_factory=list)
    truncated: int = 0
    query_folder: str = ""
    query: dict[str, Any] = field(default_factory=dict)

    def problem(self, manifest: Manifest) -> str:
        """The fault in prompts, pooling or layers, as a clause for a message; "" if all are right."""
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
        """All files and subfolders that the settings name."""
        query = [self.query_folder] if self.query_folder else []
        return [*super().names(), *query, *(layer["file"] for layer in self.layers)]


class DenseModel(OpenModel):
    """One folder of the kind "dense", with one encoder or two."""

    kind: ClassVar[str] = "dense"
    graph_outputs: ClassVar[tuple[str, ...]] = (STATES,)
    least_cosine: ClassVar[float] = 0.9

    def open(self) -> None:
        """Read the settings, the tokeniser, the dense layers, and the encoder of queries."""
        self.settings = DenseSettings.from_manifest(self.manifest)
        home = self.folder.path
        self.tokenizer = ModelTokenizer(home / self.settings.transformer / TOKENIZER, lower=self.settings.lower)
        layers = self.settings.layers
        self._layers = [DenseLayer.read(home / layer["file"], layer["activation"], layer.get("residual")) for layer in layers]
        query = self.query_folder(self.folder)
        if query is not None:
            self.manifest.check_dimension_of(query.manifest)
            self.query_model = DenseModel(query, self.threads, self.precision)

    @classmethod
    def query_folder(cls, folder: ModelFolder) -> ModelFolder | None:
        """The folder of the separate query encoder; None: one encoder serves both queries and documents.

        It is a subfolder of this folder, or this folder itself when its files lie beside the document encoder's under other names.
        """
        settings = DenseSettings.from_manifest(folder.manifest)
        if settings.query_folder:
            return ModelFolder.read(folder.path / settings.query_folder)
        if not settings.query:
            return None
        of_queries = {**settings.query["settings"], "query": {}}
        manifest = replace(folder.manifest, **{**settings.query, "settings": of_queries})
        home = str(of_queries.get("transformer", ""))
        if home == settings.transformer:
            graphs = {name: graph for name in GRAPHS if (graph := folder.graph(name))}
        else:  # the graphs lie beside the weights
            graphs = {name: folder.path / home / file for name, file in GRAPHS.items() if f"{home}/{file}" in manifest.files}
        return ModelFolder(folder.path, manifest, graphs)

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text."""
        if kind == "query" and self.query_model is not None:
            return self.query_model.embed(texts, kind)
        prompt = self.settings.prompt(kind)
        skipped = self._skipped(prompt)
        pooled = POOLED in self.graph.outputs and "max" not in self.manifest.pooling.split("+")

        def read(block: Sequence[str]) -> list[GraphInput]:
            inputs = self.token_inputs([prompt + text for text in block])
            if not pooled:
                return inputs
            return [text._replace(pooling=token_factors(len(text.ids), self.manifest.pooling, skipped)) for text in inputs]

        results = self.run(texts, [POOLED if pooled else self._states_output], read)
        return [self._vector(result[0].ravel() if pooled else self._pooled(result[0], skipped)) for result in results]

    @cached_property
    def _states_output(self) -> str:
        """The name under which the graph gives the states of the tokens."""
        names = self.graph.outputs
        if (output := states_of(names)) is None:
            problem = f"The graph of {self.manifest.name!r} gives {', '.join(names)}, and not the states of tokens ({STATES})."
            raise ModelError(problem, _EXPORT)
        return output

    def _skipped(self, prompt: str) -> int:
        """Number of tokens at the beginning that the pooling leaves out: those of the prompt, with the special tokens before the prompt."""
        if self.settings.include_prompt or not prompt:
            return 0
        ids, bare = self.tokenizer.encode([prompt, ""], self.manifest.max_length)
        return len(ids) - bool(len(bare) and len(ids) and ids[-1] == bare[-1])

    def _pooled(self, states: NDArray[np.float32], skipped: int = 0) -> NDArray[np.float32]:
        """Pool the states of one text's n tokens into one vector: ``(n, d)`` -> ``(d,)``, or ``(m * d,)`` for m modes of pooling."""
        if states.ndim != 2:
            raise ModelError(f"{self._states_output} of {self.manifest.name!r} is one vector, not the states of tokens.", _EXPORT)
        return pool(states, self.manifest.pooling, skipped)

    def _vector(self, pooled: NDArray[np.float32]) -> NDArray[np.float32]:
        """Make the unit vector of one text from its pooled states: ``(m * d,) -> (dimension,)``."""
        vector = pooled
        for layer in self._layers:
            vector = layer(vector) if len(vector) == layer.weight.shape[1] else vector[:0]
        vector = vector[: self.settings.truncated or None]
        if len(vector) != self.manifest.dimension:
            expected = self._layers[0].weight.shape[1] if self._layers else self.manifest.dimension
            problem = f"The graph of {self.manifest.name!r} gives vectors of {len(pooled)} numbers, but its description says {expected}."
            raise ModelError(problem, "The graph belongs to another model: export it again with `termweave export`.")
        return unit(vector)

    def load_torch(self) -> Any:
        """The transformer as a torch module that gives the states of its last layer."""
        from termweave.encoders.models.transformer import StatesOfTokens, load_backbone  # noqa: PLC0415 - torch

        return StatesOfTokens(load_backbone(self.folder.path / self.settings.transformer)).eval()

    def parity_sample(self) -> list[GraphInput]:
        """Sample texts for the comparison of the graphs, read as documents."""
        prompt = self.settings.prompt("document")
        return [text for text in self.token_inputs([prompt + text for text in sample_texts()]) if len(text.ids)]

    def compare(self, expected: Outputs, computed: Outputs) -> dict[str, float]:
        """Compare two graphs' outputs: the smallest and the mean cosine between their vectors."""
        vectors = [[self._vector(self._pooled(states)) for states, *_ in outputs] for outputs in (expected, computed)]
        return cosines(list(zip(*vectors, strict=True)))
