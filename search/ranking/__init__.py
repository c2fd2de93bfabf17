"""Rank candidates by fusion and rerankers. This package sends no requests."""
