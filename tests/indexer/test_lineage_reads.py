"""How often a command reads the lineage of an index: once, however much of it needs the lineage. Requests are counted by a proxy."""

from __future__ import annotations

import pytest

from termweave.catalog.generations import live
from termweave.cli import run
from termweave.indexer import BuildOptions, build
from tests.indexer.builds import LEXICAL, command, numbered
from tests.indexer.busy_proxy import BusyProxy

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--update"], 1),
        (["--update", "--delete-missing", "--shards", "1", "--mapping", "MAPPING"], 1),
        (["--update", "--new"], 1),
        ([], 1),
        (["--plan"], 1),
        (["--update", "--delete-missing", "--plan"], 1),
    ],
)
def test_the_lineage_of_the_live_generation_is_read_once(opensearch_engine, name, corpus, tmp_path, more, expected):
    mapping = tmp_path / "mapping.json"
    mapping.write_text('{"properties": {"title": {"type": "text"}}}')
    build(opensearch_engine, corpus(numbered(20)), name, LEXICAL)
    index = live(opensearch_engine, name)
    corpus([*numbered(18), {"_id": "new", "text": "something new"}])
    with BusyProxy(opensearch_engine.url) as proxy:
        more = [str(mapping) if each == "MAPPING" else each for each in more]
        assert run(command(tmp_path / "corpus.jsonl", name, proxy.url, *more)) == 0
    reads = [path for method, path in proxy.requests if method == "GET" and path == f"/{index}/_mapping"]
    assert len(reads) == expected


def test_verify_reads_the_lineage_once(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(numbered(5)), name, BuildOptions(weights="none", dense="none"))
    with BusyProxy(opensearch_engine.url) as proxy:
        assert run(["verify", name, "--deep", "--url", proxy.url]) == 0
    assert len([path for method, path in proxy.requests if method == "GET" and path.endswith("/_mapping")]) == 1
