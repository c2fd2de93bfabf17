"""Rerankers: the contract, chains, and rerankers of other packages, found by entry point.

The reranker `ranker`: mixing, budget, names, anchors, effects of words. Its scores are numbers of words here.
"""

import json
import random
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave import plugins
from termweave.encoders import hub
from termweave.encoders.kinds.ranker import anchor_of
from termweave.encoders.manifest import Manifest
from termweave.errors import ModelError, TermweaveError, UsageError
from termweave.evaluation import systems
from termweave.records import Encoding, TermWeights
from termweave.rerank import Rules, neighbourhood, occlusion, rerankers
from termweave.rerank.candidate_features import neighbourhood_features
from termweave.rerank.ranker import CrossEncoderReranker, anchor_shares
from termweave.rerank.rerankers import Reranker, Reranking, RerankRequest, RerankResult
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.ranking.order import below_all, order
from termweave.search.results.explanation import as_text
from termweave.search.retrieval.candidates import Candidates
from termweave.signals.fusion import METHODS, Ranked, fuse
from termweave.signals.modes import Mode
from termweave.ui.pages import search_page

VECTORS = {"a": (1.0, 0.0), "b": (0.6, 0.8), "c": (0.0, 1.0)}
TEXTS = {"a": "one", "b": "one two three", "c": "one two"}
THREE = {"a": 0.9, "b": 0.5, "c": 0.1}
DENSE = Mode("dense", {"dense": 1.0})


@dataclass(frozen=True)
class SecondAxis(Reranker):
    """Likes what points along the second axis; keeps a quarter of the score."""

    option: str = ""
    candidates: int = 60
    needs = frozenset({"vectors"})
    name = property(lambda self: f"axis@{self.option}" if self.option else "axis")

    def rerank(self, request):
        return RerankResult((0.75 * request.vectors[:, 1]).tolist(), 0.25)


@dataclass(frozen=True)
class Longest(Reranker):
    """Replaces scores by the number of words, as a cross-encoder does by its logits."""

    candidates: int = 2
    name = "longest"
    needs = frozenset({"texts"})

    def rerank(self, request):
        assert request.vectors is None
        words = [float(len(text.split())) for text in request.texts]
        return RerankResult(words, details=lambda row: {"words": words[row]})


class Broken(Longest):
    """What a reranker of another package may do wrong, by its name."""

    def rerank(self, request):
        number = len(request.ids)
        if self.name == "raising":
            raise KeyError(f"no such axis among {number}")
        if self.name == "listing":
            return [0.5] * number
        return RerankResult([float("nan")] * number if self.name == "nan" else [0.5] * (number - 1))


Nan, Short, Raising, Listing = (type(each.title(), (Broken,), {"name": each}) for each in ("nan", "short", "raising", "listing"))
Greedy = type("Greedy", (Longest,), {"needs": frozenset({"clicks"})})
Unfinished = type("Unfinished", (), {"name": "unfinished"})


@pytest.fixture(autouse=True)
def another_package(monkeypatch):
    groups = ("signals", "readers", "encoders", "rerankers")
    points = [point for part in groups for point in plugins.installed().select(group=f"termweave.{part}")]
    names = {name.lower(): name for name in ("Nan", "Greedy", "Listing", "Longest", "Raising", "Short", "Unfinished")}
    names |= {"axis": "SecondAxis", "misspelt": "SecndAxis"}
    points += [EntryPoint(name, f"{__name__}:{found}", "termweave.rerankers") for name, found in names.items()]
    caches = (plugins.modules, plugins.names, plugins.load, rerankers._create)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(plugins, "installed", lambda: EntryPoints(points))
    yield
    for cache in caches:
        cache.cache_clear()


def candidates(scores=THREE, texts=TEXTS):
    query = Encoding("q", TermWeights(("q",), np.ones(1, np.float32)), np.array([1.0, 0.0], np.float32))
    vectors = {each: np.array(vector, np.float32) for each, vector in VECTORS.items()}
    return Candidates(query, {"dense": Ranked.from_scores([*scores.items()])}, {}, vectors, texts=texts)


def sums(place):
    return sum(each.share for each in place.signals.values()) + sum(each.share for each in place.reranked)


def test_a_reranker_by_texts_gets_texts_and_puts_its_candidates_above_all_others():
    chosen = rerankers.choose("longest")
    assert chosen.needs == {"texts"}
    places = order(candidates(), DENSE, chosen)  # two of three are reranked
    assert [(place.id, place.score) for place in places[:2]] == [("b", 3.0), ("a", 1.0)]
    assert places[2].id == "c"
    assert places[2].score <= places[1].score
    assert [dict(place.reranked[0].details()) for place in places] == [{"words": 3.0}, {"words": 1.0}, {}]
    for place in places:
        assert sums(place) == pytest.approx(place.score)


def test_a_chain_gives_the_order_of_one_to_the_next_and_shares_still_sum():
    chosen = rerankers.choose("longest > axis")
    assert (chosen.name, chosen.needs) == ("longest>axis", {"texts", "vectors"})
    places = order(candidates(), DENSE, chosen)
    # longest: b 3, a 1, c (not reranked) 0; axis: a quarter of that, and .75 times the second axis.
    assert [place.id for place in places] == ["b", "c", "a"]
    assert [place.score for place in places] == pytest.approx([0.25 * 3 + 0.75 * 0.8, 0.75, 0.25])
    for place in places:
        assert [each.name for each in place.reranked] == ["longest", "axis"]
        assert sums(place) == pytest.approx(place.score)
    other = order(candidates(), DENSE, rerankers.choose("axis>longest"))
    assert [place.id for place in other] == ["b", "c", "a"]  # axis: c, b first; those two are reordered by their words
    assert [place.score for place in other[:2]] == [3.0, 2.0]


def test_one_stage_alone_ranks_as_before_the_contract():
    """By hand: lambda times the fused score, and 1 - lambda times J."""
    found = candidates()
    near = neighbourhood(found.query.vector, np.array(list(VECTORS.values()), np.float32), Rules(10, 3, 0.0, clamp=True))
    expected = [0.9 * fused + 0.1 * jaccard for fused, jaccard in zip((1.0, 0.5, 0.0), near.jaccard.tolist(), strict=True)]
    places = order(found, DENSE, rerankers.choose("rnn"))
    assert {place.id: place.score for place in places} == pytest.approx(dict(zip("abc", expected, strict=True)), abs=1e-12)
    assert places[0].reranked[0].details().keys() == {"jaccard", "weight", "similarity", "neighbours"}


def test_a_document_that_no_signal_returned_goes_below_the_last():
    chosen = rerankers.choose(ReciprocalNeighbours(similarity="dense", weight=1.0))
    last = order(candidates(), DENSE, chosen)[-1]
    assert (below_all([], "z", chosen).score, below_all([last], "z", chosen).score) == (0.0, min(0.0, last.score))


def test_a_profile_gives_parameters_to_the_stage_of_its_name():
    near = ReciprocalNeighbours(k=5)
    tuned = Reranking((near,))
    for name, stages in (
        ("rnn", (near,)),
        ("rnn@dense", (ReciprocalNeighbours(k=5, similarity="dense"),)),
        ("rnn>longest", (near, Longest())),
        ("profile>axis", (near, SecondAxis())),
        ("axis", (SecondAxis(),)),
    ):
        assert rerankers.choose(name, tuned).stages == stages
    assert (rerankers.choose(None, tuned), rerankers.choose("none", tuned), rerankers.choose("profile")) == (tuned, None, None)


def test_tables_name_it_and_it_is_made_once():
    assert rerankers.choose("axis@x").stages[0] is rerankers.choose("axis@x").stages[0]
    assert systems.System("x", "hybrid", rerankers.choose("axis@dense")).reranker == "axis@dense"
    for chain, name in (("axis", "hybrid+axis"), ("rnn@dense", "hybrid+rNN@dense"), ("rnn>longest", "hybrid+rNN>longest")):
        assert systems.plain_system("hybrid", rerankers.choose(chain)).name == name


@pytest.mark.parametrize("asked", ["cross", "cross>rnn"])
def test_an_unknown_name_gives_the_known_ones(asked):
    with pytest.raises(UsageError, match="no reranker 'cross'") as caught:
        rerankers.choose(asked)
    names = caught.value.hint.removeprefix("Known: none, ").partition(", or the folder of a cross-encoder; > joins several")[0]
    assert {"axis", "boost", "longest", "ltr", "ranker", "rnn"} <= {*names.split(", ")}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        *((each, "There is no reranker") for each in ("", "rnn>none")),
        ("rnn@other", "no reranker 'rnn@other'.*rnn@dense"),
        (">".join(["rnn"] * 5), "at most 4 rerankers, not 5"),
        ("greedy", "The reranker 'greedy' needs 'clicks'"),
        ("unfinished", "The reranker 'unfinished' does not inherit from"),
        ("misspelt", "'misspelt' cannot be loaded: module .* has no attribute 'SecndAxis'"),
        ("nan", "'nan' did not give a finite number for each of 2 candidates"),
        ("short", "'short' did not give a finite number for each of 2 candidates"),
        ("raising", f"'raising' of another package, {__name__}:Raising, ended with KeyError: 'no such axis among 2'. Report"),
        ("listing", f"'listing' of another package, {__name__}:Listing, ended with AttributeError"),
    ],
)
def test_what_cannot_be_used_is_said_and_is_no_fault_in_termweave(asked, message):
    with pytest.raises(TermweaveError, match=message):
        order(candidates(), DENSE, rerankers.choose(asked))


def test_a_fault_in_our_own_reranker_or_in_one_that_is_not_registered_stays_one():
    class Mine(Longest):
        name = "mine"

        def rerank(self, _):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), plugins.answerable("rerankers", "rnn"):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        order(candidates(), DENSE, rerankers.choose(Mine()))


def test_details_may_have_any_names(index):
    class Named(Longest):
        name = "boost"

        def rerank(self, request):
            details = {"name": "x", "share": "y", "rank": 1, "terms": 2, "logit": 3, "jaccard": 4, "color": "red"}
            return RerankResult(np.arange(len(request.ids), dtype=np.float32), details=lambda _: details)

    hit = index.search("json functions", rerank=Named(candidates=5), k=1, explain=True)[0]
    part = next(part for part in hit.explanation["parts"] if part["name"] == "boost")
    assert (part["share"], type(part["share"])) == (pytest.approx(hit.score), float)
    assert "color red" in as_text(hit.explanation)
    assert search_page.bars_of(hit, 5.0)


def test_texts_come_with_the_candidates(index, monkeypatch):
    seen, paths = [], []

    class Spy(Longest):
        def rerank(self, request):
            seen.append(dict(zip(request.ids, request.texts, strict=True)))
            return super().rerank(request)

    request = index.engine.request
    monkeypatch.setattr(index.engine, "request", lambda *args, **kwargs: paths.append(args[1]) or request(*args, **kwargs))
    hits = index.search("json functions", rerank=Spy(candidates=20), k=20)
    assert len([path for path in paths if path.endswith("_msearch")]) == 1
    assert not [path for path in paths if path.endswith("_search") and "probe" not in path]
    assert (len(seen[0]), seen[0].items() <= {hit.id: hit.fields["text"] for hit in hits}.items()) == (20, True)
    parts = index.search("json functions", rerank="rnn>longest", k=1)[0].explain()["parts"]
    assert {"rnn", "longest"} <= {part["name"] for part in parts}


DOCUMENTS = "abcdefgh"
SCORES = st.dictionaries(st.sampled_from(DOCUMENTS), st.floats(-50, 50), max_size=len(DOCUMENTS))
CHAINS = st.lists(st.sampled_from(["rnn", "rnn@dense", "diverse@0.3", "boost@votes:0.2", "boost@votes:0.4:5"]), max_size=4)
PINNED = st.lists(st.sampled_from(DOCUMENTS + "xy"), unique=True, max_size=3)


@given(SCORES, SCORES, st.sampled_from(sorted(METHODS)), CHAINS, PINNED)
def test_the_parts_of_every_score_sum_to_it_whatever_is_fused_reranked_and_pinned(words, dense, fusion, chain, pinned):
    lists = {"weights": Ranked.from_scores([*words.items()]), "dense": Ranked.from_scores([*dense.items()])}
    angles = {document: number * 0.7 for number, document in enumerate(DOCUMENTS)}
    query = Encoding("q", None, np.array([1.0, 0.0], np.float32))
    vectors = {document: np.array([np.cos(angle), np.sin(angle)], np.float32) for document, angle in angles.items()}
    metadata = {document: {"votes": [10.0 * number]} for number, document in enumerate("abcd")}
    found = Candidates(query, lists, {}, vectors, metadata=metadata, pinned=pinned)
    mode = Mode("both", {"weights": 0.3, "dense": 0.7}, fusion)
    places = order(found, mode, rerankers.choose(">".join(chain)) if chain else None)
    assert {place.id for place in places} == words.keys() | dense.keys() | {*pinned}
    assert [place.id for place in places[: len(pinned)]] == pinned
    assert [place.score for place in places] == sorted((place.score for place in places), reverse=True)
    for place in places:
        assert sums(place) == pytest.approx(place.score, abs=1e-6)


FIVE = {"a": "one", "b": "", "c": "one two three", "d": "one two", "e": "one two three four five"}
FIRST = {"a": 0.9, "b": 0.8, "c": 0.6, "d": 0.6, "e": 0.1}


class WordCount:
    """Scores a text by its number of words; within a budget of n milliseconds the first n texts."""

    anchor: ClassVar[dict[str, float]] = {}

    def score(self, query, texts, windows=1):
        self.windows = windows
        assert query == "q"
        assert all(text.strip() for text in texts)
        return np.array([float(len(text.split())) for text in texts])

    def score_within(self, query, texts, seconds, windows=1):
        return self.score(query, texts[: round(seconds * 1000)], windows)


def counting(**options):
    return CrossEncoderReranker("m", scorer=WordCount(), **options)


def five(scores=FIRST):
    return candidates(scores, FIVE)


def test_shares_sum_to_scores_that_stay_in_the_range_of_the_fusion():
    places = order(five(), DENSE, Reranking((counting(candidates=4),)))
    before = {place.id: place.score for place in order(five(), DENSE, Reranking((counting(weight=0.0),)))}
    for place in places:
        assert sums(place) == pytest.approx(place.score)
        assert 0 <= place.score <= 1
    assert [place.id for place in order(five(), DENSE, Reranking((counting(weight=1.0),)))] == ["e", "c", "d", "a", "b"]
    equal = order(five(dict.fromkeys(FIRST, 0.5)), DENSE, Reranking((counting(),)))
    assert [place.id for place in equal] == ["e", "c", "d", "a", "b"]  # where scores are all equal the logits decide
    assert places[-1].id == "e"  # beyond the four: it keeps its score
    assert places[-1].score == pytest.approx(before["e"])


def test_a_budget_of_0_is_the_order_of_the_first_stage_and_opens_no_model():
    first, reports = five({"d": 0.9, "c": 0.5, "b": 0.5, "a": 0.1}), []
    places = order(first, DENSE, Reranking((CrossEncoderReranker("m"),)).within(0), report=reports.append)  # there is no model m
    assert [place.id for place in places] == [document for document, _ in fuse(first.lists, DENSE.weights).ranking]
    assert [(each.name, each.scored, each.candidates) for each in reports] == [("ranker@m", 0, 4)]


def test_when_the_time_is_up_scored_documents_come_first_and_the_others_keep_their_order():
    reports = []
    places = order(five(), DENSE, Reranking((counting(),)).within(2), report=reports.append)  # a and c
    assert ([place.id for place in places[3:]], {place.id for place in places[:3]}) == (["d", "e"], {"a", "b", "c"})
    assert [place.score for place in places] == sorted((place.score for place in places), reverse=True)
    assert str(reports[0]).startswith("ranker@m scored 2 of 5 documents in its time budget")


def test_a_budget_is_shared_by_the_rankers_of_a_chain():
    chain = Reranking((CrossEncoderReranker("one"), ReciprocalNeighbours(), CrossEncoderReranker("two"))).within(80)
    assert [getattr(stage, "budget", None) for stage in chain.stages] == [40, None, 40]
    limited = Reranking((counting(budget=5.0),))
    assert limited.for_page(0).stages == limited.stages
    with pytest.raises(UsageError, match="With a time budget there is one page"):
        limited.for_page(10)
    assert limited.within(float("inf")).for_page(10).stages == (counting(),)
    with pytest.raises(UsageError, match="'rnn' takes no time budget"):
        rerankers.choose("rnn").within(80)
    assert rerankers.choose("rnn").within(float("inf")) == rerankers.choose("rnn")


def test_names(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    for text, model in ((f"ranker@{folder}", f"{folder}"), ("./model", "./model"), ("hf:team/model@v1", "hf:team/model@v1")):
        assert rerankers.choose(text).stages == (CrossEncoderReranker(model),)
    for name, message in (
        ("model", "There is no reranker 'model'"),  # a folder of the working folder may be a download
        ("ranker", "ships no ranker, and no profile in use names one. Name a cross-encoder: "),
        ("ranker@nowhere-at-all", "no model named 'nowhere-at-all'"),
        ("hf:team", "is not the name of a model on the hub"),
    ):
        with pytest.raises(UsageError, match=message):
            rerankers.choose(name)
    chain = rerankers.choose(f"rnn>{folder}")
    assert [stage.name for stage in chain.stages] == ["rnn", f"ranker@{folder}"]
    assert chain.needs == {"vectors", "texts"}


def test_parameters_out_of_range_are_refused():
    for options in ({"candidates": 0}, {"weight": 1.5}, {"weight": float("nan")}):
        for reranker in (counting, ReciprocalNeighbours):
            with pytest.raises(UsageError, match=r"needs at least 1 candidate|is a number from 0 to 1"):
                reranker(**options)
    for budget in ("80ms", -1.0):
        with pytest.raises(UsageError, match="number of milliseconds"):
            CrossEncoderReranker("m", budget=budget)


def test_for_one_query_no_text_is_scored_twice():
    scorer, scored = WordCount(), []
    scorer.score = lambda query, texts, windows: scored.extend(texts) or WordCount.score(scorer, query, texts, windows)
    stage = CrossEncoderReranker("m", weight=1.0, scorer=scorer).for_one_query()
    first = order(five(), DENSE, Reranking((stage,)))
    deeper = order(five({**FIRST, "f": 0.05}), DENSE, Reranking((stage,)))
    assert len(scored) == len(set(scored)) == 4
    assert [place.id for place in deeper if place.id != "f"] == [place.id for place in first]
    assert stage == CrossEncoderReranker("m", weight=1.0)
    assert scorer.windows == 4  # of a long document


QUERY, ROWS = np.array([1.0, 0.0], np.float32), np.array([*VECTORS.values()], np.float32)


def request(vectors=ROWS, query=QUERY):
    return RerankRequest(Encoding("words", vector=query), ["a", "b", "c"], [0.9, 0.5, 0.1], vectors)


def manifest(weights, kind="first-stage"):
    return Manifest("m", "ranker", ("scores",), "0" * 16, 64, anchor={"kind": kind, "weights": weights})


def needs_vectors(model):
    return "vectors" in CrossEncoderReranker(str(model)).needs


def test_the_share_of_an_anchor_is_the_weighted_sum_of_the_features():
    jaccard = neighbourhood_features(QUERY, ROWS)[1]
    found = anchor_shares({"score": 10.0, "cosine": 2.0, "jaccard": 3.0}, request())
    scores, cosines = np.array([0.9, 0.5, 0.1]), np.array([1.0, 0.6, 0.0])
    assert found == pytest.approx((10 * scores + 2 * cosines + 3 * np.array(jaccard)).tolist(), abs=1e-6)
    assert anchor_shares({"score": 2.0}, request(None, None)) == pytest.approx([1.8, 1.0, 0.2])
    assert anchor_shares({}, request(None, None)) == [0.0, 0.0, 0.0]
    with pytest.raises(UsageError, match="no dense model"):
        anchor_shares({"score": 2.0, "cosine": 1.0}, request(None, None))


@pytest.mark.parametrize("weights", [{"colour": 1.0}, {"score": "x"}, {"score": float("nan")}, ["score"]])
def test_a_malformed_anchor_is_refused(weights):
    with pytest.raises(ModelError, match="anchor"):
        anchor_of(manifest(weights))


def test_a_ranker_says_whether_it_needs_vectors(tmp_path, monkeypatch):
    for name, weights, needs in (("words", {"score": 1.0}, False), ("both", {"score": 1.0, "jaccard": 0.5}, True)):
        folder = tmp_path / name
        assert not needs_vectors(folder)  # a model that arrives later is found without a restart
        folder.mkdir()
        (folder / "termweave.json").write_bytes(manifest(weights).to_bytes())
        assert needs_vectors(folder) is needs
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "termweave.json").write_text(json.dumps({"schema": 1}))
    assert not needs_vectors(tmp_path / "broken")
    monkeypatch.setattr(hub, "fetch", lambda name: tmp_path / name.rpartition("/")[2])
    assert needs_vectors("hf:owner/both")
    assert not needs_vectors("hf:owner/words")


class Weighed:
    """The logit is the sum of the weights of a text's words; how many texts were scored is counted."""

    def __init__(self, **weights):
        self.weights, self.scored = weights, 0

    def __call__(self, texts):
        self.scored += len(texts)
        return [sum(self.weights.get(word.strip(".,").lower(), 0.0) for word in text.split()) for text in texts]


def test_the_effect_of_a_word_is_what_the_logit_loses_without_all_of_its_places():
    effects = occlusion.effects("The cat, the dog and the Cat on a mat.", Weighed(cat=2.0, dog=-1.0, mat=0.5))
    assert [(each["word"], each["effect"]) for each in effects[:3]] == [("cat", 4.0), ("dog", -1.0), ("mat", 0.5)]
    assert {each["word"] for each in effects[3:]} == {"the", "and", "on", "a"}


def test_a_long_text_is_searched_by_parts_first():
    words = [f"word{number}" for number in range(400)]
    random.Random(1).shuffle(words)
    effects = occlusion.effects(" ".join(words), score := Weighed(word7=3.0, word300=-2.0))
    assert effects[:2] == [{"word": "word7", "effect": 3.0}, {"word": "word300", "effect": -2.0}]
    assert (len(effects), score.scored <= 1 + 16 + 64) == (occlusion.SHOWN, True)


def test_words_of_scripts_without_blanks_and_texts_without_words():
    assert list(occlusion.places("世界 it's état")) == ["世", "界", "it's", "état"]
    assert occlusion.effects("...", Weighed()) == []
