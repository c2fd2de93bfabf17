"""A server with the security plugin, and commands that run as one of its users."""

import json
import re
import shutil
import tempfile
from copy import deepcopy
from pathlib import Path

import orjson
import pytest

from termweave import corpora
from termweave.cli import run
from termweave.settings import load
from tests.engine.secured import server

DOCUMENTS = {
    "timer": "A thread that runs a function after a given number of seconds has passed.",
    "json": "Parse a JSON document from a string and return the Python object.",
    "path": "Join one or more path components with the separator of the system.",
    "csv": "Iterate over the lines of a file as lists of strings.",
    "random": "Pick a random element from a sequence that is not empty.",
}


def joined(*roles):
    """A role with the permissions of all of these."""
    return {
        "cluster_permissions": sorted({each for role in roles for each in role.get("cluster_permissions", ())}),
        "index_permissions": [each for role in roles for each in role.get("index_permissions", ())],
    }


def without(role, permission):
    """The role without a permission on the cluster or on its first indices."""
    lacking = deepcopy(role)
    first = [each["allowed_actions"] for each in lacking.get("index_permissions", ())[:1]]
    for actions in (lacking["cluster_permissions"], *first):
        if permission in actions:
            actions.remove(permission)
    return lacking


_PAGE = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text(encoding="utf-8").replace("NAME", "docs")
#: The roles of docs/permissions.md for the index `docs`; what is said there of the lock is for indices alone.
SEARCH, BUILD, _LOCK, LOOK, JUDGE, CONNECT = (json.loads(each) for each in re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL))
BUILDER = joined(BUILD, {"index_permissions": [_LOCK]})


def as_settings(secured, user):
    """Settings of a connection as a user of the server."""
    return load(url=secured.url, user=user, password=server.PASSWORD, ca_certs=str(secured.authority.certificate))


@pytest.fixture(scope="package")
def secured(own_places):
    """The server, with ml-commons; it starts once for all tests of this folder."""
    root = Path(tempfile.mkdtemp(prefix="termweave-secured-"))  # the server's user may not enter pytest's folders
    root.chmod(0o711)
    started = server.start(root)
    yield started
    started.close()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def termweave(secured, capsys):
    """Run a command as a user; returns its exit status and what it printed."""

    def call(user, *arguments):
        trust = {"URL": secured.url, "CA_CERTS": str(secured.authority.certificate)}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**trust, "USER": user, "PASSWORD": server.PASSWORD}.items():
                patch.setenv(f"TERMWEAVE_{name}", value)
            code = run([str(each) for each in arguments])
        return code, "".join(capsys.readouterr())

    return call


def done(answer):
    """The output of a command that must succeed, and be allowed everything that it asks for."""
    code, text = answer
    assert code == 0, text
    assert not re.search("no permissions|unauthorized", text), text
    return text


@pytest.fixture
def corpus(tmp_path):
    """Write the first documents as a BEIR folder; returns its path."""

    def write(count, edition="", folder=tmp_path / "beir"):
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        first = list(DOCUMENTS.items())[:count]
        lines = [json.dumps({"_id": key, "title": key, "text": f"{text} {edition}"}) for key, text in first]
        (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "run a function later"}\n')
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ttimer\t1\n")
        return str(folder)

    return write


@pytest.fixture
def source(tmp_path):
    """Write documents as JSON lines; returns the opened source."""

    def write(documents):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(b"\n".join(map(orjson.dumps, documents)) + b"\n")
        return corpora.open_source(path)

    return write
