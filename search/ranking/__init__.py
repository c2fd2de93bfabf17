"""Ranking: modes, fusion and reranking of candidates. This package sends no requests."""
