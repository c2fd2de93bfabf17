"""`termweave serve --model` as a process: clients that go away, Ctrl-C, large requests."""

import json
import signal
import socket
import threading
from urllib.parse import urlsplit

import pytest
import requests

from tests.ui.processes import serving, until


@pytest.fixture
def server(own_places):
    """A server of the shipped model that is ready: the process and its address."""
    with serving("--model", "shipped", XDG_STATE_HOME=str(own_places / "xdg-state")) as (process, said):
        until(lambda: requests.get(f"{said['url']}ready", timeout=60).ok, 180)
        yield process, said["url"]


def body(texts):
    return {"model": "shipped", "input": texts, "input_type": "document"}


def status(url, texts):
    return requests.post(f"{url}v1/sparse", json=body(texts), timeout=60).status_code


LONG = ["a function parses json from a string and returns it later " * 20] * 200


def waiting(url):
    return int(requests.get(f"{url}metrics", timeout=60).text.partition("\ntermweave_queue_texts ")[2].partition("\n")[0])


def test_requests_under_way_are_answered_when_it_ends(server):
    (process, url), answers = server, []
    asking = [threading.Thread(target=lambda: answers.append(status(url, LONG))) for _ in range(2)]
    for thread in asking:
        thread.start()
    until(lambda: waiting(url))
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    for thread in asking:
        thread.join()
    assert (len(answers), set(answers) <= {200, 503}) == (2, True)
    assert "Traceback" not in process.stderr.read()


def test_a_question_passes_a_large_request_whose_texts_leave_the_queue_with_its_client(server):
    process, url = server
    place, data = urlsplit(url), json.dumps(body(LONG)).encode()
    with socket.create_connection((place.hostname, place.port)) as client:
        head = f"POST /v1/sparse HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        client.sendall(head.encode() + data)
        until(lambda: waiting(url))
        assert status(url, ["a"]) == 200
        assert waiting(url) > 50
    until(lambda: not waiting(url), 5)  # 200 texts take longer than that
    process.send_signal(signal.SIGTERM)
    process.wait(120)
    assert "Traceback" not in process.stderr.read()
