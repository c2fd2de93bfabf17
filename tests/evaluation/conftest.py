"""Profiles that a test adopts and leaves to no other."""

from dataclasses import replace

import pytest

from termweave.catalog import lineage


@pytest.fixture
def forget_profiles():
    """A function to call with an index that tests share: its profiles are removed after the test."""
    indices = []
    yield indices.append
    for index in indices:
        now = lineage.read(index.engine, index.generation)
        lineage.write(index.engine, index.generation, replace(now, profiles={}, profile=""))
        index._now = index._open()
