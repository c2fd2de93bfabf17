"""The server's archives: checked, unpacked whole or not at all, once."""

import hashlib
import ssl
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from termweave.engine.embedded import artifacts, folders
from termweave.engine.embedded.artifacts import OVERRIDE
from termweave.errors import TermweaveError
from tests.engine.certificates import Authority
from tests.engine.forwarding import accepting


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "distribution_cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Small archives in a folder, and checksums that fit them."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    small = []
    for artifact in (*artifacts.ARTIFACTS, *artifacts.ML_ARTIFACTS):
        path = folder / artifact.file_name
        inside = f"opensearch-{artifacts.VERSION}/lib/x.jar" if not artifact.plugin else "plugin-descriptor.properties"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(inside, b"x" * 600_000)
        small.append(replace(artifact, sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    monkeypatch.setattr(artifacts, "ARTIFACTS", tuple(small[:3]))
    monkeypatch.setattr(artifacts, "ML_ARTIFACTS", tuple(small[3:]))
    monkeypatch.setenv(OVERRIDE, str(folder))
    return folder


@pytest.mark.parametrize("as_uri", [False, True])
def test_archives_brought_along_are_unpacked_without_a_network(cache, shelf, no_network, monkeypatch, as_uri):
    if as_uri:
        monkeypatch.setenv(OVERRIDE, shelf.as_uri())
    plain, larger = artifacts.distribution(), artifacts.distribution(ml=True)
    assert (plain / "lib/x.jar").is_file()
    assert {each.name for each in (plain / "plugins").iterdir()} == {"opensearch-knn", "opensearch-neural-search"}
    assert {each.name for each in (larger / "plugins").iterdir()} >= {"opensearch-job-scheduler", "opensearch-ml"}
    assert not list(cache.rglob("unpack-*"))


def test_an_archive_that_is_missing_or_altered_is_named(cache, shelf, monkeypatch):
    knn = shelf / "opensearch-knn-3.6.0.0.zip"
    knn.write_bytes(knn.read_bytes()[:-1] + b"!")
    with pytest.raises(TermweaveError, match="not the archive that was tested"):
        artifacts.distribution()
    knn.unlink()
    with pytest.raises(TermweaveError, match=r"knn-3\.6\.0\.0\.zip does not exist"):
        artifacts.distribution()
    assert not artifacts.unpacked(cache).exists()
    monkeypatch.setenv(OVERRIDE, "~no-such-user/archives")
    with pytest.raises(TermweaveError, match=r"~no-such-user/archives/.* does not exist"):
        artifacts.distribution()


def test_no_network_says_what_to_bring(cache, no_network, monkeypatch):
    monkeypatch.delenv(OVERRIDE, raising=False)
    with pytest.raises(TermweaveError, match="there is no network") as caught:
        artifacts.distribution()
    assert OVERRIDE in caught.value.hint
    assert not list(cache.rglob("download-*"))


@pytest.mark.parametrize(
    ("answer", "said", "advice"),
    [(b"HTTP/1.1 200 OK", "TLS failed", "REQUESTS_CA_BUNDLE"), (b"HTTP/1.1 407 No", "the proxy refuses .*407", "HTTPS_PROXY")],
)
def test_a_proxy_that_reads_tls_or_refuses_is_not_taken_for_no_network(cache, monkeypatch, tmp_path, answer, said, advice):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path / "authority", "proxy").issue("proxy", "DNS:*.maven.apache.org"))

    def proxy(client):
        lines = client.makefile("rb")
        while lines.readline().strip():
            pass
        client.sendall(answer + b"\r\n\r\n")
        context.wrap_socket(client, server_side=True)

    monkeypatch.delenv(OVERRIDE, raising=False)
    with accepting(proxy) as port:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        with pytest.raises(TermweaveError, match=said) as caught:
            artifacts.distribution()
    assert advice in caught.value.hint


def test_a_full_disk_while_unpacking_leaves_nothing_half_made(shelf, small_disk):
    target = small_disk / "opensearch" / f"opensearch-{artifacts.VERSION}"
    with pytest.raises(TermweaveError, match="became full"):
        artifacts.unpack([shelf / each.file_name for each in artifacts.ARTIFACTS], target, artifacts.ARTIFACTS)
    assert list(target.parent.iterdir()) == []


def test_too_little_space_is_said_before_the_download(small_disk, shelf, monkeypatch):
    monkeypatch.setattr(folders, "distribution_cache", lambda: small_disk / "cache")
    with pytest.raises(TermweaveError, match=r"has [0-9.]+ [kM]B free, and the OpenSearch server needs 600 MB"):
        artifacts.distribution()


def test_several_at_once_unpack_once(cache, shelf, monkeypatch):
    unpacked = []
    original = artifacts.unpack
    monkeypatch.setattr(artifacts, "unpack", lambda *given: (unpacked.append(1), original(*given)))
    with ThreadPoolExecutor(6) as threads:
        folders_of_all = list(threads.map(lambda _: artifacts.distribution(), range(6)))
    assert len(unpacked) == len(set(folders_of_all)) == 1


@pytest.mark.parametrize("name", ["one-node.yml", "three-nodes.yml"])
def test_the_compose_files_run_the_version_that_is_embedded(name):
    assert f"OPENSEARCH_VERSION:-{artifacts.VERSION}}}" in (Path(__file__).parents[3] / "docker" / name).read_text()
