"""docs/ten-functions.md: a search and a build run through the functions that the page names, in its order."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import termweave as tw
from termweave import corpora
from termweave.indexer import BuildOptions, build

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ten-functions.md").read_text(encoding="utf-8")


def named(heading):
    """The functions of a section: (file, function)."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py): (\w+)`", section, flags=re.MULTILINE)


def called(run, functions):
    """Those of the functions that a program calls, in the order of their first calls."""
    first = {}

    def note(frame, event, _):
        if event == "call":
            code = frame.f_code
            for file, name in functions:
                if code.co_name == name and code.co_filename.endswith(f"/{file}"):
                    first.setdefault((file, name))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(first)


@pytest.mark.engine
def test_a_search_and_a_build_call_the_functions_in_this_order(opensearch_engine, name):
    documents = corpora.open_documents([{"id": "a", "text": "Parse a text."}, {"id": "b", "text": "Read a file."}], name="corpus")
    functions = named("A build in ten functions")
    assert len(functions) == 10
    assert called(lambda: build(opensearch_engine, documents, name, BuildOptions(dense="none")), functions) == functions
    index = tw.connect(opensearch_engine.url).index(name)
    functions = named("A search in ten functions")
    assert len(functions) == 10
    assert called(lambda: index.search("parse", mode="lexical:0.5,weights:0.5"), functions) == functions
