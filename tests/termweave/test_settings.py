"""Settings: what wins, and what is refused."""

from __future__ import annotations

import pytest

from termweave import settings
from termweave.errors import UsageError


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("termweave.support.paths.config", lambda: tmp_path / "config")
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
    monkeypatch.setenv("OPENSEARCH_URL", "http://environment:1")
    assert settings.load().url == "http://file:1"
    (nowhere / "termweave.toml").unlink()
    assert settings.load().url == "http://environment:1"


def test_an_empty_variable_says_nothing(nowhere, monkeypatch):
    """As compose files hand variables on that nobody has set."""
    (nowhere / "termweave.toml").write_bytes(b"\xef\xbb\xbftimeout = 7\n")  # with the byte-order mark of an editor
    for name in ("TERMWEAVE_URL", "TERMWEAVE_TIMEOUT", "TERMWEAVE_PASSWORD"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("OPENSEARCH_URL", "http://environment:1")
    loaded = settings.load()
    assert (loaded.url, loaded.timeout, loaded.password) == ("http://environment:1", 7, None)
    assert loaded.origin("timeout").endswith("termweave.toml")


def test_origins_are_named(nowhere, monkeypatch):
    (nowhere / "config").mkdir()
    (nowhere / "config" / "termweave.toml").write_text("url = 'http://file:1'\n")
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "8")
    monkeypatch.setenv("TERMWEAVE_INSECURE", "yes")
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "secret")
    loaded = settings.load(user="me")
    assert loaded.origin("insecure") == "$TERMWEAVE_INSECURE"
    assert loaded.origin("password") == "$TERMWEAVE_PASSWORD"
    assert loaded.origin("url").endswith("termweave.toml")
    assert loaded.origin("timeout") == "$TERMWEAVE_TIMEOUT"
    assert loaded.origin("user") == "flag"
    assert loaded.origin("dense") == "default"
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "soon")
    assert settings.load(timeout=9).origin("timeout") == "flag"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"timout = 7", r"termweave\.toml sets 'timout', which is not a setting. Is it 'timeout'\? Settings: url, "),
        (b"[engine]\nx = 7", r"termweave\.toml sets 'engine', which is not a setting. Settings: url, "),
        (b"timeout = 'soon'", r"timeout, from .*termweave\.toml, cannot be 'soon': input should be a valid number"),
        (b"url = 'http://a:1'\ntimeout = ", r"termweave\.toml is not valid TOML: Invalid value .at its end, line 2"),
        (b"timeout = [", r"termweave\.toml is not valid TOML: Invalid value .at its end, line 1"),
        (b"timeout = 7\nurl = x", r"termweave\.toml is not valid TOML: Invalid value .at line 2"),
        (b"user = '\xe9'", r"termweave\.toml cannot be read: .*utf-8"),
        (b"url = 'http://file:1'\npassword = 4711", r"password, from .*termweave\.toml, cannot be what it is"),
        (None, r"termweave\.toml cannot be read: .*directory"),
    ],
)
@pytest.mark.parametrize("folder", [".", "config"])
def test_a_wrong_file_is_named(nowhere, content, said, folder):
    (nowhere / "config").mkdir()
    file = nowhere / folder / "termweave.toml"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        settings.load()
    assert "4711" not in str(caught.value)


def test_a_wrong_value_is_said_where_it_stands(nowhere, monkeypatch):
    (nowhere / "termweave.toml").write_text("timeout = 7")
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hunter2")
    assert "hunter2" not in repr(settings.load())
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "soon")
    with pytest.raises(UsageError, match=r"timeout, from \$TERMWEAVE_TIMEOUT, cannot be 'soon'"):
        settings.load()
    with pytest.raises(UsageError, match=r"^timeout cannot be -1: input should be greater than 0"):
        settings.load(timeout=-1)


def test_a_variable_that_nothing_reads_is_named(monkeypatch, caplog):
    monkeypatch.setenv("TERMWEAVE_TIMOUT", "8")
    monkeypatch.setenv("TERMWEAVE_REQUIRE_ENGINE", "1")
    assert settings.load().timeout == 60
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "Warning: $TERMWEAVE_TIMOUT is not a setting and is not read. Did you mean $TERMWEAVE_TIMEOUT?"
