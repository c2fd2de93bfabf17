"""Generations of an index name: list, publish, copy, delete, keep compatible."""
