"""Runs a model folder's graph with ONNX Runtime, on a CPU or on an NVIDIA GPU.

On a CPU every text runs alone, several at a time, each on one thread. There are two reasons. Dynamic int8 quantisation takes its
scale from the whole activation tensor, so in a batch the numbers of one text depend on its neighbours (measured: cosine .988
between a vector made alone and one made in a batch of 16); alone, the result is a function of the text, and a document that is
sent again gives the same bits. And it is faster: 99.8 texts a second against 77.2 in sorted batches of 16 (int8, 2 threads, mean
length 175, AMD EPYC with VNNI), because there is no padding and no thread waits at a barrier. One thread per text also means that
ONNX Runtime starts no threads of its own.

On a GPU texts of nearly equal length run together (`batches`), one batch at a time in a thread of its own, while the caller prepares
the next texts. There the last digits depend on the neighbours: kernels are chosen by shape. A graph that gives the states of all tokens
pools them on the GPU (`with_pooling`): a text of 256 pieces brings back 1.5 KB instead of 384 KB. ONNX Runtime copies the inputs and the
wanted outputs alone, so nothing is left that an IOBinding would save.

    pooled[b, m] = sum over the tokens n of pooling[b, n, m] * states[b, n]

What the tokens are multiplied with says which pooling it is (`encoders.kinds.pooling.token_factors`). The sum is one operator, Einsum,
with an input and an output of its own. They are appended to the graph's file, because two messages of protobuf one after the other are
one message with the fields of both. So neither the extra `train` nor another export is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, byref, c_int
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakSet

import numpy as np

from termweave.errors import ModelError
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from termweave.encoders.manifest import ModelFolder

Precision = Literal["int8", "fp32", "dequantised"]
#: The precisions that a GPU runs, best first. Dynamic int8 has no GPU kernels: its operators would move between GPU and CPU.
ON_GPU: tuple[Precision, ...] = ("fp32", "dequantised")
#: The precisions that a CPU runs, fastest first.
ON_CPU: tuple[Precision, ...] = ("int8", "fp32")
#: What may run the operators of a graph, best first, on a CPU and on a GPU.
CPU = ("CPUExecutionProvider",)
CUDA = ("CUDAExecutionProvider", *CPU)
#: Word-pieces in one batch on a GPU, padding included.
TOKEN_BUDGET = 16_384
#: Share of a batch on a GPU that may be padding.
PADDING = 0.05
#: Optimisations of ONNX Runtime that are switched off on a CPU, because they are slower: the fused sum and layer normalisation takes
#: .55 ms for 242 pieces, the two operators take .09 ms (1.31, AMD EPYC 9004); 7 % of an int8 pass.
SLOW_FUSIONS = ("SkipLayerNormFusion",)
#: Inputs that this module can feed; a graph that wants another one is refused.
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "features")
#: The output with the states of all tokens in our own exports, and the names that other exporters give it, best first.
STATES = "last_hidden_state"
_STATES_NAMES = (STATES, "token_embeddings", "hidden_states", "output_0")
#: Input ``(batch, length, m)`` and output ``(batch, m, d)``, float32; names that no graph of others has.
POOLING, POOLED = "termweave/pooling", "termweave/pooled"
#: Inputs that are several numbers for each token, by the field of `GraphInput`, and how many where no text has them.
_NUMBERS = {"features": ("features", 2), POOLING: ("pooling", 1)}
#: Outputs with one row per text; all others have one row per token.
PER_TEXT = frozenset({"dense", "weights", "logits", "sentence_embedding", POOLED})

_AGAIN = "Export the model again with `termweave export`."

Outputs = list[list["NDArray[np.float32]"]]
#: All opened graphs of this process; see `_renew_pools`.
_MODELS: WeakSet[OnnxModel] = WeakSet()


class GraphInput(NamedTuple):
    """The input of a graph for one text.

    Attributes:
        ids: int64 ``(n,)``: token ids, special tokens included.
        features: float32 ``(n, f)``: idf and BM25, and a place tag where the model reads one; None for graphs without this input.
        types: int64 ``(n,)``: 0 for tokens of the first text of a pair, 1 for the second; None: all 0.
        pooling: float32 ``(n, m)``: the factors of each token's state in m sums, for a graph that pools; None for any other graph.
    """

    ids: NDArray[np.int64]
    features: NDArray[np.float32] | None = None
    types: NDArray[np.int64] | None = None
    pooling: NDArray[np.float32] | None = None


class OnnxModel:
    """An opened graph that reads token ids and, where it has these inputs, the attention mask, token types and features.

    Safe to share between threads, and on a CPU between processes that fork.
    """

    def __init__(self, folder: ModelFolder, *, threads: int | None = None, precision: Precision | None = None) -> None:
        """Open the graph of a model folder.

        Args:
            folder: A checked model folder.
            threads: Texts that run at a time on a CPU; None: one for each core this process may use.
            precision: Precision of the graph to open; None: the best that the folder has. On a GPU that is fp32, then the int8 graph's
                weights in fp32; on a CPU int8, then fp32.

        Raises:
            ModelError: The folder has no such graph, or ONNX Runtime cannot run the graph.
        """
        self.folder = folder
        self.threads = threads or available_cores()
        self.on_gpu = False
        gpu = self._first(ON_GPU, precision) if cuda_usable() else None
        if gpu is not None:
            self._graph = gpu
            self._session = open_session(gpu, CUDA, self.threads)
            self.on_gpu = CUDA[0] in self._session.get_providers()
        if self.on_gpu:
            self._session = _pooling_session(self._graph, self._session, self.threads)
        else:
            graph = self._first(ON_CPU if precision is None else (precision,), precision)
            if graph is None:
                raise ModelError(f"{folder.path} holds no {precision or 'ONNX'} graph.", f"Run `termweave export {folder.path}`.")
            self._graph = graph
            self._session = open_session(graph)
        #: Size of the graph in bytes.
        self.size = self._graph.stat().st_size
        self.outputs = tuple(output.name for output in self._session.get_outputs())
        self._inputs = tuple(node.name for node in self._session.get_inputs())
        for name in self._inputs:
            if name not in (*INPUTS, POOLING):
                raise ModelError(f"{self._graph} needs the input {name!r}, and termweave provides {', '.join(INPUTS)}.", _AGAIN)
        self._run_options = onnx_runtime().RunOptions()
        self._run_options.only_execute_path_to_fetches = True  # a document's pass does not compute the query head
        self._renew_pool()
        _MODELS.add(self)

    def _renew_pool(self) -> None:
        self._pool = ThreadPoolExecutor(1 if self.on_gpu else self.threads, thread_name_prefix="termweave-encode")

    def _first(self, suitable: Sequence[Precision], only: Precision | None) -> Path | None:
        """The file of the folder's first graph in a suitable precision, which must be `only` if that is given; None: there is no such graph."""
        chosen = [precision for precision in suitable if only in {None, precision}]
        return next((graph for precision in chosen if (graph := self.folder.graph(precision))), None)

    def start(self, inputs: Sequence[GraphInput], outputs: Sequence[str]) -> Callable[[], Outputs]:
        """Start running the graph on texts.

        Args:
            inputs: The graph's input for each text.
            outputs: Names of the outputs to compute.

        Returns:
            A function that waits for the results and returns the outputs of each text: ``(n, ...)`` for an output with one row per
                token, ``(d,)`` for an output with one row per text. A single text is computed before the function is returned.
        """
        names = list(outputs)
        if len(inputs) == 1:
            results = [self._run_one(inputs[0], names)]
            return lambda: results
        if self.on_gpu:
            return self._pool.submit(self._run_batches, inputs, names).result
        # Longest first, so that no thread is left alone with a long text at the end.
        order = sorted(range(len(inputs)), key=lambda index: -len(inputs[index].ids))
        futures = {index: self._pool.submit(self._run_one, inputs[index], names) for index in order}
        return lambda: [futures[index].result() for index in range(len(inputs))]

    def _run_one(self, text: GraphInput, outputs: list[str]) -> list[NDArray[np.float32]]:
        return [result[0] for result in self._compute([text], len(text.ids), outputs)]

    def _run_batches(self, inputs: Sequence[GraphInput], outputs: list[str]) -> Outputs:
        results: Outputs = [[]] * len(inputs)
        waiting = list(batches([len(text.ids) for text in inputs]))[::-1]
        while waiting:
            batch = waiting.pop()
            rows = [inputs[index] for index in batch]
            try:
                computed = self._compute(rows, max(len(row.ids) for row in rows), outputs)
            except ModelError:
                if len(batch) == 1:
                    raise
                # Most likely the GPU's memory is too small; a graph that cannot run says so of one text, too.
                waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
                continue
            for place, index in enumerate(batch):
                size = len(inputs[index].ids)
                by_name = zip(outputs, computed, strict=True)
                results[index] = [result[place] if name in PER_TEXT else result[place, :size] for name, result in by_name]
        return results

    def _compute(self, rows: Sequence[GraphInput], length: int, outputs: list[str]) -> list[NDArray[np.float32]]:
        """Run several texts as one batch, padded to `length` tokens with zeros, which the attention mask hides; return the outputs."""
        shape = (len(rows), length)
        arrays: dict[str, NDArray[Any]] = {name: np.zeros(shape, dtype=np.int64) for name in INPUTS[:3] if name in self._inputs}
        for name, (field, least) in _NUMBERS.items():
            if name in self._inputs:
                width = next((values.shape[1] for row in rows if (values := getattr(row, field)) is not None), least)
                arrays[name] = np.zeros((*shape, width), dtype=np.float32)
        for place, row in enumerate(rows):
            size = len(row.ids)
            filled = {"input_ids": row.ids, "attention_mask": 1, "token_type_ids": row.types}
            filled |= {"features": row.features, POOLING: row.pooling}
            for name, array in arrays.items():
                if filled[name] is not None:
                    array[place, :size] = filled[name]
        try:
            computed: list[NDArray[np.float32]] = self._session.run(outputs, arrays, self._run_options)
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            problem = f"{self._graph} failed on {len(rows)} texts of {length} tokens: {first_line(error)}."
            raise ModelError(problem, _AGAIN) from error
        for name, result in zip(outputs, computed, strict=True):
            expected = shape[: 1 if name in PER_TEXT else 2]
            if not isinstance(result, np.ndarray) or result.dtype.kind != "f" or result.shape[: len(expected)] != expected:
                form = f"{result.dtype} {list(result.shape)}" if isinstance(result, np.ndarray) else type(result).__name__
                raise ModelError(f"{self._graph} gives {name!r} as {form}, where numbers {list(expected)} should be.", _AGAIN)
        return computed


def _renew_pools() -> None:
    """Give the graphs new threads in a forked child: the parent's threads do not run there, and a text would wait for ever."""
    for model in list(_MODELS):
        model._renew_pool()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_renew_pools)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group texts of nearly equal length, longest first.

    Yields:
        The indices of each batch: at most `TOKEN_BUDGET` tokens, of which at most the share `PADDING` is padding.

    Example:
        >>> list(batches([10, 99, 100, 30, 98]))
        [[2, 1, 4], [3], [0]]
    """
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        size = (len(batch) + 1) * lengths[batch[0] if batch else index]
        if batch and (size > TOKEN_BUDGET or tokens + lengths[index] < (1 - PADDING) * size):
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += lengths[index]
    if batch:
        yield batch


def available_cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def onnx_runtime() -> Any:
    """Import ONNX Runtime with its telemetry switched off.

    Since 1.29 ONNX Runtime reports what runs where (program, processor, file names and hashes of models) from the moment it is
    imported, and leaves an id on the disk. It reads the variable once, so the variable must be set before. A value that the user
    gave stays.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # noqa: PLC0415 - 100 ms, and only where a model runs

    return onnxruntime


@cache
def cuda_problem() -> str:
    """The reason why ONNX Runtime cannot use an NVIDIA GPU, as a sentence; "" if it can.

    The NVIDIA driver is asked first, because ONNX Runtime prints errors where there is no driver.
    """
    runtime = onnx_runtime()
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        return "This ONNX Runtime cannot use a GPU: pip install onnxruntime-gpu."
    try:
        driver = CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return "There is no NVIDIA driver: install it, or use a machine with a GPU."
    count, version = c_int(0), c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(byref(count)) or not count.value:
        return "The NVIDIA driver finds no GPU: use a machine with one."
    driver.cuDriverGetVersion(byref(version))  # 13010 is CUDA 13.1
    # A driver runs what was made for an older minor or major version.
    major, minor = version.value // 1000, version.value % 1000 // 10
    needed = str(getattr(runtime, "cuda_version", "")).partition(".")[0]
    if needed.isdecimal() and major < int(needed):
        return f"The NVIDIA driver is too old: it knows CUDA {major}.{minor}, and ONNX Runtime needs CUDA {needed}. Update the driver."
    return ""


def cuda_usable() -> bool:
    """Whether ONNX Runtime can use an NVIDIA GPU."""
    return not cuda_problem()


def _pooling_session(graph: Path, session: Any, threads: int) -> Any:
    """Open a session that also pools, if the graph gives the states of all tokens in fp32; else return the given session."""
    outputs = {output.name: output for output in session.get_outputs()}
    states = outputs.get(states_of(list(outputs)) or "")
    if states is None or states.type != "tensor(float)" or len(states.shape) != 3:
        return session
    try:
        return open_session(graph, CUDA, threads, content=with_pooling(graph.read_bytes(), states.name))
    except ModelError:  # a graph older than opset 12, which has no Einsum
        return session


def open_session(graph: Path, providers: Sequence[str] = CPU, threads: int = 1, *, content: bytes = b"") -> Any:
    """Open a graph as a session of ONNX Runtime, which refuses graphs that read tensors from files outside their folder.

    Args:
        graph: The graph's file.
        providers: Execution providers of ONNX Runtime (devices) on which the graph may run, best first.
        threads: Number of threads of each operator on a CPU.
        content: Bytes of a graph that are opened in place of the file's content; b"": the file's content is opened.

    Raises:
        ModelError: ONNX Runtime cannot run the graph.
    """
    onnxruntime = onnx_runtime()
    onnxruntime.set_default_logger_severity(4)  # errors are raised; everything else would only fill stderr
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # shapes change from text to text
    options.log_severity_level = 4
    if "CUDAExecutionProvider" in providers and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA libraries that came as wheels
    if content:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(graph.parent))
    slow = SLOW_FUSIONS if providers == CPU else ()
    try:
        return onnxruntime.InferenceSession(content or str(graph), options, providers=list(providers), disabled_optimizers=slow)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise ModelError(f"{graph} cannot be run: {first_line(error)}.", _AGAIN) from error


def states_of(outputs: Sequence[str]) -> str | None:
    """The name of the output that gives the states of all tokens, among a graph's outputs; None: no output does."""
    return next((name for name in _STATES_NAMES if name in outputs), None)


def with_pooling(graph: bytes, states: str) -> bytes:
    """Add the input `POOLING` and the output `POOLED` to a graph; return the new graph as ONNX stores it.

    Args:
        graph: The graph as ONNX stores it.
        states: Name of the graph's output with the states of the tokens, float32 ``(batch, length, d)``.
    """
    # The numbers of the fields are those of onnx.proto. An attribute: name, s (text), type (3: text).
    equation = _text(1, "equation") + _text(4, "bnm,bnd->bmd") + _number(20, 3)
    # A node: input, input, output, op_type, attribute.
    node = _text(1, POOLING) + _text(1, states) + _text(2, POOLED) + _text(4, "Einsum") + _field(5, equation)
    # A graph: node, input, output.
    pooling = _field(11, _value(POOLING, ("batch", "length", "poolings")))
    pooled = _field(12, _value(POOLED, ("batch", "poolings", "width")))
    return graph + _field(7, _field(1, node) + pooling + pooled)  # a model: graph


def _value(name: str, axes: tuple[str, ...]) -> bytes:
    """The protobuf message that describes an input or output of a graph: its name and its axes."""
    shape = b"".join(_field(1, _text(2, axis)) for axis in axes)
    tensor = _number(1, 1) + _field(2, shape)  # elem_type (1: float32), shape
    return _text(1, name) + _field(2, _field(1, tensor))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    """The bytes of a protobuf field that holds `content`, with its length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
