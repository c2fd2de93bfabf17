"""`termweave enrich` on Elasticsearch: the tests that were written for OpenSearch hold there, collected anew with the server of this folder."""

import pytest

from tests.indexer.enrichment import test_owners_limits as of_limits
from tests.indexer.enrichment.conftest import enrich, shop  # noqa: F401
from tests.indexer.enrichment.test_enrichment import test_enriched_searched_changed_and_removed  # noqa: F401
from tests.indexer.enrichment.test_owners_limits import (  # noqa: F401
    test_a_limit_that_cannot_be_divided_is_named_with_what_to_do,
    test_small_limits_of_an_index_divide_what_is_read,
)
from tests.search.test_lists_of_objects import test_that_the_values_are_of_different_objects_is_said  # noqa: F401
from tests.search.test_unknown_fields import (  # noqa: F401
    products,
    test_a_field_that_a_document_has_is_known_and_whether_one_has_it_may_be_asked,
    test_a_field_that_nobody_knows_is_an_error_with_the_nearest_name,
)


@pytest.fixture
def opensearch_engine(elasticsearch_engine):
    """The server that those tests ask for."""
    return elasticsearch_engine


@pytest.fixture
def name(elastic_name):
    """The name that their indices begin with."""
    return elastic_name


def test_what_writing_a_document_back_would_change_is_refused(enrich, opensearch_engine, name):  # noqa: F811
    of_limits.test_a_source_that_does_not_give_every_field_back_is_refused(enrich, opensearch_engine, name, derived=False)


@pytest.mark.parametrize("setting", [{"index.mapping.source.mode": "synthetic"}, {"index.mode": "logsdb"}], ids=str)
def test_an_index_whose_source_is_synthetic_is_refused(enrich, opensearch_engine, name, setting):  # noqa: F811
    mappings = {"properties": {"@timestamp": {"type": "date"}, "name": {"type": "keyword"}}}
    opensearch_engine.request("PUT", f"/{name}-shop", body={"settings": setting, "mappings": mappings})
    assert "is synthetic: writing a document back could change" in enrich(f"{name}-shop", "--signals", "weights", status=2)
