"""A server with the security plugin, and commands that run as one of its users."""

import json
import re
import shutil
import tempfile
from pathlib import Path

import orjson
import pytest

from termweave import corpora
from termweave.cli import run
from tests.engine.secured import server

DOCUMENTS = {
    "timer": "A thread that runs a function after a given number of seconds has passed.",
    "json": "Parse a JSON document from a string and return the Python object.",
    "path": "Join one or more path components with the separator of the system.",
    "csv": "Iterate over the lines of a file as lists of strings.",
    "random": "Pick a random element from a sequence that is not empty.",
}


def roles():
    """The roles of docs/permissions.md for the index `docs`: search, build, lock, look, judge, connect."""
    page = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text(encoding="utf-8").replace("NAME", "docs")
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]


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
    return as_user(secured, capsys)


def as_user(secured, capsys):
    def call(user, *arguments):
        variables = {
            "URL": secured.url,
            "CA_CERTS": str(secured.authority.certificate),
            "USER": user,
            "PASSWORD": server.PASSWORD,
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(f"TERMWEAVE_{name}", value)
            code = run([str(each) for each in arguments])
        return code, "".join(capsys.readouterr())

    return call


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
def source(tmp_path):
    """Write documents as JSON lines; returns the opened source."""

    def write(documents):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(b"\n".join(map(orjson.dumps, documents)) + b"\n")
        return corpora.open_source(path)

    return write
