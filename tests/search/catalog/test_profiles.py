"""A profile is data of whoever may write to the index: its ranker opens nothing but a model of this host."""

import pytest

from termweave.errors import EngineError
from termweave.search.catalog import profiles
from termweave.search.catalog.lineage import Lineage

HASH = "0123456789abcdef"


def made(**ranker):
    profile = {"weights": {"lexical": 1.0}, "fusion": "adaptive", "reranking": None, "fitted": {}, "ranker": ranker}
    source = {"name": "here"}
    return Lineage("docs", "", "1.0", source, "", {"lexical": {}}, profiles={"mine": profile}, profile="mine")


def test_a_ranker_with_its_hash_is_read():
    (ranker,) = profiles.find(made(model="a-ranker", hash=HASH, candidates=5), None).rerank.stages
    assert (ranker.model, ranker.hash, ranker.candidates) == ("a-ranker", HASH, 5)


@pytest.mark.parametrize(
    "ranker",
    [
        {"model": "hf:team/model"},
        {"model": "/etc", "hash": ""},
        {"model": "a-ranker", "hash": "../../x"},
        {"model": "a-ranker", "hash": HASH.upper()},
        {"model": "a-ranker", "hash": None},
        {"model": 7, "hash": HASH},
        {"hash": HASH},
        {"model": "a-ranker", "hash": HASH, "scorer": "anything"},
        {"model": "a-ranker", "hash": HASH, "candidates": "many"},
        {},
    ],
)
def test_a_ranker_that_tune_does_not_store_is_refused(ranker):
    with pytest.raises(EngineError, match="The profile 'mine' of 'docs' is damaged"):
        profiles.find(made(**ranker), None)
