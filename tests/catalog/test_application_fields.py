"""The fields of an enriched index that hold title and text."""

from __future__ import annotations

import pytest

from termweave.catalog.application_fields import fields_read
from termweave.catalog.layout import DocumentLayout
from termweave.catalog.lineage import Lineage


@pytest.mark.parametrize(
    ("fields", "read", "shown"),
    [
        ('{"id": null, "title": null, "text": ["title"]}', ("title",), ("", "A")),  # it is not the title as well
        ('{"id": null, "title": "body", "text": []}', ("body", "text", "contents", "content"), ("B", "C")),
        ("{}", ("title", "text", "contents", "body", "content"), ("A", "B")),
    ],
)
def test_a_field_has_one_purpose(fields, read, shown):
    source = {"name": "", "fingerprint": "", "enriched": "id weights", "fields": fields}
    made = Lineage(name="docs", created="", termweave="", source=source, fingerprint="", signals={})
    layout = DocumentLayout((), application=fields_read(made))
    assert layout.text_fields == read
    found = layout.with_text({"title": "A", "body": "B", "content": "C"})
    assert (found["title"], found["text"]) == shown
