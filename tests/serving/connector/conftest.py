"""A server with ml-commons, a model server as a process of its own, and the command line."""

import json
import os
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from termweave.engine import connect
from termweave.engine.embedded import node
from termweave.settings import load
from tests.engine.forwarding import Answering
from tests.ui import processes

DOCUMENTS = {
    "timer": "A thread that runs a function after a given number of seconds.",
    "json": "Parse a JSON document from a string and return the Python object.",
    "path": "Join one or more path components intelligently.",
    "csv": "Iterate over the lines of a CSV file as lists of strings.",
    "random": "Pick a random element from a sequence that is not empty.",
}


@pytest.fixture(scope="session")
def ml_engine():
    """A connection to a server with ml-commons: that of $OPENSEARCH_URL if it has the plugin, else one that starts here."""
    if url := os.environ.get("OPENSEARCH_URL"):
        with connect(load(url=url)) as engine:
            if "opensearch-ml" in engine.capabilities.plugins:
                yield engine
                return
    with tempfile.TemporaryDirectory(prefix="termweave-ml-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        try:
            with connect(load(url=node.start(home=home, ml=True, heap=1024).url)) as engine:
                yield engine
        finally:
            node.wipe(home)


@pytest.fixture
def termweave(ml_engine, monkeypatch, termweave):
    """Run a verb on that server."""
    monkeypatch.setenv("OPENSEARCH_URL", ml_engine.url)
    return termweave


@pytest.fixture
def fresh(ml_engine, termweave):
    """A name of one's own; its index and connection are removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    yield name
    termweave("connect", name, "--remove")
    ml_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})


@pytest.fixture
def small(fresh, termweave, tmp_path):
    """The name of an index of five documents."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items()))
    termweave("index", corpus, fresh)
    return fresh


@contextmanager
def serving(url, name, *options):
    """The address of `termweave serve NAME --models`, which ends with the block."""
    with processes.serving(name, "--models", *options, OPENSEARCH_URL=url) as (_, said):
        # The cluster waits for an answer 10 s.
        processes.until(lambda: "being opened" not in requests.get(f"{said['url']}ready", timeout=60).text, 300)
        yield said["url"].rstrip("/")


@contextmanager
def answering(status=200, body=None, *, after=0.0):
    """The address of a model server that gives every request the same answer."""

    class Handler(Answering):
        def do_POST(self):  # noqa: N802 - the name http.server calls
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(after)
            content = json.dumps(body or {"error": {"message": "4,096 texts wait. Try again later."}}).encode()
            self.answer(status, content, {"connection": "close"})  # or the cluster would go on asking a server that has ended

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, ExitStack() as ending:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ending.callback(server.shutdown)
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def search(ml_engine):
    """Send a match query as an application does: ids and scores of the hits."""

    def call(name, words, *, learned=True, **body):
        params = {"search_pipeline": f"{name}-learned"} if learned else {}
        query = {"match": {"text": words}} if isinstance(words, str) else words
        body = {"query": query, "size": 10, "_source": ["id"], **body}
        answer = ml_engine.request("POST", f"/{name}/_search", params=params, body=body)
        return {hit["_id"]: hit["_score"] for hit in answer["hits"]["hits"]}

    return call
