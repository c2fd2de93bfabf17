"""Signature Version 4 before a proxy that verifies every request: sessions, their end in the middle of a build, clocks, Serverless."""

from __future__ import annotations

import socket
import sys
from datetime import UTC, datetime, timedelta

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.errors import EngineError
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.search import Index
from termweave.settings import load
from tests.engine.secured.aws import VerifyingProxy
from tests.indexer.builds import LEXICAL, clean, numbered

pytestmark = pytest.mark.engine
REGION = "eu-central-1"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch, tmp_path):
    """No credentials but those of the test."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def proxy(opensearch_engine):
    with VerifyingProxy(opensearch_engine.url) as proxy:
        yield proxy


@pytest.fixture
def session(monkeypatch, proxy):
    """Credentials with a session token, which the proxy knows."""
    _use(monkeypatch, proxy, "ASIAFIRST", "token/of+the=session")


def _use(monkeypatch, proxy, key, token):
    proxy.keys[key] = (f"secret of {key}", token)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"secret of {key}")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


def _signed(proxy, url=None):
    return connect(load(url=url or proxy.url, aws_sigv4=REGION))


@pytest.mark.parametrize(
    "token", [pytest.param(None, marks=pytest.mark.nightly), "token/of+the=session"], ids=["long-term", "session"]
)
def test_an_index_is_built_updated_and_searched_with_signed_requests(opensearch_engine, name, source, proxy, monkeypatch, token):
    _use(monkeypatch, proxy, "AKIAKEY", token)
    with _signed(proxy) as engine:
        build(engine, source(numbered(30)), name, BuildOptions())
        update(engine, source(numbered(35)), name, BuildOptions(), UpdateMode(new=True))
        assert [hit.id for hit in Index.open(engine, name).search("number7 (a+b) é", mode="lexical", k=1)] == ["d7"]
        assert len(Index.open(engine, name).search("text about number7", rerank="rnn", k=5)) == 5
        assert clean(engine, name) == 35
    assert not proxy.refused
    assert len(proxy.used) > 50


@pytest.mark.usefixtures("session")
def test_each_refusal_of_aws_has_its_sentence(proxy, monkeypatch):
    def hint():
        with _signed(proxy) as engine, pytest.raises(EngineResponseError) as caught:
            engine.request("GET", "/_cat/indices")
        assert caught.value.status == 403
        assert caught.value.reason.strip() == proxy.refused[-1].strip()
        return caught.value.hint

    proxy.skew = timedelta(minutes=9)
    assert "clock" in hint()
    proxy.skew = timedelta(minutes=-9)
    assert "clock" in hint()
    proxy.skew = timedelta()
    proxy.expired.add("token/of+the=session")
    assert hint() == "Renew the AWS credentials: their session token has expired."
    proxy.expired.clear()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")
    assert "secret key" in hint()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of ASIAFIRST")
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    assert "does not know this key or session token" in hint()
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token/of+the=session")
    proxy.region = "us-east-1"
    assert "Give the region and the service of this address: $TERMWEAVE_AWS_SIGV4." in hint()
    with connect(load(url=proxy.url)) as engine, pytest.raises(EngineResponseError) as caught:
        engine.request("GET", "/_cat/indices")
    assert caught.value.hint == "Sign the requests: set $TERMWEAVE_AWS_SIGV4 to the region."


@pytest.mark.usefixtures("session")
def test_a_session_that_ends_in_the_middle_of_a_build_ends_it_with_its_sentence_and_the_next_one_resumes(
    opensearch_engine, name, source, proxy, monkeypatch
):
    documents = source(numbered(2000))

    def progress(stage, done, *_):
        if stage == "Indexing" and done:
            proxy.expired.add("token/of+the=session")

    with _signed(proxy) as engine, pytest.raises(EngineError) as caught:
        build(engine, documents, name, LEXICAL, progress=progress)
    assert "expired" in caught.value.message
    assert caught.value.hint == "Renew the AWS credentials: their session token has expired."
    _use(monkeypatch, proxy, "ASIASECOND", "the next token")
    with _signed(proxy) as engine:
        build(engine, documents, name, LEXICAL)
    assert clean(opensearch_engine, name) == 2000


def test_credentials_that_renew_themselves_outlast_a_build(opensearch_engine, name, source, proxy, monkeypatch, tmp_path):
    """A program gives credentials that end soon (`credential_process`); boto3 asks it again, and every request uses what is valid."""
    program, count = tmp_path / "credentials.py", tmp_path / "count"
    count.write_text("0")
    for number in range(1, 100):
        proxy.keys[f"ASIA{number:04}"] = (f"secret {number}", f"token {number}")
    end = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()  # boto3 renews credentials that end within ten minutes
    program.write_text(f"""
import json, pathlib
count = pathlib.Path({str(count)!r})
number = min(int(count.read_text()) + 1, 99)
count.write_text(str(number))
print(json.dumps({{"Version": 1, "AccessKeyId": f"ASIA{{number:04}}", "SecretAccessKey": f"secret {{number}}",
                  "SessionToken": f"token {{number}}", "Expiration": {end!r}}}))
""")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")

    def progress(*_):
        proxy.expired.update(f"token {number}" for number in range(1, int(count.read_text())))

    with _signed(proxy) as engine:
        build(engine, source(numbered(20)), name, LEXICAL, progress=progress)
    assert clean(opensearch_engine, name) == 20
    assert len(set(proxy.used)) > 3
    assert not proxy.refused


def test_serverless_gets_the_hash_of_every_body_and_is_searched(opensearch_engine, name, source, monkeypatch):
    """Its host name tells the service. A generation that stands there is searched without the APIs that Serverless lacks."""
    resolve = socket.getaddrinfo

    def here(host, *rest, **options):
        return resolve("127.0.0.1" if ".aoss." in str(host) else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    build(opensearch_engine, source(numbered(10)), name, BuildOptions())
    with VerifyingProxy(opensearch_engine.url, service="aoss") as proxy:
        _use(monkeypatch, proxy, "AKIAKEY", None)
        url = f"http://collection.{REGION}.aoss.amazonaws.com:{proxy.port}"
        with _signed(proxy, url) as engine:
            assert [hit.id for hit in Index.open(engine, name).search("number7", k=1)] == ["d7"]
            with pytest.raises(EngineError) as caught:
                build(engine, source(numbered(12)), f"{name}-two", LEXICAL)
            assert caught.value.message.startswith("OpenSearch Serverless lacks requests that builds")
        assert not proxy.refused
