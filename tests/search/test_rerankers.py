"""Rerankers of other packages: found by entry point, mixed and explained as ours."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from termweave import plugins
from termweave.errors import TermweaveError, UsageError
from termweave.evaluation import systems
from termweave.records import Encoding, TermWeights
from termweave.rerank import Neighbourhood
from termweave.search.candidates import Candidates
from termweave.search.fusion import Ranked
from termweave.search.modes import Mode
from termweave.search.ranking import Reranking, chosen_reranking, order

VECTORS = {"a": (1.0, 0.0), "b": (0.6, 0.8), "c": (0.0, 1.0)}


def second_axis(query, vectors, rules, relevant=None):
    """Likes what points along the second axis."""
    return Neighbourhood(vectors @ query, vectors[:, 1], np.zeros((len(vectors), len(vectors) + 1), np.float32))


def broken(query, vectors, rules, relevant=None):
    return Neighbourhood(vectors @ query, np.full(len(vectors), np.nan, np.float32), np.zeros((len(vectors), 1), np.float32))


def short(query, vectors, rules, relevant=None):
    return Neighbourhood(vectors[1:] @ query, np.zeros(len(vectors) - 1, np.float32), np.zeros((1, 1), np.float32))


def raising(query, vectors, rules, relevant=None):
    raise KeyError("no such axis")


def listing(query, vectors, rules, relevant=None):
    return [0.5] * len(vectors)


@pytest.fixture(autouse=True)
def another_package(monkeypatch):
    ours = plugins._every()
    group = "termweave.rerankers"
    parts = {"axis": second_axis, "broken": broken, "short": short, "raising": raising, "listing": listing}
    theirs = [EntryPoint(name, f"{__name__}:{function.__name__}", group) for name, function in parts.items()]
    theirs.append(EntryPoint("misspelt", f"{__name__}:secnd_axis", group))
    plugins.names.cache_clear()
    plugins.load.cache_clear()
    monkeypatch.setattr(plugins, "_every", lambda: EntryPoints([*ours.select(group=group), *theirs]))
    yield
    plugins.names.cache_clear()
    plugins.load.cache_clear()


def candidates():
    query = Encoding("q", TermWeights(("q",), np.ones(1, np.float32)), np.array([1.0, 0.0], np.float32))
    lists = {"dense": Ranked.of([("a", 0.9), ("b", 0.5), ("c", 0.1)])}
    return Candidates(query, lists, {}, {each: np.array(vector, np.float32) for each, vector in VECTORS.items()})


def test_a_reranker_of_another_package_is_mixed_in():
    reranking = chosen_reranking("axis", Reranking(weight=0.25))
    assert (reranking.method, reranking.weight) == ("axis", 0.25)
    places = order(candidates(), Mode("dense", {"dense": 1.0}), reranking)
    assert [place.id for place in places] == ["c", "b", "a"]
    assert [place.score for place in places] == pytest.approx([0.75, 0.725, 0.25])
    for place in places:
        assert place.rerank["name"] == "axis"
        assert place.neighbours() == []
        assert sum(said.share for said in place.signals.values()) + place.rerank["share"] == pytest.approx(place.score)


def test_tables_name_it():
    assert systems.System("x", "hybrid", chosen_reranking("axis@dense", None)).reranker == "axis@dense"
    assert systems._named("hybrid", chosen_reranking("axis", None)).name == "hybrid+axis"
    assert systems._named("hybrid", chosen_reranking("rnn@dense", None)).name == "hybrid+rNN@dense"


def test_what_is_no_reranker_is_said():
    with pytest.raises(UsageError, match="no reranker 'cross'") as caught:
        chosen_reranking("cross", None)
    known = "axis, broken, listing, misspelt, raising, rnn, short"
    assert caught.value.hint == f"Known: none, {known}, and each of them with @dense."
    with pytest.raises(UsageError, match="no reranker 'rnn@other'"):
        chosen_reranking("rnn@other", None)


@pytest.mark.parametrize("name", ["broken", "short"])
def test_what_gives_no_number_for_each_candidate_is_said(name):
    with pytest.raises(UsageError, match=f"'{name}' did not give a finite number for each of 3 candidates"):
        order(candidates(), Mode("dense", {"dense": 1.0}), chosen_reranking(name, None))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raising", f"'raising' of another package, {__name__}:raising, ended with KeyError: 'no such axis'. Do without it"),
        ("listing", f"'listing' of another package, {__name__}:listing, ended with AttributeError: 'list' object has no"),
        ("misspelt", "'misspelt' cannot be loaded: module .* has no attribute 'secnd_axis'"),
    ],
)
def test_what_goes_wrong_in_another_package_is_not_a_fault_in_termweave(name, said):
    with pytest.raises(TermweaveError, match=said):
        order(candidates(), Mode("dense", {"dense": 1.0}), chosen_reranking(name, None))


def test_a_fault_in_our_own_reranker_stays_one():
    with pytest.raises(ZeroDivisionError), plugins.answerable("rerankers", "rnn"):
        raise ZeroDivisionError
