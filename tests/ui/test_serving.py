"""`termweave serve` as a process: it starts fast, says where it is, answers over a socket, and ends in order."""

import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import psutil
import pytest
import uvicorn

from termweave import engine, settings
from termweave.cli import run
from termweave.serving import server
from termweave.serving.connector import registrations
from termweave.ui.protection import limits
from termweave.ui.rendering import FOLDER
from termweave.ui.serve_options import ServeOptions
from tests.indexer.proxy import Proxy
from tests.programs import program
from tests.ui.conftest import TOKEN, client_of
from tests.ui.processes import serving, until


def test_requests_that_have_begun_are_answered_before_it_ends(opensearch_engine, attacked):
    with serving(attacked, "--read-only", OPENSEARCH_URL=opensearch_engine.url) as (process, said):
        assert said["read_only"]
        answers, served = [], lambda: psutil.Process(process.pid).net_connections("tcp")
        asking = threading.Thread(target=lambda: answers.append(json.load(urlopen(f"{said['url']}api/search?q=parse+json"))))
        asking.start()
        port = urlsplit(said["url"]).port
        until(lambda: answers or any((each.laddr.port, each.status) == (port, psutil.CONN_ESTABLISHED) for each in served()))
        time.sleep(0.2)  # the models are being loaded now
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        asking.join()
        assert answers[0]["hits"]
        assert "Traceback" not in process.stderr.read()


@pytest.fixture
def listening(unreachable, monkeypatch):
    """Serve in this process with some options: the address, and the connections that are open."""
    made, ended, real = [], [], uvicorn.Server
    monkeypatch.setattr(server.uvicorn, "Server", lambda config: made.append(real(config)) or made[-1])

    def start(**options):
        announced, chosen = queue.Queue(), ServeOptions(token=TOKEN, port=0, **options)
        thread = threading.Thread(target=server.run, args=(unreachable, chosen, announced.put), daemon=True)
        thread.start()
        ended.append(thread)
        port = urlsplit(announced.get(timeout=30)).port
        until(lambda: made and made[-1].started)
        return ("127.0.0.1", port), made[-1].server_state.connections

    yield start
    for each in made:
        each.should_exit = True
    for thread in ended:
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def hurried(monkeypatch):
    """A server that closes a connection after 0.3 s of silence."""
    monkeypatch.setattr(limits, "SILENT_FOR", 0.3)


def test_silent_connections_are_closed(listening, hurried):
    """A request whose lines arrive one by one never ends otherwise."""
    address, _ = listening()
    with socket.create_connection(address, 30) as slow:
        slow.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert slow.recv(1) == b""  # closed without an answer


#: As many scripts as do not fit into the buffers of both sides.
_MANY = b"GET /static/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 400


def test_a_connection_whose_answers_are_not_taken_is_aborted(listening, hurried):
    """256 of them would lock everybody out; uvicorn waits for each until its client takes the last byte."""
    address, connections = listening()
    for last in (b"", b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"):
        with socket.create_connection(address, 30) as greedy:
            greedy.sendall(_MANY + last)
            until(lambda: connections)
            until(lambda: not connections)


def test_a_slow_client_gets_its_answers(listening, hurried):
    address, _ = listening()
    left = 400 * (FOLDER / "static" / "htmx.min.js").stat().st_size
    with socket.create_connection(address, 30) as slow:
        slow.sendall(_MANY)
        while left > 0:
            piece = slow.recv(1 << 18)
            assert piece
            left -= len(piece)
            time.sleep(0.01)


def test_one_address_has_few_connections(listening, monkeypatch):
    monkeypatch.setattr(limits, "FROM_HERE", 3)
    address, connections = listening()
    with ExitStack() as stack:
        few = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(3)]
        until(lambda: len(connections) == 3)
        fourth = stack.enter_context(socket.create_connection(address, 30))
        with suppress(ConnectionResetError):
            assert fourth.recv(1) == b""
        few[0].sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert few[0].recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_model_server_takes_the_connections_of_a_node(listening, monkeypatch):
    monkeypatch.setattr(limits, "HERE", "none")  # the test is a client of another machine
    address, connections = listening(serves_models=True)
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(registrations.CONNECTIONS)]
        until(lambda: len(connections) == len(opened))
        # Headers and body are two writes: with Nagle's algorithm the second one would wait 40 ms for a client that delays its acknowledgements.
        first = next(iter(connections)).transport.get_extra_info("socket")
        assert first.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(("options", "status"), [({"proxies": ("10.0.0.9",)}, b"429"), ({"proxies": ("127.0.0.1",)}, b"401")])
def test_only_a_proxy_that_is_named_may_say_for_whom_it_asks(listening, monkeypatch, options, status):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own variable
    address, _ = listening(**options)
    with socket.create_connection(address, 30) as quick:
        for number in range(limits.TRIES + 1):
            head = "GET /api/indices HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n"
            quick.sendall(f"{head}X-Forwarded-For: 10.0.0.{number}\r\n\r\n".encode())
            answer = b""
            while b'"hint"' not in answer or not answer.endswith(b"}"):
                answer += quick.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.fixture(scope="module")
def served(opensearch_engine, attacked, own_places):
    """The address of one such server, for all tests that only ask it."""
    with serving(attacked, OPENSEARCH_URL=opensearch_engine.url) as (_, said):
        yield said["url"]


def test_a_query_of_ten_thousand_characters_fits_into_the_address(served):
    """Such addresses of another script than Latin are longer than uvicorn takes by default."""
    query = quote("👍" * 9_990 + " function")
    assert json.load(urlopen(f"{served}api/search?q={query}"))["hits"]
    assert b'class="hit"' in urlopen(f"{served}search?q={query}").read()


def test_a_port_in_use_and_an_index_that_does_not_exist_are_sentences(served, opensearch_engine, capsys):
    line = ["serve", "--port", str(urlsplit(served).port), "--url", opensearch_engine.url]
    for options, said in ((["--model", "shipped"], "cannot be used"), (["no-such-index"], "no index named")):
        assert run([*line, *options]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.programs
def test_the_examples_of_the_page_run(served):
    """Every example of docs/api.md, as a reader would paste it."""
    blocks = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8").split("```\n")[1::2]
    lines = [line for block in blocks if block.startswith("curl") for line in block.splitlines()]
    assert len(lines) == 4
    program("curl"), program("jq")
    printed = []
    for line in lines:
        command = ["bash", "-o", "pipefail", "-c", line.replace("http://127.0.0.1:8321/", served)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
        printed.append(done.stdout)
    assert len(printed[0].splitlines()) == 3
    assert [hit["id"] for hit in json.loads(printed[1])["hits"]] == ["json"]
    assert "json" in json.loads(printed[2])


def test_a_server_that_is_killed_meanwhile_is_a_sentence_on_every_page(opensearch_engine, attacked, caplog, hasty):
    proxy = Proxy(urlsplit(opensearch_engine.url).port)
    client = client_of(engine.connect(settings.load(url=proxy.url, timeout=5)), index=attacked)
    assert client.get("/search?q=function").status_code == 200
    proxy.away = True
    for path in ("/search?q=function", "/judge?judge=ann", "/book", "/generations", "/book/qrels.tsv", "/api/search?q=function"):
        answer = client.get(path)
        assert (answer.status_code, "closed the connection" in unescape(answer.text)) == (503, True), path
        assert answer.headers["content-security-policy"]
    fields = {"index": attacked, "typed": "a query", "judge": "ann", "grade": "1"}
    for path in ("/book/add", "/judge/undo", "/generations/promote"):
        answer = client.post(path, data=fields)
        assert (answer.status_code, "Traceback" in answer.text) == (503, False), path
    # The client library keeps the causes in records of its own, which `termweave` does not print.
    assert not [each for each in caplog.records if each.exc_info and each.name.startswith(("termweave", "uvicorn", "starlette"))]


def test_the_first_index_is_open_before_somebody_searches(opensearch_engine, attacked, unreachable, monkeypatch):
    client_of(unreachable, index=attacked).app.state.workspace.warm()  # the first search says what is wrong
    workspace = client_of(opensearch_engine, index=attacked).app.state.workspace
    workspace.warm()
    monkeypatch.setattr("termweave.search.Index.open", None)
    assert workspace.index(attacked).search("parse json", k=1)


def test_without_the_extra_a_sentence_names_it():
    """In a process of its own: a module that was imported cannot be missed any more."""
    code = "import sys; from termweave.cli import run; sys.modules['starlette'] = None; run(['serve', '--url', 'http://127.0.0.1:9'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ("the package 'starlette" in done.stderr, "[ui]'" in done.stderr) == (True, True)


def test_starting_imports_no_model_runtime():
    code = "import termweave.serving.server, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "onnxruntime", "transformers"} & {name.split(".")[0] for name in done.stdout.split()}
