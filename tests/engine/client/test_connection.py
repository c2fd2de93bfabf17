"""Which server, how to get in, and how a call goes through."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.engine.client import credentials
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load
from tests.engine.certificates import Authority
from tests.engine.tls_server import serving


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
    "address", ["ftp://host", "http://", "http://host:notaport", "http://host:99999", "http://a b", "http://%zz", "caf\udce9"]
)
def test_an_address_that_cannot_be_meant_is_wrong_usage(address):
    with pytest.raises(UsageError):
        connect(load(url=address))


def test_a_closed_port_is_unreachable_in_a_sentence(closed_port):
    engine = connect(load(url=f"http://127.0.0.1:{closed_port}"))
    with pytest.raises(EngineUnreachable, match=f"No OpenSearch answers at http://127.0.0.1:{closed_port}"):
        engine.request("PUT", "/index")


def test_a_server_that_does_not_answer_in_the_time_asked_for_is_given_up():
    """The server answers as soon as the client has given up, or after half a minute: a client that waited would have its answer."""
    given_up = threading.Event()

    def answer_late():
        with silent.accept()[0] as client:
            given_up.wait(30)
            with suppress(OSError):
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        server = threading.Thread(target=answer_late, daemon=True)
        server.start()
        engine = connect(load(url=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2))
        with pytest.raises(EngineUnreachable, match="did not answer PUT /index in time"):
            engine.request("PUT", "/index")
        given_up.set()
        server.join()
        engine.close()


def test_reads_are_sent_again_and_writes_are_not(scripted):
    engine = connect(load(url=scripted.url))
    scripted.queue = [(503, {}), (None, None), (200, {"found": True})]
    assert engine.request("GET", "/index/_doc/1") == {"found": True}
    assert len(scripted.seen) == 3

    scripted.seen.clear()
    scripted.queue = [(503, {"error": {"type": "x", "reason": "no cluster manager"}}), (200, {})]
    with pytest.raises(EngineResponseError, match="no cluster manager") as caught:
        engine.request("POST", "/_bulk", body=b"{}\n")
    assert caught.value.status == 503
    assert len(scripted.seen) == 1
    engine.close()


def test_searches_are_reads_unless_the_caller_says_otherwise(scripted):
    engine = connect(load(url=scripted.url))
    engine.without_pipeline({})  # the first search asks the server whether it has search pipelines
    scripted.queue = [(429, {}), (200, {"hits": {}})]
    assert engine.request("POST", "/index/_search", body={"query": {"match_all": {}}}) == {"hits": {}}
    scripted.queue = [(429, {}), (200, {})]
    with pytest.raises(EngineResponseError):
        engine.request("POST", "/index/_search", body={}, retry=False)
    engine.close()


def test_what_stays_broken_is_given_up_after_a_few_tries(scripted):
    scripted.answers["*"] = (503, {"error": "down"})
    engine = connect(load(url=scripted.url))
    with pytest.raises(EngineResponseError):
        engine.request("GET", "/")
    assert 2 <= len(scripted.seen) <= 5
    engine.close()


@pytest.mark.parametrize("product", ["OpenSearch", "Elasticsearch"])
def test_what_the_server_calls_deprecated_is_no_warning_of_python(scripted, product):
    """pytest would make it an error, as users do who run Python with -W error."""
    scripted.headers = {"warning": '299 OpenSearch-3.6.0 "[types removal] is deprecated"'} | (
        {"x-elastic-product": product} if product == "Elasticsearch" else {}
    )
    scripted.answers["*"] = (200, {"found": True})
    with connect(load(url=scripted.url)) as engine:
        for _ in range(2):
            assert engine.request("GET", "/index/_doc/1") == {"found": True}


def test_bytes_travel_untouched_and_ndjson_is_named(scripted):
    scripted.answers["*"] = (200, {"errors": False})
    engine = connect(load(url=scripted.url))
    body = '{"index":{}}\n{"text":"Füße 😀"}\n'.encode()
    engine.request("POST", "/index/_bulk", body=body, params={"refresh": True, "routing": None})
    method, path, headers, sent = scripted.seen[0]
    assert (method, path, sent) == ("POST", "/index/_bulk?refresh=true", body)
    assert {name.lower(): value for name, value in headers.items()}["content-type"] == "application/x-ndjson"
    engine.close()


@pytest.mark.parametrize(
    "address", ["https://me:hush/ed@host:9200", "me:hush#ed@host", "ftp://me:hushed@host", "https://me:hushed@host:99999"]
)
def test_an_address_that_cannot_be_meant_keeps_its_password_to_itself(address):
    with pytest.raises(UsageError) as caught:
        credentials.split(address)
    assert "me:***@host" in caught.value.message
    assert "hush" not in str(caught.value)
    assert "--password" in caught.value.hint


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


def test_basic_authentication_from_settings_or_address(scripted):
    scripted.answers["*"] = (200, {})
    for settings in (load(url=scripted.url, user="me", password="p@ss"), load(url=scripted.url.replace("//", "//me:p%40ss@"))):
        engine = connect(settings)
        engine.request("GET", "/")
        assert "p@ss" not in repr(engine)
        engine.close()
    for _, _, headers, _ in scripted.seen:
        given = {name.lower(): value for name, value in headers.items()}["authorization"]
        assert base64.b64decode(given.removeprefix("Basic ")) == b"me:p@ss"


def test_a_cloned_repository_does_not_receive_the_users_password(scripted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("termweave.support.paths.config", lambda: tmp_path / "config")
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "termweave.toml").write_text("url = 'https://home:9200'\nuser = 'me'\npassword = 'hush'\n")
    (tmp_path / "termweave.toml").write_text(f"url = '{scripted.url}'\n")
    scripted.answers["*"] = (200, {})
    with connect(load()) as engine:
        engine.request("GET", "/")
    with connect(load(url=scripted.url, user="me", password="p")) as engine:
        engine.request("GET", "/")
    stolen, meant = ({name.lower() for name in headers} for _, _, headers, _ in scripted.seen)
    assert "authorization" not in stolen
    assert "authorization" in meant


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


def test_names_and_passwords_travel_in_utf8(scripted):
    scripted.answers["*"] = (200, {})
    with connect(load(url=scripted.url, user="Łukasz", password="żółw")) as engine:
        engine.request("GET", "/")
    ((_, _, headers, _),) = scripted.seen
    given = {name.lower(): value for name, value in headers.items()}["authorization"]
    assert base64.b64decode(given.removeprefix("Basic ")).decode() == "Łukasz:żółw"


def test_a_key_without_its_certificate_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="without its certificate"):
        connect(load(url="https://127.0.0.1:1", client_key=tmp_path / "key.pem"))


def test_sigv4_without_boto3_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UsageError) as caught:
        connect(load(url="https://search.eu-central-1.es.amazonaws.com", aws_sigv4="eu-central-1"))
    assert "[aws]'" in caught.value.hint


@pytest.fixture
def tls_server(tmp_path):
    """A real TLS server for 127.0.0.1, and the certificate of its authority."""
    try:
        authority = Authority(tmp_path / "authority", "Ours")
    except OSError:
        pytest.skip("openssl is not here to make a certificate")
    with serving(*authority.issue("server")) as url:
        yield url.removeprefix("https://"), authority.certificate


def test_tls_is_verified_trusted_or_knowingly_not(tls_server):
    address, certificate = tls_server
    with (
        connect(load(url=f"https://{address}")) as engine,
        pytest.raises(EngineUnreachable, match="could not be verified") as caught,
    ):
        engine.request("GET", "/", retry=False)
    assert "--ca-certs" in caught.value.hint
    with connect(load(url=f"https://{address}", ca_certs=certificate)) as engine:
        assert engine.request("GET", "/") == {"ok": "safe"}
    with connect(load(url=f"https://{address}", insecure=True)) as engine:  # a warning would be an error here
        assert engine.request("GET", "/") == {"ok": "safe"}


@pytest.fixture
def aws_account(monkeypatch):
    """AWS credentials that sign, of nobody."""
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-sent")


@pytest.fixture
def other_tools_variables(tmp_path, monkeypatch, closed_port):
    """Variables of curl and requests that name another authority, a proxy where nobody listens, and a login for this host."""
    authority = tmp_path / "other-authority.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    subprocess.run([*command, "-keyout", os.devnull, "-out", str(authority)], capture_output=True, check=True)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hush\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(authority))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


WAYS = pytest.mark.parametrize(
    "way", [{}, {"user": "me", "password": "p"}, {"aws_sigv4": "eu-central-1"}], ids=["none", "basic", "sigv4"]
)


@WAYS
def test_variables_of_other_tools_do_not_change_how_a_server_is_trusted_or_reached(
    tls_server, aws_account, other_tools_variables, way
):
    address, certificate = tls_server
    with connect(load(url=f"https://{address}", ca_certs=certificate, **way)) as engine:
        assert engine.request("GET", "/") == {"ok": "safe"}
    with connect(load(url=f"https://{address}", insecure=True, **way)) as engine:
        assert engine.request("GET", "/") == {"ok": "safe"}


@WAYS
def test_variables_of_other_tools_do_not_add_an_authority(tls_server, aws_account, monkeypatch, way):
    address, certificate = tls_server
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, str(certificate))
    with (
        connect(load(url=f"https://{address}", **way)) as engine,
        pytest.raises(EngineUnreachable, match="could not be verified"),
    ):
        engine.request("GET", "/", retry=False)


@WAYS
def test_a_redirect_is_not_followed(scripted, aws_account, way):
    """Credentials would go where the answer says."""
    scripted.answers = {"/": (302, {}), "*": (200, {})}
    scripted.headers = {"location": f"{scripted.url}/elsewhere"}
    with connect(load(url=scripted.url, **way)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("GET", "/")
    assert caught.value.status == 302
    assert [path for _, path, *_ in scripted.seen] == ["/"]


def test_a_request_is_signed_as_it_is_sent(scripted, aws_account):
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    scripted.answers["*"] = (200, {"hits": {}})
    with connect(load(url=scripted.url, aws_sigv4="eu-central-1")) as engine:
        engine.request("POST", "/an%20index/_search", params={"preference": "a b", "pretty": True}, body={"query": {}})
    method, path, headers, body = scripted.seen[-1]
    sent = {name.lower(): value for name, value in headers.items()}
    names = sent["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    again = AWSRequest(method, f"{scripted.url}{path}", {name: sent[name] for name in names}, body)
    again.context["timestamp"] = sent["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDEXAMPLE", "never-sent"), "es", "eu-central-1")
    signature = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    assert sent["authorization"].endswith(f"Signature={signature}")
    assert "host" in names


def test_a_cloned_repository_does_not_turn_the_check_of_certificates_off(tls_server, tmp_path, monkeypatch):
    address, _ = tls_server
    monkeypatch.chdir(tmp_path)
    (tmp_path / "termweave.toml").write_text(f"url = 'https://{address}'\ninsecure = true\n")
    for flags in ({}, {"url": f"https://{address}"}):
        with connect(load(**flags)) as engine, pytest.raises(EngineUnreachable, match="could not be verified"):
            engine.request("GET", "/", retry=False)


def test_https_to_a_plain_server_is_named(scripted):
    address = scripted.url.replace("http:", "https:")
    with connect(load(url=address)) as engine, pytest.raises(EngineUnreachable, match="does not speak TLS"):
        engine.request("GET", "/", retry=False)


def test_http_to_a_tls_server_says_what_to_write(tls_server):
    with connect(load(url=f"http://{tls_server[0]}")) as engine, pytest.raises(EngineUnreachable) as caught:
        engine.request("GET", "/", retry=False)
    assert "https://" in caught.value.hint


def test_nothing_heavy_is_loaded_before_a_connection_is_made():
    code = (
        "import sys, termweave.engine.pytest_plugin, termweave.engine.client.connection, termweave.engine.embedded.node;"
        "import termweave.cli.verbs.node, termweave.cli.verbs.doctor;"
        "heavy = {'opensearchpy', 'numpy', 'psutil', 'pydantic', 'orjson', 'rich', 'requests', 'jgo', 'cjdk'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""}
    )
    assert done.stdout.strip() == "[]"
