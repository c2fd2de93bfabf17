"""Compare what a server answered twice. It adds the products of vectors in another order once its code is compiled: last bits differ."""

from collections.abc import Mapping

import pytest


def same_ranking(one, other):
    """Whether two answers, hits or document -> score, have the same documents in the same order, with the same scores but for the last bits."""
    first, second = (each if isinstance(each, Mapping) else {hit.id: hit.score for hit in each} for each in (one, other))
    assert list(first) == list(second)
    assert list(first.values()) == pytest.approx(list(second.values()), rel=1e-5)
