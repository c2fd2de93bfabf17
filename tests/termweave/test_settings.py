"""Settings: what wins, what is refused, and which count for which server: the working folder's file may be that of somebody's repository."""

import pytest

from termweave import settings
from termweave.engine.client.credentials import addresses
from termweave.errors import UsageError

CREDENTIALS = {"user": "me", "password": "hush", "client_cert": "me.pem", "client_key": "me.key"}
CREDENTIALS |= {"client_key_password": "hush", "aws_sigv4": "eu-central-1"}
EVIL, HOME = "http://evil:9200", "https://home:9200"


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    """Write the file of a folder: "." is the working folder, "config" the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("termweave.support.paths.config", lambda: tmp_path / "config")
    for name in ("OPENSEARCH_URL", *(f"TERMWEAVE_{name.upper()}" for name in settings.Settings.model_fields)):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").mkdir()

    def write(folder, **values):
        lines = [f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for name, value in values.items()]
        (tmp_path / folder / "termweave.toml").write_text("\n".join(lines) + "\n")

    return write


def test_flags_win_over_environment_over_file_over_defaults(write, tmp_path, monkeypatch):
    def timeout(**flags):
        loaded = settings.load(**flags)
        return loaded.timeout, loaded.origin("timeout").rpartition("/")[2]

    assert timeout() == (60, "default")
    write("config", timeout=6)
    write(".", timeout=7, url="http://file:1")
    assert timeout() == (7, "termweave.toml")
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "8")
    assert timeout(timeout=None) == (8, "$TERMWEAVE_TIMEOUT")
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "soon")
    assert timeout(timeout=9) == (9, "flag")
    monkeypatch.setenv("OPENSEARCH_URL", "http://environment:1")
    assert settings.load(timeout=9).url == "http://file:1"
    (tmp_path / "termweave.toml").unlink()
    assert settings.load(timeout=9).url == "http://environment:1"


def test_an_empty_variable_says_nothing(tmp_path, monkeypatch):
    """As compose files hand variables on that nobody has set."""
    (tmp_path / "termweave.toml").write_bytes(b"\xef\xbb\xbftimeout = 7\n")  # with the byte-order mark of an editor
    for name in ("URL", "TIMEOUT", "PASSWORD"):
        monkeypatch.setenv(f"TERMWEAVE_{name}", "")
    loaded = settings.load()
    assert (loaded.url, loaded.timeout, loaded.password) == (None, 7, None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"timout = 7", r"sets 'timout', which is not a setting. Is it 'timeout'\? Settings: url, "),
        (b"[engine]\nx = 7", r"sets 'engine', which is not a setting. Settings: url, "),
        (b"timeout = 'soon'", r"timeout, from .*termweave\.toml, cannot be 'soon': input should be a valid number"),
        (b"url = 'http://a:1'\ntimeout = ", r"is not valid TOML: Invalid value .at its end, line 2"),
        (b"timeout = 7\nurl = x", r"is not valid TOML: Invalid value .at line 2"),
        (b"user = '\xe9'", r"termweave\.toml cannot be read: .*utf-8"),
        (b"url = 'http://file:1'\npassword = 4711", r"password, from .*termweave\.toml, cannot be what it is"),
        (None, r"termweave\.toml cannot be read: .*directory"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, content, said):
    file = tmp_path / "config" / "termweave.toml"
    file.mkdir() if content is None else file.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        settings.load()
    assert "4711" not in str(caught.value)


def test_a_wrong_value_is_said_where_it_stands(monkeypatch):
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hunter2")
    assert "hunter2" not in repr(settings.load())
    monkeypatch.setenv("TERMWEAVE_TIMEOUT", "soon")
    with pytest.raises(UsageError, match=r"timeout, from \$TERMWEAVE_TIMEOUT, cannot be 'soon'"):
        settings.load()
    with pytest.raises(UsageError, match=r"^timeout cannot be -1: input should be greater than 0"):
        settings.load(timeout=-1)


def test_a_variable_that_nothing_reads_is_named(monkeypatch, caplog):
    for name in ("TIMOUT", "REQUIRE_ENGINE", "SOURCE_USER"):
        monkeypatch.setenv(f"TERMWEAVE_{name}", "1")
    assert settings.load().timeout == 60
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "Warning: $TERMWEAVE_TIMOUT is not a setting and is not read. Did you mean $TERMWEAVE_TIMEOUT?"


def credentials(loaded):
    """The credentials that settings hold, as text."""
    values = {name: getattr(loaded, name) for name in CREDENTIALS}
    plain = {name: value.get_secret_value() if hasattr(value, "get_secret_value") else value for name, value in values.items()}
    return {name: str(value) for name, value in plain.items() if value is not None}


@pytest.mark.parametrize(
    ("of_user", "flags", "environment", "said"),
    [
        ({"url": HOME, **CREDENTIALS}, {}, {}, f"the file gives it for {HOME}, and the address in use is {EVIL}"),
        (CREDENTIALS, {"user": "me", "password": "hush"}, {}, "password from --password is not sent to"),
        ({"url": "https://me:hush@home:9200"}, {}, {}, ""),
        ({}, {}, "upper", f"password from $TERMWEAVE_PASSWORD is not sent to {EVIL}: only "),
        ({}, {}, "lower", f"password from $TERMWEAVE_PASSWORD is not sent to {EVIL}: only "),
    ],
    ids=["file", "flags and a file without an address", "within an address", "environment", "environment in lower case"],
)
def test_an_address_of_the_working_folder_gets_no_credentials(write, monkeypatch, caplog, of_user, flags, environment, said):
    write("config", **of_user)
    write(".", url=EVIL)
    if environment:
        monkeypatch.setenv("OPENSEARCH_URL", HOME)
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(getattr(f"TERMWEAVE_{name}", environment)(), value)
    loaded = settings.load(**flags)
    assert (loaded.url, credentials(loaded)) == (EVIL, {})
    assert said in caplog.text
    assert ("name it yourself with --url or $TERMWEAVE_URL" in caplog.text) == ("is not sent to" in said)
    assert "hush" not in caplog.text
    if of_user.keys() >= set(CREDENTIALS):
        assert {each.name for each in loaded.ignored} == set(CREDENTIALS)


@pytest.mark.parametrize("place", ["flag", "TERMWEAVE_URL", "OPENSEARCH_URL", "config"])
def test_an_address_that_the_user_names_too_is_the_users(write, monkeypatch, place):
    write(".", url=HOME, user="somebody", ca_certs="theirs.pem")
    write("config", **({"url": HOME} if place == "config" else {}), **CREDENTIALS)
    if place.endswith("URL"):
        monkeypatch.setenv(place, HOME)
    loaded = settings.load(url=HOME if place == "flag" else None)
    assert credentials(loaded) == CREDENTIALS
    assert loaded.ca_certs is None


@pytest.mark.parametrize("url", [None, HOME])
def test_the_working_folder_does_not_weaken_what_the_user_connects_to(write, caplog, url):
    write("config", password="hush", ca_certs="mine.pem", **({"url": url} if url else {}))
    write(".", insecure=True, ca_certs="theirs.pem", user="somebody", password="theirs", client_cert="theirs.pem")
    loaded = settings.load()
    assert (loaded.insecure, str(loaded.ca_certs), credentials(loaded)) == (False, "mine.pem", {"password": "hush"})
    assert "a file in the working folder may not turn off the check of the server's certificate" in caplog.text
    assert loaded.origin("ca_certs").endswith("config/termweave.toml")


def test_the_working_folder_decides_about_its_own_address_but_about_no_check_command_or_file(write, caplog):
    refused = {"insecure": True, "aws_sigv4": "eu-central-1", "password_command": "touch ran", "password_file": "/etc/hostname"}
    write(".", url=EVIL, user="demo", password="demo", ca_certs="demo.pem", **refused)
    loaded = settings.load()
    assert credentials(loaded) == {"user": "demo", "password": "demo"}
    assert (str(loaded.ca_certs), loaded.insecure) == ("demo.pem", False)
    assert loaded.password_command is loaded.password_file is None
    assert {each.name for each in loaded.ignored} == set(refused)
    assert "may not have a command run" in caplog.text
    assert settings.load(insecure=True).insecure


@pytest.mark.parametrize("folder", [".", "config"])
def test_what_a_file_says_of_one_server_does_not_go_to_another(write, folder):
    write(folder, url=HOME, user="me", password="hush", ca_certs="home.pem")
    loaded = settings.load(url="http://staging:9200")
    assert (credentials(loaded), loaded.ca_certs) == ({}, None)
    loaded = settings.load(url="http://staging:9200", user="me", password="other")
    assert credentials(loaded) == {"user": "me", "password": "other"}


def test_a_file_of_the_user_without_an_address_holds_for_every_address_that_the_user_names(write):
    write("config", **CREDENTIALS)
    assert credentials(settings.load(url=HOME)) == credentials(settings.load()) == CREDENTIALS


def test_in_the_folder_of_the_settings_the_file_is_the_users(write, tmp_path, monkeypatch):
    write("config", url=HOME, insecure=True)
    monkeypatch.chdir(tmp_path / "config")
    loaded = settings.load(password="hush")
    assert loaded.insecure
    assert loaded.ignored == ()


@pytest.mark.parametrize(
    ("name", "mode", "warned"),
    [("password", 0o640, True), ("password", 0o600, False), ("client_key_password", 0o644, True), ("user", 0o644, False)],
)
def test_a_file_with_a_password_that_others_can_read_is_warned_of(write, tmp_path, caplog, name, mode, warned):
    write("config", url=HOME, **{name: "hush"})
    file = tmp_path / "config" / "termweave.toml"
    file.chmod(mode)
    settings.load()
    warning = f"Warning: {file} holds a password, and other users of this machine can read it. Run: chmod 600 {file}"
    assert [record.getMessage() for record in caplog.records] == [warning] * warned


def test_the_place_that_comes_first_gives_the_password_in_its_own_way(write, monkeypatch):
    write("config", password="hush")
    monkeypatch.setenv("TERMWEAVE_PASSWORD_FILE", "from-environment")
    loaded = settings.load()
    assert (loaded.password, str(loaded.password_file)) == (None, "from-environment")


def sent(url, target):
    """User and password that the server of a source gets."""
    loaded = settings.of_source(url, target)
    address = addresses(loaded, loaded.url)[0]
    return (address.user, address.password) if address.user else None


def test_the_targets_credentials_stay_with_the_target(monkeypatch):
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "targets")
    target = settings.load(url="https://target:9200,https://two:9200", user="me", insecure=True)
    assert settings.of_source("https://other:9200", target).insecure is False
    assert settings.of_source("https://two:9200", target) is target  # another node of the same cluster
    for url in (None, "https://target:9200/"):
        assert sent(url, target) == ("me", "targets")
    for path in ("https://other:9200", "https://target:9200/path", "http://target:9200", "https://two:9200,https://three:9200"):
        assert sent(path, target) is None


def test_a_source_has_its_own_from_variable_address_and_file(write, monkeypatch):
    target = settings.load(url="https://target:9200", user="me", password="targets")
    monkeypatch.setenv("TERMWEAVE_SOURCE_USER", "reader")
    monkeypatch.setenv("TERMWEAVE_SOURCE_PASSWORD", "of the variable")
    assert sent("https://other:9200", target) == ("reader", "of the variable")
    with pytest.raises(UsageError, match="the source is on the server that is written to"):
        settings.of_source(None, target)
    monkeypatch.delenv("TERMWEAVE_SOURCE_USER")
    monkeypatch.delenv("TERMWEAVE_SOURCE_PASSWORD")
    assert sent("https://a:b@other:9200", target) == ("a", "b")
    write("config", url="https://third:9200", user="third", password="its own")
    assert sent("https://third:9200", target) == ("third", "its own")
    assert sent("https://other:9200", target) is None
    write("config", url="http://[", user="third", password="its own")  # no address: that of no server
    assert sent("https://other:9200", target) is None
    monkeypatch.setenv("TERMWEAVE_SOURCE_INSECURE", "perhaps")
    with pytest.raises(UsageError, match=r"insecure, from \$TERMWEAVE_SOURCE_INSECURE, cannot be 'perhaps'"):
        settings.of_source("https://other:9200", target)
