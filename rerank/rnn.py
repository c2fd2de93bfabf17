"""The reranker `rnn`: reciprocal nearest neighbours among the candidates (`termweave.rerank.neighbours` has the arithmetic)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from termweave.errors import UsageError
from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import neighbourhood
from termweave.rerank.rerankers import Need, Reranker, RerankRequest, RerankResult, check_range


@dataclass(frozen=True, slots=True)
class ReciprocalNeighbours(Reranker):
    """Rerank by the close neighbours that a candidate shares with the query: ``weight * s + (1 - weight) * J``.

    J is the overlap of the candidate's neighbours with the query's. Negative weights of neighbours (Eq. 7) count as 0, so that J lies in
    [0, 1]. The defaults suit unit vectors. The default weight was chosen on visible data sets (docs/fusion.md); k, k_exp and tau were not
    fitted to an encoder: use `tune` to fit them.

    Attributes:
        candidates: N, how many of the best documents are reranked; all others keep their order below them.
        k: Number of neighbours of an element (the query or a candidate) besides the element itself.
        k_exp: Number of entries of the neighbour list whose rows are averaged.
        tau: Size of the sets that expand the neighbour sets, as a share of k.
        weight: lambda, the share of the similarity s.
        similarity: What s is. "fused": the score so far, in [0, 1]; "dense": the inner product with the query, as in the paper.
    """

    candidates: int = 60
    k: int = 10
    k_exp: int = 3
    tau: float = 0.0
    weight: float = 0.9
    similarity: Literal["fused", "dense"] = "fused"

    def __post_init__(self) -> None:
        """Raise `UsageError` if the number of candidates or the weight is outside its range; `Rules` checks k, k_exp and tau."""
        check_range("rNN", self.candidates, self.weight)

    @property
    def name(self) -> str:
        """The name that `--rerank` takes: "rnn" or "rnn@dense"."""
        return "rnn" if self.similarity == "fused" else "rnn@dense"

    @property
    def needs(self) -> frozenset[Need]:
        """The documents' vectors, which search must read with the candidates."""
        return frozenset({"vectors"})

    @property
    def rules(self) -> Rules:
        """The parameters of the neighbour sets, as `termweave.rerank.neighbours` takes them."""
        return Rules(self.k, self.k_exp, self.tau, clamp=True)

    def with_option(self, option: str) -> ReciprocalNeighbours:
        """Return this reranker with the same parameters and another similarity s: "fused" or "dense".

        Raises:
            UsageError: The option is neither of the two.
        """
        if option not in {"fused", "dense"}:
            raise UsageError(f"There is no reranker 'rnn@{option}'.", "Write rnn@fused (fused score), rnn@dense (inner product).")
        return replace(self, similarity="dense" if option == "dense" else "fused")

    def rerank(self, request: RerankRequest) -> RerankResult:
        """Mix the similarity s of each candidate with J, the Jaccard similarity of the candidate's neighbours and the query's.

        Raises:
            UsageError: The query has no vector.
        """
        context = neighbourhood(*request.dense("The reranker 'rnn'"), self.rules, request.liked)
        jaccard, inner = context.jaccard.tolist(), context.similarity.tolist()
        by_dense = self.similarity == "dense"
        shares = [(1 - self.weight) * value for value in jaccard]
        if by_dense:
            shares = [self.weight * first + share for first, share in zip(inner, shares, strict=True)]
        similarity = inner if by_dense else request.scores

        def details(row: int) -> Mapping[str, Any]:
            near = [request.ids[other] for other in context.neighbours(row)]
            return {"jaccard": jaccard[row], "weight": self.weight, "similarity": similarity[row], "neighbours": near}

        def details_below(score: float) -> Mapping[str, Any]:
            return {"jaccard": 0.0, "weight": self.weight, "similarity": score, "neighbours": []}

        return RerankResult(shares, 0.0 if by_dense else self.weight, self.weight, details, details_below)


def create(option: str = "fused") -> ReciprocalNeighbours:
    """Make the reranker `rnn` with default parameters (an entry point of rerankers); the option is the similarity, "fused" or "dense"."""
    return ReciprocalNeighbours().with_option(option)
