"""How often a command reads the lineage of an index: once, however much of it needs the lineage. Requests are counted by a proxy."""

from __future__ import annotations

import pytest

from termweave.cli import run
from tests.indexer.builds import command, numbered
from tests.indexer.busy_proxy import BusyProxy

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("more", ["--update --new", "", "verify --deep"])
def test_the_lineage_of_the_live_generation_is_read_once(desk, tmp_path, more):
    index = desk.build(20).index
    desk.source([*numbered(18), {"_id": "new", "text": "something new"}])
    with BusyProxy(desk.engine.url) as proxy:
        words = command(tmp_path / "corpus.jsonl", desk.name, proxy.url, *more.split())
        assert run(["verify", desk.name, "--deep", "--url", proxy.url] if more.startswith("verify") else words) == 0
    assert proxy.requests.count(("GET", f"/{index}/_mapping")) + proxy.requests.count(("GET", f"/{desk.name}/_mapping")) == 1
