"""What every model kind provides: `ModelKind` declares the kind, `OpenModel` is one folder of it, ready to encode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from termweave import plugins
from termweave.encoders.analysis.model_familiarity import familiarity
from termweave.encoders.manifest import is_inside
from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.encoders.analysis.model_familiarity import Familiarity
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.manifest import Manifest, ModelFolder
    from termweave.encoders.onnx.runtime import OnnxModel, Precision
    from termweave.encoders.term_weighting.anchored_terms import Kind
    from termweave.records import TermWeights
    from termweave.statistics import CorpusStatistics

#: How texts become the input of a graph: each text is a sequence of its own, or query and document share one.
Pairing = Literal["single", "pair"]
#: Texts that are prepared at a time, from the first block to the later ones: the model waits for the first alone.
_FIRST_BLOCK, _BLOCK = 4, 64


@dataclass(frozen=True, slots=True)
class GraphInput:
    """What a graph reads of one text.

    Attributes:
        ids: int64 ``(n,)``: token ids, special tokens included.
        features: float32 ``(n, f)``: scalars of each token; None for graphs that take none.
        types: int64 ``(n,)``: 0 for the first text of a pair, 1 for the second; None where there is one text.
    """

    ids: NDArray[np.int64]
    features: NDArray[np.float32] | None = None
    types: NDArray[np.int64] | None = None


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


class OpenModel(ABC):
    """One model folder, opened for encoding: its tokeniser and its graphs."""

    #: The analysis that makes the terms; None for a model without weights.
    analysis: Analysis | None = None
    #: Whether term weights depend on the statistics of a corpus.
    needs_statistics: ClassVar[bool] = True

    def __init__(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> None:
        self.folder = folder
        self.manifest = folder.manifest
        self._threads, self._precision = threads, precision
        self._graph: OnnxModel | None = None

    @property
    def graph(self) -> OnnxModel:
        """The graph, opened at its first use: counting terms needs none."""
        if self._graph is None:
            runtime = plugins.load("encoders", self.manifest.runtime)
            graph = runtime(self.runnable_folder(), threads=self._threads, precision=self._precision)
            self.folder.confirm()
            self._graph = graph
        return self._graph

    def runnable_folder(self) -> ModelFolder:
        """The folder with its graphs; kinds that can export a missing graph do it here."""
        return self.folder

    def blocks(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """Cut texts into blocks: the next block is prepared while those before it run. A GPU sorts by length and gets all at once."""
        size, first = len(texts) if self.graph.on_gpu else _FIRST_BLOCK, 0
        while first < len(texts):
            yield texts[first : first + size]
            first += size
            size = min(2 * size, _BLOCK)

    @property
    def query_model(self) -> OpenModel | None:
        """The encoder of queries inside this folder, where queries have one of their own."""
        return None

    @property
    @abstractmethod
    def vocabulary(self) -> Any:
        """The `tokenizers.Tokenizer` behind the model."""

    @abstractmethod
    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens included, however many of them the model reads."""

    def familiarity(self, texts: Sequence[str]) -> Familiarity:
        """Whether the model knows the language of a sample. No graph runs."""
        return familiarity(texts, self.vocabulary, self.analysis.language if self.analysis else None)

    def weigh(
        self, texts: Sequence[str], kind: Kind, statistics: CorpusStatistics, *, vectors: bool
    ) -> tuple[list[TermWeights], list[NDArray[np.float32]]]:
        """Term weights of each text; with `vectors` also its vector, from the same pass (else an empty list)."""
        del texts, kind, statistics, vectors
        raise _lacks(self.manifest, "weights")

    def embed(self, texts: Sequence[str], kind: Kind) -> list[NDArray[np.float32]]:
        """The vector of each text, of length 1."""
        del texts, kind
        raise _lacks(self.manifest, "dense")


class ModelKind(ABC):
    """The declaration of a kind: how its folders are opened, and what an export runs and compares."""

    #: The value of `Manifest.kind`.
    name: ClassVar[str]
    #: What a model of this kind is, for messages.
    label: ClassVar[str] = "an encoder"
    #: The outputs that a model of this kind can have.
    outputs: ClassVar[tuple[str, ...]]
    #: The outputs of its graph, in order, and of each whether it has one row per token (else one per text).
    graph_outputs: ClassVar[dict[str, bool]]
    pairing: ClassVar[Pairing] = "single"
    #: The smallest cosine between an int8 and an fp32 vector with which an export is written.
    least_cosine: ClassVar[float] = -1.0

    @abstractmethod
    def open(self, folder: ModelFolder, threads: int | None, precision: Precision | None) -> OpenModel:
        """Open a folder for encoding. The graph itself is opened at its first use."""

    @abstractmethod
    def load_torch(self, folder: ModelFolder) -> Any:
        """The torch module that an export traces: its inputs are those of the graph, its outputs are `graph_outputs`.

        Raises:
            ModelError: A file is missing or damaged.
        """

    @abstractmethod
    def parity_sample(self, folder: ModelFolder, module: Any) -> list[GraphInput]:
        """The inputs on which an export compares torch and the graphs."""

    @abstractmethod
    def compare(self, folder: ModelFolder, expected: Any, given: Any) -> dict[str, float]:
        """Figures of how close a graph's outputs are to torch's, over the parity sample: name -> value."""

    def graph_settings(self, manifest: Manifest) -> tuple[Any, ...]:
        """The settings that are part of the graph; graphs that differ in them are different files."""
        del manifest
        return ()

    def towers(self, folder: ModelFolder) -> dict[str, ModelFolder]:
        """The encoder of documents and the encoder of queries: one folder twice, or two folders with a graph and a hash each."""
        return {"document": folder, "query": folder}


def _lacks(manifest: Manifest, output: str) -> ModelError:
    return ModelError(f"The model {manifest.name!r} does not give {output}.", f"Name another model for --{output}.")
