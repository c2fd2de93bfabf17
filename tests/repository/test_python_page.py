"""docs/python.md: its examples run."""

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def beside(opensearch_engine, tmp_path, monkeypatch):
    """An empty folder, the server at hand, and nothing left of what the page makes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    yield
    opensearch_engine.request("DELETE", "/tea-notes-*", params={"expand_wildcards": "all"})


@pytest.mark.usefixtures("beside")
def test_the_examples_give_what_the_page_says():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 30
    assert found.failed == 0
