"""A profile is data of whoever may write to the index: its ranker opens nothing but a model of this host."""

import pytest

from termweave.catalog.lineage import Lineage
from termweave.catalog.profiles import Profile, adopted, using
from termweave.errors import EngineError
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import profiles

HASH = "0123456789abcdef"


def made(**ranker):
    profile = {"weights": {"lexical": 1.0}, "fusion": "adaptive", "reranking": None, "fitted": {}, "ranker": ranker}
    source = {"name": "here"}
    return Lineage("docs", "", "1.0", source, "", {"lexical": {}}, profiles={"mine": profile}, profile="mine")


def test_a_ranker_with_its_hash_is_read():
    (ranker,) = reranking_of(profiles.find(made(model="a-ranker", hash=HASH, candidates=5), None)).stages
    assert (ranker.model, ranker.hash, ranker.candidates) == ("a-ranker", HASH, 5)


@pytest.mark.parametrize(
    "ranker",
    [
        {"model": "hf:team/model"},
        {"model": "/etc", "hash": ""},
        {"model": "a-ranker", "hash": "../../x"},
        {"model": "a-ranker", "hash": HASH.upper()},
        {"model": "a-ranker", "hash": None},
        {"model": "a-ranker", "hash": HASH, "scorer": "anything"},
        {},
    ],
)
def test_a_ranker_that_tune_does_not_store_is_refused(ranker):
    with pytest.raises(EngineError, match="The profile 'mine' of 'docs' is damaged"):
        profiles.find(made(**ranker), None)


def stored(lineage, share, *, use=True):
    profile = Profile("tuned", {"weights": share, "dense": 1 - share}, "rrf", None)
    return adopted(lineage, profile, use=use)


def test_a_profile_that_is_replaced_stays_under_a_number():
    empty = Lineage("docs", "", "1.0", {"name": "here"}, "", {"weights": {}, "dense": {}})
    one = stored(stored(empty, 0.1), 0.1)
    assert (set(one.profiles), one.profile) == ({"tuned"}, "tuned")  # the same again
    two = stored(one, 0.2)
    assert (set(two.profiles), two.profile) == ({"tuned", "tuned-1"}, "tuned")
    assert profiles.find(two, "tuned-1").weights["weights"] == 0.1
    proposed = stored(two, 0.3, use=False)
    assert proposed.profile == "tuned-2"  # what searches use is as it was
    assert [profiles.find(proposed, name).weights["weights"] for name in (None, "tuned")] == [0.2, 0.3]
    many = proposed
    for number in range(4, 14):
        many = stored(many, number / 100, use=False)
    kept = {name: profiles.find(many, name).weights["weights"] for name in many.profiles if name != "tuned"}
    assert kept.pop("tuned-2") == 0.2  # in force
    assert kept == {f"tuned-{number}": number / 100 for number in range(8, 13)}
    assert profiles.find(using(many, "tuned-12"), None).weights["weights"] == 0.12
