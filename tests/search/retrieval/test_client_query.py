"""The words and filters of a query that an application sends."""

import pytest

import termweave as tw
from termweave.errors import UsageError
from termweave.search.retrieval import hybrid_query
from termweave.search.retrieval.client_query import ClientQuery, read, rewritten

WORDS = {"match": {"text": {"query": "parse json", "operator": "OR"}}}
YEAR = {"term": {"year": 2020}}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (WORDS, "parse json"),
        ({"match": {"text": '+red -"shoes" || (a AND b) re?d'}}, '+red -"shoes" || (a AND b) re?d'),
        ({"multi_match": {"query": "parse json", "fields": ["title^2", "text"]}}, "parse json"),
        ({"bool": {"must": [{"bool": {"must": [WORDS]}}]}}, "parse json"),
        # These marks are text to the server.
        ({"query_string": {"query": "red ! shoes - c++ | r&d!"}}, "red ! shoes - c++ | r&d!"),
        ({"simple_query_string": {"query": "is title:json? AND !red [s] - a^2 a/b"}}, "is title:json? AND !red [s] - a^2 a/b"),
    ],
)
def test_the_words_of_a_query(query, words):
    assert read(query) == ClientQuery(words)


SYNTAX = ["+red", "red -shoes", "(red)", "red~1", "re*", "red\\-shoes", '"red"']
OF_QUERY_STRINGS = ["red !shoes", "red && shoes", "red || shoes", "re?d", "red^2", "a:[1 TO 2]", "/re.d/", "NOT red"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(("query_string", words) for words in (*SYNTAX, *OF_QUERY_STRINGS)),
        *(("simple_query_string", words) for words in (*SYNTAX, "red | shoes", "red + shoes")),
    ],
)
def test_a_syntax_is_left_alone(name, words):
    assert read({name: {"query": words}}) is None
    assert read({"bool": {"must": [{name: {"query": words}}]}}) is None


def test_filters_are_kept():
    bound = {"range": {"year": {"gte": 2000}}}
    query = {"bool": {"must": [WORDS, YEAR], "filter": bound, "must_not": [{"term": {"tag": "old"}}]}}
    assert read(query) == ClientQuery("parse json", (YEAR, bound, {"bool": {"must_not": [{"term": {"tag": "old"}}]}}))
    nested = {"bool": {"must": [{"bool": {"must": WORDS, "filter": [YEAR]}}], "filter": [bound]}}
    assert read(nested) == ClientQuery("parse json", (YEAR, bound))
    for least in (1, "1", "100%"):
        required = {"bool": {"should": [WORDS], "filter": [YEAR], "minimum_should_match": least}}
        assert read(required) == ClientQuery("parse json", (YEAR,))
    assert read({"bool": {"must": [WORDS, {"term": {"match": {"value": "x"}}}]}}).where == ({"term": {"match": {"value": "x"}}},)


@pytest.mark.parametrize(
    "query",
    [
        {"match_all": {}},
        YEAR,
        {"match_phrase": {"text": "parse json"}},
        {"bool": {"filter": [YEAR], "must": [{"match_all": {}}]}},
        {"bool": {"filter": [WORDS]}},
        {"match": {"text": {"query": " ", "zero_terms_query": "all"}}},
        {"multi_match": {"query": "parse js", "type": "bool_prefix", "fields": ["text"]}},
        {"multi_match": {"query": "parse json", "type": "phrase", "fields": ["text"]}},
        {"bool": {"should": [WORDS], "filter": [YEAR]}},
        {"bool": {"must": [{"term": {"match": {"value": "x"}}}, {"range": {"match": {"gte": "a"}}}]}},
        {"nested": {"path": "x", "query": {"term": {"x.kind": "match"}}}},
    ],
)
def test_a_query_that_says_exactly_what_it_wants_is_left_alone(query):
    assert read(query) is None


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"nested": {"path": "x", "query": WORDS}}, "words of a query cannot be taken out of 'nested'"),
        ({"bool": {"must": [WORDS, WORDS]}}, "The bool query has 2 clauses that score"),
        ({"bool": {"must": [WORDS], "should": [YEAR]}}, "The bool query has 2 clauses that score"),
        ({"bool": {"must": WORDS, "filter": [None]}}, "A clause in the 'filter' of a bool is not an object"),
        ({"match": {}, "term": {}}, "A query has one name, and this one has 2"),
    ],
)
def test_words_that_cannot_be_taken_out_are_refused(query, message):
    with pytest.raises(UsageError, match=message):
        read(query)


def test_a_long_query_of_two_word_signals_keeps_to_the_clause_limit_of_their_one_query(opensearch_engine, name):
    words = [f"number{count}" for count in range(opensearch_engine.capabilities.max_clause_count * 3 // 5)]
    connection = tw.connect(opensearch_engine.url)
    documents = [{"id": "all", "text": " ".join(words)}, {"id": "one", "text": words[0]}]
    tw.index(documents, name, connection=connection, signals=("lexical", "weights"), weights="bm25-german", dense="none")
    index = connection.index(name)
    (query,) = index.encode([" ".join(words)])
    pipeline = {"phase_results_processors": [hybrid_query.normalisation([0.5, 0.5])]}
    body = {"query": rewritten(index.open_generation, query, ["lexical", "weights"], (), 10), "search_pipeline": pipeline}
    answer = opensearch_engine.request("POST", f"/{index.generation}/_search", body=body)
    assert next(hit["_id"] for hit in answer["hits"]["hits"]) == "all"
