"""Small judged sets, an index of one, an index that needs no server, and profiles that a test leaves to no other."""

import uuid
from dataclasses import replace

import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.layout import DocumentLayout
from termweave.catalog.lineage import Lineage, read_lineage, store_lineage
from termweave.catalog.profiles import adopted
from termweave.engine.client.resolved_name import ResolvedName
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.search.opening import OpenGeneration


@pytest.fixture(scope="module")
def shared_index(opensearch_engine, folder):
    """The index of the data set of a test file."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    yield tw.connect(opensearch_engine.url).index(name)
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture
def forget_profiles():
    """A function to call with an index that tests share: its profiles are removed after the test."""
    indices = []
    yield indices.append
    for index in indices:
        lineage = read_lineage(index.engine, index.generation)
        store_lineage(index.engine, index.generation, replace(lineage, profiles={}, profile=""))
        index._now = index._open()


def write_set(folder, documents, queries, qrels):
    """A BEIR folder of id -> text or (title, text), id -> text, and query -> document -> grade."""
    (folder / "qrels").mkdir(parents=True)
    pairs = {key: text if isinstance(text, tuple) else ("", text) for key, text in documents.items()}
    entries = [{"_id": key, "title": title, "text": text} for key, (title, text) in pairs.items()]
    (folder / "corpus.jsonl").write_bytes(b"\n".join(map(orjson.dumps, entries)))
    (folder / "queries.jsonl").write_bytes(b"\n".join(orjson.dumps({"_id": key, "text": text}) for key, text in queries.items()))
    judged = {query: of for query, of in qrels.items() if query in queries}
    rows = "".join(f"{query}\t{document}\t{grade}\n" for query, of in judged.items() for document, grade in of.items())
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return folder


class Known(Index):
    """An index of which nothing is asked but its signals and profiles."""

    def __init__(self, *signals, profile=None):
        parameters = {"dense": {"dimension": 4}}
        lineage = Lineage("docs", "", "", {}, "", {name: parameters.get(name, {}) for name in signals})
        layout = DocumentLayout.from_meta(lineage.signals)
        lineage = lineage if profile is None else adopted(lineage, profile)
        self.name = "docs"
        self._now = OpenGeneration("docs-1", lineage, layout, None, None, ResolvedName("docs", "docs-1"), None)
