"""A real TLS server whose certificate, versions and demands a test chooses."""

from __future__ import annotations

import ssl
from contextlib import contextmanager

from tests.engine.sockets import accepting

_RESPONSE = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{"ok":"safe"}'


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
