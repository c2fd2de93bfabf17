"""The term_frequency signal on the real engine: its score is BM25 over the stored frequencies, computed here."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import orjson
import pytest

from termweave.records import Capabilities, Document, Encoding, TermWeights
from termweave.search.index import Index
from termweave.search.retrieval.candidates import gather
from termweave.search.retrieval.requests import signal_requests
from termweave.signals import DocumentLayout, Fitting, signal_class
from termweave.signals.impacts import unescape
from termweave.signals.pruning import Pruning
from termweave.signals.term_frequency import DELIMITER, TermFrequency

STRANGE = [
    "plain", "3.5", "a|b", "|", "||7", "x|12", "%7C", "100%", "two words", " lead", "naïve", "Ωμέγα", "שלום", "日本語", "👩‍👩‍👧",
    "in 7", "weight(a in 3)", "term_frequency:a", "Synonym(a b)", "x" * 200, "字" * 200, 'quote"', "back\\slash", "tab\there", "new\nline",
]  # fmt: skip


def weighted(weights):
    return TermWeights(tuple(weights), np.array(list(weights.values()), np.float32))


def test_it_is_found_by_its_entry_point_and_built_only_when_asked_for():
    found = signal_class("term_frequency")
    assert found.name == "term_frequency"
    assert not found.default
    assert (found().k1, found().b) == (10.0, 0.9)


def test_frequencies_are_hundredths_of_the_scale_and_no_word_is_lost():
    signal = TermFrequency(w_max=4.0)
    body = signal.fields(Document("d", "x"), Encoding("x", weighted({"a": 1.0, "b": 0.001, "c": 9.0})))
    assert body == {"term_frequency": ["a|25", "b|1", "c|100"]}
    assert signal.fields(Document("d", ""), Encoding("", weighted({}))) == {}
    fitted = TermFrequency.fit(Fitting(Capabilities("3.6.0"), pruning=Pruning(below=0.2)))
    assert fitted.fields(Document("d", "x"), Encoding("x", weighted({"a": 0.5, "b": 0.1}))) == {"term_frequency": ["a|50"]}


def decoded(length):
    """A document length as Lucene keeps it: one byte, four significant bits, exact up to 39 (`SmallFloat.intToByte4`)."""
    free = 24  # 255 - the largest long that four bits can say
    if length < free:
        return length
    rest = length - free
    shift = max(rest.bit_length() - 4, 0)
    return free + ((rest >> shift) << shift)


def bm25(query, documents, signal):
    """Document -> term -> score, over ``{document: {term: tf}}``."""
    held = [tf for tf in documents.values() if tf]
    average = sum(sum(tf.values()) for tf in held) / len(held)
    df = Counter(term for tf in held for term in tf)
    found = {}
    for identity, tf in documents.items():
        norm = signal.k1 * (1 - signal.b + signal.b * decoded(sum(tf.values())) / average)
        for term in tf.keys() & query.keys():
            idf = math.log(1 + (len(held) - df[term] + 0.5) / (df[term] + 0.5))
            found.setdefault(identity, {})[term] = query[term] * idf * tf[term] / (tf[term] + norm)
    return found


@pytest.fixture(scope="module")
def collection():
    random = np.random.default_rng(7)
    documents = {
        f"d{number}": {
            term: float(weight)
            for term, weight in zip(STRANGE, random.uniform(0.001, 14, len(STRANGE)), strict=True)
            if random.random() < random.choice([0.1, 0.6])
        }
        for number in range(60)
    }
    queries = [
        {term: float(np.float32(random.uniform(0.01, 5))) for term in random.choice(STRANGE, 8, replace=False)} for _ in range(8)
    ]
    return documents | {"no terms": {}}, queries


@pytest.mark.engine
def test_scores_are_bm25_over_the_stored_frequencies_and_explained_exactly(opensearch_engine, name, collection):
    documents, queries = collection
    signal = TermFrequency(w_max=10.0)
    layout = DocumentLayout([signal])
    settings = {**layout.settings(), "index.number_of_shards": 1, "index.number_of_replicas": 0}
    opensearch_engine.request("PUT", f"/{name}", body={"settings": settings, "mappings": layout.mapping({})})
    lines = []
    for identity, weights in documents.items():
        lines.append(orjson.dumps({"index": {"_id": identity}}))
        lines.append(orjson.dumps(layout.document(Document(identity, "x"), Encoding("x", weighted(weights)))))
    answer = opensearch_engine.request("POST", f"/{name}/_bulk", params={"refresh": True}, body=b"\n".join(lines) + b"\n")
    assert not answer["errors"], [item for item in answer["items"] if item["index"]["status"] > 201][:2]

    stored = {}
    hits = opensearch_engine.request("POST", f"/{name}/_search", body={"size": 100})["hits"]["hits"]
    for hit in hits:
        assert layout.encoding_digest(hit["_source"]) == hit["_source"]["encoding_digest"]
        pairs = [token.rpartition("|") for token in hit["_source"].get("term_frequency", [])]
        stored[hit["_id"]] = {unescape(token, DELIMITER): int(tf) for token, _, tf in pairs}
    assert stored.keys() == documents.keys()
    assert all(stored[identity].keys() == weights.keys() for identity, weights in documents.items())

    for query in queries:
        encoding = Encoding("q", weighted(query))
        prepared = signal_requests(encoding, [signal], opensearch_engine.capabilities, depth=100)
        (found,), _ = gather(opensearch_engine, name, [prepared], [signal])
        expected = bm25(query, stored, signal)
        scores = dict(found.lists["term_frequency"].scores)
        assert scores == {identity: pytest.approx(sum(shares.values()), rel=1e-5) for identity, shares in expected.items()}
        clause = found.clauses["term_frequency"]
        body = {"query": clause.query, "explain": True, "size": 100}
        for hit in opensearch_engine.request("POST", f"/{name}/_search", body=body)["hits"]["hits"]:
            told = {each.term: each.share for each in signal.explain(encoding, clause, hit["_source"], hit["_explanation"])}
            assert told == pytest.approx(expected[hit["_id"]], rel=1e-5)
            assert sum(told.values()) == pytest.approx(scores[hit["_id"]], rel=1e-5)


@pytest.mark.engine
def test_an_index_with_all_four_signals(opensearch_engine, name, tmp_path):
    """`--signals lexical,weights,term_frequency,dense`, `--mode term_frequency`: nothing else had to be told of the signal."""
    from termweave import corpora
    from termweave.indexer import BuildOptions, build, verify
    from termweave.indexer.ledger import storage

    texts = ["The cat sat on the mat.", "A dog barked at the cat.", "Photosynthesis happens in plant cells.", "", "a|b 100% 3.5"]
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"_id": str(place), "text": text}) for place, text in enumerate(texts)))
    built = build(
        opensearch_engine,
        corpora.open_source(path),
        name,
        BuildOptions(signals=("lexical", "weights", "term_frequency", "dense"), shards=1),
    )
    assert set(built.signals) == {"lexical", "weights", "term_frequency", "dense"}
    index = Index.open(opensearch_engine, name)
    with storage.existing(opensearch_engine, index.generation) as ledger:
        assert verify(opensearch_engine, index.generation, ledger, deep=True).ok
    for mode in ("term_frequency", "term_frequency:1,dense:1", "lexical:1,weights:1,term_frequency:2,dense:1"):
        (best, *_) = index.search("barking dogs", mode=mode, explain=True)
        assert best.id == "1"
        assert sum(part["share"] for part in best.explain()["parts"]) == pytest.approx(best.score, abs=1e-5)
    (best,) = index.search("cat on mats", mode="term_frequency", k=1, explain=True)
    (part,) = best.explain()["parts"]
    assert {term["term"]: term["word"] for term in part["terms"]} == {"cat": "cat", "mat": "mats"}
    assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)
