"""Saturated impacts: the formula and its inverse, stored, scored, liked, resumed and updated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import Options, build, building, update
from termweave.indexer.generations import live
from termweave.indexer.resuming import UnfinishedBuild
from termweave.records import Capabilities, Encoding, TermWeights
from termweave.search import Index
from termweave.signals import DocumentLayout, Fitting
from termweave.signals.term_frequency import TermFrequency
from termweave.signals.weights import Weights

from .builds import check, weights

HALF = Weights(w_max=4.0, saturation=0.5)
CORE = Capabilities("3.6.0", knn=True)
SATURATED = Options(saturation=0.75)
LINES = [
    {"_id": "guitar", "text": "How to tune the strings of an acoustic guitar."},
    {"_id": "bank", "text": "Interest rates of the central bank."},
    {"_id": "ukulele", "text": "How to tune the strings of a ukulele."},
]


class TestFormula:
    def test_by_hand(self):
        """x (1 + .5) / (x + .5) for the shares 1/8, 1/4, 1/2, 1 and, clipped, 2; in 255 levels."""
        impacts = np.array([0.5, 1.0, 2.0, 4.0, 8.0], np.float32)
        np.testing.assert_array_equal(HALF.quantise(impacts), [76, 128, 191, 255, 255])  # .3, .5, .75

    def test_the_larger_the_less(self):
        impacts = np.linspace(0.01, 4, 400, dtype=np.float32)
        far = Weights(w_max=4.0, saturation=1e9)
        np.testing.assert_array_equal(far.quantise(impacts), Weights(w_max=4.0).quantise(impacts))

    @given(st.lists(st.floats(2.0**-10, 100, width=32), min_size=1, max_size=40), st.sampled_from([0.01, 0.5, 3.0]))
    def test_order_is_kept_and_no_word_lost(self, impacts, saturation):
        levels = Weights(w_max=10.0, saturation=saturation).quantise(np.array(sorted(impacts), np.float32))
        assert (np.diff(levels) >= 0).all()
        assert levels.min() >= 1
        assert levels.max() <= 255

    @pytest.mark.parametrize("saturation", [None, 0.75])
    def test_what_is_stored_gives_the_impacts_back(self, saturation):
        signal = Weights(w_max=8.0, saturation=saturation)
        given = weights(**{f"t{place}": 8 * (place + 1) / 40 for place in range(40)})
        found = signal.impacts_of({"weights": dict(zip(given.terms, signal.quantise(given.weights).tolist(), strict=True))})
        assert found.terms == given.terms
        one = 8 / 255 * (1 if saturation is None else (1 + saturation) / saturation)  # the widest step, at the top
        np.testing.assert_allclose(found.weights, given.weights, atol=one / 2 * 1.01)

    def test_levels_that_nothing_gives_are_at_the_top(self):
        found = HALF.impacts_of({"weights": {"foreign": 9000, "top": 255}})
        assert found.weights.tolist() == [4.0, 4.0]

    @pytest.mark.parametrize("saturation", [5e-324, 1e-17, 1e-4, 1000.0])
    def test_extreme_ones_give_numbers(self, saturation):
        signal = Weights(w_max=4.0, saturation=saturation)
        levels = signal.quantise(np.array([1e-6, 0.1, 4.0, 9.0], np.float32)).tolist()
        assert 1 <= levels[0] <= levels[1] <= levels[2] == levels[3] == 255
        found = signal.impacts_of({"weights": {f"t{place}": level for place, level in enumerate(levels)}}).weights
        assert found[-1] == pytest.approx(4.0)
        assert ((found >= 0) & (found <= 4.0)).all()

    def test_par_is_that_of_terms_of_average_impact(self):
        query = TermWeights(("a", "b"), np.array([1.0, 3.0], np.float32), par=8.0)  # impacts of 2: half of the scale
        clause = HALF.clause(Encoding("q", query), size=10, where=(), capabilities=CORE)
        assert clause.par == pytest.approx(4 * 0.75 * 255)
        assert Weights(w_max=4.0).par(query) == pytest.approx(8 / 4 * 255)
        assert HALF.par(replace(query, par=None)) is None

    def test_term_frequencies_have_that_of_bm25(self):
        fitting = Fitting(CORE, saturation=0.75)
        assert (Weights.fit(fitting).saturation, TermFrequency.fit(fitting).saturation) == (0.75, None)
        again = DocumentLayout.from_meta({"weights": Weights.fit(fitting).parameters()}).signals[0]
        assert again == Weights.fit(fitting)

    @pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), 1000.1, 1e305, float("inf"), "much"])
    def test_what_is_none(self, value):
        with pytest.raises(UsageError, match=r"Options\.saturation cannot be"):
            Options(saturation=value)


@pytest.mark.engine
class TestIndex:
    @pytest.fixture
    def source(self, corpus):
        return corpus(LINES)

    def test_the_score_is_the_product_of_what_is_stored(self, opensearch_engine, name, source):
        build(opensearch_engine, source, name, Options())
        plain = Index.open(opensearch_engine, name).search("tune a guitar", mode="weights", explain=True)
        build(opensearch_engine, source, name, SATURATED)
        index = Index.open(opensearch_engine, name)
        hits = index.search("tune a guitar", mode="weights", explain=True)
        assert [hit.id for hit in hits] == [hit.id for hit in plain] == ["guitar", "ukulele"]
        for hit, before in zip(hits, plain, strict=True):
            shares = {each["term"]: each["share"] for each in hit.explain()["parts"][0]["terms"]}
            assert sum(shares.values()) == pytest.approx(hit.score, rel=1e-5)
            linear = {each["term"]: each["share"] for each in before.explain()["parts"][0]["terms"]}
            assert shares.keys() == linear.keys()
            assert all(share >= linear[term] for term, share in shares.items())  # the curve lies above the line
        assert check(opensearch_engine, name).ok
        assert index.search(like=["guitar"], mode="weights")[0].id == "ukulele"

    def test_with_words_of_neighbours_and_an_update(self, opensearch_engine, name, corpus, capsys):
        options = replace(SATURATED, neighbours=1)
        build(opensearch_engine, corpus(LINES[:2]), name, options)
        source = corpus(LINES)
        update(opensearch_engine, source, name, Options())
        assert check(opensearch_engine, name).ok
        index = Index.open(opensearch_engine, name)
        (signal,) = [each for each in index.layout.signals if each.name == "weights"]
        assert signal.saturation == 0.75
        held = opensearch_engine.request("GET", f"/{live(opensearch_engine, name)}/_doc/ukulele")["_source"]
        lent = opensearch_engine.request("GET", f"/{live(opensearch_engine, name)}/_doc/guitar")["_source"]
        own, near = signal.impacts_of(held).as_dict(), signal.impacts_of(lent).as_dict()
        assert 0 < own["acoust"] < near["acoust"]  # times a cosine
        command = ["index", str(source.path), name, "--update", "--url", opensearch_engine.url]
        assert run([*command, "--saturation", "2"]) == 2
        assert "--saturation is 0.75 there and 2.0 here" in capsys.readouterr().err
        assert run([*command, "--saturation", "0.75"]) == 0
        capsys.readouterr()
        assert run([each for each in command if each != "--update"]) == 0
        assert "The live generation was made with --neighbours 1 --saturation 0.75; this build" in capsys.readouterr().err

    def test_another_saturation_is_another_index(self, opensearch_engine, name, source, monkeypatch):
        def stop(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(building, "send_rest", stop)
            with pytest.raises(KeyboardInterrupt):
                build(opensearch_engine, source, name, SATURATED)
        with pytest.raises(UnfinishedBuild, match=r"--saturation was 0\.75 and is none"):
            build(opensearch_engine, source, name, Options())
        build(opensearch_engine, source, name, SATURATED)
        assert check(opensearch_engine, name).ok

    def test_without_weights_it_would_do_nothing(self, opensearch_engine, name, source):
        for options in (Options(signals=("lexical",), saturation=1), Options(weights="none", saturation=1)):
            with pytest.raises(UsageError, match="--saturation is of the weights signal, and an index of lexical"):
                build(opensearch_engine, source, name, options)

    @pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
    def test_a_mistake_at_the_command_line(self, source, name, value, capsys):
        assert run(["index", str(source.path), name, "--saturation", value]) == 2
        assert "--saturation" in capsys.readouterr().err
