"""The command, in this process and as a process of its own, and an index of six documents."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import jsonschema
import pytest

from termweave.cli import run

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
DOCUMENTS = {
    "timer": ("Timer threads", "A thread that runs a function after a given number of seconds has passed."),
    "json": ("JSON decoder", "Parse a JSON document from a string and return the Python object."),
    "path": ("os.path.join", "Join one or more path components; os.path.join handles separators."),
    "csv": ("csv reader", "Iterate over the lines of a CSV file as lists of strings."),
    "random": ("random choice", "Pick a random element from a sequence that is not empty."),
    "empty": ("", ""),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A BEIR folder of six documents and two judged queries."""
    root = tmp_path_factory.mktemp("beir")
    lines = [json.dumps({"_id": key, "title": title, "text": text, "kind": "entry"}) for key, (title, text) in DOCUMENTS.items()]
    (root / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (root / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "run a function later"}\n{"_id": "q2", "text": "read json text"}\n'
    )
    (root / "qrels").mkdir()
    for split, first in (("test", "timer"), ("hard", "empty")):  # no search finds a document without a word
        (root / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\nq1\t{first}\t1\nq2\tjson\t1\n")
    return root


@pytest.fixture(scope="session")
def process(opensearch_engine, own_places):
    """Run the command as a process of its own; returns the finished process."""

    def call(*arguments, stdin=None, status=0):
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TERMWEAVE_")},
            "OPENSEARCH_URL": opensearch_engine.url,
            "XDG_STATE_HOME": str(own_places / "xdg-state"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "termweave", *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            env=environment,
            check=False,
        )
        return checked(done, status)

    return call


@pytest.fixture(scope="session")
def termweave(opensearch_engine, own_places):
    """Run the command in this process, which needs no start-up; returns the same as `process`, and keeps its state in the same place."""

    def call(*arguments, stdin=None, status=0):
        streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
        given = io.TextIOWrapper(io.BytesIO((stdin or "").encode()), "utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENSEARCH_URL", opensearch_engine.url)
            patch.setattr("termweave.support.paths.state", lambda: own_places / "xdg-state" / "termweave")
            for name, stream in (*streams.items(), ("stdin", given)):
                patch.setattr(sys, name, stream)
            code = run(list(arguments))
        texts = {name: stream.buffer.getvalue().decode() for name, stream in streams.items()}
        return checked(subprocess.CompletedProcess(arguments, code, **texts), status)

    return call


def checked(done, status):
    assert "Traceback" not in done.stderr
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="session")
def live(process, folder, opensearch_engine):
    """The folder, indexed."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    done = process("index", str(folder), name, "--json")
    valid(done.stdout, "index")
    yield name
    opensearch_engine.request("DELETE", f"/{name}*")


def valid(output, schema):
    data = json.loads(output)
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.1.json").read_text()))
    return data
