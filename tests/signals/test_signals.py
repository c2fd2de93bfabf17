"""Signals without a server: names, scales, forms."""

from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.catalog.layout import BUCKETS, DocumentLayout, bucket_of, engine_id, source_digest
from termweave.contracts.signal import Clause, Fitting, Pruning
from termweave.errors import ModelError, UsageError
from termweave.records import Capabilities, Document, Encoding, TermWeights
from termweave.signals.dense import Dense, from_half, from_halves, to_half
from termweave.signals.lexical import Lexical
from termweave.signals.weights import Weights, escape, unescape

TERM = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
CORE = Capabilities("3.6.0", knn=True)
SPARSE = Capabilities("3.6.0", knn=True, neural_sparse=True)


@given(TERM, st.sampled_from(".|"))
def test_escape_is_reversible_and_free_of_the_sign(term, sign):
    assert unescape(escape(term, sign), sign) == term
    assert sign not in escape(term, sign)


@given(st.lists(st.floats(2.0**-20, 2.0**13, width=32), min_size=1))
def test_quantised_impacts_are_what_the_engine_stores_exactly(impacts):
    values = Weights(w_max=10.0).quantise(np.array(impacts, np.float32))
    expected = np.clip(np.rint(np.array(impacts, np.float32).astype(np.float64) / 10.0 * 255), 1, 255)  # no word is lost
    np.testing.assert_array_equal(values, expected)


def test_the_scale_is_a_high_quantile_of_the_sample():
    impacts = np.linspace(0.001, 5, 10_000, dtype=np.float32)
    sample = [Encoding("t", TermWeights(tuple(map(str, range(10_000))), impacts))]
    assert Weights.fit(Fitting(CORE, sample)).w_max == pytest.approx(4.995, abs=0.01)
    assert Weights.fit(Fitting(CORE)).w_max == 1.0


def test_the_score_of_a_full_match_is_on_the_scale_of_what_is_stored():
    query = TermWeights(("cat",), np.array([2.0], np.float32), full_match_score=3.0)
    for server in (SPARSE, CORE):
        clause = Weights(w_max=12.0, levels=240).clause(Encoding("cat", query), size=10, where=(), capabilities=server)
        assert clause.full_match_score == pytest.approx(60.0)
    assert Weights(w_max=4.0).full_match_score(replace(query, full_match_score=None)) is None


def test_a_query_that_says_nothing_has_no_clause():
    nothing = Encoding(" ", TermWeights((), np.zeros(0, np.float32)))
    assert Weights().clause(nothing, size=10, where=(), capabilities=CORE) is None
    assert Lexical().clause(nothing, size=10, where=(), capabilities=CORE) is None
    assert Dense(4).clause(nothing, size=10, where=(), capabilities=CORE) is None


def test_long_lexical_queries_lose_repetitions_first_and_then_say_so():
    def sent(text):
        clause = Lexical().clause(Encoding(text), size=10, where=(), capabilities=CORE)
        return clause.query["match"]["content"]["query"].split(), clause.dropped

    assert sent("word " * 3000 + "captain") == (["word", "captain"], ())
    assert sent("os.path.join " * 1000) == (["os.path.join"], ())
    words, dropped = sent(" ".join(f"w{number}" for number in range(3000)))
    assert len(words) == 1008
    assert len(dropped) == 3000 - 1008
    many = "".join(chr(0x4E00 + number) for number in range(3000))
    ((kept,), (rest,)) = sent(many)
    assert (len(kept), kept + rest) == (1008, many)


@pytest.mark.parametrize("dimension", [384, 383, 32, 1024])
def test_half_floats_come_back(dimension):
    vector = np.linspace(-1, 1, dimension, dtype=np.float32)
    written = to_half(vector)
    for value in (written, written.rstrip("=")):  # as it is sent, and as OpenSearch gives it back among the doc values
        np.testing.assert_allclose(from_half(value), vector, atol=5e-4)
        np.testing.assert_allclose(from_halves([value, None, value], dimension), [vector, np.zeros(dimension), vector], atol=5e-4)


@pytest.mark.parametrize(("engine", "inner"), [(1.0, 0.0), (1.7, 0.7), (0.5, -1.0), (1 / 1.25, -0.25)])
def test_engine_scores_are_turned_back_into_inner_products(engine, inner):
    assert Dense(4).score(engine, Clause({})) == pytest.approx(inner)


def test_bytes_give_nearly_the_inner_products_of_floats():
    vectors = np.random.default_rng(0).normal(size=(201, 384)).astype(np.float32)
    question, *vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    signal = Dense.fit(Fitting(CORE, [Encoding("t", None, each) for each in vectors], 384, byte_vectors=True))
    clause = signal.clause(Encoding("q", None, question), size=10, where=(), capabilities=CORE)
    asked = clause.query["knn"]["vector"]["vector"]
    assert np.abs(asked).max() == 127  # a query uses all steps
    for vector in vectors:
        stored = signal.fields(Document("d", "t"), Encoding("t", None, vector))["vector"]
        inner = int(stored.astype(int) @ asked.astype(int))
        engine = 1.0 + inner if inner >= 0 else 1 / (1 - inner)
        assert signal.score(engine, clause) == pytest.approx(float(vector @ question), abs=0.005)


def test_an_index_of_bytes():
    signal = Dense(4, byte_scale=254.0)
    stored = signal.fields(Document("d", "t"), Encoding("t", None, np.array([0.9, -0.9, 0.25, 0.0], np.float32)))["vector"]
    assert stored.tolist() == [127, -127, 64, 0]  # .25 x 254 is 63.5; numbers beyond those of the sample are clipped
    assert signal.parameters()["byte_scale"] == 254.0
    assert signal.properties()["vector"]["data_type"] == "byte"
    assert Dense.fit(Fitting(CORE, (), 400, byte_vectors=True)).byte_scale == pytest.approx(127 * 20 / 4)  # without a sample
    assert "byte_scale" not in Dense(4).parameters()  # an index of floats has the parameters of earlier versions
    assert "data_type" not in Dense(4).properties()["vector"]


@pytest.mark.parametrize("vector", [None, np.ones(3, np.float32), np.array([1, np.nan, 0, 0], np.float32)])
def test_a_wrong_vector_is_refused_with_the_document_named(vector):
    with pytest.raises(ModelError, match="d1"):
        Dense(4).fields(Document("d1", "text"), Encoding("text", vector=vector))


def test_long_ids_get_a_stable_short_one():
    assert engine_id("short") == "short"
    assert engine_id("x" * 600) == engine_id("x" * 600) != engine_id("x" * 601)
    assert len(engine_id("字" * 300).encode()) <= 512
    assert {bucket_of(str(number)) for number in range(100 * BUCKETS)} == set(range(BUCKETS))


def test_digests_change_with_every_part():
    base = Document("a", "text", "title", {"year": 2020})
    changes = ({"id": "b"}, {"text": "text!"}, {"title": "t"}, {"metadata": {"year": 2021}}, {"text": "titletext", "title": ""})
    others = [replace(base, **change) for change in changes]
    assert len({source_digest(document) for document in [base, *others]}) == 6


def test_encoding_digest_is_the_same_before_sending_and_after_json():
    layout = DocumentLayout([Lexical(), Weights(w_max=3.0), Dense(8)])
    weights, vector = TermWeights(("a.b", "c"), np.array([0.3, 2.5], np.float32)), np.random.default_rng(0).normal(size=8)
    body = layout.document(Document("d", "x"), Encoding("x", weights, vector.astype(np.float32)))
    stored = orjson.loads(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))
    assert layout.encoding_digest(stored) == body["encoding_digest"]
    stored["weights"]["c"] -= 1
    assert layout.encoding_digest(stored) != body["encoding_digest"]


WEIGHTS = st.lists(st.floats(2.0**-10, 100, width=32), min_size=1, max_size=40)


@given(WEIGHTS, st.sampled_from([0.0, 0.1, 0.5, 0.99]), st.sampled_from([0.0, 0.05, 0.5]))
def test_pruning_drops_the_lightest_and_never_all(impacts, share, below):
    weights = TermWeights(tuple(f"t{place}" for place in range(len(impacts))), np.array(impacts, np.float32))
    kept = Pruning(share, below).apply(weights, w_max=10.0)
    lightest = sorted(impacts)[: int(share * len(impacts))]
    assert max(impacts) == kept.weights.max()
    assert list(kept.terms) == [term for term in weights.terms if term in set(kept.terms)]  # in their order
    for term in set(weights.terms) - set(kept.terms):
        impact = impacts[int(term[1:])]
        assert impact < 10.0 * below or (lightest and impact <= lightest[-1])
    if not share:
        assert kept.weights.min() >= min(10.0 * below, max(impacts))
    if not below:
        assert len(kept) == len(impacts) - len(lightest)


def test_pruned_is_the_same_in_every_signal_and_comes_back_from_meta():
    pruning = Pruning.parse("0.25")
    sample = [Encoding("t", TermWeights(("a", "b"), np.array([4.0, 4.0], np.float32)))]
    signal = Weights.fit(Fitting(CORE, sample, pruning=pruning))
    again = DocumentLayout.from_meta({"weights": signal.parameters()}).signals[0]
    document = Encoding("t", TermWeights(("heavy", "light", "edge"), np.array([4.0, 0.9, 1.0], np.float32)))
    assert again.fields(Document("d", "t"), document)["weights"] == {"heavy": 255, "edge": 64}
    light = Encoding("t", TermWeights(("light",), np.array([0.1], np.float32)))
    assert again.fields(Document("d", "t"), light)["weights"] == {"light": 6}


def test_what_is_stored_gives_the_impacts_back():
    given, signal = np.arange(1, 41, dtype=np.float32) / 5, Weights(w_max=8.0)
    stored = {f"t{place}": level for place, level in enumerate(signal.quantise(given).tolist())}
    impacts = signal.impacts_of({"weights": stored})
    assert impacts.terms == tuple(stored)
    np.testing.assert_allclose(impacts.weights, given, atol=8 / 255 / 2 * 1.01)


@pytest.mark.parametrize("text", ["", "100%", "-1%", "1", "nan"])
def test_what_cannot_be_pruned_is_said(text):
    with pytest.raises(UsageError, match="is not a value for prune"):
        Pruning.parse(text)
