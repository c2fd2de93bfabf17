"""The dialects: what is spelled differently, and that filters reach a `flattened` field as it takes them."""

import pytest

from termweave.contracts.signal import Fitting
from termweave.dialect import OPENSEARCH, dialect_of
from termweave.errors import ModelError, UsageError
from termweave.records import Capabilities
from termweave.search.retrieval import hybrid_query
from termweave.signals.dense import Dense
from termweave.signals.learned import LearnedWeights
from termweave.signals.modes import Mode
from termweave.signals.weights import Weights

ELASTIC = Capabilities("9.2.0", "elasticsearch", knn=True, sparse_vector=True)
OPEN = Capabilities("3.6.0", knn=True)


def test_the_server_decides():
    assert dialect_of(OPEN) is dialect_of(Capabilities("1", "another")) is OPENSEARCH
    assert dialect_of(ELASTIC).weights_field() == {"type": "sparse_vector", "index_options": {"prune": False}}
    assert dialect_of(ELASTIC).vector_field(8, 16, 100)["index_options"] == {"type": "hnsw", "m": 16, "ef_construction": 100}


def test_ranges_of_metadata_get_the_bound_that_is_missing():
    inner = {"range": {"metadata.year": {"gt": "1990", "boost": 2}, "typed.size": {"gte": 3}}}
    both = {"range": {"metadata.a": {"gte": "a", "lt": "b"}}}
    given = [{"bool": {"must_not": [inner]}}, {"range": {"metadata.a": {"lte": "b"}}}, both]
    first, *others = dialect_of(ELASTIC).filters(given, ())
    ranges = {"metadata.year": {"gt": "1990", "boost": 2, "lte": "\U0010ffff"}, "typed.size": {"gte": 3}}
    assert first == {"bool": {"must_not": [{"range": ranges}]}}
    assert others == [{"range": {"metadata.a": {"gte": "", "lte": "b"}}}, both]
    assert dialect_of(OPEN).filters(given, ()) == given


def test_an_object_of_the_metadata_exists_where_one_of_its_entries_does():
    entries = {"author.name": "keyword", "author.born": "date", "authority": "keyword"}
    given = [{"bool": {"must_not": [{"exists": {"field": "metadata.author"}}]}}, {"exists": {"field": "metadata.authority"}}]
    first, second = dialect_of(ELASTIC).filters(given, entries)
    (clause,) = first["bool"]["must_not"]
    names = [each["exists"]["field"] for each in clause["bool"]["should"]]
    assert names == ["metadata.author", "metadata.author.name", "metadata.author.born"]
    assert second == given[1]
    assert dialect_of(OPEN).filters(given, entries) == given


def test_what_elasticsearch_cannot_do_is_said():
    old = Capabilities("8.14.0", "elasticsearch", knn=True)
    assert "older than 8.19" in (Weights.unavailable(old) or "")
    assert "delimited_term_freq" in (LearnedWeights.unavailable(ELASTIC) or "")
    assert Weights.unavailable(ELASTIC) is Weights.unavailable(OPEN) is LearnedWeights.unavailable(OPEN) is None
    with pytest.raises(UsageError, match="no query 'hybrid'"):
        hybrid_query.check(ELASTIC, Mode("hybrid", {"weights": 1.0, "dense": 1.0}))
    with pytest.raises(ModelError, match="vectors of 5,000 numbers; the server takes up to 4,096"):
        Dense.fit(Fitting(ELASTIC, dimension=5000))
    assert Dense.fit(Fitting(OPEN, dimension=5000)).dimension == 5000


def test_integers_that_come_back_as_floats_have_the_same_digest():
    signal = Weights()
    assert signal.canonical({"weights": {"b": 2.0, "a": 255.0}}) == signal.canonical({"weights": {"a": 255, "b": 2}})
    assert signal.canonical({"weights": {"a": 2.5}}) != signal.canonical({"weights": {"a": 2}})
