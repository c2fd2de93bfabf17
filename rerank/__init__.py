"""Reranking by reciprocal nearest neighbours (rNN), as functions of arrays. This package does not use OpenSearch."""

from __future__ import annotations

from termweave.rerank.evidence import evidence, labels
from termweave.rerank.reciprocal import Neighbourhood, neighbourhood, reciprocal, reciprocal_batch
from termweave.rerank.rules import Rules

__all__ = ["Neighbourhood", "Rules", "evidence", "labels", "neighbourhood", "reciprocal", "reciprocal_batch"]
