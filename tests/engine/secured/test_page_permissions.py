"""The roles of the pages in docs/permissions.md on a server that checks: each suffices, and a page without one permission names it."""

from __future__ import annotations

from html import unescape

import pytest

from termweave import encoders, engine
from tests.engine.secured.conftest import BUILDER, DOCUMENTS, JUDGE, LOOK, SEARCH, as_settings, done, joined, without
from tests.ui.conftest import client_of, models_of

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
#: Permission on the book -> the form that cannot do without it.
FORMS = {
    "indices:data/write/bulk": "grade",
    "indices:data/write/bulk*": "grade",
    "indices:data/write/index": "grade",
    "indices:admin/aliases/get": "grade",
    "indices:data/write/update": "again",
    "indices:data/write/delete": "undo",
    "indices:admin/create": "first",
}


@pytest.fixture
def pages(secured):
    """A client of the pages as a user, whose role is set first."""

    def open_as(user, role, **options):
        secured.role(user, role)
        return client_of(engine.connect(as_settings(secured, user)), index="docs", **options)

    return open_as


@pytest.fixture
def index(secured, termweave, corpus):
    secured.role("builder", BUILDER)
    for _ in range(2):
        done(termweave("builder", "index", corpus(len(DOCUMENTS)), "docs", "--weights", "none", "--dense", "none", "--fresh"))
    yield "docs"
    termweave("builder", "delete", "docs", "--yes")
    secured.admin("DELETE", "/termweave-book?ignore_unavailable=true")


def post(client, path, files=None, **fields):
    return client.post(path, data={"index": "docs", **fields}, files=files)


def forms(client):
    """Name -> a function that sends the form."""
    qrels = {"qrels": ("qrels.tsv", b"q1\ttimer\t2\nq1\tjson\t0\n")}
    more = {"qrels": ("qrels.tsv", b"q1\tcsv\t1\n")}
    return {
        "first": lambda: post(client, "/book/guidelines", guidelines="Grade what answers."),
        "grade": lambda: post(client, "/book/import", files=qrels, judge="file", texts="q1\trun a function"),
        "again": lambda: post(client, "/book/import", files=more, judge="file"),
        "undo": lambda: post(client, "/judge/undo", judge="file"),
    }


LOOKED_AT = (
    "/search?q=run+a+function", "/search?q=run&compare=1&mode2=lexical&id=json", "/judge?judge=ann", "/book", "/evaluate", "/tune",
    "/generations", "/api/search?q=run", "/api/book", "/api/grades", "/api/generations", "/learn",
)  # fmt: skip


def test_the_least_role_shows_every_page_and_changes_nothing(index, pages):
    client = pages("looker", joined(SEARCH, LOOK), read_only=True)
    for address in LOOKED_AT:
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text)
        assert "no permissions" not in answer.text, address
    for name, send in forms(client).items():
        assert send().status_code == 403, name
    writer = pages("looker", joined(SEARCH, LOOK))  # the pages would let it, the server does not
    answer = forms(writer)["grade"]()
    assert answer.status_code == 502
    assert "no permissions" in unescape(answer.text)


def test_without_a_permission_to_look_the_page_names_it(index, pages):
    for permission, address in (("indices:monitor/segments", "/generations"), ("indices:data/read/search", "/book")):
        others = [each for each in LOOK["index_permissions"] if permission not in each["allowed_actions"]]
        client = pages("looker", joined(SEARCH, {"index_permissions": others}))
        answer = client.get(address)
        assert answer.status_code == 502, answer.text
        assert permission in unescape(answer.text)


def test_judges_need_what_the_page_says_and_no_less(index, pages, secured):
    whole = joined(SEARCH, LOOK, JUDGE)
    client = pages("judge", whole)
    for name, send in forms(client).items():
        answer = send()
        assert answer.status_code == 303, (name, answer.text)
    assert client.get("/api/book").json()["queries"][0]["documents"] == ["csv", "json", "timer"]
    (book,) = JUDGE["index_permissions"]
    permissions = {*JUDGE["cluster_permissions"], *book["allowed_actions"]}
    assert set(FORMS) == permissions
    unnamed = {}
    for permission, form in FORMS.items():
        if form == "first":
            secured.admin("DELETE", "/termweave-book?ignore_unavailable=true")
        answer = forms(pages("judge", joined(SEARCH, LOOK, without(JUDGE, permission))))[form]()
        if answer.status_code != 502 or permission.rstrip("*") not in unescape(answer.text):
            unnamed[permission] = (answer.status_code, unescape(answer.text)[-600:])
    assert not unnamed


def test_promoting_needs_the_role_of_build(index, pages):
    client = pages("judge", joined(SEARCH, LOOK, JUDGE))
    listed = client.get("/api/generations").json()["generations"]
    live, older = (next(each["index"] for each in listed if each["live"] == wanted) for wanted in (True, False))
    refused = post(client, "/generations/promote", generation=older, live=live, act="rollback")
    assert (refused.status_code, "no permissions" in refused.text) == (502, True)
    client = pages("promoter", joined(BUILDER, LOOK))
    assert post(client, "/generations/promote", generation=older, live=live, act="rollback").status_code == 303


def test_the_least_role_serves_the_models_of_an_index(secured, termweave, corpus):
    secured.role("builder", BUILDER)
    done(termweave("builder", "index", corpus(len(DOCUMENTS)), "docs", "--fresh"))
    listing = ["indices:admin/aliases/get", "indices:admin/mappings/get"]
    everywhere = {"index_permissions": [{"index_patterns": ["*"], "allowed_actions": listing}]}
    try:
        for role, index, status in ((SEARCH, "docs", 200), (SEARCH, None, 502), (joined(SEARCH, everywhere), None, 200)):
            secured.role("looker", role)
            client = models_of(engine.connect(as_settings(secured, "looker")), index=index, served=("shipped",))
            listed = client.get("/v1/models")
            assert listed.status_code == status, listed.text
            if status != 200:
                assert "indices:admin/aliases/get" in listed.json()["error"]["message"]
            model = f"{encoders.load().models['weights'].hash}@docs"
            for path in ("sparse", "embeddings"):
                answer = client.post(f"/v1/{path}", json={"model": model, "input": "run a function"})
                assert answer.status_code == 200, answer.text
    finally:
        termweave("builder", "delete", "docs", "--yes")
