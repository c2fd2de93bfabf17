"""Signature Version 4 before a proxy that verifies every request: sessions, their end in the middle of a build, clocks, Serverless.

botocore computes the canonical request and the signature again from what arrived; the two must agree. The errors are those of AWS:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html
"""

import hashlib
import json
import re
import socket
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from termweave.engine import EngineResponseError, connect
from termweave.errors import EngineError
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.search import Index
from termweave.settings import load
from tests.engine.forwarding import ForwardingProxy
from tests.indexer.builds import LEXICAL, clean, numbered

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})"
)
_SKEW = timedelta(minutes=5)
REGION, TOKEN = "eu-central-1", "token/of+the=session"
#: Paths that OpenSearch Serverless does not have.
_NOT_SERVERLESS = re.compile(r"/$|/_cluster|/_nodes|/_tasks|/_cat/plugins|/_reindex|.*/_segments|.*/_refresh$")


class VerifyingProxy(ForwardingProxy):
    """Forwards requests whose signature is right for a region and a service; "aoss" is Serverless."""

    def __init__(self, url, *, service="es"):
        self.keys, self.expired = {}, set()  # access key -> (secret key, session token, or None); session tokens
        self.refused, self.used = [], []  # messages of the refusals; access keys of the requests that were forwarded
        self.skew, self._service = timedelta(), service  # what is added to the proxy's clock
        super().__init__(url)

    def intercept(self, method, path, headers, body):
        """Refuse what is not signed as it must be, and what Serverless does not have."""
        if error := self.fault(method, path, headers, body):
            self.refused.append(error)
            return 403, json.dumps({"message": error}).encode()
        self.used.append(_AUTHORIZATION.fullmatch(headers["authorization"])[1])
        if self._service == "aoss" and _NOT_SERVERLESS.match(path.partition("?")[0]):
            return 404, b""
        return None

    def passes_on(self, header):
        """The server behind the service knows nothing of signatures."""
        return header in {"content-type", "accept"}

    def fault(self, method, path, headers, body):
        """What AWS would say against a request; "" if it is signed as it must be."""
        claim = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        if claim is None:
            return "Missing Authentication Token"
        key, _, region, service, signed, signature = claim.groups()
        secret, token = self.keys.get(key, (None, None))
        digest = hashlib.sha256(body).hexdigest()
        sent = headers.get("x-amz-content-sha256", digest)
        needed = {"host", "x-amz-date"} | ({"x-amz-security-token"} if token else set())
        if secret is None or headers.get("x-amz-security-token") != token:
            return "The security token included in the request is invalid."
        checks = {
            "The security token included in the request is expired": token not in self.expired,
            f"Credential should be scoped to a valid region, not '{region}'. ": region == REGION,
            f"Credential should be scoped to correct service: '{self._service}'. ": service == self._service,
            (late := self._late(headers["x-amz-date"])): not late,
            "x-amz-content-sha256 header is required": self._service == "es" or "x-amz-content-sha256" in headers,
            "The provided 'x-amz-content-sha256' header does not match what was computed.": sent == digest,
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and "
            "signing method. Consult the service documentation for details.": needed <= set(signed.split(";"))
            and signature == self._signature(method, path, headers, body, claim),
        }
        return next((error for error, right in checks.items() if not right), "")

    def _late(self, stamp):
        moment, now = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC), datetime.now(UTC) + self.skew
        state = "expired" if moment < now - _SKEW else "not yet current" if moment > now + _SKEW else ""
        return f"Signature {state}: {stamp} is not within 5 min. of {now:%Y%m%dT%H%M%SZ}" if state else ""

    def _signature(self, method, path, headers, body, claim):
        key, _, region, service, signed, _ = claim.groups()
        sent = {name: value for name, value in headers.items() if name.lower() in signed.split(";")}
        request = AWSRequest(method, f"http://{headers['host']}{path}", sent, body)
        request.context["timestamp"] = headers["x-amz-date"]
        signer = SigV4Auth(Credentials(key, self.keys[key][0]), service, region)
        return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)


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
    _use(monkeypatch, proxy, "ASIAFIRST", TOKEN)


def _use(monkeypatch, proxy, key, token):
    proxy.keys[key] = (f"secret of {key}", token)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"secret of {key}")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


def _signed(url):
    return connect(load(url=url, aws_sigv4=REGION))


@pytest.mark.parametrize("token", [pytest.param(None, marks=pytest.mark.nightly), TOKEN], ids=["long-term", "session"])
def test_an_index_is_built_updated_and_searched_with_signed_requests(opensearch_engine, name, source, proxy, monkeypatch, token):
    _use(monkeypatch, proxy, "AKIAKEY", token)
    with _signed(proxy.url) as engine:
        build(engine, source(numbered(30)), name, BuildOptions())
        update(engine, source(numbered(35)), name, BuildOptions(), UpdateMode(new=True))
        assert [hit.id for hit in Index.open(engine, name).search("number7 (a+b) é", mode="lexical", k=1)] == ["d7"]
        assert len(Index.open(engine, name).search("text about number7", rerank="rnn", k=5)) == 5
        assert clean(engine, name) == 35
    assert not proxy.refused
    assert len(proxy.used) > 50


@pytest.mark.usefixtures("session")
def test_each_refusal_of_aws_has_its_sentence(proxy, monkeypatch):
    def hint(**settings):
        with connect(load(url=proxy.url, **settings)) as engine, pytest.raises(EngineResponseError) as caught:
            engine.request("GET", "/_cat/indices")
        assert (caught.value.status, caught.value.reason.strip()) == (403, proxy.refused[-1].strip())
        return caught.value.hint

    assert hint() == "Sign the requests: set $TERMWEAVE_AWS_SIGV4 to the region."
    for minutes in (9, -9):
        proxy.skew = timedelta(minutes=minutes)
        assert "clock" in hint(aws_sigv4=REGION)
    proxy.skew = timedelta()
    assert "Give the region and the service of this address: $TERMWEAVE_AWS_SIGV4." in hint(aws_sigv4="us-east-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")
    assert "secret key" in hint(aws_sigv4=REGION)
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    assert "does not know this key or session token" in hint(aws_sigv4=REGION)


@pytest.mark.usefixtures("session")
def test_a_session_that_ends_in_the_middle_of_a_build_ends_it_with_its_sentence_and_the_next_one_resumes(
    opensearch_engine, name, source, proxy, monkeypatch
):
    documents = source(numbered(2000))

    def progress(stage, done, *_):
        if stage == "Indexing" and done:
            proxy.expired.add(TOKEN)

    with _signed(proxy.url) as engine, pytest.raises(EngineError) as caught:
        build(engine, documents, name, LEXICAL, progress=progress)
    assert "expired" in caught.value.message
    assert caught.value.hint == "Renew the AWS credentials: their session token has expired."
    _use(monkeypatch, proxy, "ASIASECOND", "the next token")
    with _signed(proxy.url) as engine:
        build(engine, documents, name, LEXICAL)
    assert clean(opensearch_engine, name) == 2000


def test_credentials_that_renew_themselves_outlast_a_build(opensearch_engine, name, source, proxy, monkeypatch, tmp_path):
    """A program gives credentials that end soon (`credential_process`); boto3 asks it again, and every request uses what is valid."""
    count = tmp_path / "count"
    count.write_text("0")
    for number in range(1, 1000):
        proxy.keys[f"ASIA{number}"] = (f"secret {number}", f"token {number}")
    end = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()  # boto3 renews credentials that end within ten minutes
    keys = '"Version": 1, "AccessKeyId": "ASIA%d", "SecretAccessKey": "secret %d", "SessionToken": "token %d"'
    program = f'n=$(($(cat {count}) + 1)); echo $n >{count}; printf \'{{{keys}, "Expiration": "{end}"}}\' $n $n $n'
    (tmp_path / "renew.sh").write_text(program)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = sh {tmp_path / 'renew.sh'}\n")

    def progress(*_):
        proxy.expired.update(f"token {number}" for number in range(1, int(count.read_text())))

    with _signed(proxy.url) as engine:
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
        with _signed(url) as engine:
            assert [hit.id for hit in Index.open(engine, name).search("number7", k=1)] == ["d7"]
            with pytest.raises(EngineError) as caught:
                build(engine, source(numbered(12)), f"{name}-two", LEXICAL)
            assert caught.value.message.startswith("OpenSearch Serverless lacks requests that builds")
        assert not proxy.refused
