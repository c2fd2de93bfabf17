"""A Java is found, or the sentence says what was found and why it does not do."""

from __future__ import annotations

import os

import pytest

from termweave.engine import folders, java
from termweave.errors import TermweaveError

pytestmark = pytest.mark.usefixtures("no_network")


def test_an_old_java_is_named_with_its_version(make_java, only_these_javas):
    only_these_javas(make_java(version="17.0.12"))
    with pytest.raises(TermweaveError, match=r"Java 17\.0\.12 is older than 21") as caught:
        java.find(fetch=False)
    assert "JAVA_HOME" in caught.value.hint


def test_java_8_calls_itself_1_8(make_java):
    assert java.examine(make_java(version="1.8.0_392")).major == 8


def test_a_cut_down_runtime_is_refused_for_what_it_lacks(make_java, only_these_javas):
    only_these_javas(
        make_java(modules=["java.base", "java.instrument", "java.management", "jdk.incubator.vector", "jdk.unsupported"])
    )
    with pytest.raises(TermweaveError, match=r"without jdk\.localedata"):
        java.find(fetch=False)


def test_a_java_that_does_not_run_is_passed_over(make_java, only_these_javas):
    good = make_java("good")
    only_these_javas(make_java("broken", broken=True), good)
    assert java.find(fetch=False).home == good


def test_long_term_support_is_preferred_and_java_home_above_all(make_java, only_these_javas, monkeypatch):
    homes = {name: make_java(name, version=f"{name.rsplit('-')[-1]}.0.1") for name in ("jdk-23", "jdk-21", "jdk-25")}
    only_these_javas(*homes.values())
    assert java.find(fetch=False).major == 25
    only_these_javas(homes["jdk-23"], homes["jdk-21"])
    assert java.find(fetch=False).major == 21
    monkeypatch.setenv("JAVA_HOME", str(homes["jdk-23"]))
    assert java.find(fetch=False).major == 23


def test_digits_in_the_names_around_a_java_mean_nothing(make_java, only_these_javas):
    only_these_javas(make_java("a25b/jdk-23", version="23.0.1"), make_java("c17d/jdk-21.0.5+25", version="21.0.5"))
    assert java.find(fetch=False).major == 21


def test_java_on_the_path_is_seen(make_java, monkeypatch):
    home = make_java(version="21.0.4")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert home in [each.home for each in java.survey()]


def test_no_java_and_no_network_is_one_sentence(only_these_javas, monkeypatch, tmp_path):
    only_these_javas()
    monkeypatch.setattr(folders, "jdk_cache", lambda: tmp_path / "jdk")
    said = []
    with pytest.raises(TermweaveError, match="there is no network") as caught:
        java.find(said.append)
    assert "\n" not in caught.value.message
    assert "Install a JDK" in caught.value.hint
    assert "fetching" in said[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops its rights")
def test_a_java_the_servers_user_cannot_enter_is_refused(make_java):
    home = make_java()
    home.chmod(0o700)
    assert "cannot enter" in java.examine(home).why_not
