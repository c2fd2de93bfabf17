"""Which settings count for which server: the working folder's file may have come with somebody's repository, and a source has its own."""

from __future__ import annotations

import pytest

from termweave import settings
from termweave.engine.client.credentials import addresses
from termweave.errors import UsageError

CREDENTIALS = {
    "user": "me",
    "password": "hush",
    "client_cert": "me.pem",
    "client_key": "me.key",
    "client_key_password": "hush",
    "aws_sigv4": "eu-central-1",
}
EVIL = "http://evil:9200"
HOME = "https://home:9200"


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


def credentials(loaded):
    """The credentials that settings hold, as text."""
    values = {name: getattr(loaded, name) for name in CREDENTIALS}
    plain = {name: value.get_secret_value() if hasattr(value, "get_secret_value") else value for name, value in values.items()}
    return {name: str(value) for name, value in plain.items() if value is not None}


def test_an_address_of_the_working_folder_gets_no_credentials_of_the_users_file(write, caplog):
    write("config", url=HOME, **CREDENTIALS)
    write(".", url=EVIL)
    loaded = settings.load()
    assert (loaded.url, credentials(loaded)) == (EVIL, {})
    assert {each.name for each in loaded.ignored} == set(CREDENTIALS)
    assert "the file gives it for https://home:9200, and the address in use is http://evil:9200" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("of_user", "flags"),
    [(CREDENTIALS, {"user": "me", "password": "hush"}), ({"url": "https://me:hush@home:9200"}, {})],
    ids=["flags and a file without an address", "within an address"],
)
def test_an_address_of_the_working_folder_gets_no_other_credentials(write, of_user, flags):
    write("config", **of_user)
    write(".", url=EVIL)
    loaded = settings.load(**flags)
    assert (loaded.url, credentials(loaded)) == (EVIL, {})


@pytest.mark.parametrize("url", [None, "OPENSEARCH_URL"])
@pytest.mark.parametrize("spelling", [str.upper, str.lower])
def test_an_address_of_the_working_folder_gets_no_credentials_of_the_environment(write, monkeypatch, caplog, url, spelling):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(spelling(f"TERMWEAVE_{name}"), value)
    if url:
        monkeypatch.setenv(url, HOME)
    write(".", url=EVIL)
    loaded = settings.load()
    assert (loaded.url, credentials(loaded)) == (EVIL, {})
    assert "password from $TERMWEAVE_PASSWORD is not sent to http://evil:9200: only " in caplog.text
    assert "name it yourself with --url or $TERMWEAVE_URL" in caplog.text


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


def test_the_working_folder_decides_about_its_own_address_but_not_about_checks_and_aws(write):
    write(".", url=EVIL, user="demo", password="demo", ca_certs="demo.pem", insecure=True, aws_sigv4="eu-central-1")
    loaded = settings.load()
    assert credentials(loaded) == {"user": "demo", "password": "demo"}
    assert (str(loaded.ca_certs), loaded.insecure) == ("demo.pem", False)
    assert {each.name for each in loaded.ignored} == {"insecure", "aws_sigv4"}
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


def test_a_file_of_the_working_folder_runs_no_command_and_sends_no_file(write, tmp_path, caplog):
    write(".", url=EVIL, password_command="touch ran", password_file="/etc/hostname")
    loaded = settings.load()
    assert (loaded.password_command, loaded.password_file) == (None, None)
    assert "may not have a command run" in caplog.text
    assert "may not have a file of yours sent to a server" in caplog.text


@pytest.mark.parametrize(
    ("name", "mode", "warned"),
    [
        *(("password", mode, mode != 0o600) for mode in (0o644, 0o640, 0o600)),
        ("client_key_password", 0o644, True),
        ("user", 0o644, False),
    ],
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
    loaded = settings.of_source(url, target)
    address = addresses(loaded, loaded.url)[0]
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


def test_an_address_of_the_file_that_cannot_be_read_is_no_server(write):
    write("config", url="http://[", user="third", password="its own")
    assert sent("https://other:9200", settings.load(url="https://target:9200")) is None


def test_a_wrong_value_of_a_source_is_said_where_it_stands(monkeypatch):
    monkeypatch.setenv("TERMWEAVE_SOURCE_INSECURE", "perhaps")
    with pytest.raises(UsageError, match=r"insecure, from \$TERMWEAVE_SOURCE_INSECURE, cannot be 'perhaps'"):
        settings.of_source("https://other:9200", settings.load(url="https://target:9200"))


def test_a_misspelt_variable_is_named_and_a_right_one_is_not(monkeypatch, caplog):
    monkeypatch.setenv("TERMWEAVE_SOURCE_USER", "x")
    monkeypatch.setenv("TERMWEAVE_SOURCE_USR", "x")
    settings.load()
    assert "$TERMWEAVE_SOURCE_USR is not a setting" in caplog.text
    assert "$TERMWEAVE_SOURCE_USER is no" not in caplog.text
