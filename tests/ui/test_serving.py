"""`termweave serve` as a process: it starts fast, says where it is, answers over a socket, and ends in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from urllib.request import urlopen

import pytest

from termweave.cli import run


@pytest.fixture
def serving(opensearch_engine, attacked, own_places):
    """Start `termweave serve` with some arguments; the process and its address."""
    started = []

    def start(*arguments):
        environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url, "XDG_STATE_HOME": str(own_places / "xdg-state")}
        line = [sys.executable, "-m", "termweave", "serve", attacked, "--port", "0", "--json", *arguments]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        lines = []
        while not lines or not lines[-1].startswith("}"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        return process, json.loads("".join(lines))

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_requests_that_have_begun_are_answered_before_it_ends(serving):
    process, said = serving("--read-only")
    assert said["read_only"]
    answers = []
    asking = threading.Thread(target=lambda: answers.append(json.load(urlopen(f"{said['url']}api/search?q=parse+json"))))
    asking.start()
    time.sleep(0.2)  # the models are being loaded now
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    asking.join()
    assert answers[0]["hits"]
    assert "Traceback" not in process.stderr.read()


def test_a_port_in_use_is_a_sentence(serving, opensearch_engine, capsys, attacked):
    _, said = serving()
    port = said["url"].rstrip("/").rpartition(":")[2]
    assert run(["serve", attacked, "--port", port, "--url", opensearch_engine.url]) == 2
    assert "cannot be used" in capsys.readouterr().err


def test_an_index_that_does_not_exist_is_a_sentence(opensearch_engine, capsys):
    assert run(["serve", "no-such-index", "--url", opensearch_engine.url]) == 2
    assert "no index named" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "jinja2"])
def test_without_the_extra_a_sentence_names_it(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from termweave.cli import run\n"
        "sys.exit(run(['serve', '--url', 'http://127.0.0.1:9']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert missing in done.stderr
    assert "[ui]'" in done.stderr


def test_starting_imports_no_model_runtime():
    code = "import termweave.ui.server, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "onnxruntime", "transformers", "numpy"} & {name.split(".")[0] for name in done.stdout.split()}
