"""rNN against straightforward transcriptions of the equations, one thread, d = 768, in one process.

Two transcriptions, both query by query and row by row, as the method's published program goes: one in torch (that
program's library; the one the project's figures are about) and one in numpy. The bound is what no implementation on top of
BLAS gets below without looking at less: all inner products, and one partition a row. Medians in milliseconds of the
processor's time: with one thread that is the time on a clock, and other programs do not count. With `--quick` only the smallest
input is run, for a moment: it shows that the script works, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter

from termweave.rerank import reciprocal

if TYPE_CHECKING:
    from collections.abc import Callable

K = 20
OPTIONS = {"k": K, "k_exp": 3, "weight": 0.5}


def in_numpy(query: np.ndarray, vectors: np.ndarray, k: int, k_exp: int, weight: float, tau: float) -> np.ndarray:
    """Compute Eq. 3 to 11 literally, row by row."""
    elements = np.concatenate([query[None], vectors])
    similarity = elements @ elements.T
    count = len(elements)
    k = min(k, count - 1)
    ranked = np.argsort(-similarity, axis=1, kind="stable")
    rows = np.zeros_like(similarity)
    for i in range(count):
        forward = ranked[i, : k + 1]
        members = forward[np.where(ranked[forward, : k + 1] == i)[0]]
        grown = members
        if tau > 0:
            columns = min(round(tau * (k + 1)) + 2, k + 1)
            for c in members:
                near = ranked[c, :columns]
                close = near[np.where(ranked[near, :columns] == c)[0]]
                if len(np.intersect1d(close, members)) > 2 / 3 * len(close):
                    grown = np.append(grown, close)
            grown = np.unique(grown)
        values = similarity[i, grown]
        rows[i, grown] = values / values.sum()
    if k_exp > 1:
        rows = np.stack([rows[ranked[i, :k_exp]].mean(axis=0) for i in range(count)])
    jaccard = np.array([np.minimum(rows[0], row).sum() / np.maximum(rows[0], row).sum() for row in rows])
    return weight * similarity[0, 1:] + (1 - weight) * jaccard[1:]


def in_torch(query, vectors, k: int, k_exp: int, weight: float, tau: float):  # noqa: ANN201 - torch may be absent
    """Compute the same with tensors."""
    import torch

    elements = torch.cat([query[None], vectors])
    similarity = elements @ elements.T
    count = len(elements)
    k = min(k, count - 1)
    ranked = torch.topk(similarity, k + 1, dim=1).indices
    rows = torch.zeros_like(similarity)
    for i in range(count):
        forward = ranked[i]
        members = forward[torch.where(ranked[forward] == i)[0]]
        grown = members
        if tau > 0:
            columns = min(round(tau * (k + 1)) + 2, k + 1)
            for c in members:
                near = ranked[c, :columns]
                close = near[torch.where(ranked[near, :columns] == c)[0]]
                if torch.isin(close, members).sum() > 2 / 3 * len(close):
                    grown = torch.cat([grown, close])
            grown = torch.unique(grown)
        values = similarity[i, grown]
        rows[i, grown] = values / values.sum()
    if k_exp > 1:
        rows = torch.stack([rows[ranked[i, :k_exp]].mean(dim=0) for i in range(count)])
    jaccard = torch.stack([torch.minimum(rows[0], row).sum() / torch.maximum(rows[0], row).sum() for row in rows])
    return weight * similarity[0, 1:] + (1 - weight) * jaccard[1:]


def medians_ms(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Every call in turn, until each has had its seconds: the slow ones once, the quick ones one after the other ten times.

    After a slow call, torch's above all, caches are cold for some calls; taking turns no quick one bears that for the others.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    slow = [name for name in calls if name.startswith("in ")]
    quick = [name for name in calls if name not in slow]
    for call in calls.values():
        call()
    until = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < until or len(next(iter(times.values()))) < 3:
        for name in slow + 10 * quick:
            start = time.thread_time()
            calls[name]()
            times[name].append(time.thread_time() - start)
    return {name: float(np.median(values)) * 1000 for name, values in times.items()}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest input, to see whether the script works")
    quick = parser.parse_args().quick
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        torch = None
    random = np.random.default_rng(0)
    print(f"{processor()}, numpy {np.__version__}, torch {torch.__version__ if torch else 'not here'}")
    print(
        f"{'N':>5} {'tau':>4} {'termweave':>10} {'bound':>8} {'/ bound':>8} {'torch':>9} {'ratio':>7} {'numpy':>9} {'ratio':>7}"
    )
    for count in (60,) if quick else (60, 200, 1000):
        for tau in (0.0, 0.5):
            centre = random.normal(size=768)
            vectors = (centre + random.normal(size=(count + 1, 768))).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            query, candidates = vectors[0].copy(), vectors[1:].copy()
            options = OPTIONS | {"tau": tau}

            calls: dict[str, Callable[[], object]] = {
                "termweave": lambda q=query, c=candidates, o=options: reciprocal(q, c, **o),
                "bound": lambda e=vectors, n=count: np.partition(e @ e.T, n - K, axis=1),
                "in numpy": lambda q=query, c=candidates, o=options: in_numpy(q, c, **o),
            }
            if torch:
                tensors = torch.from_numpy(query), torch.from_numpy(candidates)
                calls["in torch"] = lambda t=tensors, o=options: in_torch(*t, **o)
            for name in calls.keys() - {"termweave", "bound"}:
                np.testing.assert_allclose(calls["termweave"](), np.asarray(calls[name]()), atol=1e-5)
            took = medians_ms(calls, 0.01 if quick else 1.5)
            ours, bound, slow, tensor = (took.get(name, np.nan) for name in ("termweave", "bound", "in numpy", "in torch"))
            print(
                f"{count:>5} {tau:>4} {ours:>10.3f} {bound:>8.3f} {ours / bound:>8.2f} "
                f"{tensor:>9.3f} {tensor / ours:>7.1f} {slow:>9.3f} {slow / ours:>7.1f}"
            )


if __name__ == "__main__":
    enter(main)
