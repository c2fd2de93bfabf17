"""The fields that a mapping declares, on Elasticsearch."""

from __future__ import annotations

import termweave as tw
from tests.catalog.declared_fields import FIELDS, checked, documents, numbers, refused
from tests.catalog.test_columns import application_index

FLAT = {"flat": {"type": "flattened"}}


def test_fields_of_a_mapping(elasticsearch_engine, elastic_name):
    filled = documents(flat=lambda n: {"a": f"v{n % 2}"})
    mapping = {"properties": FIELDS | FLAT}
    connection = tw.connect(elasticsearch_engine.url)
    tw.index(filled, elastic_name, connection=connection, signals=("lexical",), analyzer="standard", mapping=mapping)
    checked(connection.index(elastic_name))


def test_fields_of_an_application(elasticsearch_engine, elastic_name):
    index = application_index(elasticsearch_engine, elastic_name, FIELDS | FLAT, documents(flat=lambda n: {"a": f"v{n % 2}"}))
    checked(index)
    assert sorted(numbers(index, where="flat.a>v0")) == sorted(numbers(index, where="flat.a=v1")) == list(range(1, 20, 2))
    assert "'v*' is a pattern" in refused(index, where="flat.a=v*")
