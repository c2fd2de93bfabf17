"""Generations of an index name: create, list, publish, copy and delete them."""
