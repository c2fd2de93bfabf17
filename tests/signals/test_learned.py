"""The learned signal on the real engine: a plain `match` scores learned weights, and the server cuts words as the model does."""

import math
import random
import unicodedata
from collections import Counter

import numpy as np
import orjson
import pytest

from termweave import corpora
from termweave.catalog.layout import DocumentLayout, signal_class
from termweave.contracts.signal import Fitting, Pruning
from termweave.encoders.analysis.analyses import analysis_of
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import ANALYSIS
from termweave.encoders.model_lookup import resolve
from termweave.indexer import BuildOptions, build, verify
from termweave.indexer.ledger import storage
from termweave.records import Capabilities, Document, Encoding, TermWeights
from termweave.search.index import Index
from termweave.signals.learned import LearnedWeights, english_words
from termweave.statistics import StatisticsCounter

WORDS = analysis_of(ANALYSIS, PieceTokenizer(resolve("shipped") / "tokenizer.json").tokenizer, model="test")
EMOJI = "👍🎉🚲🦄"


def weighted(weights):
    return TermWeights(tuple(weights), np.array(list(weights.values()), np.float32))


def counted(texts):
    counter = StatisticsCounter(ANALYSIS)
    for terms in WORDS.terms(texts):
        counter.add(terms)
    return counter.result()


def create(engine, name, settings, mapping=None):
    settings = {**settings, "index.number_of_shards": 1, "index.number_of_replicas": 0}
    engine.request("PUT", f"/{name}", body={"settings": settings, "mappings": mapping or {}})


def test_frequencies_invert_the_saturation_and_no_word_is_lost():
    statistics, server = counted(["cat", "dog bird", "fish"]), Capabilities("3.6.0")
    idf, signal = statistics.idf("cat"), LearnedWeights(w_max=2.0, analysis=ANALYSIS)
    weights = weighted({"cat": 2.0 * idf, "dog": idf, "bird": 0.00001, "fish": 99.0})
    body = signal.fields(Document("d", "x"), Encoding("x", weights), statistics)
    assert body == {"learned": ["cat|1000", "dog|333", "bird|1", "fish|9000"]}
    assert signal.fields(Document("d", ""), Encoding("", weighted({})), statistics) == {}
    fitted = LearnedWeights.fit(Fitting(server, [Encoding("x", weighted({"cat": idf}))], statistics=statistics))
    assert (fitted.w_max, fitted.analysis) == (pytest.approx(1.0), ANALYSIS)
    pruning = LearnedWeights.fit(Fitting(server, pruning=Pruning(below=0.2), statistics=statistics))
    pruned = Encoding("x", weighted({"cat": 0.5, "dog": 0.1}))
    assert [each[:4] for each in pruning.fields(Document("d", "x"), pruned, statistics)["learned"]] == ["cat|"]


def test_it_is_built_only_when_asked_for_and_what_prevents_it_is_a_sentence():
    assert (signal_class("learned"), LearnedWeights.default) == (LearnedWeights, False)
    assert LearnedWeights.unavailable(Capabilities("3.6.0"), ANALYSIS) is None
    assert "'delimited_term_freq'" in LearnedWeights.unavailable(Capabilities("9.2.0", distribution="elasticsearch"), ANALYSIS)
    assert "'bert-pieces.1'" in LearnedWeights.unavailable(Capabilities("3.6.0"), "bert-pieces.1")


@pytest.mark.engine
def test_a_match_gives_the_dot_product_and_its_explanation(opensearch_engine, name):
    draw = np.random.default_rng(7)
    vocabulary = ["river", "stone", "bridg", "light", "garden", "storm", "mountain", "café", "日", "3", "naïve", "👍", "x"]
    texts = {f"d{place}": " ".join(draw.choice(vocabulary, draw.integers(1, 9))) for place in range(80)} | {"empty": ""}
    statistics = counted(list(texts.values()))
    impacts = {}
    for identity, text in texts.items():
        terms = dict.fromkeys(WORDS.terms([text])[0])
        impacts[identity] = {term: float(np.float32(draw.uniform(0.2, 2) * statistics.idf(term))) for term in terms}
    signal = LearnedWeights(w_max=2.0, analysis=ANALYSIS)
    layout = DocumentLayout([signal])
    create(opensearch_engine, name, layout.settings(), layout.mapping({}))
    lines = []
    for identity, weights in impacts.items():
        lines.append(orjson.dumps({"index": {"_id": identity}}))
        body = layout.document(Document(identity, texts[identity]), Encoding("x", weighted(weights)), statistics)
        lines.append(orjson.dumps(body))
    answer = opensearch_engine.request("POST", f"/{name}/_bulk", params={"refresh": True}, body=b"\n".join(lines) + b"\n")
    assert not answer["errors"], [item for item in answer["items"] if item["index"]["status"] > 201][:2]

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


@pytest.mark.engine
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


@pytest.mark.engine
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


@pytest.mark.engine
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
