"""The command in this process, and an index of six documents."""

import io
import json
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


def beir(root, documents, queries, answers):
    """Write a BEIR folder of these texts; `answers`: id of a query -> the document that answers it."""
    (root / "qrels").mkdir(parents=True, exist_ok=True)
    for file, texts in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        lines = [{"_id": key, **(text if isinstance(text, dict) else {"text": text})} for key, text in texts.items()]
        (root / file).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_qrels(root, "test", answers)
    return root


def write_qrels(root, split, answers):
    rows = "".join(f"{query}\t{document}\t1\n" for query, document in answers.items())
    (root / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A BEIR folder of six documents and two judged queries."""
    documents = {key: {"title": title, "text": text, "kind": "entry"} for key, (title, text) in DOCUMENTS.items()}
    queries = {"q1": "run a function later", "q2": "read json text"}
    root = beir(tmp_path_factory.mktemp("beir"), documents, queries, {"q1": "timer", "q2": "json"})
    write_qrels(root, "hard", {"q1": "empty", "q2": "json"})  # no search finds a document without a word
    return root


@pytest.fixture(scope="session")
def termweave(opensearch_engine, own_places):
    """Run the command in this process, which needs no start-up, with streams of its own; returns what a process would."""

    def call(*arguments, stdin=None, status=0):
        streams = {name: io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for name in ("stdout", "stderr")}
        typed = stdin if isinstance(stdin, bytes) else (stdin or "").encode()
        given = io.TextIOWrapper(io.BytesIO(typed), "utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENSEARCH_URL", opensearch_engine.url)
            patch.setattr("termweave.support.paths.state", lambda: own_places / "xdg-state" / "termweave")
            for name, stream in (*streams.items(), ("stdin", given)):
                patch.setattr(sys, name, stream)
            code = run(list(arguments))
        texts = {name: stream.buffer.getvalue().decode() for name, stream in streams.items()}
        assert "Traceback" not in texts["stderr"]
        assert code == status, texts["stderr"]
        return subprocess.CompletedProcess(arguments, code, **texts)

    return call


@pytest.fixture(scope="session")
def live(termweave, folder, opensearch_engine):
    """The folder, indexed."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    valid(termweave("index", str(folder), name, "--json").stdout, "index")
    yield name
    opensearch_engine.request("DELETE", f"/{name}*")


def valid(output, schema):
    data = json.loads(output)
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.1.json").read_text()))
    return data
