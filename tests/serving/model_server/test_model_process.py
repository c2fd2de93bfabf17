"""`termweave serve --model` as a process: clients that go away, Ctrl-C, large requests."""

import json
import signal
import socket
import threading
from contextlib import ExitStack
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.ui import processes
from tests.ui.processes import until


@pytest.fixture
def serving(own_places):
    """Start a server of the shipped model, and wait until it is ready: the process and its address."""
    with ExitStack() as started:

        def start(*arguments):
            server = processes.serving("--model", "shipped", *arguments, XDG_STATE_HOME=str(own_places / "xdg-state"))
            process, said = started.enter_context(server)
            until(lambda: status(Request(f"{said['url']}ready")) == 200, 180)
            return process, said["url"]

        yield start


def sparse(url, texts):
    body = json.dumps({"model": "shipped", "input": texts, "input_type": "document"}).encode()
    return Request(f"{url}v1/sparse", body, {"content-type": "application/json"})


def status(request):
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status
    except HTTPError as error:
        with error:
            return error.code


LONG = ["a function parses json from a string and returns it later " * 20] * 200


def waiting(url):
    with urlopen(f"{url}metrics") as answer:
        return int(answer.read().decode().partition("\ntermweave_queue_texts ")[2].partition("\n")[0])


def test_requests_under_way_are_answered_when_it_ends(serving):
    process, url = serving()
    answers = []
    asking = [threading.Thread(target=lambda: answers.append(status(sparse(url, LONG)))) for _ in range(2)]
    for thread in asking:
        thread.start()
    until(lambda: waiting(url))
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    for thread in asking:
        thread.join()
    assert (len(answers), set(answers) <= {200, 503}) == (2, True)
    assert "Traceback" not in process.stderr.read()


def test_a_question_passes_a_large_request_whose_texts_leave_the_queue_with_its_client(serving):
    process, url = serving()
    place, request = urlsplit(url), sparse(url, LONG)
    with socket.create_connection((place.hostname, place.port)) as client:
        head = f"POST /v1/sparse HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\nContent-Length: {len(request.data)}\r\n\r\n"
        client.sendall(head.encode() + request.data)
        until(lambda: waiting(url))
        assert status(sparse(url, ["a"])) == 200
        assert waiting(url) > 50
    until(lambda: not waiting(url), 5)  # 200 texts take longer than that
    process.send_signal(signal.SIGTERM)
    process.wait(120)
    assert "Traceback" not in process.stderr.read()
