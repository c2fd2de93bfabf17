"""Models from the hub, fetched from a hub that this test serves: the client is the real one."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading

import pytest

from termweave.encoders import hub, load
from termweave.encoders.folder import resolve
from termweave.errors import ModelError, UsageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(http.server.BaseHTTPRequestHandler):
    """One public model, ``team/model``, and one with conditions, ``team/gated``."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
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

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


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


def test_a_model_is_fetched_once(served):
    path = resolve("hf:team/model")
    assert load("hf:team/model").models["weights"].hash == load("shipped").models["weights"].hash
    assert not (path / "pytorch_model.bin").exists()
    fetched = [line for line in served.asked if "/resolve/" in line]
    assert resolve("hf:team/model@v1") == path
    assert [line for line in served.asked if "/resolve/" in line] == fetched


def test_what_was_fetched_is_used_where_the_hub_does_not_answer(served):
    path = resolve("hf:team/model")
    served.shutdown()
    served.server_close()
    assert resolve("hf:team/model") == path


@pytest.mark.parametrize(
    ("name", "kind", "says", "advice"),
    [
        ("hf:team", UsageError, "names no model on the hub", "hf:OWNER/NAME"),
        ("hf:team/mo del", UsageError, "names no model on the hub", "hf:OWNER/NAME"),
        ("hf:team/none", UsageError, "has no model team/none", "HF_TOKEN"),
        ("hf:team/gated", ModelError, "does not let you read team/gated", "HF_TOKEN"),
        ("hf:team/model@v9", UsageError, "no revision 'v9'", "branch"),
    ],
)
def test_what_cannot_be_fetched(served, name, kind, says, advice):
    with pytest.raises(kind, match=says) as caught:
        hub.fetch(name)
    assert advice in caught.value.hint


def test_no_hub(served):
    served.shutdown()
    served.server_close()
    with pytest.raises(ModelError, match="hf:team/model could not be fetched") as caught:
        hub.fetch("hf:team/model")
    assert "HF_ENDPOINT" in caught.value.hint


def test_a_file_that_is_altered_on_the_way_is_noticed(served):
    served.files["tokenizer.json"] += b" "
    with pytest.raises(ModelError, match=r"altered: .*tokenizer\.json"):
        load("hf:team/model")


def test_the_command_line_takes_the_name(served, tmp_path):
    env = {**os.environ, "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "home")}
    command = [
        sys.executable,
        "-m",
        "termweave",
        "weights",
        "the boundary layer of a flat plate",
        "--model",
        "hf:team/model",
        "--json",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "boundari" in done.stdout
    assert done.stderr == ""


def test_a_backbone_may_lie_on_the_hub(served, tmp_path):
    from termweave.training.prospect import _backbone

    served.files["1_Pooling/config.json"] = json.dumps(
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    ).encode()
    assert _backbone("hf:team/model", [], tmp_path, {"outputs": "weights,dense"}) == resolve("hf:team/model")
