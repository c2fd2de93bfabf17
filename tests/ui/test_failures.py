"""The server dies while pages are open: each page says so in a sentence; and it is not slowed down by many candidates."""

from html import unescape
from urllib.parse import urlsplit

import pytest

from termweave import engine, settings
from tests.indexer.proxy import Proxy
from tests.ui.conftest import client_of, lexical
from tests.ui.test_search_page import show


def test_a_server_that_is_killed_meanwhile_is_a_sentence_on_every_page(opensearch_engine, attacked, caplog, hasty):
    proxy = Proxy(urlsplit(opensearch_engine.url).port)
    client = client_of(engine.connect(settings.load(url=proxy.url, timeout=5)), index=attacked)
    assert client.get("/search?q=function").status_code == 200
    proxy.away = True
    for path in ("/search?q=function", "/judge?judge=ann", "/book", "/generations", "/book/qrels.tsv"):
        answer = client.get(path)
        assert (answer.status_code, "closed the connection" in unescape(answer.text)) == (503, True), path
        assert answer.headers["content-security-policy"]
    for path in ("search?q=function", "book", "indices"):
        answer = client.get(f"/api/{path}")
        assert (answer.status_code, answer.json()["schema"]) == (503, "termweave.error/1"), path
    fields = {"index": attacked, "typed": "a query", "judge": "ann", "grade": "1"}
    for path in ("/book/add", "/judge/undo", "/generations/promote"):
        answer = client.post(path, data=fields)
        assert (answer.status_code, "Traceback" in answer.text) == (503, False), path
    # The client library keeps the causes in records of its own, which `termweave` does not print.
    assert not [each for each in caplog.records if each.exc_info and each.name.startswith(("termweave", "uvicorn", "starlette"))]


@pytest.mark.slow
def test_facets_count_ten_thousand_candidates(opensearch_engine, name, tmp_path):
    documents = ({"_id": str(n), "text": f"the same word {n}", "kind": f"k{n % 7}"} for n in range(10_000))
    lexical(opensearch_engine, name, tmp_path, *documents)
    client = client_of(opensearch_engine, index=name)
    _, page = show(client, q="word", mode="lexical", candidates="10000", facet="kind")
    for kind in range(7):
        assert f"<bdi>k{kind}</bdi> <b>{sum(n % 7 == kind for n in range(10_000))}</b>" in page
