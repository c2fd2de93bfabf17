"""Searches of an index whose limits are far below the defaults: the answers are those of an index without such limits."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import termweave as tw
from termweave import corpora
from termweave.engine import connect
from termweave.evaluation.judgements import absent_from_index
from termweave.indexer import BuildOptions, build
from termweave.settings import load
from tests.corpora.index.conftest import write
from tests.indexer.builds import check

#: Searches of words: a vector in a `bool`, as later parts have it, is scored alone, and rounded otherwise.
OPTIONS = (
    {"k": 30, "fields": ["title", "n"], "explain": True},
    {"start": 17, "k": 5},
    {"sort": "even:desc", "k": 40, "facets": ["even"]},
    {"collapse": "even:3", "highlight": True},
    {"where": {"terms": {"id": [f"d{number}" for number in range(20)]}}, "k": 20},
    {"query": 'kettle "green tea" -lamp7'},
    {"passages": "2+1", "k": 12},
    {"pin": [f"d{number}" for number in range(4)]},
)
VECTORS = ({"mode": "dense"}, {"rerank": "rnn"}, {"like": ["d3", "d4"], "query": ""})


def documents():
    for number in range(40):
        words = " ".join(f"kettle green tea lamp{number} {each}" for each in range(50 if number % 4 == 0 else 3))
        yield {"id": f"d{number}", "title": f"thing {number}", "text": words, "n": number, "even": number % 2}


def shown(index, options):
    """All of an answer that a user sees."""
    answer = index.answer(**{"query": "green tea kettle", "mode": "lexical:0.5,weights:0.5", **options})
    hits = [(hit.id, hit.score, dict(hit.fields), hit.explanation, hit.passages) for hit in answer.hits]
    return hits, answer.totals, answer.facets, answer.all_remarks


def test_searches_within_small_limits_find_the_same(opensearch_engine, name):
    """Forty documents in passages, which come into the index while an answer has 11 hits at most."""
    source = corpora.open_documents(list(documents()), name="corpus")
    build(opensearch_engine, source, name, BuildOptions(passages=60, settings={"index.max_result_window": 11}))

    def within(window, terms):
        body = {"index.max_result_window": window, "index.max_terms_count": terms}
        opensearch_engine.request("PUT", f"/{name}/_settings", body=body)
        return tw.connect(opensearch_engine.url).index(name)  # its engine knows no limits yet

    whole = within(None, None)
    expected = [shown(whole, options) for options in OPTIONS]
    nearest = [{hit.id: hit.score for hit in whole.search(**{"query": "green tea", "k": 40, **options})} for options in VECTORS]
    judged = {"q": dict.fromkeys([f"d{number}" for number in range(50)], 1)}
    for window, terms in ((13, 3), (10_000, 1)):
        index = within(window, terms)
        for options, answer in zip(OPTIONS, expected, strict=True):
            assert shown(index, options) == answer, (window, terms, options)
        for options, scores in zip(VECTORS, nearest, strict=True):
            hits = index.search(**{"query": "green tea", "k": 40, **options})
            assert {hit.id: hit.score for hit in hits} == pytest.approx(scores, abs=1e-5), (window, terms, options)
        assert absent_from_index(index, "judged", judged) == absent_from_index(whole, "judged", judged)
    assert shown(within(1, 1), OPTIONS[0]) == expected[0]
    assert check(opensearch_engine, name).ok


def test_readers_in_threads_learn_the_same_limit(opensearch_engine, name):
    """Each of them is refused once, and none takes what another one has learned for a limit that did not help."""
    opensearch_engine.request("PUT", f"/{name}", body={"settings": {"index.max_result_window": 11}})
    write(opensearch_engine, name, {str(number): {"n": number} for number in range(60)})
    together = threading.Barrier(4)

    def read(engine):
        together.wait()
        hits = engine.search(name, {"size": 500, "query": {"match_all": {}}})["hits"]["hits"]
        return len({hit["_id"] for hit in hits})

    with connect(load(url=opensearch_engine.url)) as engine, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, [engine] * 4)) == [60] * 4
