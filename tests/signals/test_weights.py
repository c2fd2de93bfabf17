"""The weights signal on the real engine: its score is the client's dot product, for whatever terms there are.

tests/engine/elasticsearch calls these tests with an Elasticsearch.
"""

from dataclasses import replace

import numpy as np
import pytest

from termweave.catalog.layout import DocumentLayout
from termweave.contracts.signal import clause_budget
from termweave.dialect import dialect_of
from termweave.records import Document, Encoding, TermWeights
from termweave.search.retrieval.candidates import gather, signal_requests
from termweave.signals.lexical import Lexical
from termweave.signals.weights import Weights
from tests.corpora.index.conftest import write

STRANGE = [
    "plain", "3.5", "3_5", "a.b.c", ".", "..", "trailing.", "100%", "%2E", "##ing", "two words", " lead", "naïve", "naive",
    "Ωμέγα", "שלום", "日本語", "🙂", "👩‍👩‍👧", "a*b", "a?b", "weights", "_id",
    "x" * 200, "字" * 200, 'quote"', "back\\slash", "tab\there", "new\nline", "zero\u200bwidth", "{", "null",
]  # fmt: skip


def encoded(weights):
    return Encoding("x", TermWeights(tuple(weights), np.array(list(weights.values()), np.float32)))


def index(engine, name, documents, signal):
    layout = DocumentLayout([Lexical("standard"), signal])
    settings = {"index.number_of_shards": 3, "index.number_of_replicas": 0}
    mapping = layout.mapping({}, dialect_of(engine.capabilities))
    engine.request("PUT", f"/{name}", body={"mappings": mapping, "settings": settings})
    write(engine, name, {key: layout.document(Document(key, "x"), encoded(weights)) for key, weights in documents.items()})


def scores(engine, name, weights, signal, capabilities):
    prepared = signal_requests(encoded(weights), [signal], capabilities, depth=1000)
    (found,), _ = gather(engine, name, [prepared], [signal])
    return dict(found.lists["weights"].scores), found.clauses["weights"]


def forms(engine):
    capabilities = engine.capabilities
    if capabilities.sparse_vector:
        return {"sparse_vector": capabilities}
    assert capabilities.neural_sparse, "the embedded node carries neural-search"
    return {"neural_sparse": capabilities, "rank_feature": replace(capabilities, neural_sparse=False)}


@pytest.mark.parametrize("form", ["neural_sparse", "rank_feature"])
def test_score_is_the_dot_product_for_strange_terms_and_the_sum_of_its_shares(opensearch_engine, name, form):
    random = np.random.default_rng(7)
    signal = Weights(w_max=10.0)

    def some(low, high, share):
        weights = zip(STRANGE, random.uniform(low, high, len(STRANGE)), strict=True)
        return {term: float(np.float32(weight)) for term, weight in weights if random.random() < share}

    documents = {f"d{number}": some(0.001, 14, 0.6) for number in range(40)}
    index(opensearch_engine, name, documents, signal)
    capabilities = forms(opensearch_engine)[form]
    for _ in range(5):
        query = some(0.01, 200, 0.5)
        found, clause = scores(opensearch_engine, name, query, signal, capabilities)
        assert clause.dropped == ()
        for identity, weights in documents.items():
            impacts = zip(weights, signal.quantise(np.array(list(weights.values()), np.float32)).tolist(), strict=True)
            expected = sum(np.float32(query[term]) * impact for term, impact in impacts if term in query)
            assert found.get(identity, 0.0) == pytest.approx(expected, rel=1e-5)
    body = {"size": 40, "_source": dialect_of(opensearch_engine.capabilities).source(["id", "weights"])}
    for hit in opensearch_engine.request("POST", f"/{name}/_search", body=body)["hits"]["hits"]:
        shares = signal.explain(Encoding("q"), clause, hit["_source"], None)
        assert sum(share.share for share in shares) == pytest.approx(found.get(hit["_source"]["id"], 0.0), rel=1e-5)


def test_each_strange_term_alone_finds_exactly_its_document(opensearch_engine, name):
    signal = Weights(w_max=1.0)
    index(opensearch_engine, name, {str(number): {term: 1.0} for number, term in enumerate(STRANGE)}, signal)
    for capabilities in forms(opensearch_engine).values():
        for number, term in enumerate(STRANGE):
            found, _ = scores(opensearch_engine, name, {term: 2.0}, signal, capabilities)
            assert found == {str(number): pytest.approx(510.0)}


def test_terms_too_long_to_be_words_are_left_out_on_both_sides(opensearch_engine, name):
    signal = Weights(w_max=1.0)
    index(opensearch_engine, name, {"a": {"x" * 201: 1.0, "kept": 1.0}, "b": {"y" * 40_000: 1.0}}, signal)
    for capabilities in forms(opensearch_engine).values():
        found, _ = scores(opensearch_engine, name, {"x" * 201: 5.0, "kept": 1.0}, signal, capabilities)
        assert found == {"a": pytest.approx(255.0)}


def test_a_query_beyond_the_clause_limit_is_pruned_and_exact_for_what_was_sent(opensearch_engine, name):
    signal = Weights(w_max=1.0)
    terms = [f"t{number}" for number in range(1500)]
    index(opensearch_engine, name, {"all": dict.fromkeys(terms, 1.0), "light": {"t0": 1.0}}, signal)
    query = {term: float(number + 1) for number, term in enumerate(terms)}
    for capabilities in forms(opensearch_engine).values():
        found, clause = scores(opensearch_engine, name, query, signal, capabilities)
        limit = clause_budget(capabilities, ())
        assert len(clause.dropped) == 1500 - limit
        assert found == {"all": pytest.approx(255.0 * sum(range(1500 - limit + 1, 1501)), rel=1e-5)}
