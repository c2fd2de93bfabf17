"""The reranker `ranker`: mixing, budget, names, anchors, effects of words. Its scores are numbers of words here."""

import json
import random
from typing import ClassVar

import numpy as np
import pytest

from termweave.encoders import hub
from termweave.encoders.kinds.ranker import anchor_of
from termweave.encoders.manifest import Manifest
from termweave.errors import ModelError, UsageError
from termweave.records import Encoding
from termweave.rerank import occlusion, rerankers
from termweave.rerank.candidate_features import neighbourhood_features
from termweave.rerank.ranker import CrossEncoderReranker, anchor_shares
from termweave.rerank.rerankers import Reranking, RerankRequest
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.ranking.order import order
from termweave.search.retrieval.candidates import Candidates
from termweave.signals.fusion import Ranked, fuse
from termweave.signals.modes import Mode

DENSE = Mode("dense", {"dense": 1.0})
TEXTS = {"a": "one", "b": "", "c": "one two three", "d": "one two", "e": "one two three four five"}
SCORES = {"a": 0.9, "b": 0.8, "c": 0.6, "d": 0.6, "e": 0.1}


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


def candidates(scores=SCORES):
    lists = {"dense": Ranked.from_scores(list(scores.items()))}
    return Candidates(Encoding("q", None, np.array([1.0, 0.0], np.float32)), lists, {}, {}, texts=TEXTS)


def test_shares_sum_to_scores_that_stay_in_the_range_of_the_fusion():
    places = order(candidates(), DENSE, Reranking((counting(candidates=4),)))
    before = {place.id: place.score for place in order(candidates(), DENSE, Reranking((counting(weight=0.0),)))}
    for place in places:
        total = sum(each.share for each in place.signals.values()) + sum(each.share for each in place.reranked)
        assert total == pytest.approx(place.score)
        assert 0 <= place.score <= 1
    assert [place.id for place in order(candidates(), DENSE, Reranking((counting(weight=1.0),)))] == ["e", "c", "d", "a", "b"]
    equal = order(candidates(dict.fromkeys(SCORES, 0.5)), DENSE, Reranking((counting(),)))
    assert [place.id for place in equal] == ["e", "c", "d", "a", "b"]  # where scores are all equal the logits decide
    assert places[-1].id == "e"  # beyond the four: it keeps its score
    assert places[-1].score == pytest.approx(before["e"])


def test_a_budget_of_0_is_the_order_of_the_first_stage_and_opens_no_model():
    first, reports = candidates({"d": 0.9, "c": 0.5, "b": 0.5, "a": 0.1}), []
    places = order(first, DENSE, Reranking((CrossEncoderReranker("m"),)).within(0), report=reports.append)  # there is no model m
    assert [place.id for place in places] == [document for document, _ in fuse(first.lists, DENSE.weights).ranking]
    assert [(each.name, each.scored, each.candidates) for each in reports] == [("ranker@m", 0, 4)]


def test_when_the_time_is_up_scored_documents_come_first_and_the_others_keep_their_order():
    reports = []
    places = order(candidates(), DENSE, Reranking((counting(),)).within(2), report=reports.append)  # a and c
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
    with pytest.raises(UsageError, match="There is no reranker 'model'"):  # a folder of the working folder may be a download
        rerankers.choose("model")
    chain = rerankers.choose(f"rnn>{folder}")
    assert [stage.name for stage in chain.stages] == ["rnn", f"ranker@{folder}"]
    assert chain.needs == {"vectors", "texts"}


WRONG = {
    "ranker": r"ships no ranker, and no profile in use names one. Name a cross-encoder: ",
    "ranker@nowhere-at-all": r"no model named 'nowhere-at-all'",
    "hf:team": r"is not the name of a model on the hub",
    "rankr": r"no reranker 'rankr'. Known: none, .*ranker, rnn, or the folder of a cross-encoder",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_names_are_one_sentence(name):
    with pytest.raises(UsageError, match=WRONG[name]):
        rerankers.choose(name)


@pytest.mark.parametrize(
    "make", [CrossEncoderReranker, lambda _, **options: ReciprocalNeighbours(**options)], ids=["ranker", "rnn"]
)
def test_parameters_out_of_range_are_refused(make):
    for options in ({"candidates": 0}, {"weight": 1.5}, {"weight": float("nan")}):
        with pytest.raises(UsageError, match=r"needs at least 1 candidate|is a number from 0 to 1"):
            make("m", **options)
    for budget in ("80ms", -1.0):
        with pytest.raises(UsageError, match="number of milliseconds"):
            CrossEncoderReranker("m", budget=budget)


def test_for_one_query_no_text_is_scored_twice():
    scorer, scored = WordCount(), []
    scorer.score = lambda query, texts, windows: scored.extend(texts) or WordCount.score(scorer, query, texts, windows)
    stage = CrossEncoderReranker("m", weight=1.0, scorer=scorer).for_one_query()
    first = order(candidates(), DENSE, Reranking((stage,)))
    deeper = order(candidates({**SCORES, "f": 0.05}), DENSE, Reranking((stage,)))
    assert len(scored) == len(set(scored)) == 4
    assert [place.id for place in deeper if place.id != "f"] == [place.id for place in first]
    assert stage == CrossEncoderReranker("m", weight=1.0)
    assert scorer.windows == 4  # of a long document


QUERY = np.array([1.0, 0.0], dtype=np.float32)
VECTORS = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=np.float32)


def request(vectors=VECTORS, query=QUERY):
    return RerankRequest(Encoding("words", vector=query), ["a", "b", "c"], [0.9, 0.5, 0.1], vectors)


def manifest(weights, kind="first-stage"):
    return Manifest("m", "ranker", ("scores",), "0" * 16, 64, anchor={"kind": kind, "weights": weights})


def needs_vectors(model):
    return "vectors" in CrossEncoderReranker(str(model)).needs


def test_the_share_of_an_anchor_is_the_weighted_sum_of_the_features():
    jaccard = neighbourhood_features(QUERY, VECTORS)[1]
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
