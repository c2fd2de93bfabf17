"""Settings: what wins, and what is refused."""

from __future__ import annotations

import pytest

from termweave import settings
from termweave.errors import UsageError


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("termweave.places.config", lambda: tmp_path / "config")
    for name in ("TERMWEAVE_URL", "OPENSEARCH_URL", "TERMWEAVE_TIMEOUT", "TERMWEAVE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_flags_win_over_environment_over_file_over_defaults(nowhere, monkeypatch):
    assert settings.load().timeout == 60
    (nowhere / "termweave.toml").write_text("timeout = 7\nurl = 'http://file:1'\n")
    assert settings.load().timeout == 7
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "8")
    assert settings.load().timeout == 8
    assert settings.load(timeout=9).timeout == 9
    assert settings.load(timeout=None).timeout == 8


def test_opensearch_url_counts_last(monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", "http://environment:1")
    assert settings.load().url == "http://environment:1"
    assert settings.load(url="http://flag:1").url == "http://flag:1"


def test_origins_are_named(nowhere, monkeypatch):
    (nowhere / "termweave.toml").write_text("url = 'http://file:1'\n")
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "8.0")
    found = settings.load(user="me")
    assert settings.origin("url", found.url).endswith("termweave.toml")
    assert settings.origin("timeout", found.timeout) == "$TERMWEAVE_TIMEOUT"
    assert settings.origin("user", found.user) == "flag"
    assert settings.origin("dense", found.dense) == "default"


@pytest.mark.parametrize(
    ("content", "said"), [("timeot = 7", "timeot"), ("timeout = 'soon'", "timeout"), ("timeout = ", "termweave.toml")]
)
def test_a_wrong_file_is_named(nowhere, content, said):
    (nowhere / "termweave.toml").write_text(content)
    with pytest.raises(UsageError, match=said):
        settings.load()


def test_the_password_does_not_show(monkeypatch):
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hunter2")
    assert "hunter2" not in repr(settings.load())
