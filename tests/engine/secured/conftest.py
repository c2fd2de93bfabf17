"""A server with the security plugin, and commands that run as one of its users."""

import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from termweave.cli import run
from tests.engine.secured import server

DOCUMENTS = {
    "timer": "A thread that runs a function after a given number of seconds has passed.",
    "json": "Parse a JSON document from a string and return the Python object.",
    "path": "Join one or more path components with the separator of the system.",
    "csv": "Iterate over the lines of a file as lists of strings.",
    "random": "Pick a random element from a sequence that is not empty.",
}


@pytest.fixture(scope="package")
def secured(own_places):
    root = Path(
        tempfile.mkdtemp(prefix="termweave-secured-")
    )  # not below pytest's folders: the server's user may not enter those
    root.chmod(0o711)
    started = server.start(root)
    yield started
    started.close()
    shutil.rmtree(root, ignore_errors=True)


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
