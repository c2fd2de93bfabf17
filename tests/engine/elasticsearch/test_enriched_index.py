"""`termweave enrich` on Elasticsearch: the tests that were written for OpenSearch hold there."""

from __future__ import annotations

import pytest

from tests.indexer.enrichment import conftest
from tests.indexer.enrichment import test_enrichment as of_enrichment
from tests.indexer.enrichment import test_followed_names as of_names
from tests.indexer.enrichment import test_owners_limits as of_limits
from tests.search import test_lists_of_objects as of_objects
from tests.search import test_unknown_fields as unknown

shop, enrich, watch, products = conftest.shop, conftest.enrich, conftest.watch, unknown.products
alias, two_shops = of_names.alias, of_names.two_shops


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


def test_what_writing_a_document_back_would_change_is_refused(enrich, elasticsearch_engine, name):
    of_limits.test_a_source_that_does_not_give_every_field_back_is_refused(enrich, elasticsearch_engine, name, derived=False)


@pytest.mark.parametrize("setting", [{"index.mapping.source.mode": "synthetic"}, {"index.mode": "logsdb"}], ids=str)
def test_an_index_whose_source_is_synthetic_is_refused(enrich, elasticsearch_engine, name, setting):
    mappings = {"properties": {"@timestamp": {"type": "date"}, "name": {"type": "keyword"}}}
    elasticsearch_engine.request("PUT", f"/{name}-shop", body={"settings": setting, "mappings": mappings})
    assert "is synthetic: writing a document back could change" in enrich(f"{name}-shop", "--signals", "weights", status=2)


@pytest.mark.nightly
def test_a_watch_follows_an_alias_to_another_index_and_back(shop, alias, watch, elasticsearch_engine):
    of_names.test_a_watch_follows_an_alias_to_another_index_and_back(shop, alias, watch, elasticsearch_engine)


@pytest.mark.nightly
def test_the_same_command_after_a_move_goes_on_with_the_first_enrichment(shop, alias, enrich, elasticsearch_engine):
    of_names.test_the_same_command_after_a_move_goes_on_with_the_first_enrichment(shop, alias, enrich, elasticsearch_engine)


@pytest.mark.nightly
def test_several_indices_of_one_name_are_searched_as_one(two_shops, enrich, elasticsearch_engine, capsys):
    of_names.test_several_indices_of_one_name_are_searched_as_one(two_shops, enrich, elasticsearch_engine, capsys)


def test_small_limits_of_an_index_divide_what_is_read(shop, enrich, elasticsearch_engine, capsys):
    of_limits.test_small_limits_of_an_index_divide_what_is_read(shop, enrich, elasticsearch_engine, capsys, 10, 7)


@pytest.mark.nightly
def test_a_search_says_that_an_enrichment_did_not_end(shop, enrich, elasticsearch_engine, capsys, tmp_path):
    of_limits.test_a_search_says_that_an_enrichment_did_not_end(shop, enrich, elasticsearch_engine, capsys, tmp_path)


def test_a_limit_that_cannot_be_divided_is_named_with_what_to_do(shop, enrich, elasticsearch_engine):
    of_limits.test_a_limit_that_cannot_be_divided_is_named_with_what_to_do(shop, enrich, elasticsearch_engine)


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
