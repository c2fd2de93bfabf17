"""The shipped model, opened once; statistics of a small corpus; a hub that serves models."""

import hashlib
import http.server
import json
import threading

import pytest

from termweave.encoders import load
from termweave.encoders.model_lookup import resolve
from tests.encoders.exact_scores import counted
from tests.engine.forwarding import Answering


@pytest.fixture(scope="session")
def encoder():
    return load(threads=2)


@pytest.fixture(scope="session")
def statistics(encoder):
    texts = ["The cat sat on the mat.", "A dog barked at the cat; the cat ran.", "", "Plant cells", "Zürich is a city; os.path"]
    return counted(encoder.analysis, encoder.analyse(texts))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(Answering):
    """One public model, ``team/model``, and one with conditions, ``team/gated``."""

    def respond(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(f"{self.command} {path}")
        files = self.server.files
        if path.startswith("/api/models/team/gated"):
            self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif not path.startswith(("/api/models/team/model", "/team/model/")):
            self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif path in {f"/api/models/team/model/revision/{name}" for name in ("main", "v1", COMMIT)} | {"/api/models/team/model"}:
            found = {"id": "team/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            self.answer(200, json.dumps(found).encode())
        elif path == f"/api/models/team/model/tree/{COMMIT}":
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in files.items()
            ]
            self.answer(200, json.dumps(tree).encode())
        elif path.startswith(f"/team/model/resolve/{COMMIT}/"):
            data = files[path.removeprefix(f"/team/model/resolve/{COMMIT}/")]
            self.answer(200, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(data).hexdigest()}"'})
        else:
            self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})

    do_GET = do_HEAD = respond  # noqa: N815 - the names http.server calls


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A hub with the shipped model, and the hub's client pointed at it."""
    from huggingface_hub import constants

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    server.files = {file.name: file.read_bytes() for file in resolve("shipped").iterdir() if file.is_file()} | {
        "pytorch_model.bin": b"unwanted"
    }
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield server
    server.shutdown()
    server.server_close()
