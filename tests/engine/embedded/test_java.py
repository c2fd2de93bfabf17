"""A Java is found, or the sentence says what was found and why it does not do."""

import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
from functools import partial

import cjdk
import pytest

from termweave.engine.embedded import folders, java
from termweave.errors import TermweaveError
from tests.engine.conftest import WHOLE

pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize(
    ("options", "major", "reason"),
    [
        ({"version": "17.0.12"}, 17, "Java 17.0.12 is older than 21"),
        ({"version": "1.8.0_392"}, 8, "Java 1.8.0_392 is older than 21"),
        ({"modules": [each for each in WHOLE if each != "jdk.localedata"]}, 25, "localedata"),
        ({"broken": True}, 0, "it does not run"),
    ],
)
def test_a_java_that_the_server_cannot_use_is_named(make_java, only_these_javas, options, major, reason):
    home = make_java(**options)
    assert (java.examine(home).major, reason in java.examine(home).why_not) == (major, True)
    only_these_javas(home)
    with pytest.raises(TermweaveError, match=reason) as caught:
        java.find(fetch=False)
    assert "JAVA_HOME" in caught.value.hint
    if os.geteuid() == 0:  # only root drops its rights
        home.chmod(0o700)
        assert "cannot enter" in java.examine(home).why_not


def test_long_term_support_is_preferred_to_what_does_not_run_and_java_home_above_all(make_java, only_these_javas, monkeypatch):
    homes = {name: make_java(name, version=f"{name.rsplit('-')[-1]}.0.1") for name in ("jdk-23", "jdk-21", "jdk-25")}
    only_these_javas(make_java("broken", broken=True), *homes.values())
    assert java.find(fetch=False).major == 25
    only_these_javas(homes["jdk-23"], homes["jdk-21"])
    assert java.find(fetch=False).major == 21
    monkeypatch.setenv("JAVA_HOME", str(homes["jdk-23"]))
    assert java.find(fetch=False).major == 23


def test_no_java_and_no_network_is_one_sentence(only_these_javas, monkeypatch, tmp_path):
    only_these_javas()
    monkeypatch.setattr(folders, "jdk_cache", lambda: tmp_path / "jdk")
    said = []
    with pytest.raises(TermweaveError, match="there is no network") as caught:
        java.find(said.append)
    assert "\n" not in caught.value.message
    assert "Install a JDK" in caught.value.hint
    assert "downloading" in said[0]


def test_java_is_found_on_the_path_and_beside_a_folder_that_may_not_be_entered(open_tmp, make_java):
    home, on_path = make_java(), make_java("on-path")
    open_tmp.chmod(0o755)
    (open_tmp / "private").mkdir(mode=0o700 if os.geteuid() == 0 else 0)
    script = f"""
import os
from pathlib import Path
from termweave.engine.embedded import folders, java
java._FOLDERS, folders.jdk_cache = (str(Path({str(home)!r}).parent / "*"), "~no-such-user/jdks/*"), lambda: Path({str(home)!r})
os.geteuid() or os.setuid(65534)
print(java._candidates())
"""
    environment = {**os.environ, "PATH": f"{on_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    assert {str(home), str(on_path)} <= set(re.findall(r"'(.*?)'", done.stdout))


@pytest.fixture
def archive_server(make_java, scripted, monkeypatch, open_tmp, tmp_path, only_these_javas):
    """A server that gives a JDK as the vendor's archive; returns a function that pins its checksum, or another one."""
    home = make_java("packed", version="25.0.3")
    packed = tmp_path / "jdk.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(home, arcname="jdk-25.0.3+9")
    only_these_javas()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    scripted.answers["*"] = (200, packed.read_bytes())
    monkeypatch.setattr(folders, "jdk_cache", lambda: open_tmp / "fetched")
    monkeypatch.setattr(java, "FETCHED_FROM", scripted.url)
    # The server here speaks plain HTTP, which cjdk refuses otherwise.
    monkeypatch.setattr(cjdk, "cache_package", partial(cjdk.cache_package, _allow_insecure_for_testing=True))

    def pin(checksum=None):
        key = platform.system(), platform.machine()
        monkeypatch.setitem(java.FETCHED_ARCHIVES, key, ("here", checksum or hashlib.sha256(packed.read_bytes()).hexdigest()))

    return pin


def test_a_jdk_with_the_pinned_checksum_is_unpacked_once(archive_server, scripted):
    archive_server()
    fetched = java.find()
    assert (fetched.version, fetched.why_not) == ("25.0.3", "")
    assert java.find().home == fetched.home
    (request,) = scripted.seen  # the second time it lay in the cache
    assert request[1] == "/jdk-25.0.3%2B9/OpenJDK25U-jdk_here_hotspot_25.0.3_9.tar.gz"


def test_a_jdk_with_another_checksum_is_not_unpacked(archive_server, open_tmp):
    archive_server("0" * 64)
    with pytest.raises(TermweaveError, match="SHA-256 differs") as caught:
        java.find()
    assert "Install a JDK" in caught.value.hint
    assert not list((open_tmp / "fetched").rglob("java"))
