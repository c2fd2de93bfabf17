"""nginx before OpenSearch: TLS, passwords, client certificates, and everything else that a proxy does to requests."""

from __future__ import annotations

import threading

import pytest

from termweave.engine import EngineResponseError, connect
from termweave.errors import EngineError, RefusedDocuments
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.settings import load
from tests.engine.certificates import Authority
from tests.engine.secured.nginx import Nginx, password_file
from tests.indexer.builds import LEXICAL, clean, numbered
from tests.indexer.proxy import Proxy
from tests.programs import program

pytestmark = [pytest.mark.engine, pytest.mark.programs]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    program("nginx")
    return Authority(tmp_path_factory.mktemp("nginx") / "ours", "Ours")


@pytest.fixture(scope="module")
def server(authority):
    return authority.issue("nginx")


def _build_and_search(settings, name, source, options=LEXICAL):
    with connect(settings) as engine:
        build(engine, source(numbered(30)), name, options)
        assert [hit.id for hit in Index.open(engine, name).search("number7", mode="lexical", k=1)] == ["d7"]
        assert clean(engine, name) == 30


def test_an_index_is_built_and_searched_with_tls_and_a_password(opensearch_engine, name, source, authority, server, tmp_path):
    known = password_file(tmp_path, "ada", "päss:wörd")
    with Nginx(tmp_path / "nginx", opensearch_engine.url, certificate=server, server=known) as nginx:
        trust = {"url": nginx.url, "ca_certs": authority.certificate}
        _build_and_search(load(**trust, user="ada", password="päss:wörd"), name, source, BuildOptions())
        with connect(load(**trust, user="ada", password="wrong")) as engine, pytest.raises(EngineResponseError) as caught:
            Index.open(engine, name)
        assert caught.value.status == 401
        assert caught.value.hint.startswith("Give a user and a password that it knows")
        with connect(load(url=nginx.url.replace("https", "http"))) as engine, pytest.raises(EngineError) as caught:
            Index.open(engine, name)
        assert "https://" in caught.value.hint


def test_client_certificates_open_the_door_or_are_named(opensearch_engine, name, source, authority, server, tmp_path):
    other = Authority(tmp_path / "other", "Other")
    directives = f"ssl_verify_client on; ssl_client_certificate {authority.certificate};"
    with Nginx(tmp_path / "nginx", opensearch_engine.url, certificate=server, server=directives) as nginx:
        trust = {"url": nginx.url, "ca_certs": authority.certificate}
        certificate, key = authority.issue("client")
        _build_and_search(load(**trust, client_cert=certificate, client_key=key), name, source)
        hints = []
        for pair in (None, other.issue("stranger"), authority.issue("late", dates=("20200101000000Z", "20210101000000Z"))):
            given = {} if pair is None else {"client_cert": pair[0], "client_key": pair[1]}
            with connect(load(**trust, **given)) as engine, pytest.raises(EngineResponseError) as caught:
                Index.open(engine, name)
            assert caught.value.status == 400
            hints.append(caught.value.hint)
        assert hints[0].startswith("Give a client certificate: $TERMWEAVE_CLIENT_CERT")
        assert hints[1] == hints[2]
        assert "expired" in hints[1]
        assert "authority" in hints[1]


def test_a_prefix_of_the_path_is_part_of_the_address(opensearch_engine, name, source, authority, server, tmp_path):
    with Nginx(tmp_path / "nginx", opensearch_engine.url, certificate=server, prefix="/search/here/") as nginx:
        _build_and_search(load(url=nginx.url, ca_certs=authority.certificate), name, source)
        with connect(load(url=nginx.url.removesuffix("/here"), ca_certs=authority.certificate)) as engine:
            with pytest.raises(EngineError, match="is no OpenSearch") as caught:
                Index.open(engine, name)
            assert caught.value.hint == "Check the address."


def test_batches_that_are_too_large_for_the_proxy_become_smaller(opensearch_engine, name, source, tmp_path):
    """And it closes each connection after two requests."""
    limits = "client_max_body_size 8k; keepalive_requests 2;"
    with Nginx(tmp_path / "nginx", opensearch_engine.url, server=limits) as nginx, connect(load(url=nginx.url)) as engine:
        build(engine, source([{"_id": f"d{number}", "text": "word " * 200} for number in range(40)]), name, LEXICAL)
        assert clean(engine, name) == 40
        assert " 413 " in nginx.log()
        with pytest.raises(RefusedDocuments, match="too-large"):
            build(engine, source([{"_id": "a", "text": "word"}, {"_id": "too-large", "text": "word " * 5000}]), name, LEXICAL)


@pytest.mark.parametrize("fault", ["502", "504"])
def test_a_build_outlasts_a_server_that_is_away_behind_the_proxy(opensearch_engine, name, source, tmp_path, fault):
    """502 while nobody listens behind the proxy, 504 while the server there does not answer in time."""
    with (
        Proxy(int(opensearch_engine.url.rpartition(":")[2])) as slow,
        Nginx(tmp_path / "nginx", slow.url, server="proxy_read_timeout 3s;") as nginx,
    ):
        away, dead = threading.Event(), "http://127.0.0.1:1"

        def progress(stage, *_):
            if stage == "Indexing" and not away.is_set():
                away.set()
                if fault == "502":
                    nginx.forward_to(dead)
                    threading.Timer(3, nginx.forward_to, (slow.url,)).start()
                else:
                    slow.delay = 60
                    threading.Timer(6, setattr, (slow, "delay", 0)).start()

        with connect(load(url=nginx.url)) as engine:
            build(engine, source(numbered(50)), name, LEXICAL, progress=progress)
        assert f" {fault} " in nginx.log()
    assert clean(opensearch_engine, name) == 50
