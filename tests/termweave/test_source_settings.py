"""Credentials of a source: sent to the server that they were given for, and to no other."""

from __future__ import annotations

import pytest

from termweave import settings
from termweave.engine.client import credentials
from termweave.errors import UsageError


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("termweave.support.paths.config", lambda: tmp_path)
    for name in ("TERMWEAVE_URL", "OPENSEARCH_URL", "TERMWEAVE_PASSWORD", "TERMWEAVE_USER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def sent(url, target):
    loaded = settings.of_source(url, target)
    address = credentials.addresses(loaded, loaded.url)[0]
    return (address.user, address.password) if address.user else None


def test_the_targets_credentials_stay_with_the_target(monkeypatch):
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "targets")
    target = settings.load(url="https://target:9200", user="me", insecure=True)
    assert sent("https://other:9200", target) is None
    assert settings.of_source("https://other:9200", target).insecure is False
    assert sent(None, target) == ("me", "targets")
    assert sent("https://target:9200/", target) == ("me", "targets")
    assert sent("https://target:9200/path", target) is None
    assert sent("http://target:9200", target) is None


def test_a_source_has_its_own_from_variable_address_and_file(nowhere, monkeypatch):
    target = settings.load(url="https://target:9200", user="me", password="targets")
    monkeypatch.setenv("TERMWEAVE_SOURCE_USER", "reader")
    monkeypatch.setenv("TERMWEAVE_SOURCE_PASSWORD", "of the variable")
    assert sent("https://other:9200", target) == ("reader", "of the variable")
    with pytest.raises(UsageError, match="the source is on the server that is written to"):
        settings.of_source(None, target)
    monkeypatch.delenv("TERMWEAVE_SOURCE_USER")
    monkeypatch.delenv("TERMWEAVE_SOURCE_PASSWORD")
    assert sent("https://a:b@other:9200", target) == ("a", "b")
    (nowhere / "termweave.toml").write_text("url = 'https://third:9200'\nuser = 'third'\npassword = 'its own'\n")
    assert sent("https://third:9200", target) == ("third", "its own")
    assert sent("https://other:9200", target) is None


def test_an_address_of_the_file_that_cannot_be_read_is_no_server(nowhere):
    (nowhere / "termweave.toml").write_text("url = 'http://['\nuser = 'third'\npassword = 'its own'\n")
    assert sent("https://other:9200", settings.load(url="https://target:9200")) is None


def test_a_wrong_value_is_said_where_it_stands(monkeypatch):
    monkeypatch.setenv("TERMWEAVE_SOURCE_INSECURE", "perhaps")
    with pytest.raises(UsageError, match=r"insecure, from \$TERMWEAVE_SOURCE_INSECURE, cannot be 'perhaps'"):
        settings.of_source("https://other:9200", settings.load(url="https://target:9200"))


def test_a_misspelt_variable_is_named_and_a_right_one_is_not(monkeypatch, caplog):
    monkeypatch.setenv("TERMWEAVE_SOURCE_USER", "x")
    monkeypatch.setenv("TERMWEAVE_SOURCE_USR", "x")
    settings.load()
    assert "$TERMWEAVE_SOURCE_USR is not a setting" in caplog.text
    assert "$TERMWEAVE_SOURCE_USER is no" not in caplog.text
