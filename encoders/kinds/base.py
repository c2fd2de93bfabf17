"""What every kind of model provides: a subclass of `OpenModel`, whose objects are folders of this kind, ready to encode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from termweave import plugins
from termweave.encoders.analysis.model_familiarity import familiarity
from termweave.encoders.kinds.graph_cache import with_graph
from termweave.encoders.manifest import is_inside
from termweave.errors import ModelError
from termweave.records import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.analysis.model_familiarity import Familiarity
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.manifest import Manifest, ModelFolder
    from termweave.encoders.onnx.runtime import GraphInput, OnnxModel, Outputs, Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics

#: How texts become the input of a graph: each text is a sequence of its own, or query and document share one.
Pairing = Literal["single", "pair"]
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
            ModelError: They are malformed, or name files outside the folder.
        """
        try:
            settings = cls(**manifest.settings)
            problem = settings.problem(manifest)
            if not problem and not all(is_inside(name) for name in settings.names()):
                problem = "files are names of files in the folder"
        except (TypeError, KeyError, AttributeError) as error:
            problem = f"{error}"
        if problem:
            raise ModelError(
                f"The description of the model {manifest.name!r} is malformed: {problem}.", "Export or copy the folder again."
            )
        return settings

    def problem(self, manifest: Manifest) -> str:
        """What is wrong with the kind's own fields, for a message; "" if nothing is."""
        del manifest
        return ""

    def names(self) -> list[str]:
        """The files and subfolders that the settings name."""
        return [self.transformer] if self.transformer else []

    def as_dict(self) -> dict[str, Any]:
        """The table for `Manifest.settings`."""
        return asdict(self)


@dataclass(frozen=True)
class PromptSettings(KindSettings):
    """Settings of models that may have prompts.

    Attributes:
        prompts: "query" and "document" -> the text that is put before every text of that sort.
    """

    prompts: dict[str, str] = field(default_factory=dict)

    def problem(self, manifest: Manifest) -> str:
        """What is wrong with the prompts; "" if nothing is."""
        del manifest
        return "" if all(isinstance(text, str) for text in self.prompts.values()) else "prompts are texts"

    def prompt(self, kind: Kind) -> str:
        """The text that is put before a query or a document."""
        return self.prompts.get(kind, "")


class OpenModel(ABC):
    """One model folder, opened: its tokeniser, its graphs, and for an export its torch module. A kind of model is a subclass."""

    #: The value of `Manifest.kind`.
    kind: ClassVar[str]
    #: What a model of this kind is, for messages.
    label: ClassVar[str] = "an encoder"
    #: The outputs of its graph, in order.
    graph_outputs: ClassVar[tuple[str, ...]]
    pairing: ClassVar[Pairing] = "single"
    #: The smallest cosine between an int8 and an fp32 vector with which an export is written.
    least_cosine: ClassVar[float] = -1.0
    tokenizer: Any
    #: The analysis that makes the terms; None for a model without weights.
    analysis: Analysis | None = None
    #: Whether torch exports the graph of a folder that has none (`graph_cache`).
    exported: ClassVar[bool] = True
    #: Whether term weights depend on the statistics of a corpus.
    needs_statistics: ClassVar[bool] = True

    def __init__(self, folder: ModelFolder, threads: int | None = None, precision: Precision | None = None) -> None:
        self.folder = folder
        self.manifest = folder.manifest
        self._threads, self._precision = threads, precision
        self._graph: OnnxModel | None = None

    @property
    def graph(self) -> OnnxModel:
        """The graph, opened at its first use: counting terms needs none."""
        if self._graph is None:
            runtime = plugins.load("encoders", self.manifest.runtime)
            graph = runtime(with_graph(self) if self.exported else self.folder, threads=self._threads, precision=self._precision)
            self.folder.confirm()
            self._graph = graph
        return self._graph

    @property
    def on_gpu(self) -> bool:
        """Whether the graph runs on a GPU, if it was opened."""
        return bool(getattr(self._graph, "on_gpu", False))  # a plugin's graph need not say so

    @property
    def graph_bytes(self) -> int:
        """Size of the graph that runs; 0 before its first use, and for a model without a graph."""
        return int(getattr(self._graph, "size", 0))  # a plugin's graph need not have one

    def model_info(self, output: str) -> ModelInfo:
        """Describe the model behind an output: "weights", "dense", "dense_query" or "scores"."""
        manifest = self.manifest
        return ModelInfo(
            name=manifest.name,
            hash=manifest.hash,
            dimension=manifest.dimension if output == "dense" else None,
            analysis=manifest.analysis if output == "weights" else None,
            max_length=manifest.max_length,
            folder=self.folder.path,
        )

    def blocks(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """Cut texts into blocks: the next block is prepared while those before it run."""
        size, most, first = (_GPU_BLOCK, _GPU_BLOCK, 0) if self.graph.on_gpu else (_FIRST_BLOCK, _BLOCK, 0)
        while first < len(texts):
            yield texts[first : first + size]
            first += size
            size = min(2 * size, most)

    @property
    def query_model(self) -> OpenModel | None:
        """The encoder of queries inside this folder, where queries have one of their own."""
        return None

    @classmethod
    def query_folder(cls, folder: ModelFolder) -> ModelFolder | None:
        """The folder of `query_model`, which may lie in this folder."""
        del folder
        return None

    @property
    def vocabulary(self) -> Any:
        """The `tokenizers.Tokenizer` behind the model."""
        return self.tokenizer.tokenizer

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included, however many of them the model reads; 0 if there is no limit."""
        lengths: list[int] = self.tokenizer.lengths(texts)
        return lengths

    def familiarity(self, texts: Sequence[str]) -> Familiarity:
        """Whether the model knows the language of a sample. No graph runs."""
        return familiarity(texts, self.vocabulary, self.analysis.language if self.analysis else None)

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """Term weights of each text; with `vectors` also its vector, from the same pass (else an empty list)."""
        del texts, kind, statistics, vectors
        raise self.lacks(self.manifest, "weights")

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text, of length 1."""
        del texts, kind
        raise self.lacks(self.manifest, "dense")

    @classmethod
    def lacks(cls, manifest: Manifest, output: str) -> ModelError:
        """The error for a model of this kind that does not have an output: "weights", "dense" or "dense_query"."""
        outputs = " and ".join(_OUTPUTS.get(name, name) for name in manifest.outputs)
        flag, output = output.replace("_", "-"), output.removesuffix("_query")
        training = ", or train term weights on this one: `termweave train`" if output == "weights" else ""
        return ModelError(
            f"The model {manifest.name!r} is {cls.label}: it gives {outputs}, not {_OUTPUTS[output]}.",
            f"Name another model for --{flag}{training}.",
        )

    @abstractmethod
    def load_torch(self) -> Any:
        """The torch module that an export traces: its inputs are those of the graph, its outputs are `graph_outputs`.

        Raises:
            ModelError: A file is missing or damaged.
        """

    @abstractmethod
    def parity_sample(self) -> list[GraphInput]:
        """The inputs on which an export compares the torch module and the graphs."""

    @abstractmethod
    def compare(self, expected: Outputs, given: Outputs) -> dict[str, float]:
        """Figures of how close a graph's outputs are to torch's, over the parity sample: name -> value."""

    @property
    def graph_settings(self) -> tuple[Any, ...]:
        """The settings that are part of the graph; graphs that differ in them are different files."""
        return ()
