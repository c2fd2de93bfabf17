"""nginx before OpenSearch: TLS, passwords, client certificates, what else a proxy does to requests, and a source and a target with credentials of their own."""

import base64
import json
import os
import re
import socket
import subprocess
import threading
import time
from unittest.mock import Mock

import pytest

from termweave.cli import run
from termweave.corpora.index.pages import Spool
from termweave.engine import connect
from termweave.engine.embedded import node
from termweave.errors import EngineError
from termweave.indexer import BuildOptions, build
from termweave.indexer.pipeline.bulk_sender import BulkSender
from termweave.search import Index
from termweave.settings import load
from tests.corpora.index.conftest import write
from tests.engine.certificates import Authority
from tests.indexer.builds import LEXICAL, clean, numbered
from tests.indexer.proxy import Proxy
from tests.programs import program

pytestmark = [pytest.mark.engine, pytest.mark.programs]
READER, WRITER = ("rita-source", "Quellwasser-4417-Moos"), ("wim-target", "Zielscheibe-9023-Harz")
OPTIONS = ["--text-field", "description", "--weights", "none", "--dense", "none"]
_CONFIGURATION = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_max_body_size 100m;
  server {{
    listen 127.0.0.1:{port} {ssl};
    {server}
    location {prefix} {{ proxy_pass {upstream}/; }}
  }}
}}
"""


class Nginx:
    """A running nginx before the server `upstream`, with directives for its server block."""

    def __init__(self, folder, upstream, *, certificate=None, server="", prefix="/"):
        folder.mkdir()
        port, self._folder = next(node.free_ports()), folder
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{port}{prefix.rstrip('/')}"
        if certificate:
            server += f"\nssl_certificate {certificate[0]};\nssl_certificate_key {certificate[1]};"
        user = "user root;" if os.geteuid() == 0 else ""  # its own user may not read the tests' folders
        values = {"folder": folder, "port": port, "ssl": "ssl" if certificate else "", "server": server, "prefix": prefix}
        (folder / "nginx.conf").write_text(_CONFIGURATION.format(user=user, upstream=upstream, **values))
        command = [program("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while not self._listens(port):
            if self._process.poll() is not None or time.monotonic() > until:
                pytest.fail("nginx did not start: " + (folder / "error.log").read_text())
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)

    def _listens(self, port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def log(self):
        """Method, path and status of all requests."""
        return (self._folder / "access.log").read_text()


def password_file(folder, user, password):
    """Directives for basic authentication, with the file that they need."""
    done = subprocess.run(["openssl", "passwd", "-apr1", password], capture_output=True, text=True, check=True)
    file = folder / f"{user}.htpasswd"
    file.write_text(f"{user}:{done.stdout}")
    return f'auth_basic "search"; auth_basic_user_file {file};'


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    program("nginx")
    return Authority(tmp_path_factory.mktemp("nginx") / "ours", "Ours")


@pytest.fixture(scope="module")
def server(authority):
    return authority.issue("nginx")


def test_an_index_is_built_and_searched_with_tls_a_password_and_a_prefix_of_the_path(
    opensearch_engine, name, source, authority, server, tmp_path
):
    known = password_file(tmp_path, "ada", "päss:wörd")
    with Nginx(tmp_path / "nginx", opensearch_engine.url, certificate=server, server=known, prefix="/search/here/") as nginx:
        trust = {"url": nginx.url, "ca_certs": authority.certificate, "user": "ada"}
        with connect(load(**trust, password="päss:wörd")) as engine:
            build(engine, source(numbered(30)), name, BuildOptions())
            assert [hit.id for hit in Index.open(engine, name).search("number7", mode="lexical", k=1)] == ["d7"]
            assert clean(engine, name) == 30
        for change, said, hint in (
            ({"password": "wrong"}, "401", "Give a user and a password that the server knows"),
            ({"password": "päss:wörd", "url": nginx.url.removesuffix("/here")}, "is not an OpenSearch", "Check the address."),
            ({"password": "päss:wörd", "url": nginx.url.replace("https", "http")}, "400", "Write the address with https://."),
        ):
            with connect(load(**trust | change)) as engine, pytest.raises(EngineError, match=said) as caught:
                Index.open(engine, name)
            assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(("attribute", "value", "seconds", "status"), [("away", True, 3, 502), ("delay", 60, 6, 504)])
def test_a_build_outlasts_a_server_that_is_away_behind_the_proxy(
    opensearch_engine, name, source, tmp_path, attribute, value, seconds, status
):
    """Nobody listens behind the proxy, or the server there does not answer in time."""
    with (
        Proxy(int(opensearch_engine.url.rpartition(":")[2])) as behind,
        Nginx(tmp_path / "nginx", behind.url, server="proxy_read_timeout 3s;") as nginx,
    ):
        happened = threading.Event()

        def progress(stage, *_):
            if stage == "Indexing" and not happened.is_set():
                happened.set()
                setattr(behind, attribute, value)
                threading.Timer(seconds, setattr, (behind, attribute, 0)).start()

        with connect(load(url=nginx.url)) as engine:
            build(engine, source(numbered(50)), name, LEXICAL, progress=progress)
        assert f" {status} " in nginx.log()
    assert clean(opensearch_engine, name) == 50


@pytest.fixture
def doors(opensearch_engine, tmp_path):
    """The server behind two doors: (source, target), each an nginx and the certificate of its authority."""
    made = []
    for place, (user, password) in (("source", READER), ("target", WRITER)):
        authority = Authority(tmp_path / f"{place}-authority", place)
        known, certificate = password_file(tmp_path, user, password), authority.issue("nginx")
        nginx = Nginx(tmp_path / place, opensearch_engine.url, certificate=certificate, server=known)
        made.append((nginx, authority.certificate))
    yield made
    for nginx, _ in made:
        nginx.__exit__()


@pytest.fixture
def shop(opensearch_engine, name):
    """The index NAME-shop of an application."""
    index = f"{name}-shop"
    opensearch_engine.request("PUT", f"/{index}", body={"settings": {"number_of_shards": 1, "number_of_replicas": 0}})
    write(opensearch_engine, index, {f"p{number}": {"description": f"blue lamp {number}"} for number in range(30)})
    return index


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A folder of states of this test alone."""
    folder = tmp_path / "state"
    monkeypatch.setattr("termweave.support.paths.state", lambda: folder)
    return folder


@pytest.fixture
def termweave(doors, tmp_path, monkeypatch, capsys):
    """Run a command against the target, with its credentials; returns status, output and errors."""
    (_, _), (target, authority) = doors
    password = tmp_path / "target.password"
    password.write_text(WRITER[1])
    for key, value in {"URL": target.url, "USER": WRITER[0], "PASSWORD_FILE": password, "CA_CERTS": authority}.items():
        monkeypatch.setenv(f"TERMWEAVE_{key}", str(value))
    said = []

    def call(*arguments, status=0):
        code = run([str(each) for each in arguments])
        captured = capsys.readouterr()
        said.append(captured.out + captured.err)
        assert code == status, said[-1]
        return said[-1]

    call.said = said
    return call


def stored(engine, name, state):
    """Everything that was stored: files of ledgers and snapshots, and indices with their documents, mappings and settings."""
    parts = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    parts += [json.dumps(page.hits).encode() for pages in state.rglob("pages") for page in Spool(pages.parent).pages()]
    for index in (f"{name}*", "termweave-*"):
        for path in (f"/{index}", f"/{index}/_search"):
            params = {"expand_wildcards": "all", **({"size": 10_000} if path.endswith("_search") else {})}
            parts.append(json.dumps(engine.request("GET", path, params=params)).encode())
    return b"\n".join(parts)


def secrets(user, password):
    """The forms in which a password could be stored."""
    return [password.encode(), base64.b64encode(f"{user}:{password}".encode()), base64.b64encode(password.encode()).rstrip(b"=")]


def test_neither_password_is_stored_anywhere(doors, termweave, shop, name, state, opensearch_engine, tmp_path, monkeypatch):
    (source, authority), (target, _) = doors
    file = tmp_path / "source.password"
    file.write_text(READER[1])
    for key, value in {"USER": READER[0], "PASSWORD_FILE": file, "CA_CERTS": authority}.items():
        monkeypatch.setenv(f"TERMWEAVE_SOURCE_{key}", str(value))
    build = ["index", f"{source.url}/{shop}", name, *OPTIONS]

    def check(marker):
        found = stored(opensearch_engine, name, state)
        assert marker in found  # what is searched holds what was stored
        for secret in (*secrets(*READER), *secrets(*WRITER)):
            assert secret not in found
            assert secret.decode() not in "".join(termweave.said)
        assert READER[0].encode() not in found

    with monkeypatch.context() as patch:
        patch.setattr(BulkSender, "send", Mock(side_effect=KeyboardInterrupt))
        termweave(*build, status=130)
    check(b"blue lamp 17")
    assert list((state / "snapshots").glob("*"))
    assert "30 documents" in termweave(*build)
    check(f"{source.url}/{shop}".encode())  # the lineage names the source
    write(opensearch_engine, shop, {"p31": {"description": "red lamp"}})
    assert "1 new" in termweave(*build, "--update")
    assert "all there" in termweave("verify", name, f"{source.url}/{shop}", "--text-field", "description")
    for key in ("USER", "PASSWORD_FILE"):
        monkeypatch.delenv(f"TERMWEAVE_SOURCE_{key}")
    inside = source.url.replace("://", f"://{READER[0]}:{READER[1]}@")
    write(opensearch_engine, shop, {"p32": {"description": "green lamp"}})
    assert "1 new" in termweave("index", f"{inside}/{shop}", name, *OPTIONS, "--update")
    check(b"green lamp")
    for nginx, (user, _), (stranger, _) in ((source, READER, WRITER), (target, WRITER, READER)):
        assert f"- {user} [" in nginx.log()
        assert stranger not in nginx.log()


def test_the_targets_credentials_are_not_sent_to_a_source(doors, termweave, shop, name, state, opensearch_engine, monkeypatch):
    """Not even to be refused: without credentials of its own the source sees none, and the hint names those that it needs."""
    (source, authority), _ = doors
    build = ["index", f"{source.url}/{shop}", name, *OPTIONS]
    monkeypatch.setenv("TERMWEAVE_SOURCE_CA_CERTS", str(authority))
    said = termweave(*build, status=1)
    assert "answered 401" in said
    assert "knows: $TERMWEAVE_SOURCE_USER and $TERMWEAVE_SOURCE_PASSWORD." in said
    assert re.findall(r"- (\S+) \[", source.log()) == ["-"] * source.log().count("\n")
    monkeypatch.delenv("TERMWEAVE_SOURCE_CA_CERTS")
    monkeypatch.setenv("TERMWEAVE_SOURCE_USER", READER[0])
    said = termweave(*build, status=5)
    assert "signed by an unknown authority" in said
    assert "$TERMWEAVE_SOURCE_CA_CERTS" in said
    assert not opensearch_engine.request("HEAD", f"/{name}")
