"""How many of the nearest documents k-NN search returns: ``python benchmarks/vectors.py NAME DATASET [NAME DATASET ...]``.

Recall@100 of the dense signal of a live index against exact inner products over its stored vectors, for the data set's own
queries; documents as near as the hundredth count as found.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter

from termweave import corpora, engine, settings
from termweave.search import Index

if TYPE_CHECKING:
    from numpy.typing import NDArray

DEPTH, BLOCK = 100, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="+", metavar="NAME DATASET")
    given = parser.parse_args().pairs
    server = engine.connect(settings.load())
    print("| index | vectors | queries | recall@100 | lowest of a query | queries with all 100 |\n|---|---:|---:|---:|---:|---:|")
    for name, dataset in zip(given[::2], given[1::2], strict=True):
        index = Index.open(server, name)
        ids, vectors = stored(index)
        queries = [query.text for query in corpora.open_dataset(dataset).queries()]
        recalls = np.concatenate(
            [recall(index, queries[start : start + BLOCK], ids, vectors) for start in range(0, len(queries), BLOCK)]
        )
        figures = f"{recalls.mean():.4f} | {recalls.min():.2f} | {(recalls == 1).mean():.1%}"
        print(f"| {name} | {len(ids):,} | {len(queries):,} | {figures} |", flush=True)


def stored(index: Index) -> tuple[dict[str, int], NDArray[np.float32]]:
    """Return the row of each document, and the vectors, float32 ``(documents, d)``."""
    ids: dict[str, int] = {}
    rows: list[list[float]] = []
    after: list[str] | None = None
    while True:
        body = {"size": BLOCK, "sort": ["id"], "_source": ["vector"], "query": {"exists": {"field": "vector_fp16"}}}
        answer = index.engine.request(
            "POST", f"/{index.generation}/_search", body=body | ({"search_after": after} if after else {})
        )
        if not answer["hits"]["hits"]:
            return ids, np.array(rows, np.float32)
        for hit in answer["hits"]["hits"]:
            after = hit["sort"]
            ids[hit["sort"][0]] = len(rows)
            rows.append(hit["_source"]["vector"])


def recall(index: Index, queries: list[str], ids: dict[str, int], vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return, for each query, the share of its hundred nearest documents that k-NN search returned."""
    found = []
    for candidates in index.candidates(queries, ["dense"], depth=DEPTH):
        exact = vectors @ candidates.query.vector
        wanted = min(DEPTH, len(ids))
        least = np.partition(exact, -wanted)[-wanted]
        found.append(sum(exact[ids[each]] >= least - 1e-6 for each in candidates.lists["dense"].scores) / wanted)
    return np.array(found)


if __name__ == "__main__":
    enter(main)
