"""Tuning of fusion and reranking on judged queries."""
