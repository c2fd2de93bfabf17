"""The setting `compress` on a real server, with somebody on the line who looks at the bytes."""

from __future__ import annotations

import gzip

import orjson
import pytest

from tests.indexer.proxy import Proxy

pytestmark = pytest.mark.engine


def requests(heard):
    """(path, headers, body) of every request of a connection."""
    while heard:
        head, _, rest = heard.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", 0))
        yield first.split(" ")[1], headers, bytes(rest[:length])
        heard = rest[length:]


def test_what_is_sent_is_gzip_on_demand_and_arrives_as_it_was(bench):
    bench.write(1200)
    with Proxy(int(bench.url.rpartition(":")[2])) as proxy:
        bench.environment["TERMWEAVE_COMPRESS"] = "true"
        bench.run(url=proxy.url)
    bench.whole()
    sent = [found for heard in proxy.heard for found in requests(heard) if "/_bulk" in found[0]]
    assert len(sent) > 5
    seen = []
    for _, headers, body in sent:
        assert headers["content-encoding"] == "gzip"
        plain = gzip.decompress(body)
        assert len(body) < len(plain) / 5
        seen += [orjson.loads(line)["id"] for line in plain.splitlines()[1::2]]
    assert sorted(seen) == sorted(f"d{number}" for number in range(1200))
