"""The roles of docs/permissions.md on a server that checks: each suffices, and without one of its permissions the error names it."""

import re
from html import unescape

import pytest

from termweave import encoders, engine
from termweave.errors import EngineError
from tests.engine.secured.conftest import BUILD, BUILDER, CONNECT, JUDGE, LOOK, SEARCH, as_settings, done, joined, without
from tests.serving.connector.conftest import answering
from tests.ui.conftest import client_of, models_of

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
_QUERY = ("search", "docs", "run a function")
_BUILD = ("index", "{corpus}", "docs", "--weights", "none", "--dense", "none")
_UPDATE = ("index", "{corpus}", "docs", "--update")
_COPY = ("index", "{corpus}", "docs", "--update", "--new")
#: Commands, and the permissions that each cannot do without.
_NEEDED = {
    _QUERY: (
        "indices:data/read/msearch indices:data/read/mget indices:data/read/mget* indices:data/read/search "
        "indices:admin/aliases/get indices:admin/mappings/get indices:monitor/settings/get"
    ),
    _UPDATE: (
        "indices:data/write/bulk indices:data/write/bulk* indices:data/write/index indices:admin/aliases indices:admin/mapping/put"
    ),
    _BUILD: "indices:admin/create indices:admin/settings/update",
    ("verify", "docs"): "indices:admin/refresh*",
    ("prune", "docs", "--keep", "1", "--yes"): "indices:admin/delete",
    ("generations", "docs"): "indices:monitor/segments",
    ("delete", "docs", "--id", "timer", "--yes"): "indices:data/write/delete",
    _COPY: (
        "indices:admin/get indices:data/write/reindex indices:data/read/scroll cluster:monitor/task/get cluster:monitor/tasks/lists"
    ),
}
COMMANDS = {permission: command for command, needed in _NEEDED.items() for permission in needed.split()}
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
LOOKED_AT = (
    "/search?q=run+a+function", "/search?q=run&compare=1&mode2=lexical&id=json", "/judge?judge=ann", "/book", "/evaluate", "/tune",
    "/generations", "/api/search?q=run", "/api/book", "/api/grades", "/api/generations", "/learn",
)  # fmt: skip


def test_the_least_roles_suffice(secured, corpus, termweave):
    secured.role("searcher", SEARCH)
    secured.role("builder", BUILDER)
    folder = corpus(4)
    done(termweave("builder", "index", folder, "docs"))
    corpus(5)
    done(termweave("builder", "index", folder, "docs", "--update"))
    corpus(2)
    done(termweave("builder", "index", folder, "docs", "--update", "--new", "--delete-missing", "--yes"))
    done(termweave("builder", "verify", "docs", folder))
    corpus(5)
    done(termweave("builder", "index", folder, "docs"))
    for user in ("searcher", "builder"):
        assert "timer" in done(termweave(user, "search", "docs", "run a function", "--highlight"))
        done(termweave(user, "explain", "docs", "run a function", "timer"))
        assert "nDCG" in done(termweave(user, "evaluate", "docs", folder))
        assert "nDCG" in done(termweave(user, "evaluate", "docs", folder, "--against", "docs"))
    assert done(termweave("builder", "generations", "docs")).count("docs-") >= 2
    done(termweave("builder", "rollback", "docs"))
    newest = re.search(r"docs-\d{14}-\w+", done(termweave("builder", "generations", "docs")))[0]
    done(termweave("builder", "promote", "docs", newest))
    done(termweave("builder", "profiles", "docs"))
    assert termweave("builder", "audit", "docs")[0] == 1
    reads = {"index_patterns": ["termweave-audit"], "allowed_actions": ["indices:data/read/search"]}
    secured.role("builder", joined(BUILDER, {"index_permissions": [reads]}))
    assert "promote" in done(termweave("builder", "audit", "docs"))
    secured.role("builder", BUILDER)
    done(termweave("builder", "delete", "docs", "--id", "timer", "--yes"))
    done(termweave("builder", "prune", "docs", "--keep", "1", "--yes"))
    code, text = termweave("searcher", "delete", "docs", "--yes")
    assert code == 1
    assert "no permissions for [" in text
    done(termweave("builder", "delete", "docs", "--yes"))


def _permissions(role):
    return [*role["cluster_permissions"], *role["index_permissions"][0]["allowed_actions"]]


def test_every_permission_of_the_page_is_tried():
    assert set(COMMANDS) == set(_permissions(BUILD))
    assert set(_permissions(SEARCH)) < set(COMMANDS)


def test_one_permission_less_is_named(secured, corpus, termweave):
    """All in one test: they share one index, and the server takes long to start."""
    secured.role("builder", BUILDER)
    folder = corpus(3)
    for _ in range(3):
        done(termweave("builder", "index", folder, "docs", "--weights", "none", "--dense", "none"))
    unnamed = {}
    for number, (permission, command) in enumerate(COMMANDS.items()):
        corpus(3, edition=f"edition{number}")  # every update has something to send
        secured.role("builder", without(SEARCH if command == _QUERY else BUILDER, permission))
        code, text = termweave("builder", *(word.format(corpus=folder) for word in command))
        named = re.search(r"no permissions for \[(.*?)\] and", text)
        if code != 1 or not named or permission.rstrip("*") not in named[1] or "docs/permissions.md" not in text:
            unnamed[permission] = (code, text)
    assert not unnamed
    secured.role("builder", BUILDER)
    done(termweave("builder", "delete", "docs", "--yes"))


def through_the_pipeline(secured, *cluster):
    """Search as an application whose role has these permissions on the cluster: the number of hits."""
    reads = {"index_patterns": ["docs", "docs-*"], "allowed_actions": ["indices:data/read/search"]}
    secured.role("application", {"cluster_permissions": list(cluster), "index_permissions": [reads]})
    with engine.connect(as_settings(secured, "application")) as connection:
        body = {"query": {"match": {"text": "run"}}}
        answer = connection.request("POST", "/docs/_search", params={"search_pipeline": "docs-learned"}, body=body)
    return len(answer["hits"]["hits"])


def test_the_role_suffices_and_no_permission_is_too_much(secured, termweave, corpus):
    secured.role("builder", BUILDER)
    done(termweave("builder", "index", corpus(3), "docs", "--weights", "none", "--dense", "none"))
    unnamed = {}
    with answering(body={"query": {"match_all": {}}}) as url:
        connect = ("connect", "docs", "--model-server", url)
        secured.role("connector", joined(SEARCH, CONNECT))
        done(termweave("connector", *connect))
        assert through_the_pipeline(secured, "cluster:admin/opensearch/ml/predict") == 3
        with pytest.raises(EngineError, match="cluster:admin/opensearch/ml/predict"):
            through_the_pipeline(secured)
        assert "removed search pipeline docs-learned" in done(termweave("connector", "connect", "docs", "--remove"))
        for missing in CONNECT["cluster_permissions"]:
            for _ in range(3):  # the server takes up a role a moment after it was stored
                secured.role("connector", joined(SEARCH, without(CONNECT, missing)))
                answers = [termweave("connector", *connect), termweave("connector", "connect", "docs", "--remove")]
                named = any(code == 1 and f"no permissions for [{missing}]" in text for code, text in answers)
                secured.role("connector", joined(SEARCH, CONNECT))
                done(termweave("connector", "connect", "docs", "--remove"))  # what was left
                if named:
                    break
            else:
                unnamed[missing] = answers
    assert not unnamed


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
        done(termweave("builder", "index", corpus(5), "docs", "--weights", "none", "--dense", "none", "--fresh"))
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


def test_the_least_role_shows_every_page_and_changes_nothing(index, pages):
    client = pages("looker", joined(SEARCH, LOOK), read_only=True)
    for address in LOOKED_AT:
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text)
        assert "no permissions" not in answer.text, address
    for permission, address in (("indices:monitor/segments", "/generations"), ("indices:data/read/search", "/book")):
        others = [each for each in LOOK["index_permissions"] if permission not in each["allowed_actions"]]
        answer = pages("without", joined(SEARCH, {"index_permissions": others})).get(address)
        assert (answer.status_code, permission in unescape(answer.text)) == (502, True), answer.text
    for name, send in forms(client).items():
        assert send().status_code == 403, name
    writer = pages("looker", joined(SEARCH, LOOK))  # the pages would let it, the server does not
    answer = forms(writer)["grade"]()
    assert answer.status_code == 502
    assert "no permissions" in unescape(answer.text)


def test_judges_need_what_the_page_says_and_no_less(index, pages, secured):
    whole = joined(SEARCH, LOOK, JUDGE)
    client = pages("judge", whole)
    for name, send in forms(client).items():
        answer = send()
        assert answer.status_code == 303, (name, answer.text)
    assert client.get("/api/book").json()["queries"][0]["documents"] == ["csv", "json", "timer"]
    listed = client.get("/api/generations").json()["generations"]
    live, older = (next(each["index"] for each in listed if each["live"] == wanted) for wanted in (True, False))
    for user, role, status in (("judge", whole, 502), ("promoter", joined(BUILDER, LOOK), 303)):
        promoting = {"generation": older, "live": live, "act": "rollback"}
        assert post(pages(user, role), "/generations/promote", **promoting).status_code == status
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


def test_the_least_role_serves_the_models_of_an_index(secured, termweave, corpus):
    secured.role("builder", BUILDER)
    done(termweave("builder", "index", corpus(5), "docs", "--fresh"))
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
