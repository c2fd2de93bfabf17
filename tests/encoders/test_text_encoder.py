"""The shipped model through the public interface, the unit of its similarities, and anchors against slow independent versions."""

import json
import math
import random
import shutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave import encoders
from termweave.contracts.signal import Fitting
from termweave.encoders import DenseEncoder, TermWeighter, calibration, load
from termweave.encoders.analysis.words import Words
from termweave.encoders.model_lookup import resolve
from termweave.encoders.term_weighting import BM25, Form, anchored
from termweave.errors import ModelError, UsageError
from termweave.records import Capabilities
from termweave.signals.weights import Weights
from termweave.statistics import CorpusStatistics
from termweave.support import paths
from tests.encoders.exact_scores import dot

LONG = " ".join(f"filler{number % 50} sentence" for number in range(400)) + " zebra at the very end"
TEXTS = ["A dog barked at the cat; the cat ran.", "os.path joins path components.", "", "Zürich, Genève", LONG]
TEXTS += ["word", "👍", "a\ud800b\x00", "x" * 100_000, "the of and"]
TEXTS += [f"{word} " * (1 + 7 * at % 40) for at, word in enumerate(["cat", "dog", "cell", "path", ""] * 12)]  # several blocks


def bits(encodings):
    return [(each.weights.terms, each.weights.weights.tobytes(), each.vector.tobytes()) for each in encodings]


def test_records(encoder, statistics):
    encodings = encoder.encode(TEXTS, kind="document", statistics=statistics)
    assert [encoding.text for encoding in encodings] == TEXTS
    for encoding, terms in zip(encodings, encoder.analyse(TEXTS), strict=True):
        assert encoding.weights.terms == tuple(dict.fromkeys(terms))  # none lost, none twice
        assert encoding.weights.weights.dtype == encoding.vector.dtype == np.float32
        assert ((encoding.weights.weights > 0) & (encoding.weights.weights < np.inf)).all()
        assert encoding.vector.shape == (encoder.dimension,)
        assert np.linalg.norm(encoding.vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", ["document", "query"])
def test_an_encoding_depends_on_nothing_but_the_text(encoder, statistics, kind):
    """Whatever the neighbours, the order, the number of threads and of texts prepared at a time: the same bits."""
    together = bits(encoder.encode(TEXTS, kind=kind, statistics=statistics))
    alone = [bits(encoder.encode([text], kind=kind, statistics=statistics))[0] for text in TEXTS]
    assert together == alone
    order = random.Random(0).sample(range(len(TEXTS)), len(TEXTS))
    shuffled = bits(load(threads=1).encode([TEXTS[place] for place in order], kind=kind, statistics=statistics))
    assert [together[place] for place in order] == shuffled


def test_empty_texts_and_a_megabyte(encoder, statistics):
    assert encoder.encode([], kind="document", statistics=statistics) == []
    for encoding in encoder.encode(["", "  \n", "the"], kind="query", statistics=statistics):
        assert len(encoding.weights) == 0
        assert np.linalg.norm(encoding.vector) == pytest.approx(1, abs=1e-6)
    (encoding,) = encoder.encode(["needle " + "hay stack " * 100_000], kind="document", statistics=statistics)
    assert set(encoding.weights.terms) == {"needl", "hai", "stack"}


def test_shade_covers_words_in_reading_order(encoder, statistics):
    text = "The cafe\u0301, “ﬁne” cafés!"
    shaded = encoder.shade(text, statistics=statistics)
    words = [(text[word.start : word.end], word.term) for word in shaded]
    assert words == [("The", ""), ("cafe\u0301", "cafe"), ("ﬁne", "fine"), ("cafés", "cafe")]
    assert shaded[0].weight == 0
    assert shaded[1].weight == shaded[3].weight > 0


def test_outputs_can_be_switched_off(encoder, statistics):
    weights, dense = load(dense="none"), load(weights="")
    assert (list(weights.models), list(dense.models), dense.analysis) == (["weights"], ["dense"], None)
    assert weights.encode(["a cat"], kind="document", statistics=statistics)[0].vector is None
    (both,) = encoder.encode(["a cat"], kind="document", statistics=statistics)
    for alone in (dense, encoder.only({"dense"})):
        (found,) = alone.encode(["a cat"], kind="document")
        assert (found.weights, found.vector.tobytes()) == (None, both.vector.tobytes())
    for call in (dense.analyse, lambda texts: dense.shade(texts[0])):
        with pytest.raises(UsageError, match="no weights model"):
            call(["a"])
    nothing = load("none", "none").encode(["a cat"], kind="document")[0]
    assert (nothing.text, nothing.weights, nothing.vector) == ("a cat", None, None)
    assert DenseEncoder.load().encode([]).shape == (0, encoder.dimension)


@pytest.mark.parametrize(("wrong", "message"), [("a text", "one text"), (5, "int"), (["a", None], "NoneType")])
@pytest.mark.parametrize("facade", [TermWeighter, DenseEncoder])
def test_what_is_no_list_of_texts_is_a_sentence(encoder, facade, wrong, message):
    with pytest.raises(UsageError, match=f"encode takes (a list of )?texts, not {message}"):
        facade(encoder).encode(wrong)


def test_statistics_of_another_analysis_are_refused(encoder):
    with pytest.raises(ModelError, match="other-analysis"):
        encoder.encode(["a"], kind="query", statistics=CorpusStatistics("other-analysis", 1, 1.0, {}))


MANY, MARKS, CHINESE = 50_000, "\u0301 \u200d ", "研究生命起源，" * 1000 + "\n"
READ = [("a " * MANY, 5_000), (" " * MANY + LONG, 3 * MANY), (MARKS * MANY + "words at the end", 3 * 4 * MANY)]


@pytest.mark.parametrize(("text", "most"), [*READ, (CHINESE + "end " * MANY, 15_000)])
def test_a_model_of_vectors_alone_reads_no_more_of_a_text_than_it_sees(encoder, statistics, text, most):
    alone = load(weights="none")
    tokenizer = alone._dense.tokenizer
    tokenizer.tokenizer = counting = mock.Mock(wraps=tokenizer.tokenizer)
    (found,) = alone.encode([text], kind="document")
    assert sum(len(each) for call in counting.encode_batch.call_args_list for each in call.args[0]) <= most
    joint = encoder.encode([text], kind="document", statistics=statistics)[0]
    assert found.vector.tobytes() == joint.vector.tobytes()


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "calibration"


def test_the_texts_answer_their_questions_once():
    for language, count in (("english", 240), ("chinese", 100)):
        questions, texts = calibration.questions_and_texts(language)
        assert len(questions) == len(texts) == len(set(questions)) == len(set(texts)) == count


def test_the_shipped_model_brings_the_figure_that_is_measured(encoder, own_cache):
    assert encoder.dense_spread() == pytest.approx(calibration._measured(encoder), rel=0.02)
    assert not own_cache.exists()  # nothing was measured


def test_a_model_without_a_figure_is_measured_once_and_noted(tmp_path, own_cache, monkeypatch):
    folder = shutil.copytree(resolve("shipped"), tmp_path / "model", ignore=shutil.ignore_patterns(calibration.NOTE))
    copied = encoders.load(weights="none", dense=folder)
    monkeypatch.setattr(calibration, "questions_and_texts", lambda _: (["parse json", "bake bread"], ["json.loads", "an oven"]))
    spread = copied.dense_spread()
    (note,) = own_cache.iterdir()
    assert json.loads(note.read_bytes())["dense_spread"] == spread > 0
    monkeypatch.setattr(calibration, "_measured", lambda _: pytest.fail("measured again"))
    assert encoders.load(weights="none", dense=folder).dense_spread() == spread


@pytest.mark.parametrize("damage", ["", "{", '{"dense_spread": 9, "models": ["0"], "version": 1}', "[]"])
def test_a_note_of_another_model_or_a_damaged_one_does_not_count(tmp_path, own_cache, monkeypatch, damage):
    folder = shutil.copytree(resolve("shipped"), tmp_path / "model")
    (folder / calibration.NOTE).write_text(damage)
    monkeypatch.setattr(calibration, "_measured", lambda _: 0.5)
    assert encoders.load(weights="none", dense=folder).dense_spread() == 0.5


def test_weights_that_are_multiples_of_bm25_need_no_unit(encoder):
    assert encoder.weights_spread() == encoder.only({"weights"}).dense_spread() == 0.0
    assert calibration._measured_weights(encoder) > 0.99  # exact words: the hundredth text has none of them


def test_the_scores_of_a_sparse_model_of_others_are_measured_in_their_own_unit():
    expanding, anchored = (Weights.fit(Fitting(Capabilities(""), weights_spread=spread)) for spread in (0.5, 0.0))
    assert expanding.spread(5.0, 10.0) == 2 * anchored.spread(5.0, 10.0) == 1.0
    assert (expanding.parameters()["unit"], anchored.parameters()["unit"]) == (0.5, 1.0)


STATISTICS = CorpusStatistics("words", 1000, 7.5, {"a": 900, "b": 40, "c": 1})
TERMS = st.lists(st.sampled_from(["", "a", "b", "c", "new"]), max_size=30)


def words_of(terms):
    nothing = np.zeros(len(terms), dtype=np.int64)
    return Words("", nothing, nothing, nothing, terms)


def slow_bm25(term, terms, statistics, k1=1.2, b=0.75):
    df = statistics.document_frequency.get(term, 0)
    idf = math.log(1 + (statistics.documents - df + 0.5) / (df + 0.5))
    held = [each for each in terms if each]
    tf = held.count(term)
    return idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(held) / statistics.average_length))


def untrained(terms, kind, form, statistics=STATISTICS):
    """The weights of a text if every logit is 0."""
    anchor = anchored(words_of(terms), statistics, BM25(), kind, form)
    return anchor.weights(np.zeros(len(terms) + 2, np.float32), np.array([-1, *range(len(terms)), -1]), kind)


@pytest.mark.parametrize("form", [Form(), Form("idf"), Form(tf_power=0.5)])
def test_par_is_what_a_document_of_average_length_with_each_word_once_scores(form):
    average = replace(STATISTICS, average_length=3.0)
    query = untrained(["b", "c", "new", "b"], "query", form, average)
    there = untrained(["b", "c", "new"], "document", form, average)
    assert query.full_match_score == pytest.approx(dot(query, there), rel=1e-6)
    assert there.full_match_score is None
    assert untrained(["b", "c"], "query", Form("none"), average).full_match_score is None


@settings(max_examples=100, deadline=None)
@given(TERMS, st.floats(0, 2))
def test_the_power_lies_between_idf_and_bm25(document, power):
    bm25, idf, found = (untrained(document, "document", form).as_dict() for form in (Form(), Form("idf"), Form(tf_power=power)))
    assert found == pytest.approx({term: idf[term] ** (1 - power) * bm25[term] ** power for term in bm25}, rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(TERMS.filter(bool), st.randoms(use_true_random=False), st.integers(0, 30))
def test_trained_against_a_slow_version(terms, random, seen):
    """Some words have several pieces; the model sees the first `seen` pieces only."""
    word_of_piece = [place for place in range(len(terms)) for _ in range(random.choice([1, 1, 2, 3]))][:seen]
    logits = [random.uniform(-4, 4) for _ in word_of_piece]
    of_piece, z = np.array([-1, *word_of_piece, -1]), np.array([9.0, *logits, 9.0], dtype=np.float32)

    def softplus(best):
        return math.log1p(math.exp(best + math.log(math.e - 1)))

    of_word = list(zip(word_of_piece, logits, strict=True))
    by_word = {word: max(value for other, value in of_word if other == word) for word in word_of_piece}
    impacts, factors = {}, {}
    for term in set(terms) - {""}:
        places = [place for place, each in enumerate(terms) if each == term]
        best = [by_word[place] for place in places if place in by_word]
        impacts[term] = slow_bm25(term, terms, STATISTICS) * (softplus(max(best)) if best else 1.0)
        factors[term] = sum(softplus(by_word[place]) if place in by_word else 1.0 for place in places)
    for kind, expected in (("document", impacts), ("query", factors)):
        found = anchored(words_of(terms), STATISTICS, BM25(), kind).weights(z, of_piece, kind)
        assert found.as_dict() == pytest.approx(expected, rel=1e-5)
        assert (found.weights.dtype, (found.weights > 0).all()) == (np.float32, True)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_a_number_is_no_unseen_word(wrong):
    anchor = anchored(words_of(["a", "b"]), STATISTICS, BM25(), "document")
    with pytest.raises(ModelError, match="not a number"):
        anchor.weights(np.array([0, 1, wrong, 0], np.float32), np.array([-1, 0, 1, -1]), "document")


def test_features_are_idf_and_bm25():
    anchor = anchored(words_of(["a", "", "b"]), STATISTICS, BM25(), "document")
    features = anchor.features(np.array([-1, 0, 1, 2, 2, -1]), "document")
    assert features.shape == (6, 2)
    tenfold = [STATISTICS.idf("a"), slow_bm25("a", ["a", "b"], STATISTICS)]
    assert (10 * features[1]).tolist() == pytest.approx(tenfold, rel=1e-6)
    assert features[[0, 2, 5]].tolist() == [[0, 0]] * 3
    assert features[3].tolist() == features[4].tolist()
    assert (anchored(words_of(["a"]), STATISTICS, BM25(), "query").features(np.array([0]), "query")[:, 1] == 0).all()


def test_an_empty_corpus_divides_by_nothing():
    anchor = anchored(words_of(["a"]), CorpusStatistics("words", 0, 0.0, {}), BM25(), "document").anchor
    assert ((anchor > 0) & (anchor < np.inf)).all()
