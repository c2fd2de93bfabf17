"""Signals without a server: names, scales, forms; the signal `learned` on the real engine."""

import math
import random
import unicodedata
from collections import Counter
from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave import corpora
from termweave.catalog.layout import BUCKETS, DocumentLayout, bucket_of, engine_id, signal_class, source_digest
from termweave.contracts.signal import Clause, Fitting, Pruning
from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import ANALYSIS
from termweave.encoders.model_lookup import resolve
from termweave.errors import ModelError, UsageError
from termweave.indexer import BuildOptions, build, verify
from termweave.indexer.ledger import storage
from termweave.records import Capabilities, Document, Encoding, TermWeights
from termweave.search.index import Index
from termweave.signals.dense import Dense, from_half, from_halves, to_half
from termweave.signals.learned import LearnedWeights, english_words
from termweave.signals.lexical import Lexical
from termweave.signals.weights import Weights, escape, unescape
from tests.corpora.index.conftest import write
from tests.encoders.exact_scores import counted
from tests.signals.test_weights import encoded

TERM = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
CORE = Capabilities("3.6.0", knn=True)


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
    for server in (replace(CORE, neural_sparse=True), CORE):
        clause = Weights(w_max=12.0, levels=240).clause(Encoding("cat", query), size=10, where=(), capabilities=server)
        assert clause.full_match_score == pytest.approx(60.0)
    assert Weights(w_max=4.0).full_match_score(replace(query, full_match_score=None)) is None


def test_a_query_that_says_nothing_has_no_clause():
    nothing = Encoding(" ", TermWeights((), np.zeros(0, np.float32)))
    for signal in (Weights(), Lexical(), Dense(4)):
        assert signal.clause(nothing, size=10, where=(), capabilities=CORE) is None


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
    signal = Weights.fit(Fitting(CORE, [encoded({"a": 4.0, "b": 4.0})], pruning=pruning))
    again = DocumentLayout.from_meta({"weights": signal.parameters()}).signals[0]
    document = Document("d", "t")
    assert again.fields(document, encoded({"heavy": 4.0, "light": 0.9, "edge": 1.0}))["weights"] == {"heavy": 255, "edge": 64}
    assert again.fields(document, encoded({"light": 0.1}))["weights"] == {"light": 6}


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


WORDS = analysis_of(ANALYSIS, PieceTokenizer(resolve("shipped") / "tokenizer.json").tokenizer, model="test")
EMOJI = "👍🎉🚲🦄"


def create(engine, name, settings, mapping=None):
    settings = {**settings, "index.number_of_shards": 1, "index.number_of_replicas": 0}
    engine.request("PUT", f"/{name}", body={"settings": settings, "mappings": mapping or {}})


def test_frequencies_invert_the_saturation_and_no_word_is_lost():
    statistics, server = counted(ANALYSIS, WORDS.terms(["cat", "dog bird", "fish"])), Capabilities("3.6.0")
    idf, signal = statistics.idf("cat"), LearnedWeights(w_max=2.0, analysis=ANALYSIS)
    encoding = encoded({"cat": 2.0 * idf, "dog": idf, "bird": 0.00001, "fish": 99.0})
    body = signal.fields(Document("d", "x"), encoding, statistics)
    assert body == {"learned": ["cat|1000", "dog|333", "bird|1", "fish|9000"]}
    assert signal.fields(Document("d", ""), encoded({}), statistics) == {}
    fitted = LearnedWeights.fit(Fitting(server, [encoded({"cat": idf})], statistics=statistics))
    assert (fitted.w_max, fitted.analysis) == (pytest.approx(1.0), ANALYSIS)
    pruning = LearnedWeights.fit(Fitting(server, pruning=Pruning(below=0.2), statistics=statistics))
    (held,) = pruning.fields(Document("d", "x"), encoded({"cat": 0.5, "dog": 0.1}), statistics)["learned"]
    assert held.startswith("cat|")


def test_it_is_built_only_when_asked_for_and_what_prevents_it_is_a_sentence():
    assert (signal_class("learned"), LearnedWeights.default) == (LearnedWeights, False)
    assert LearnedWeights.unavailable(Capabilities("3.6.0"), ANALYSIS) is None
    assert "'delimited_term_freq'" in LearnedWeights.unavailable(Capabilities("9.2.0", distribution="elasticsearch"), ANALYSIS)
    assert "'bert-pieces.1'" in LearnedWeights.unavailable(Capabilities("3.6.0"), "bert-pieces.1")


def test_a_match_gives_the_dot_product_and_its_explanation(opensearch_engine, name):
    draw = np.random.default_rng(7)
    vocabulary = ["river", "stone", "bridg", "light", "garden", "storm", "mountain", "café", "日", "3", "naïve", "👍", "x"]
    texts = {f"d{place}": " ".join(draw.choice(vocabulary, draw.integers(1, 9))) for place in range(80)} | {"empty": ""}
    terms = dict(zip(texts, WORDS.terms([*texts.values()]), strict=True))
    statistics = counted(ANALYSIS, terms.values())
    impacts = {
        key: {term: float(np.float32(draw.uniform(0.2, 2) * statistics.idf(term))) for term in dict.fromkeys(several)}
        for key, several in terms.items()
    }
    layout = DocumentLayout([signal := LearnedWeights(w_max=2.0, analysis=ANALYSIS)])
    create(opensearch_engine, name, layout.settings(), layout.mapping({}))
    bodies = {key: layout.document(Document(key, texts[key]), encoded(impacts[key]), statistics) for key in texts}
    write(opensearch_engine, name, bodies)

    held = len([1 for weights in impacts.values() if weights])
    frequency = Counter(term for weights in impacts.values() for term in weights)
    for query in ("river stones", "The bridges, the bridges!", "CAFE naive 日本 👍", "x 3.3 storm garden light mountain"):
        occurrences = Counter(WORDS.terms([query])[0])
        encoding = Encoding(query)
        clause = signal.clause(encoding, size=100, where=(), capabilities=opensearch_engine.capabilities)
        hits = opensearch_engine.request("POST", f"/{name}/_search", body={"query": clause.query, "explain": True, "size": 100})
        found = {hit["_id"]: hit for hit in hits["hits"]["hits"]}
        assert found.keys() == {identity for identity, weights in impacts.items() if weights.keys() & occurrences.keys()}
        for identity, hit in found.items():
            shares = {}
            for term in impacts[identity].keys() & occurrences.keys():
                ours, server = statistics.idf(term), math.log1p((held - frequency[term] + 0.5) / (frequency[term] + 0.5))
                shares[term] = occurrences[term] * impacts[identity][term] / (2 * signal.w_max) * server / ours
            assert hit["_score"] == pytest.approx(sum(shares.values()), rel=0.01)
            told = {each.term: each.share for each in signal.explain(encoding, clause, hit["_source"], hit["_explanation"])}
            assert told == pytest.approx(shares, rel=0.01)
            assert sum(told.values()) == pytest.approx(hit["_score"], rel=1e-5)


def _scripts():
    """Characters of all scripts, without those named since Unicode 3.2, single letters of Hangul, and halves of vowel signs."""
    old = unicodedata.ucd_3_2_0
    ranges = (range(0x20, 0x1100), range(0x1200, 0xD800), range(0xE000, 0x10000), range(0x20000, 0x2A000))
    characters = [chr(code) for codes in ranges for code in codes]
    return [each for each in characters if old.category(each) == unicodedata.category(each) not in {"Cn", "Mc"}]


def _texts(count):
    draw, characters = random.Random(1), _scripts()
    for _ in range(count):
        place = draw.randrange(len(characters) - 200)
        near = characters[place : place + 200] + list("abcXYZ019.-'_ \t\n") * 5 + list(EMOJI)
        yield "".join(draw.choice(near) for _ in range(draw.randint(1, 30)))


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_the_search_analyzer_cuts_words_as_the_model_does(opensearch_engine, name, count):
    create(opensearch_engine, name, {**english_words("words"), "index.analyze.max_token_count": 1_000_000})
    texts = [*_texts(count), "running ﬁnds CAFÉ’s", "x" * 201 + " y"]
    for start in range(0, len(texts), 500):
        part = texts[start : start + 500]
        body = {"analyzer": "words", "text": part}
        tokens = [each["token"] for each in opensearch_engine.request("POST", f"/{name}/_analyze", body=body)["tokens"]]
        assert tokens == [term for terms in WORDS.terms(part) for term in terms], start


@pytest.fixture(scope="module")
def built(opensearch_engine, tmp_path_factory):
    texts = ["The cat sat on the mat.", "A dog barked at the cat.", "Photosynthesis happens in plant cells.", "", "a|b 100% 3.5"]
    path = tmp_path_factory.mktemp("learned") / "corpus.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"_id": str(place), "text": text}) for place, text in enumerate(texts)))
    options = BuildOptions(signals=("lexical", "weights", "learned", "dense"), shards=1)
    made = build(opensearch_engine, corpora.open_source(path), "test-learned-signal", options)
    yield made
    opensearch_engine.request("DELETE", f"/{made.index}*", params={"expand_wildcards": "all"})


def test_an_index_with_all_four_signals(opensearch_engine, built):
    """`--signals lexical,weights,learned,dense`, `--mode learned`: nothing else had to be told of the signal."""
    assert set(built.signals) == {"lexical", "weights", "learned", "dense"}
    index = Index.open(opensearch_engine, built.index)
    with storage.existing(opensearch_engine, index.generation) as ledger:
        assert verify(opensearch_engine, index.generation, ledger, deep=True).ok
    for mode in ("learned", "lexical:1,weights:1,learned:2,dense:1"):
        (best, *_) = index.search("barking dogs", mode=mode, explain=True, highlight=True)
        assert best.id == "1"
        assert sum(part["share"] for part in best.explain()["parts"]) == pytest.approx(best.score, abs=1e-5)
        assert [best.fields["text"][start:end] for start, end in best.highlights[0].matches] == ["dog", "barked"]
    (part,) = index.search("cat on mats", mode="learned", k=1, explain=True)[0].explain()["parts"]
    assert {term["term"]: term["word"] for term in part["terms"]} == {"cat": "cat", "mat": "mats"}
    assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)


def test_any_client_searches_it(opensearch_engine, built):
    highlight = {"require_field_match": False, "fields": {"text": {}}}
    for query in (
        {"match": {"learned": "Barking dogs"}},
        {"multi_match": {"query": "barking dogs", "fields": ["title^3", "learned^2"]}},
        {"query_string": {"query": "learned:(barking AND dogs)"}},
    ):
        answer = opensearch_engine.request("POST", f"/{built.index}/_search", body={"query": query, "highlight": highlight})
        best = answer["hits"]["hits"][0]
        assert (best["_id"], "<em>dog</em>" in best["highlight"]["text"][0]) == ("1", True)
