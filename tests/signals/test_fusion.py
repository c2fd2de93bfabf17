"""Fusion and modes: numbers in, numbers out."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.contracts.signal import Fitting
from termweave.errors import UsageError
from termweave.records import Capabilities, Encoding
from termweave.rerank.rerankers import Reranking
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.ranking.order import order
from termweave.search.retrieval import hybrid_query
from termweave.search.retrieval.candidates import Candidates, HalfVectors
from termweave.signals import modes
from termweave.signals.dense import Dense, to_half
from termweave.signals.fusion import METHODS, Ranked, fuse
from termweave.signals.modes import Mode
from termweave.signals.weights import Weights
from termweave.statistics import CorpusStatistics

LISTS = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-50, 50), max_size=8)


def count_and_value(name, ranked, document, spread):
    """How much a list counts, and the value of a document in it, written down once more."""
    values = np.array(list(ranked.scores.values()))
    if not len(values):
        return 0.0, 0.0
    apart, deviation = np.ptp(values), values.std()
    count = {"adaptive": spread, "z-score": apart / (deviation or 1.0), "sum": apart}.get(name, 1.0)
    if document not in ranked.scores:
        return count, 0.0
    place = 61 / (61 + list(ranked.scores).index(document))
    return count, place if name == "rrf" else (ranked.scores[document] - values.min()) / apart if apart > 0 else 1.0


@given(LISTS, LISTS, st.floats(0.01, 0.99), st.sampled_from(sorted(METHODS)))
def test_a_fused_score_is_a_weighted_mean(first, second, share, name):
    lists = {"x": Ranked.from_scores(list(first.items())), "y": Ranked.from_scores(list(second.items()))}
    weights = {"x": share, "y": 1 - share}
    fused = fuse(lists, weights, name)
    assert {document for document, _ in fused.ranking} == first.keys() | second.keys()
    said = fused.signal_scores(first.keys() | second.keys())
    for document, score in fused.ranking:
        pairs = {key: count_and_value(name, ranked, document, 1.0) for key, ranked in lists.items()}
        counts = {key: weights[key] * count for key, (count, _) in pairs.items()}
        if sum(counts.values()) == 0:
            counts = {key: weights[key] * bool(lists[key].scores) for key in lists}
        expected = sum(counts[key] * pairs[key][1] for key in lists) / sum(counts.values())
        assert score == pytest.approx(expected, abs=1e-9)
        assert sum(each.share for each in said[document].values()) == pytest.approx(score)
        assert -1e-9 <= score <= 1 + 1e-9
    assert [score for _, score in fused.ranking] == sorted((score for _, score in fused.ranking), reverse=True)


def test_fused_scores_are_those_of_ranx(monkeypatch):
    """A library of its own (Bassani and Romelli, CIKM 2022), without compiling its kernels, which takes 20 s.

    Our scores are weighted means in [0, 1], its scores are sums: between them lie a scale and a shift for each query, and an absent document.
    """
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranx = pytest.importorskip("ranx")
        draw = np.random.default_rng(0)
        for _ in range(40):
            ranges = draw.uniform(-5, 30, 60), draw.uniform(0.2, 0.9, 60)
            both = [dict(zip(map(str, draw.permutation(120)[:60]), scores.tolist(), strict=True)) for scores in ranges]
            ranked = {name: Ranked.from_scores(list(each.items())) for name, each in zip("ab", both, strict=True)}
            common = sorted(both[0].keys() & both[1].keys())
            for method, norm in {"min-max": "min-max", "z-score": "zmuv", "sum": None, "rrf": None}.items():
                weights = (0.5, 0.5) if method == "rrf" else (0.7, 0.3)
                found = dict(fuse(ranked, dict(zip("ab", weights, strict=True)), method).ranking)
                theirs, params = ("rrf", {"k": 60}) if method == "rrf" else ("wsum", {"weights": weights})
                expected = ranx.fuse(runs=[ranx.Run({"q": each}) for each in both], norm=norm, method=theirs, params=params)
                given, wanted = ([scores[each] for each in common] for scores in (found, expected.to_dict()["q"]))
                (scale, shift), *_ = np.polyfit(given, wanted, 1, full=True)
                assert scale > 0
                np.testing.assert_allclose(np.array(given) * scale + shift, wanted, atol=1e-6)


def test_what_the_missing_side_would_have_scored():
    """A full list says of the others: at most my lowest. A short list of words says: 0, for they hold none."""
    words = Weights()
    full = Ranked.from_scores([("a", 9.0), ("b", 6.0)], 2, words)
    assert (full.low, full.normalised()) == (6.0, [1.0, 0.0])
    short = Ranked.from_scores([("a", 9.0), ("b", 6.0)], 3, words)
    assert (short.low, short.normalised()) == (0.0, [1.0, pytest.approx(2 / 3)])
    vectors = Ranked.from_scores([("a", 0.9), ("b", 0.6)], 3, Dense(dimension=4))
    assert vectors.low == 0.6  # nobody knows what the others' is


@pytest.mark.parametrize("by", ["adaptive", "min-max", "z-score", "sum"])
def test_equal_scores_beyond_the_window_count_nothing_however_far_somebody_pages(by):
    pairs = [(name, 2.0) for name in "abcde"]
    other = Ranked.from_scores([("e", 3.0), ("b", 1.0)], 3)
    scores = [
        dict(fuse({"words": Ranked.from_scores(pairs[:reach], 3), "other": other}, {"words": 1.0, "other": 0.5}, by).ranking)
        for reach in (3, 5)
    ]
    assert scores[0] == {name: score for name, score in scores[1].items() if name != "d"}
    assert Ranked.from_scores(pairs, 3).normalised() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_a_document_that_is_listed_twice_counts_by_its_best_score():
    twice = Ranked.from_scores([("a", 1.0), ("b", 5.0), ("a", 9.0), ("c", 3.0)], 3)
    assert (list(twice.scores.items()), twice.low, twice.high) == ([("a", 9.0), ("b", 5.0), ("c", 3.0)], 3.0, 9.0)


def test_adaptive_trusts_the_signal_that_tells_its_candidates_apart():
    dense = Dense(dimension=4, unit=0.4)
    words = Ranked.from_scores([("a", 10.0), ("b", 9.0)], 2, Weights())
    certain = Ranked.from_scores([("b", 0.9), ("a", 0.3)], 2, dense)
    unsure = Ranked.from_scores([("b", 0.32), ("a", 0.31)], 2, dense)
    weights = {"weights": 0.5, "dense": 0.5}
    assert fuse({"weights": words, "dense": certain}, weights).ranking[0][0] == "b"
    assert fuse({"weights": words, "dense": unsure}, weights).ranking[0][0] == "a"
    vectors, apart = (0.6 / 0.4) ** 2, 0.1**2
    assert fuse({"weights": words, "dense": certain}, weights).ranking[0][1] == pytest.approx(vectors / (vectors + apart))


def test_vectors_count_more_in_short_documents():
    def unit(length):
        statistics = CorpusStatistics("", 1, length, {})
        return Dense.fit(Fitting(Capabilities(""), dimension=4, dense_spread=0.4, statistics=statistics)).unit

    assert unit(16) < unit(50) < unit(800)
    assert unit(800) == pytest.approx(2 * unit(50) * (500 / 800) ** 0.25)
    assert unit(0) == unit(50) == pytest.approx(0.8 * 0.4)
    assert unit(1) == unit(10)


def test_an_index_of_an_earlier_version_keeps_its_unit():
    earlier = Dense(dimension=4, background=0.1)
    assert earlier.spread(0.3, 0.9) == pytest.approx(0.6 / (3.5 * (0.1 * 0.12) ** 0.5))
    assert "unit" not in earlier.parameters()
    words = Weights()
    assert words.spread(9.0, 10.0, 40.0) ** 2 == pytest.approx(words.spread(9.0, 10.0) ** 2 / 2)
    assert words.spread(9.0, 10.0, 20.0) == words.spread(9.0, 10.0)
    assert "unit" not in words.parameters()


def test_adaptive_trusts_words_less_where_no_document_holds_them_all():
    def spread(full_match_score):
        return Ranked.from_scores([("a", 10.0), ("b", 9.0)], 2, Weights(unit=1.0), full_match_score=full_match_score).spread

    assert spread(40.0) == pytest.approx(spread(None) / 4)
    assert spread(10.0) == spread(5.0) == spread(None) == pytest.approx(0.1)


def test_lists_that_tell_nothing_apart_leave_the_order_to_the_ids():
    same = Ranked.from_scores([("b", 1.0), ("a", 1.0)], 2, Weights())
    fused = fuse({"weights": same, "dense": Ranked.from_scores([], 2, Dense(dimension=4))}, {"weights": 0.5, "dense": 0.5})
    assert fused.ranking == [("a", 1.0), ("b", 1.0)]


@pytest.mark.parametrize(
    ("text", "available", "weights"),
    [
        ("hybrid", ["lexical", "weights", "dense"], {"weights": 0.5, "dense": 0.5}),
        ("hybrid @rrf", ["lexical", "dense"], {"lexical": 0.5, "dense": 0.5}),
        ("hybrid", ["lexical"], {"lexical": 1.0}),
        ("weights:3, dense:1", ["lexical", "weights", "dense"], {"weights": 0.75, "dense": 0.25}),
        ("weights:1,dense:0", ["lexical", "weights", "dense"], {"weights": 1.0}),
    ],
)
def test_modes(text, available, weights):
    mode = modes.parse(text, available)
    assert (mode.weights, mode.single) == (weights, len(weights) == 1)


@pytest.mark.parametrize("text", ["x", ",dense:1", "-1", "nan", "0", "1e308,dense:1e308", "1,,dense:1", "1,dense,weights", None])
def test_modes_that_cannot_be_meant_are_refused(text):
    with pytest.raises(UsageError):
        modes.parse(f"weights:{text}" if text else "", ["lexical", "weights", "dense"])


def test_what_modes_there_are_is_said_with_the_profiles():
    with pytest.raises(UsageError, match="no signal or profile 'tunde'") as caught:
        modes.parse("tunde", ["weights", "dense"], ["tuned"])
    assert caught.value.hint.startswith("Known: hybrid, weights, dense, or signals with weights")
    assert caught.value.hint.endswith("profiles of tune: tuned.")
    with pytest.raises(UsageError, match="'best'"):
        modes.parse("hybrid@best", ["lexical", "dense"])


def candidates(count=80, seed=0):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count + 1, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"d{number:03}" for number in range(count)]
    words = Ranked.from_scores(list(zip(ids, random.uniform(0, 30, count).tolist(), strict=True)))
    dense = Ranked.from_scores([(identity, float(vectors[row + 1] @ vectors[0])) for row, identity in enumerate(ids)])
    lists = {"weights": words, "dense": dense}
    return Candidates(Encoding("q", vector=vectors[0]), lists, {}, dict(zip(ids, vectors[1:], strict=True)))


def test_one_signal_alone_keeps_its_scores():
    found = candidates()
    places = order(found, Mode("dense", {"dense": 1.0}))
    assert {place.id: place.score for place in places} == dict(found.lists["dense"].scores)


@pytest.mark.parametrize("reranking", [None, ReciprocalNeighbours(candidates=5), ReciprocalNeighbours(20, similarity="dense")])
@pytest.mark.parametrize("mode", [Mode("dense", {"dense": 1.0}), Mode("hybrid", {"weights": 0.6, "dense": 0.4})])
def test_a_limit_gives_the_beginning_of_the_whole_order(mode, reranking):
    chosen = None if reranking is None else Reranking((reranking,))
    whole = order(candidates(), mode, chosen)
    for limit in (0, 1, 5, 6, 20, 79, 80, 500):
        assert order(candidates(), mode, chosen, limit) == whole[:limit]


def test_vectors_decoded_together_are_those_decoded_one_by_one():
    found = candidates()
    halves = HalfVectors({document: to_half(vector) for document, vector in found.vectors.items() if document != "d003"})
    matrix = replace(found, vectors=halves).matrix(["d001", "d003", "nobody", "d000"])
    np.testing.assert_array_equal(matrix[:3], [halves["d001"], np.zeros(16), np.zeros(16)])
    np.testing.assert_allclose(matrix[3], found.vectors["d000"], atol=1e-3)
    assert sorted(halves) == sorted(set(found.vectors) - {"d003"})


def test_what_a_server_cannot_fuse_is_a_sentence():
    able = Capabilities("3.6.0", neural_sparse=True)
    for server, count, said in ((Capabilities("2.19.1"), 2, "2.19.1\\) cannot fuse"), (able, 1, "has 1"), (able, 6, "has 6")):
        with pytest.raises(UsageError, match=said):
            hybrid_query.check(server, Mode("asked", dict.fromkeys("abcdef"[:count], 1 / count)))


def test_only_the_window_is_reranked_however_far_somebody_pages():
    near = candidates(20)
    lists = {name: list(ranked.scores.items()) for name, ranked in near.lists.items()}
    mode, reranking = Mode("hybrid", {"weights": 0.5, "dense": 0.5}), Reranking((ReciprocalNeighbours(),))

    def places_of(reach):
        found = replace(near, lists={name: Ranked.from_scores(pairs[:reach], 5) for name, pairs in lists.items()})
        return [(each.id, each.score) for each in order(found, mode, reranking)]

    places, whole = places_of(5), places_of(20)
    assert len(places) < 20
    assert places == whole[: len(places)]


def test_reranking_without_vectors_says_so_and_nothing_found_is_an_empty_order():
    reranking = Reranking((ReciprocalNeighbours(),))
    bare = Candidates(Encoding("q"), {"weights": Ranked.from_scores([("a", 1.0)])}, {})
    with pytest.raises(UsageError, match="no dense model"):
        order(bare, Mode("weights", {"weights": 1.0}), reranking)
    lists = {"weights": Ranked.from_scores([]), "dense": Ranked.from_scores([])}
    empty = Candidates(Encoding("q", vector=np.ones(4, np.float32)), lists, {})
    assert order(empty, Mode("hybrid", {"weights": 0.5, "dense": 0.5}), reranking) == []
