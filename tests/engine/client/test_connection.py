"""Which server, how to get in, where a password comes from and when others would see it, and how a call goes through."""

import base64
import os
import pty
import subprocess
import sys
from contextlib import nullcontext

import pytest

from termweave.cli import run
from termweave.engine import EngineResponseError, connect
from termweave.engine.client import credentials
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load
from tests.engine.certificates import Authority, openssl

NOT_ADDRESSES = ("ftp://host", "http://", "http://host:notaport", "http://host:99999", "http://%zz", "caf\udce9", "http://one,")
READ, WRITE = ("GET", "/index/_doc/1", {}), ("POST", "/_bulk", {"body": b"{}\n"})
SEARCH = ("POST", "/index/_search", {"body": {}})
BUSY, DOWN, PROXY, CUT, FINE = (429, {}), (503, {"error": "down"}), (502, b"<html>down"), (None, None), (200, {"found": True})


def test_without_an_address_and_a_node_it_says_how_to_start_one(monkeypatch):
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    with pytest.raises(EngineUnreachable) as caught:
        connect(load())
    assert caught.value.exit_status == 5
    assert "termweave node start" in caught.value.hint


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:9201", ("http://localhost:9201", None, None)),
        ("http://localhost", ("http://localhost:9200", None, None)),
        ("https://search.example", ("https://search.example:443", None, None)),
        ("https://me:p%40ss@search.example:9200/prefix/", ("https://search.example:9200/prefix", "me", "p@ss")),
        ("http://[::1]:9200", ("http://[::1]:9200", None, None)),
    ],
)
def test_an_address_is_taken_apart(address, expected):
    assert credentials.split(address) == expected


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        *((each, "https://host:9200") for each in NOT_ADDRESSES),
        *((each, "--password") for each in ("https://me:hush/ed@host:9200", "me:hush#ed@host", "https://me:hush@host:99999")),
        ("https://me:12,hush@host:9200", "comma in a password as %2C"),  # 12 would be a port
        ("https://me:hush@host,,https://other", "https://host:9200"),
    ],
)
def test_an_address_that_cannot_be_meant_is_wrong_usage_and_shows_no_password(address, hint):
    with pytest.raises(UsageError, match="not valid") as caught:
        connect(load(url=address))
    assert hint in caught.value.hint
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "answers", "attempts"),
    [
        (READ, [DOWN, PROXY, CUT, FINE], 4),
        (READ, [DOWN] * 9, -4),
        (WRITE, [DOWN, FINE], -1),
        (SEARCH, [BUSY, FINE], 2),
        ((*SEARCH[:2], {"body": {}, "retry": False}), [BUSY, FINE], -1),
    ],
)
def test_reads_are_sent_again_and_writes_are_not(scripted, request_, answers, attempts):
    """Attempts below 0: the last of them failed."""
    method, path, options = request_
    with connect(load(url=scripted.url)) as engine:
        engine.without_pipeline({})  # the first search asks the server whether it has search pipelines
        scripted.seen.clear()
        scripted.queue = answers
        with nullcontext() if attempts > 0 else pytest.raises(EngineResponseError):
            assert engine.request(method, path, **options) == {"found": True}
    assert len(scripted.seen) == abs(attempts)


@pytest.mark.parametrize("product", ["OpenSearch", "Elasticsearch"])
def test_a_request_as_it_travels(scripted, product):
    """Bytes stay as they are, user and password are UTF-8, and what the server calls deprecated is no warning of Python."""
    elastic = {"x-elastic-product": product} if product == "Elasticsearch" else {}
    scripted.headers = {"warning": '299 OpenSearch-3.6.0 "[types removal] is deprecated"', **elastic}
    scripted.answers["*"] = (200, {"errors": False})
    body = '{"index":{}}\n{"text":"Füße 😀"}\n'.encode()
    inside = {"url": scripted.url.replace("//", "//%C5%81ukasz:%C5%BC%40%C5%82w@")}
    for given in ({"url": scripted.url, "user": "Łukasz", "password": "ż@łw"}, inside):
        with connect(load(**given)) as engine:
            for _ in range(2):  # the second time by the library of this server
                engine.request("POST", "/index/_bulk", body=body, params={"refresh": True, "routing": None})
            assert "w@" not in repr(engine)
    for method, path, headers, sent in scripted.seen:
        assert (method, path, sent) == ("POST", "/index/_bulk?refresh=true", body)
        assert headers["content-type"] == "application/x-ndjson"
        assert base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode() == "Łukasz:ż@łw"


_FORKS = """
import os, sys
from termweave.engine import connect
from termweave.settings import load

with connect(load(url=sys.argv[1])) as engine:
    engine.request("GET", "/parent")
    if not (child := os.fork()):
        engine.request("GET", "/child")
        os._exit(0)
    os.waitpid(child, 0)
    engine.request("GET", "/parent")
"""


def test_a_forked_process_has_connections_of_its_own(scripted):
    scripted.answers["*"] = (200, {})
    subprocess.run([sys.executable, "-c", _FORKS, scripted.url], check=True)
    assert [path for _, path, *_ in scripted.seen] == ["/parent", "/child", "/parent"]
    before, child, after = scripted.peers
    assert before == after != child


def test_two_who_ask_are_refused_with_both_places_and_without_a_password(monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", "https://bob:hush@host:9200")
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hushed")
    for given, said in (
        ({"user": "me"}, r"from \$OPENSEARCH_URL, names the user 'bob', and user names the user 'me'"),
        ({"user": "bob"}, r"from \$OPENSEARCH_URL, holds a password, and \$TERMWEAVE_PASSWORD gives a different one"),
        ({}, "holds a password"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            connect(load(**given))
        assert "hush" not in str(caught.value)
    for given in ({"password": "hush"}, {"user": "bob", "password": "hush"}, {"url": "https://bob@host:9200"}):
        connect(load(**given)).close()


def test_sigv4_without_boto3_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UsageError) as caught:
        connect(load(url="https://search.eu-central-1.es.amazonaws.com", aws_sigv4="eu-central-1"))
    assert "[aws]'" in caught.value.hint


def test_a_password_comes_from_a_file_or_a_command(tmp_path, monkeypatch):
    def password(**settings):
        (address,) = credentials.addresses(load(user="me", **settings), "https://me@search")
        return address.password

    file = tmp_path / "password"
    file.write_bytes(b"\xef\xbb\xbffrom a file\r\n")  # as an editor of Windows writes it
    assert password(password_file=file) == "from a file"
    (tmp_path / "vault.py").write_text("word = 'from a module'\n")
    (tmp_path / "command.py").write_text("import vault\nprint(vault.word)\n")
    # The command line sets it for processes of its own: a command imports from its folder.
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("TERMWEAVE_PASSWORD_COMMAND", f"{sys.executable} {tmp_path / 'command.py'}")
    assert password() == "from a module"
    assert password(password_file=file) == "from a file"  # a flag comes before the environment


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        (None, {"password_file": "password"}, "cannot be read"),
        (b"", {"password_file": "password"}, "does not hold one line"),
        (b"a\nb\n", {"password_file": "password"}, "does not hold one line"),
        (b"\xff", {"password_file": "password"}, "it is not UTF-8"),
        (None, {"password_command": "false"}, "exit status 1"),
        (None, {"password_command": "true"}, "printed nothing"),
        (None, {"password_command": "no-such-command"}, "failed"),
        (b"a", {"password": "hush", "password_file": "password"}, r"password_file \(from password_file\) both give"),
    ],
)
def test_a_way_that_gives_no_password_is_refused(tmp_path, monkeypatch, content, settings, sentence):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        connect(load(url="http://127.0.0.1:1", user="me", **settings))


_ASKS = """
import sys
from termweave.engine.client import credentials
from termweave.settings import load
for _ in range(2):  # asked once
    (address,) = credentials.addresses(load(url=sys.argv[1], user="me", password="-"), sys.argv[1])
print("given:", address.password)
"""


def at_a_terminal(program, question, answer, *arguments):
    """What a terminal shows while a program asks a question there and is answered."""
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-c", program, *arguments])
    shown = b""
    while question.encode() not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, f"{answer}\n".encode())
    while b"given:" not in shown or not shown.endswith(b"\n"):
        shown += os.read(terminal, 1000)
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()


def test_a_dash_asks_for_the_password_and_does_not_show_it():
    shown = at_a_terminal(_ASKS, "Password of me at http://127.0.0.1:1: ", "open sesame", "http://127.0.0.1:1")
    assert shown.count("open sesame") == 1  # what the program printed, and not what was typed


_ASKS_FOR_A_KEY = """
import sys
from termweave.engine import connect
from termweave.settings import load
for _ in range(2):  # asked once
    connect(load(url="https://127.0.0.1:1", client_cert=sys.argv[1], client_key=sys.argv[2])).close()
print("given: the right one")
"""


def test_the_password_of_a_key_is_asked_for_on_a_terminal(tmp_path):
    certificate, key = Authority(tmp_path / "ours", "Ours").issue("client")
    locked = tmp_path / "locked.key"
    openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:open sesame")
    shown = at_a_terminal(_ASKS_FOR_A_KEY, f"Password of the key {locked}: ", "open sesame", str(certificate), str(locked))
    assert "open sesame" not in shown
    assert shown.count("Password of the key") == 1


def test_a_password_on_the_command_line_is_refused_and_one_in_an_address_warned_of(capsys, caplog):
    assert run(["list", "--url", "http://127.0.0.1:1", "--user", "me", "--password", "hushed"]) == 2
    said = capsys.readouterr().err
    assert "A password on the command line is visible to other users of this machine" in said
    assert "$TERMWEAVE_PASSWORD_FILE" in said
    assert run(["list", "--url", "http://127.0.0.1:1", "--user", "me"]) == 5
    assert "visible" not in caplog.text
    assert run(["list", "--url", "http://me:hushed@127.0.0.1:1"]) == 5
    assert "Warning: the password in --url is visible to other users" in caplog.text
    assert "hushed" not in said + "".join(record.getMessage() for record in caplog.records) + capsys.readouterr().err


def test_without_a_terminal_nobody_is_asked():
    alone = {"stdin": subprocess.DEVNULL, "start_new_session": True, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", _ASKS, "http://127.0.0.1:1"], check=False, **alone)
    assert "There is no terminal to ask for the password." in done.stderr


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("http://search.example:9200", True),
        ("http://10.0.0.7:9200", True),
        ("http://localhost:9200", False),
        ("http://search.localhost:9200", False),
        ("http://localhost.search.example:9200", True),
        ("http://127.search.example:9200", True),
        ("http://127.0.0.2:9200", False),
        ("http://[::1]:9200", False),
        ("https://search.example:9200", False),
    ],
)
def test_a_password_without_encryption_to_another_machine_is_warned_of(address, warned, caplog):
    credentials.addresses(load(url=address, user="me"), address)
    assert ("the password travels to" in caplog.text) is warned
    caplog.clear()
    credentials.addresses(load(url=address), address)
    assert not caplog.text
