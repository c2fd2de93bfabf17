"""Snapshots on the real server: what is kept is what was found, and a comparison shows what moved."""

from __future__ import annotations

from html import unescape

import pytest

from termweave.engine.client import transports
from termweave.evaluation.book.snapshots import ListSnapshot, read, snapshots
from tests.ui.test_api import valid
from tests.ui.test_judging import book, post  # noqa: F401 - the fixture

pytestmark = pytest.mark.engine


def test_two_times_are_kept_compared_and_removed(client, attacked, book):  # noqa: F811 - the fixture above
    assert "has no queries" in post(client, "/snapshots/take", index=attacked).text
    post(client, "/book/add", index=attacked, typed="run a function later\nparse json <b>")
    for mode in ("lexical", "dense", "lexical"):
        assert post(client, "/snapshots/take", index=attacked, mode=mode).status_code == 303
    index = client.app._app.state.workspace.index(attacked)
    taken = [read(book, each.id) for each in snapshots(book)]
    assert sorted(each.mode for each in taken) == ["dense", "lexical", "lexical"]
    (dense,) = [each for each in taken if each.mode == "dense"]
    lexical, same = [each for each in taken if each.mode == "lexical"]
    for query, text in dense.texts.items():
        assert list(dense.lists[query]) == [hit.id for hit in index.search(text, mode="dense", k=50)]
    address = {"index": attacked, "first": lexical.id, "second": dense.id}
    data = valid(client.get("/api/snapshots", params=address), "snapshots")
    assert {each["id"] for each in data["snapshots"]} == {each.id for each in taken}
    for row in data["compared"]:
        query = next(key for key, text in dense.texts.items() if text == row["query"])
        assert row["shared"] == len({*dense.lists[query][:10]} & {*lexical.lists[query][:10]})
    page = client.get("/snapshots", params=address).text
    assert "<strong>2 of 2</strong> queries have other documents" in page
    assert "parse json &lt;b&gt;" in page
    assert "<strong>0 of 2</strong>" in client.get("/snapshots", params=address | {"second": same.id}).text
    assert "no snapshot" in unescape(client.get("/snapshots", params=address | {"second": "x"}).text)
    assert post(client, "/snapshots/take", index=attacked, rerank="ranker@/etc").status_code == 400
    assert post(client, "/snapshots/take", index=attacked, mode="nothing").status_code == 400
    assert (data["left_out"], "left out" in page) == ([], False)
    edited = book.queries()[0]
    book.change(edited.id, text="parse a string")
    post(client, "/book/add", index=attacked, typed="join paths")
    post(client, "/snapshots/take", index=attacked, mode="lexical")
    taken = [read(book, each.id) for each in snapshots(book)]
    (newest,) = [each for each in taken if "join paths" in each.texts.values()]
    address["second"] = newest.id
    data = valid(client.get("/api/snapshots", params=address), "snapshots")
    assert data["left_out"] == ["run a function later → parse a string", "join paths"]
    assert [row["query"] for row in data["compared"]] == ["parse json <b>"]
    page = client.get("/snapshots", params=address).text
    assert "2 queries are left out, because one snapshot does not have them or the words changed" in page
    for each in taken:
        assert post(client, "/snapshots/remove", index=attacked, snapshot=each.id).status_code == 303
    assert snapshots(book) == []


def test_a_list_of_snapshots_does_not_read_what_they_hold(client, attacked, book, monkeypatch):  # noqa: F811 - the fixture above
    """A book may have 100 of them, each with 50 documents of 1,000 queries."""
    for number in range(3):
        lists = [
            {"query": f"q{query}", "text": "text " * 20, "documents": [f"document-{n}" for n in range(50)]} for query in range(50)
        ]
        book.store("snapshot", f"s{number}", {"at": f"2026-01-0{number + 1}", "generation": "g", "mode": "m", "lists": lists})
    monkeypatch.setattr(transports, "LARGEST", 100_000)
    assert [(each.id, each.queries) for each in snapshots(book)] == [("s2", 50), ("s1", 50), ("s0", 50)]
    assert isinstance(read(book, "s1"), ListSnapshot)
    assert client.get("/snapshots", params={"index": attacked, "first": "s0", "second": "s1"}).status_code == 200
