"""Profiles that a test adopts and leaves to no other."""

from dataclasses import replace

import pytest

from termweave.catalog.lineage import read_lineage, store_lineage


@pytest.fixture
def forget_profiles():
    """A function to call with an index that tests share: its profiles are removed after the test."""
    indices = []
    yield indices.append
    for index in indices:
        lineage = read_lineage(index.engine, index.generation)
        store_lineage(index.engine, index.generation, replace(lineage, profiles={}, profile=""))
        index._now = index._open()
