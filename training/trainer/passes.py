"""The passes of a model in training: dropout on processors, gradient caching, the numbers that a backbone computes with, what a pass costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from termweave.support.stopwatch import stopwatch

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CpuDropout(TorchFunctionMode):
    """A context in which dropout on CPUs draws 16 random bits for each element, 64 bits at a time: p is rounded to 1/65,536.

    torch draws its numbers there one by one: 29 % of a step of MiniLM in bf16 (32 texts of 192 word-pieces).
    The bits are a function of torch's random state, so that a resumed run and a pass that is computed again drop the same elements. Attention
    with dropout computes its products in the precision of its inputs, as the eager attention of transformers does; torch would compute
    them in float32.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute dropout here, and every other function as it is."""
        options = kwargs or {}
        if func is functional.dropout:
            return _dropout(*args, **options)
        if func is functional.scaled_dot_product_attention and options.get("dropout_p"):
            return _attention(*args, **options)
        return func(*args, **options)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: A002, FBT001, FBT002 - torch's
    if not training or not 0 < p < 1 or input.device.type != "cpu" or inplace:
        return functional.dropout(input, p, training, inplace)
    seed = int(torch.randint(2**62, ()))
    bits = np.random.PCG64DXSM(seed).random_raw(-(-input.numel() // 4)).view(np.int16)[: input.numel()]
    left = torch.from_numpy(bits).view(input.shape) >= round(p * 65536) - 32768
    return input * left.to(input.dtype).mul_(1 / (1 - p))


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
    simple = query.device.type == "cpu" and options.keys() <= {"dropout_p", "scale", "is_causal"} and not options.get("is_causal")
    if not simple:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask, **options)
    scores = (query * (options.get("scale") or query.shape[-1] ** -0.5)) @ key.transpose(-1, -2)
    if attn_mask is not None:
        lowest = torch.finfo(scores.dtype).min  # -inf would make a text without a token NaN
        scores = scores.masked_fill(~attn_mask, lowest) if attn_mask.dtype == torch.bool else scores + attn_mask
    return _dropout(scores.softmax(dim=-1), options["dropout_p"]) @ value


class CachedPasses(torch.autograd.Function):
    """Several passes whose activations are computed again when their gradients are wanted, one pass at a time.

    `torch.utils.checkpoint` computes the same, but keeps two to three times as much memory between the passes (torch 2.15).
    Both passes enter `CpuDropout` themselves: torch leaves such a context while it computes gradients.
    """

    @staticmethod
    def forward(context: Any, anchor: Tensor, device: torch.device, passes: Sequence[Callable[[], Tensor]]) -> Tensor:
        """Run the passes without gradients; `anchor` makes autograd call `backward`."""
        del anchor
        context.passes, context.device, context.states = passes, device, []
        vectors = []
        for encode in passes:
            context.states.append((torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None))
            with CpuDropout():
                vectors.append(encode())
        context.sizes = [len(each) for each in vectors]
        return torch.cat(vectors)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[None, None, None]:
        """Add the gradients of each pass to those of the parameters."""
        for encode, state, gradient in zip(context.passes, context.states, gradients[0].split(context.sizes), strict=True):
            devices = [context.device] if context.device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices), torch.enable_grad(), CpuDropout():
                on_processor, on_device = state  # dropout drops what it dropped before
                torch.set_rng_state(on_processor)
                if on_device is not None:
                    torch.cuda.set_rng_state(on_device, context.device)
                encode().backward(gradient)
        return None, None, None


def by_length(lengths: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Return positions in chunks of texts of about one length, the longest first: little is padded, and a chunk that is too large fails at once."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + size] for first in range(0, len(order), size)]


def padded(rows: Sequence[NDArray[Any]]) -> Tensor:
    """Put arrays of different lengths into one tensor, filled up with zeros: ``(rows, n, ...)``, n the largest length."""
    return torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)


def in_passes(
    lengths: NDArray[np.int64], size: int, compute: Callable[[NDArray[np.int64]], Tensor], device: torch.device, *, cached: bool
) -> Tensor:
    """Compute texts in passes of at most `size` texts of about one length; the results are in the order of the texts, ``(T, ...)``.

    Args:
        lengths: Tokens of each text, ``(T,)``, at least one.
        size: Largest number of texts in a pass.
        compute: Computes the results of the texts at some positions.
        device: Device on which the results are computed.
        cached: Whether the activations of one pass alone are kept, where gradients are wanted (`CachedPasses`).
    """
    parts = by_length(lengths, size)
    passes = [partial(compute, part) for part in parts]
    if cached and len(parts) > 1 and torch.is_grad_enabled():
        results: Tensor = CachedPasses.apply(torch.zeros((), requires_grad=True), device, passes)
    else:
        results = torch.cat([each() for each in passes])
    return results[torch.from_numpy(np.argsort(np.concatenate(parts))).to(device)]


def backbone_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Make the context in which a backbone is run: bf16 where it is set, or with "auto" where the device has it.

    Only the backbone computes in bf16. Losses stay in float32: scores near 30 are an eighth apart in bf16.

    Args:
        device: Device on which the backbone is run.
        precision: "auto", "fp32" or "bf16".
    """
    able = device.type == "cuda" and torch.cuda.is_bf16_supported()
    context: AbstractContextManager[Any] = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=precision == "bf16" or (precision == "auto" and able)
    )
    return context


def sampled(texts: Sequence[str], count: int = 8) -> Sequence[str]:
    """Return a few texts that stand for all, to measure what one text costs."""
    return texts[:: max(1, len(texts) // count)][:count]


def parameter_bytes(model: torch.nn.Module) -> int:
    """Count the bytes of all parameters, and of those that are trained also their gradients and the two moments of AdamW, in float32."""
    return sum(4 * each.numel() * (4 if each.requires_grad else 1) for each in model.parameters())


def pass_cost(model: torch.nn.Module, compute: Callable[[], torch.Tensor], texts: int) -> tuple[float, float]:
    """Measure a pass as the training loop does it, forwards and, where something is trained, backwards; a first pass before it is not measured.

    Args:
        model: The model; its parameters do not count as activations.
        compute: Computes one pass; the returned tensor is summed and differentiated.
        texts: Number of texts or pairs in the pass.

    Returns:
        The seconds that one text takes, and the bytes of the tensors that are kept of one text for the pass backwards.
    """
    bytes_of: dict[int, int] = {}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        bytes_of[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    parameters = {each.untyped_storage().data_ptr() for each in model.parameters()}
    for attempt in range(2):  # the first one warms up
        watch = stopwatch()
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor), CpuDropout():
            computed = compute()
        if computed.requires_grad:
            computed.sum().backward()
        if not attempt:
            bytes_of.clear()
    seconds = watch()
    model.zero_grad(set_to_none=True)
    return seconds / texts, sum(size for place, size in bytes_of.items() if place not in parameters) / texts
