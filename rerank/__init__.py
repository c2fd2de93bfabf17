"""Rerankers: candidates in, better order out. Numbers only: there is no OpenSearch in here."""

from __future__ import annotations

from termweave.rerank.reciprocal import Neighbourhood, neighbourhood, reciprocal

__all__ = ["Neighbourhood", "neighbourhood", "reciprocal"]
