"""`termweave enrich` on Elasticsearch: the tests that were written for OpenSearch hold there."""

from __future__ import annotations

import pytest

from tests.indexer.enrichment import conftest
from tests.indexer.enrichment import test_enrichment as of_enrichment
from tests.indexer.enrichment import test_owners_limits as of_limits
from tests.search import test_lists_of_objects as of_objects
from tests.search import test_unknown_fields as unknown

shop, enrich, products = conftest.shop, conftest.enrich, unknown.products


@pytest.fixture
def opensearch_engine(elasticsearch_engine):
    """The server that `shop` and `enrich` ask for."""
    return elasticsearch_engine


@pytest.fixture
def name(elastic_name):
    """The name that `shop` begins its index with."""
    return elastic_name


@pytest.mark.slow
def test_enriched_searched_changed_and_removed(shop, enrich, elasticsearch_engine, name, monkeypatch, capsys):
    of_enrichment.test_enriched_searched_changed_and_removed(shop, enrich, elasticsearch_engine, name, monkeypatch, capsys)


def test_what_writing_a_document_back_would_change_is_refused(shop, enrich, elasticsearch_engine, name):
    of_enrichment.test_a_source_that_does_not_give_every_field_back_is_refused(shop, enrich, elasticsearch_engine, name)


@pytest.mark.parametrize("setting", [{"index.mapping.source.mode": "synthetic"}, {"index.mode": "logsdb"}], ids=str)
def test_an_index_whose_source_is_synthetic_is_refused(enrich, elasticsearch_engine, name, setting):
    mappings = {"properties": {"@timestamp": {"type": "date"}, "name": {"type": "keyword"}}}
    elasticsearch_engine.request("PUT", f"/{name}-shop", body={"settings": setting, "mappings": mappings})
    assert "is synthetic: writing a document back could change" in enrich(f"{name}-shop", "--signals", "weights", status=2)


def test_small_limits_of_an_index_divide_what_is_read(shop, enrich, elasticsearch_engine, capsys):
    of_limits.test_small_limits_of_an_index_divide_what_is_read(shop, enrich, elasticsearch_engine, capsys, 10, 7)


def test_a_limit_of_fields_is_named_with_what_to_do(shop, enrich, elasticsearch_engine, capsys):
    limit, remedy = "mapping.total_fields.limit", "Raise index.mapping.total_fields.limit of the index"
    check = of_limits.test_a_limit_that_cannot_be_divided_is_named_with_what_to_do
    check(shop, enrich, elasticsearch_engine, capsys, limit, 4, "Limit of total fields [4]", remedy)


def test_a_removal_is_repeated_without_the_fields(shop, enrich, elasticsearch_engine, capsys):
    of_limits.test_a_removal_is_repeated_without_the_fields_and_says_what_stays(shop, enrich, elasticsearch_engine, capsys)


def test_a_field_that_nobody_knows_is_an_error(products, elasticsearch_engine, capsys):
    unknown.test_a_field_that_nobody_knows_is_an_error_with_the_nearest_name(products, elasticsearch_engine, capsys)
    unknown.test_a_field_that_a_document_has_is_known_with_or_without_a_type(products, elasticsearch_engine)
    unknown.test_whether_a_document_has_a_field_may_be_asked_before_one_has_it(products, elasticsearch_engine)


@pytest.mark.parametrize("kind", ["built", "enriched"])
def test_that_the_values_are_of_different_objects_is_said(kind, elasticsearch_engine, name, shop, enrich, tmp_path, capsys):
    if not of_objects.SHIRTS.exists():
        pytest.skip("the cases of ../shared are not there")
    of_objects.test_that_the_values_are_of_different_objects_is_said(
        kind, elasticsearch_engine, name, shop, enrich, tmp_path, capsys
    )
