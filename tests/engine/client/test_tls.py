"""TLS with real servers: every way in which a handshake fails ends in a sentence of its own, as does every wrong file."""

import ssl
from contextlib import contextmanager

import pytest

from termweave.engine import connect
from termweave.engine.client import server_errors
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load
from tests.engine.certificates import Authority, openssl
from tests.engine.forwarding import accepting

_RESPONSE = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{"ok":"safe"}'
WAYS = [{}, {"user": "me", "password": "p"}, {"aws_sigv4": "eu-central-1"}, {"elastic": True}]


@contextmanager
def serving(certificate, key, *, chain=None, clients=None, configure=lambda _: None):
    """A TLS server on 127.0.0.1; yields its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if chain is not None:
        both = certificate.with_suffix(".chain")
        both.write_bytes(certificate.read_bytes() + chain.read_bytes())
        certificate = both
    context.load_cert_chain(certificate, key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    configure(context)

    def answer(plain):
        plain.settimeout(2)
        with context.wrap_socket(plain, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(_RESPONSE)
            secure.unwrap()

    with accepting(answer) as port:
        yield f"https://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls") / "ours", "Ours")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory, authority):
    return Authority(tmp_path_factory.mktemp("tls") / "other", "Other")


@pytest.fixture(scope="module")
def pairs(authority):
    """Certificate and key of servers, by what is the matter with them."""
    return {
        "good": authority.issue("good"),
        "itself": (authority.certificate, authority.key),
        "expired": authority.issue("expired", days=0),
        "elsewhere": authority.issue("elsewhere", "DNS:search.example"),
    }


def _answer(url, *, elastic=False, **settings):
    with connect(load(url=url, **settings)) as engine:
        if elastic:
            engine.use_elasticsearch()
        return engine.request("GET", "/", retry=False)


def _failure(url, **settings):
    with pytest.raises(EngineUnreachable) as caught:
        _answer(url, **settings)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("pair", "trusts", "host", "reason"),
    [
        ("good", "other", "127.0.0.1", "is signed by an unknown authority"),
        ("chain", "other", "127.0.0.1", "is signed by an authority of the server's own"),
        ("itself", "other", "127.0.0.1", "is self-signed"),
        ("expired", "ours", "127.0.0.1", "has expired"),
        ("elsewhere", "ours", "127.0.0.1", "is for another address"),
        ("elsewhere", "ours", "localhost", "is for another host name"),
    ],
)
def test_every_untrusted_certificate_has_its_own_sentence(pairs, authority, other_authority, pair, trusts, host, reason):
    chain = authority.certificate if pair == "chain" else None
    with serving(*pairs["good" if chain else pair], chain=chain) as url:
        address = url.replace("127.0.0.1", host)
        message = _failure(address, ca_certs=(authority if trusts == "ours" else other_authority).certificate)
        assert message == f"The certificate of {address} could not be verified: it {reason}."
        assert _answer(address, insecure=True) == {"ok": "safe"}  # a warning of the library would be an error here


@pytest.mark.parametrize("way", WAYS, ids=["none", "basic", "sigv4", "elasticsearch"])
def test_variables_of_other_tools_do_not_change_how_a_server_is_trusted_or_reached(
    pairs, authority, other_authority, monkeypatch, tmp_path, closed_port, way
):
    """Those of curl and requests: authorities, a proxy where nobody listens, a login for this host."""
    if "aws_sigv4" in way:
        pytest.importorskip("boto3")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hush\n")
    netrc.chmod(0o600)
    variables = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "never-sent", "NETRC": str(netrc)}
    variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy"), f"http://127.0.0.1:{closed_port}")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(*pairs["good"]) as url:
        for bundle in (authority, other_authority):
            for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
                monkeypatch.setenv(name, str(bundle.certificate))
            assert _answer(url, ca_certs=authority.certificate, **way) == {"ok": "safe"}
            for trust in ({}, {"ca_certs": other_authority.certificate}):
                assert "could not be verified" in _failure(url, **trust, **way)


def test_an_outdated_version_of_tls_is_named(authority, pairs):
    def configure(context):
        context.set_ciphers("ALL:@SECLEVEL=0")
        for limit in ("minimum_version", "maximum_version"):
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                setattr(context, limit, ssl.TLSVersion.TLSv1_1)

    with serving(*pairs["good"], configure=configure) as url:
        message = _failure(url, ca_certs=authority.certificate)
        assert message == f"{url} offers only an outdated version of TLS, or outdated encryption."


@pytest.mark.parametrize(
    ("version", "without"), [("TLSv1_2", "ended the TLS handshake"), ("TLSv1_3", "asks for a client certificate")]
)
def test_a_client_certificate_is_used_and_one_that_is_missing_or_foreign_is_named(
    authority, other_authority, pairs, tmp_path, version, without
):
    """In TLS 1.3 the server's message may be lost with the request that is being sent, so each is tried several times."""

    def configure(context):
        context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)

    certificate, key = authority.issue("client")
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    stranger, strangers_key = other_authority.issue(f"stranger-{version}")
    with serving(*pairs["good"], clients=authority.certificate, configure=configure) as url:
        for _ in range(5):
            assert _failure(url, ca_certs=authority.certificate) == f"{url} {without}."
            message = _failure(url, ca_certs=authority.certificate, client_cert=stranger, client_key=strangers_key)
            assert message == f"{url} does not accept the client certificate."
        for files in ({"client_cert": certificate, "client_key": key}, {"client_cert": both}):
            assert _answer(url, ca_certs=authority.certificate, **files) == {"ok": "safe"}


def test_a_server_that_does_not_speak_tls_is_named(scripted, pairs):
    assert "does not speak TLS" in _failure(scripted.url.replace("http:", "https:"))
    with serving(*pairs["good"]) as url, connect(load(url=url.replace("https:", "http:"))) as engine:
        with pytest.raises(EngineUnreachable) as caught:
            engine.request("GET", "/", retry=False)
        assert "https://" in caught.value.hint


def test_a_server_that_closes_in_the_handshake_is_named():
    with accepting(lambda client: client.recv(65536)) as port:
        message = _failure(f"https://127.0.0.1:{port}")
    assert "closed the connection without saying why" in message
    # Python 3.11.2 with OpenSSL 3.0, as Debian 12 has them, raises another class with other words.
    closed = ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF) (_ssl.c:992)")
    message, _ = server_errors.handshake_failure(closed, "https://search", None)
    assert message == "https://search closed the connection without saying why."


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ca_certs": "absent"}, "authorities, from ca_certs, cannot be read"),
        ({"ca_certs": "binary"}, "authorities, holds no certificate in PEM format"),
        ({"ca_certs": "damaged"}, "authorities, holds a damaged certificate"),
        ({"client_cert": "absent", "client_key": "key"}, "The client certificate cannot be read"),
        ({"client_cert": "binary", "client_key": "key"}, "the client certificate, holds no certificate in PEM format"),
        ({"client_cert": "certificate", "client_key": "absent"}, "The key of the client certificate cannot be read"),
        ({"client_cert": "certificate"}, "holds a client certificate without its key"),
        ({"client_cert": "certificate", "client_key": "other"}, "the key of the client certificate, holds no private key"),
        ({"client_cert": "other", "client_key": "key"}, "is not the key of the client certificate"),
        ({"client_cert": "damaged", "client_key": "key"}, "is damaged"),
        ({"client_key": "key"}, "A client key was given without its certificate"),
    ],
)
def test_every_wrong_file_has_its_own_sentence(authority, pairs, tmp_path, settings, sentence):
    certificate, key = pairs["good"]
    files = {"certificate": certificate, "key": key, "other": pairs["elsewhere"][0], "absent": tmp_path / "absent.pem"}
    files |= {name: tmp_path / f"{name}.pem" for name in ("binary", "damaged")}
    files["binary"].write_bytes(ssl.PEM_cert_to_DER_cert(certificate.read_text()))
    files["damaged"].write_text("-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n")
    with pytest.raises(UsageError, match=sentence) as caught:
        connect(load(url="https://127.0.0.1:1", **{name: files[file] for name, file in settings.items()}))
    assert caught.value.hint


def test_an_encrypted_key_needs_its_password(authority, pairs, tmp_path, monkeypatch):
    certificate, key = authority.issue("locked")
    locked = tmp_path / "locked.key"
    openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:open sesame")
    files = {"client_cert": certificate, "client_key": locked}
    for password, wrong in (("", "client certificate, is encrypted"), ("open barley", "client certificate, is wrong")):
        monkeypatch.setenv("TERMWEAVE_CLIENT_KEY_PASSWORD", password)
        with pytest.raises(UsageError, match=wrong) as caught:
            connect(load(url="https://127.0.0.1:1", **files))
        assert "$TERMWEAVE_CLIENT_KEY_PASSWORD" in caught.value.hint
        assert "barley" not in str(caught.value)
    monkeypatch.setenv("TERMWEAVE_CLIENT_KEY_PASSWORD", "open sesame")
    with serving(*pairs["good"], clients=authority.certificate) as url:
        assert _answer(url, ca_certs=authority.certificate, **files) == {"ok": "safe"}


def test_the_usual_authorities_are_those_of_the_environment(authority, pairs, tmp_path, monkeypatch):
    with serving(*pairs["good"]) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert _answer(url) == {"ok": "safe"}
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
        with pytest.raises(UsageError, match=r"\$SSL_CERT_FILE or \$SSL_CERT_DIR cannot be read"):
            connect(load(url=url))
