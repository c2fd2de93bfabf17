"""The roles of docs/permissions.md on a server that checks: each suffices, and without one of its permissions the error names it."""

from __future__ import annotations

import re

import pytest

from tests.engine.secured.conftest import BUILD, BUILDER, SEARCH, done, joined, without

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
_QUERY = ("search", "docs", "run a function")
_BUILD = ("index", "{corpus}", "docs", "--weights", "none", "--dense", "none")
_UPDATE = ("index", "{corpus}", "docs", "--update")
_COPY = ("index", "{corpus}", "docs", "--update", "--new")
#: Permission -> a command that cannot do without it.
COMMANDS = {
    "indices:data/read/msearch": _QUERY,
    "indices:data/read/mget": _QUERY,
    "indices:data/read/mget*": _QUERY,
    "indices:data/read/search": _QUERY,
    "indices:admin/aliases/get": _QUERY,
    "indices:admin/mappings/get": _QUERY,
    "indices:monitor/settings/get": _QUERY,
    "indices:data/write/bulk": _UPDATE,
    "indices:data/write/bulk*": _UPDATE,
    "indices:data/write/index": _UPDATE,
    "indices:admin/aliases": _UPDATE,
    "indices:admin/mapping/put": _UPDATE,
    "indices:admin/create": _BUILD,
    "indices:admin/settings/update": _BUILD,
    "indices:admin/refresh*": ("verify", "docs"),
    "indices:admin/delete": ("prune", "docs", "--keep", "1", "--yes"),
    "indices:monitor/segments": ("generations", "docs"),
    "indices:data/write/delete": ("delete", "docs", "--id", "timer", "--yes"),
    "indices:admin/get": _COPY,
    "indices:data/write/reindex": _COPY,
    "indices:data/read/scroll": _COPY,
    "cluster:monitor/task/get": _COPY,
    "cluster:monitor/tasks/lists": _COPY,
}


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
