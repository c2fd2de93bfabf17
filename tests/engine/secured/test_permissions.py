"""The roles of docs/permissions.md on a server that checks: each suffices, and without one of its permissions the error names it."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from termweave.cli import run
from tests.engine.secured import server

pytestmark = [pytest.mark.engine, pytest.mark.exhaustive]
_PAGE = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text(encoding="utf-8")
SEARCH, BUILD, LOCK = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", _PAGE.replace("NAME", "docs"), re.DOTALL))
FULL = BUILD | {"index_permissions": [*BUILD["index_permissions"], LOCK]}
DOCUMENTS = {
    "timer": "A thread that runs a function after a given number of seconds has passed.",
    "json": "Parse a JSON document from a string and return the Python object.",
    "path": "Join one or more path components with the separator of the system.",
    "csv": "Iterate over the lines of a file as lists of strings.",
    "random": "Pick a random element from a sequence that is not empty.",
}
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


@pytest.fixture(scope="module")
def secured(tmp_path_factory, own_places):
    import shutil
    import tempfile

    root = Path(
        tempfile.mkdtemp(prefix="termweave-secured-")
    )  # not below pytest's folders: the server's user may not enter those
    root.chmod(0o711)
    started = server.start(root)
    yield started
    started.close()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def corpus(tmp_path):
    """Write the first documents as a BEIR folder; returns its path."""

    def write(count, edition="", folder=tmp_path / "beir"):
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"_id": key, "title": key, "text": f"{text} {edition}"}) for key, text in list(DOCUMENTS.items())[:count]
        ]
        (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "run a function later"}\n')
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ttimer\t1\n")
        return str(folder)

    return write


@pytest.fixture
def termweave(secured, monkeypatch):
    """Run a command as a user; returns its exit status and what it printed."""

    def call(user, *arguments):
        streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERMWEAVE_URL", secured.url)
            patch.setenv("TERMWEAVE_CA_CERTS", str(secured.authority.certificate))
            patch.setenv("TERMWEAVE_USER", user)
            patch.setenv("TERMWEAVE_PASSWORD", server.PASSWORD)
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            code = run(list(arguments))
        return code, "".join(stream.buffer.getvalue().decode() for stream in streams.values())

    return call


def _done(answer):
    code, text = answer
    assert code == 0, text
    assert "no permissions" not in text
    return text


def test_the_least_roles_suffice(secured, corpus, termweave):
    secured.role("searcher", SEARCH)
    secured.role("builder", FULL)
    folder = corpus(4)
    _done(termweave("builder", "index", folder, "docs"))
    corpus(5)
    _done(termweave("builder", "index", folder, "docs", "--update"))
    corpus(2)
    _done(termweave("builder", "index", folder, "docs", "--update", "--new", "--delete-missing", "--allow-deletions", "90%"))
    _done(termweave("builder", "verify", "docs", folder))
    corpus(5)
    _done(termweave("builder", "index", folder, "docs"))
    for user in ("searcher", "builder"):
        assert "timer" in _done(termweave(user, "search", "docs", "run a function", "--highlight"))
        _done(termweave(user, "explain", "docs", "run a function", "timer"))
        assert "nDCG" in _done(termweave(user, "evaluate", "docs", folder))
    assert _done(termweave("builder", "generations", "docs")).count("docs-") >= 2
    _done(termweave("builder", "rollback", "docs"))
    _done(termweave("builder", "delete", "docs", "--id", "timer", "--yes"))
    _done(termweave("builder", "prune", "docs", "--keep", "1", "--yes"))
    code, text = termweave("searcher", "delete", "docs", "--yes")
    assert code == 1
    assert "no permissions for [" in text
    _done(termweave("builder", "delete", "docs", "--yes"))


def _without(role, permission):
    """The role without a permission, on the cluster or on the indices."""
    indices, *rest = role["index_permissions"]
    return {
        "cluster_permissions": [each for each in role["cluster_permissions"] if each != permission],
        "index_permissions": [
            indices | {"allowed_actions": [each for each in indices["allowed_actions"] if each != permission]},
            *rest,
        ],
    }


def _permissions(role):
    return [*role["cluster_permissions"], *role["index_permissions"][0]["allowed_actions"]]


def test_every_permission_of_the_page_is_tried():
    assert set(COMMANDS) == set(_permissions(BUILD))
    assert set(_permissions(SEARCH)) < set(COMMANDS)


def test_one_permission_less_is_named(secured, corpus, termweave):
    """All in one test: they share one index, and the server takes long to start."""
    secured.role("builder", FULL)
    folder = corpus(3)
    for _ in range(3):
        _done(termweave("builder", "index", folder, "docs", "--weights", "none", "--dense", "none"))
    unnamed = {}
    for number, (permission, command) in enumerate(COMMANDS.items()):
        corpus(3, edition=f"edition{number}")  # every update has something to send
        role = SEARCH if command == _QUERY else FULL
        secured.role("builder", _without(role, permission))
        code, text = termweave("builder", *(word.format(corpus=folder) for word in command))
        named = re.search(r"no permissions for \[(.*?)\] and", text)
        if code != 1 or not named or permission.rstrip("*") not in named[1] or "docs/permissions.md" not in text:
            unnamed[permission] = (code, text)
    assert not unnamed
    secured.role("builder", FULL)
    _done(termweave("builder", "delete", "docs", "--yes"))
