"""The base class of the kinds of models, `OpenModel` (a model folder that is opened and ready to encode), and the settings of folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from termweave import plugins
from termweave.encoders.analysis.model_familiarity import Familiarity, familiarity
from termweave.encoders.manifest import Manifest, ModelFolder, is_inside
from termweave.encoders.onnx.checked_graphs import sample_texts, with_graph
from termweave.encoders.onnx.runtime import GraphInput, OnnxModel, Outputs, Precision
from termweave.errors import ModelError
from termweave.records import ModelInfo, TermWeights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.term_weighting import Kind
    from termweave.statistics import CorpusStatistics

#: Texts that are prepared at a time, from the first block to the later ones: the model waits for the first alone. A GPU needs full batches.
_FIRST_BLOCK, _BLOCK, _GPU_BLOCK = 4, 64, 128
#: Output -> its name in messages.
_OUTPUTS = {"weights": "term weights", "dense": "vectors", "scores": "scores of pairs"}


@dataclass(frozen=True)
class KindSettings:
    """Settings of models that were not made by termweave, as `Manifest.settings` stores them; each kind adds fields.

    Attributes:
        transformer: Subfolder of the transformer and its tokeniser; "" for the folder itself.
        lower: Lower-case texts first.
    """

    transformer: str = ""
    lower: bool = False

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """Read the settings of a manifest.

        Raises:
            ModelError: The settings are malformed, or name files outside the folder.
        """
        try:
            settings = cls(**manifest.settings)
            problem = settings.problem(manifest)
            if not problem and not all(is_inside(name) for name in settings.names()):
                problem = "files are names of files in the folder"
        except (TypeError, KeyError, AttributeError) as error:
            problem = f"{error}"
        if problem:
            raise ModelError(f"The description of the model {manifest.name!r} is malformed: {problem}.", "Copy the folder again.")
        return settings

    def problem(self, manifest: Manifest) -> str:
        """The fault in the fields that a kind adds, as a clause for a message; "" if the fields are right."""
        return ""

    def names(self) -> list[str]:
        """All files and subfolders that the settings name."""
        return [self.transformer] if self.transformer else []


@dataclass(frozen=True)
class PromptSettings(KindSettings):
    """Settings of models that may have prompts.

    Attributes:
        prompts: "query" and "document" -> the text that is put before every text of that sort.
    """

    prompts: dict[str, str] = field(default_factory=dict)

    def problem(self, manifest: Manifest) -> str:
        """The fault in the prompts, as a clause for a message; "" if the prompts are right."""
        return "" if all(isinstance(text, str) for text in self.prompts.values()) else "prompts are texts"

    def prompt(self, kind: Kind) -> str:
        """The prompt of this kind of text (query or document): the text that is put before each; "" if the model has none."""
        return self.prompts.get(kind, "")


class OpenModel(ABC):
    """One model folder, opened: its tokeniser, its graphs, and for an export its torch module. A kind of model is a subclass."""

    #: The value of `Manifest.kind`.
    kind: ClassVar[str]
    #: What a model of this kind is, for messages.
    label: ClassVar[str] = "an encoder"
    #: The outputs of its graph, in order.
    graph_outputs: ClassVar[tuple[str, ...]]
    #: The smallest cosine between an int8 and an fp32 vector with which an export is written.
    least_cosine: ClassVar[float] = -1.0
    tokenizer: Any
    #: The encoder of queries inside this folder, where queries have one of their own.
    query_model: OpenModel | None = None
    #: The analysis that makes the terms; None for a model without weights.
    analysis: Analysis | None = None
    #: Whether torch exports the graph of a folder that has none (`onnx.checked_graphs`).
    exported: ClassVar[bool] = True
    #: Whether term weights depend on the statistics of a corpus.
    needs_statistics: ClassVar[bool] = True

    def __init__(self, folder: ModelFolder, threads: int | None = None, precision: Precision | None = None) -> None:
        self.folder, self.manifest = folder, folder.manifest
        self.threads, self.precision = threads, precision
        self._graph: OnnxModel | None = None
        self.open()

    @abstractmethod
    def open(self) -> None:
        """Read the settings and the tokeniser of the folder.

        Raises:
            ModelError: A file is missing or damaged, or does not belong to the others.
        """

    @property
    def graph(self) -> OnnxModel:
        """The model's graph, opened at its first use, because counting terms needs no graph."""
        if self._graph is None:
            runtime = plugins.load("encoders", self.manifest.runtime)
            graph = runtime(with_graph(self) if self.exported else self.folder, threads=self.threads, precision=self.precision)
            self.folder.confirm()
            self._graph = graph
        return self._graph

    @property
    def on_gpu(self) -> bool:
        """Whether the graph was opened and runs on a GPU."""
        return bool(getattr(self._graph, "on_gpu", False))  # a plugin's graph need not say so

    @property
    def graph_bytes(self) -> int:
        """Size in bytes of the graph that runs; 0 before its first use, and for a model without a graph."""
        return int(getattr(self._graph, "size", 0))  # a plugin's graph need not have one

    def model_info(self, output: str) -> ModelInfo:
        """Describe the model behind an output: "weights", "dense", "dense_query" or "scores"."""
        manifest = self.manifest
        dimension = manifest.dimension if output == "dense" else None
        analysis = manifest.analysis if output == "weights" else None
        return ModelInfo(manifest.name, manifest.hash, dimension, analysis, manifest.max_length, self.folder.path)

    def run(
        self, texts: Sequence[str], outputs: Sequence[str], read: Callable[[Sequence[str]], Sequence[GraphInput]]
    ) -> Iterator[list[NDArray[np.float32]]]:
        """Run the graph on texts. The next texts are prepared while the texts before them run.

        Args:
            texts: The texts.
            outputs: Names of the outputs to compute.
            read: Makes the graph's inputs of some texts.

        Returns:
            The outputs for each input, in order.
        """
        size, most = (_GPU_BLOCK, _GPU_BLOCK) if self.graph.on_gpu else (_FIRST_BLOCK, _BLOCK)
        started, first = [], 0
        while first < len(texts):
            started.append(self.graph.start(read(texts[first : first + size]), outputs))
            first += size
            size = min(2 * size, most)
        return (result for finish in started for result in finish())

    def token_inputs(self, texts: Sequence[str]) -> list[GraphInput]:
        """The inputs of a graph that reads the token ids of texts, and nothing else."""
        return [GraphInput(ids) for ids in self.tokenizer.encode(texts, self.manifest.max_length)]

    @classmethod
    def query_folder(cls, folder: ModelFolder) -> ModelFolder | None:
        """The model folder of the separate query encoder, a subfolder or this folder itself; None: one encoder serves queries and documents."""
        return None

    @property
    def vocabulary(self) -> Any:
        """The `tokenizers.Tokenizer` behind the model."""
        return self.tokenizer.tokenizer

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each whole text, special tokens included, though the model may read fewer; 0 if there is no limit."""
        return list(self.tokenizer.lengths(texts))

    def familiarity(self, texts: Sequence[str]) -> Familiarity:
        """Whether the model knows the language of a sample. No graph runs."""
        return familiarity(texts, self.vocabulary, self.analysis.language if self.analysis else None)

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """The term weights of each text and, if `vectors` is true, the vector of each text from the same pass; else [] as second list."""
        raise self.lacks(self.manifest, "weights")

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text, of length 1."""
        raise self.lacks(self.manifest, "dense")

    @classmethod
    def lacks(cls, manifest: Manifest, output: str) -> ModelError:
        """The error for a model of this kind that does not have an output: "weights", "dense" or "dense_query"."""
        outputs = " and ".join(_OUTPUTS.get(name, name) for name in manifest.outputs)
        training = ", or train term weights on this one: `termweave train`" if output == "weights" else ""
        hint = f"Name another model for --{output.replace('_', '-')}{training}."
        lacking = _OUTPUTS[output.removesuffix("_query")]
        return ModelError(f"The model {manifest.name!r} is {cls.label}: it gives {outputs}, not {lacking}.", hint)

    def load_torch(self) -> Any:
        """The torch module that an export traces: its inputs are those of the graph, its outputs are `graph_outputs`.

        Raises:
            ModelError: A file is missing or damaged, or a model of this kind needs no graph.
        """
        name = self.manifest.name
        raise ModelError(f"{name!r} is {self.label} and has no graph to export.", f"It works as it is: --weights {name}.")

    def parity_sample(self) -> list[GraphInput]:
        """The inputs on which an export compares the torch module with the graphs: sample texts, without a prompt."""
        return [text for text in self.token_inputs(sample_texts()) if len(text.ids)]

    def compare(self, expected: Outputs, computed: Outputs) -> dict[str, float]:
        """Compare a graph's outputs with torch's, the expected ones, over the parity sample: name of a figure -> value."""
        return {}

    @property
    def graph_settings(self) -> tuple[Any, ...]:
        """The settings that an export builds into the graph; models that differ in these settings need different graphs."""
        return ()
