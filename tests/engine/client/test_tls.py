"""TLS with real servers: every way in which a handshake fails ends in a sentence of its own, as does every wrong file."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress

import pytest

from termweave.engine import connect
from termweave.engine.client import server_errors
from termweave.errors import EngineUnreachable, UsageError
from termweave.settings import load
from tests.engine.certificates import Authority, openssl
from tests.engine.tls_server import serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    try:
        return Authority(tmp_path_factory.mktemp("tls") / "ours", "Ours")
    except OSError:
        pytest.skip("openssl is not here to make certificates")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory, authority):
    return Authority(tmp_path_factory.mktemp("tls") / "other", "Other")


def _answer(url, **settings):
    with connect(load(url=url, **settings)) as engine:
        return engine.request("GET", "/", retry=False)


def _failure(url, **settings):
    with pytest.raises(EngineUnreachable) as caught:
        _answer(url, **settings)
    assert caught.value.hint
    return caught.value.message


def test_a_certificate_of_the_given_authority_is_trusted(authority):
    with serving(*authority.issue("good")) as url:
        assert _answer(url, ca_certs=authority.certificate) == {"ok": "safe"}
        assert _answer(url, insecure=True) == {"ok": "safe"}


def test_every_untrusted_certificate_has_its_own_sentence(authority, other_authority):
    good = authority.issue("trusted")
    sentences = []
    with serving(*good) as url:
        sentences.append(_failure(url, ca_certs=other_authority.certificate))
        assert f"The certificate of {url} could not be verified: it is signed by an unknown authority." == sentences[-1]
    with serving(authority.certificate, authority.key) as url:
        sentences.append(_failure(url, ca_certs=other_authority.certificate))
        assert "it is self-signed" in sentences[-1]
    with serving(*good, chain=authority.certificate) as url:
        sentences.append(_failure(url, ca_certs=other_authority.certificate))
        assert "an authority of the server's own" in sentences[-1]
    with serving(*authority.issue("expired", dates=("20200101000000Z", "20210101000000Z"))) as url:
        sentences.append(_failure(url, ca_certs=authority.certificate))
        assert "it has expired" in sentences[-1]
    with serving(*authority.issue("future", dates=("20900101000000Z", "20910101000000Z"))) as url:
        sentences.append(_failure(url, ca_certs=authority.certificate))
        assert "it is not valid yet" in sentences[-1]
    with serving(*authority.issue("elsewhere", "DNS:search.example")) as url:
        sentences.append(_failure(url, ca_certs=authority.certificate))
        assert "it is for another address" in sentences[-1]
        sentences.append(_failure(url.replace("127.0.0.1", "localhost"), ca_certs=authority.certificate))
        assert "it is for another host name" in sentences[-1]
    assert len({sentence.partition("verified: ")[2] for sentence in sentences}) == len(sentences)


def test_an_outdated_version_of_tls_is_named(authority):
    def only_tls_1_1(context):
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1

    with serving(*authority.issue("old"), configure=only_tls_1_1) as url:
        assert _failure(url, ca_certs=authority.certificate) == f"{url} speaks only an outdated version of TLS."


def _only_tls_1_2(context):
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def test_a_server_that_wants_a_client_certificate_gets_one(authority, tmp_path):
    certificate, key = authority.issue("client")
    with serving(*authority.issue("strict"), clients=authority.certificate) as url:
        assert _answer(url, ca_certs=authority.certificate, client_cert=certificate, client_key=key) == {"ok": "safe"}
        assert _answer(url, insecure=True, client_cert=certificate, client_key=key) == {"ok": "safe"}
        both = tmp_path / "both.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        assert _answer(url, ca_certs=authority.certificate, client_cert=both) == {"ok": "safe"}


def _only_tls_1_3(context):
    context.minimum_version = ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("configure", "without"), [(_only_tls_1_2, "ended the TLS handshake"), (_only_tls_1_3, "asks for a client certificate")]
)
def test_a_client_certificate_that_is_missing_or_foreign_is_named(authority, other_authority, configure, without):
    """In TLS 1.3 the server's message may be lost with the request that is being sent, so each is tried several times."""
    stranger, strangers_key = other_authority.issue(f"stranger-{configure.__name__}")
    with serving(*authority.issue(f"strict{configure.__name__}"), clients=authority.certificate, configure=configure) as url:
        for _ in range(5):
            assert _failure(url, ca_certs=authority.certificate) == f"{url} {without}."
            message = _failure(url, ca_certs=authority.certificate, client_cert=stranger, client_key=strangers_key)
            assert message == f"{url} does not accept the client certificate."


def test_a_server_that_closes_in_the_handshake_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_each():
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(65536)

        thread = threading.Thread(target=close_each)
        thread.start()
        message = _failure(f"https://127.0.0.1:{listener.getsockname()[1]}")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "closed the connection without saying why" in message


def test_a_closed_handshake_is_named_as_older_pythons_tell_it():
    """Python 3.11.2 with OpenSSL 3.0, as Debian 12 has them, raises another class with other words."""
    closed = ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF) (_ssl.c:992)")
    message, _ = server_errors.handshake_failure(closed, "https://search", None)
    assert message == "https://search closed the connection without saying why."


def _refusal(**settings):
    with pytest.raises(UsageError) as caught:
        connect(load(url="https://127.0.0.1:1", **settings))
    return caught.value


def test_every_wrong_file_has_its_own_sentence(authority, tmp_path):
    certificate, key = authority.issue("client-2")
    other_certificate, _ = authority.issue("client-3")
    absent, binary, damaged = tmp_path / "absent.pem", tmp_path / "binary.der", tmp_path / "damaged.pem"
    binary.write_bytes(ssl.PEM_cert_to_DER_cert(certificate.read_text()))
    damaged.write_text("-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n")
    errors = {
        "authorities, from --ca-certs, cannot be read": _refusal(ca_certs=absent),
        "authorities, holds no certificate in PEM format": _refusal(ca_certs=binary),
        "authorities, holds a damaged certificate": _refusal(ca_certs=damaged),
        "The client certificate cannot be read": _refusal(client_cert=absent, client_key=key),
        "the client certificate, holds no certificate in PEM format": _refusal(client_cert=binary, client_key=key),
        "The key of the client certificate cannot be read": _refusal(client_cert=certificate, client_key=absent),
        "holds a client certificate without its key": _refusal(client_cert=certificate),
        "the key of the client certificate, holds no private key": _refusal(
            client_cert=certificate, client_key=other_certificate
        ),
        "is not the key of the client certificate": _refusal(client_cert=other_certificate, client_key=key),
        "is damaged": _refusal(client_cert=damaged, client_key=key),
        "A client key was given without its certificate": _refusal(client_key=key),
    }
    for sentence, error in errors.items():
        assert sentence in error.message
        assert error.hint


def test_an_encrypted_key_needs_its_password(authority, tmp_path, monkeypatch):
    certificate, key = authority.issue("locked")
    locked = tmp_path / "locked.key"
    openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:open sesame")
    files = {"client_cert": certificate, "client_key": locked}
    error = _refusal(**files)
    assert error.message == f"{locked}, the key of the client certificate, is encrypted."
    assert "$TERMWEAVE_CLIENT_KEY_PASSWORD" in error.hint
    monkeypatch.setenv("TERMWEAVE_CLIENT_KEY_PASSWORD", "open barley")
    error = _refusal(**files)
    assert error.message == f"The password of {locked}, the key of the client certificate, is wrong."
    assert "barley" not in str(error)
    monkeypatch.setenv("TERMWEAVE_CLIENT_KEY_PASSWORD", "open sesame")
    with serving(*authority.issue("vault"), clients=authority.certificate) as url:
        assert _answer(url, ca_certs=authority.certificate, **files) == {"ok": "safe"}


def test_the_usual_authorities_are_those_of_the_environment(authority, tmp_path, monkeypatch):
    with serving(*authority.issue("usual")) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert _answer(url) == {"ok": "safe"}
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
        with pytest.raises(UsageError, match=r"\$SSL_CERT_FILE or \$SSL_CERT_DIR cannot be read"):
            connect(load(url=url))
