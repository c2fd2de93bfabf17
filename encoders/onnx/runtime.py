"""Running a model folder's graph with ONNX Runtime.

On a CPU every text runs by itself, several at a time, each on one thread. There are two reasons. Dynamic int8 quantisation
takes its scale from the whole activation tensor, so in a batch the numbers of one text depend on its neighbours (measured:
cosine .988 between a vector made alone and in a batch of 16); alone, what a text becomes is a function of the text, and a
document sent again is the same document, bit for bit. And it is faster: 99.8 texts a second against 77.2 in sorted batches of
16 (int8, 2 threads, mean length 175, AMD EPYC with VNNI), because nothing is padding and nobody waits at a barrier.
One thread a text also means that ONNX Runtime has no threads of its own that could spin or be too many.

On a GPU texts of nearly one length run together (`batches`). There the last digits depend on the neighbours: kernels are chosen
by shape.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, byref, c_int
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from termweave.encoders.folder import ModelFolder, resolve
from termweave.errors import ModelError
from termweave.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Precision = Literal["int8", "fp32", "dequantised"]
#: What a GPU runs, best first: dynamic int8 has no kernels there, its operators would bounce between the GPU and the CPU.
ON_GPU: tuple[Precision, ...] = ("fp32", "dequantised")
#: What a CPU runs, fastest first.
ON_CPU: tuple[Precision, ...] = ("int8", "fp32")
#: Word-pieces in one batch on a GPU, padding included.
TOKEN_BUDGET = 16_384
#: Share of a batch on a GPU that may be padding.
PADDING = 0.05
#: What ONNX Runtime would make of a graph on a CPU and should not: its sum with layer normalisation takes .55 ms for 242 pieces, the
#: two by themselves .09 (1.31, AMD EPYC 9004); 7 % of an int8 pass.
SLOW_FUSIONS = ("SkipLayerNormFusion",)

Outputs = list[list["NDArray[np.float32]"]]


class OnnxModel:
    """A graph with inputs ``input_ids``, ``attention_mask`` and ``features``, ready to run. Safe to share between threads."""

    def __init__(self, folder: ModelFolder, *, threads: int | None = None, precision: Precision | None = None) -> None:
        """Open the graph.

        Args:
            folder: A checked model folder.
            threads: Texts at a time on a CPU; None: one for each core this process may use.
            precision: Which graph; None: where there is a GPU fp32, or int8's weights computed in fp32; else int8, else fp32.

        Raises:
            ModelError: The folder has no graph, or one that ONNX Runtime cannot run.
        """
        self.folder = folder
        self.threads = threads or available_cores()
        self.on_gpu = False
        gpu = self._first(ON_GPU, precision) if cuda_usable() else None
        if gpu is not None:
            self._graph = gpu
            self._session = _session(gpu, ["CUDAExecutionProvider", "CPUExecutionProvider"], self.threads)
            self.on_gpu = "CUDAExecutionProvider" in self._session.get_providers()
        if not self.on_gpu:
            graph = self._first(ON_CPU if precision is None else (precision,), precision)
            if graph is None:
                raise ModelError(
                    f"{folder.path} holds no {precision or 'ONNX'} graph.",
                    f"Run `termweave export {folder.path}` on the trained model.",
                )
            self._graph = graph
            self._session = _session(graph, ["CPUExecutionProvider"], 1)
        self.outputs = tuple(each.name for each in self._session.get_outputs())
        self._inputs = tuple(each.name for each in self._session.get_inputs())
        self._only = _only_what_is_asked()
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="termweave-encode")

    def _first(self, suitable: Sequence[Precision], asked: Precision | None) -> Path | None:
        """The first graph the folder has of those that suit; only the one asked for, if one was."""
        wanted = [each for each in suitable if asked in {None, each}]
        return next((graph for each in wanted if (graph := self.folder.graph(each))), None)

    @classmethod
    def load(cls, name: str, *, threads: int | None = None) -> OnnxModel:
        """Open a model by name or folder.

        Raises:
            UsageError: No such model.
            ModelError: Incomplete, altered or not runnable.
        """
        return cls(ModelFolder.read(resolve(name)), threads=threads)

    def run(
        self,
        pieces: Sequence[NDArray[np.int64]],
        features: Sequence[NDArray[np.float32]],
        outputs: Sequence[str],
    ) -> Outputs:
        """Run texts.

        Args:
            pieces: For each text its word-piece ids ``(n,)``.
            features: For each text float32 ``(n, f)``: idf and BM25, and a place tag where the model takes one.
            outputs: Names of the outputs wanted.

        Returns:
            For each text its outputs: ``(n,)`` for one per piece, ``(d,)`` for a vector.
        """
        return self.start(pieces, features, outputs)()

    def start(
        self,
        pieces: Sequence[NDArray[np.int64]],
        features: Sequence[NDArray[np.float32]],
        outputs: Sequence[str],
    ) -> Callable[[], Outputs]:
        """As `run`, but where a CPU has several texts to run it only begins: what is returned waits for the results."""
        wanted = list(outputs)
        if self.on_gpu or len(pieces) == 1:
            done = self._run_batches(pieces, features, wanted) if self.on_gpu else [self._run_one(pieces[0], features[0], wanted)]
            return lambda: done
        # Longest first, so that no thread is left alone with a long text at the end.
        order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index]))
        begun = {index: self._pool.submit(self._run_one, pieces[index], features[index], wanted) for index in order}
        return lambda: [begun[index].result() for index in range(len(pieces))]

    def _run_one(self, pieces: NDArray[np.int64], features: NDArray[np.float32], outputs: list[str]) -> list[NDArray[np.float32]]:
        ids = pieces[None, :]
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "features": features[None, :, :]}
        return [each[0] for each in self._session.run(outputs, {name: feed[name] for name in self._inputs}, self._only)]

    def _run_batches(
        self,
        pieces: Sequence[NDArray[np.int64]],
        features: Sequence[NDArray[np.float32]],
        outputs: list[str],
    ) -> Outputs:
        results: Outputs = [[]] * len(pieces)
        for batch in batches([len(each) for each in pieces]):
            shape = (len(batch), max(len(pieces[index]) for index in batch))
            ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
            scalars = np.zeros((*shape, features[batch[0]].shape[1]), dtype=np.float32)
            for row, index in enumerate(batch):
                size = len(pieces[index])
                ids[row, :size], mask[row, :size], scalars[row, : len(features[index])] = pieces[index], 1, features[index]
            feed = {"input_ids": ids, "attention_mask": mask, "features": scalars}
            ran = self._session.run(outputs, {name: feed[name] for name in self._inputs}, self._only)
            for row, index in enumerate(batch):
                size = len(pieces[index])
                results[index] = [
                    each[row] if name == "dense" else each[row, :size] for name, each in zip(outputs, ran, strict=True)
                ]
        return results


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Texts of nearly one length together, longest first: indices, no batch above `TOKEN_BUDGET` pieces or `PADDING` of them padding.

    Example:
        >>> list(batches([10, 99, 100, 30, 98]))
        [[2, 1, 4], [3], [0]]
    """
    batch: list[int] = []
    held = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        size = (len(batch) + 1) * lengths[batch[0] if batch else index]
        if batch and (size > TOKEN_BUDGET or held + lengths[index] < (1 - PADDING) * size):
            yield batch
            batch, held = [], 0
        batch.append(index)
        held += lengths[index]
    if batch:
        yield batch


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def onnx_runtime() -> Any:
    """ONNX Runtime, told to report nothing.

    Since 1.29 it sends its makers what runs where (program, processor, models' file names and hashes) and leaves an id on the disk,
    from the moment it is imported. It looks once whether it may, so that the word has to be there before; a user's own word stands.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: PLC0415 - 100 ms, and only where a model runs

    return onnxruntime


@cache
def cuda_usable() -> bool:
    """Whether there is an NVIDIA GPU behind ONNX Runtime; asked of the driver, because ONNX Runtime complains when there is none."""
    if "CUDAExecutionProvider" not in onnx_runtime().get_available_providers():
        return False
    try:
        driver = CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return False
    count = c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(byref(count)) == 0 and count.value > 0


def _session(graph: Any, providers: list[str], threads: int) -> Any:
    onnxruntime = onnx_runtime()
    onnxruntime.set_default_logger_severity(4)  # what goes wrong is raised; the rest is chatter on stderr
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # shapes change from text to text
    options.log_severity_level = 4
    if "CUDAExecutionProvider" in providers and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA libraries that came as wheels
    slow = SLOW_FUSIONS if providers == ["CPUExecutionProvider"] else ()
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=providers, disabled_optimizers=slow)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise ModelError(f"{graph} cannot be run: {first_line(error)}.", "Export it again with `termweave export`.") from error


def _only_what_is_asked() -> Any:
    """A document's pass has no use for the query head; without this ONNX Runtime computes every output."""
    options = onnx_runtime().RunOptions()
    options.only_execute_path_to_fetches = True
    return options
