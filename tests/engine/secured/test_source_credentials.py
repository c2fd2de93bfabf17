"""A source and a target with credentials of their own: each server sees its own, and neither is stored anywhere.

Both are nginx with TLS and basic authentication before the tests' server, with different authorities, users and passwords.
"""

from __future__ import annotations

import base64
import json
import re

import pytest

from termweave.cli import run
from termweave.corpora.index.pages import Spool
from termweave.indexer.pipeline.bulk_sender import BulkSender
from tests.corpora.index.conftest import write
from tests.engine.certificates import Authority
from tests.engine.secured.nginx import Nginx, password_file

pytestmark = pytest.mark.engine
READER, WRITER = ("rita-source", "Quellwasser-4417-Moos"), ("wim-target", "Zielscheibe-9023-Harz")
OPTIONS = ["--text-field", "description", "--weights", "none", "--dense", "none"]


@pytest.fixture
def doors(opensearch_engine, tmp_path):
    """The server behind two doors: (source, target), each an nginx and the certificate of its authority."""
    made = []
    for place, (user, password) in (("source", READER), ("target", WRITER)):
        authority = Authority(tmp_path / f"{place}-authority", place)
        nginx = Nginx(
            tmp_path / place,
            opensearch_engine.url,
            certificate=authority.issue("nginx"),
            server=password_file(tmp_path, user, password),
        )
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

        def stop(self, batches):
            raise KeyboardInterrupt

        patch.setattr(BulkSender, "send", stop)
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
