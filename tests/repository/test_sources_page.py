"""docs/sources.md: its example runs, and every reader is on it."""

import doctest
from pathlib import Path

from termweave import plugins

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"


def test_the_example_gives_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 6
    assert found.failed == 0


def test_readers_are_declared():
    for name in plugins.names("readers"):
        reader = plugins.load("readers", name)
        assert reader.LABEL
        assert isinstance(reader.MAPPED, bool)
        assert isinstance(reader.SEEKS, bool)
        assert not reader.recognises("/no/such/path")
