"""Where a password comes from, and when it would be seen by others."""

import os
import pty
import subprocess
import sys

import pytest

from termweave.cli import run
from termweave.engine import connect
from termweave.engine.client import credentials
from termweave.errors import UsageError
from termweave.settings import load
from tests.engine.certificates import Authority, openssl


def test_a_password_comes_from_a_file_or_a_command(tmp_path, monkeypatch):
    def password(**settings):
        (address,) = credentials.addresses(load(user="me", **settings), "https://me@search")
        return address.password

    file = tmp_path / "password"
    file.write_bytes(b"\xef\xbb\xbffrom a file\r\n")  # as an editor of Windows writes it
    assert password(password_file=file) == "from a file"
    (tmp_path / "vault.py").write_text("word = 'from a module'\n")
    (tmp_path / "command.py").write_text("import vault\nprint(vault.word)\n")
    monkeypatch.setenv(
        "PYTHONSAFEPATH", "1"
    )  # the command line sets it for processes of its own: a command imports from its folder
    monkeypatch.setenv("TERMWEAVE_PASSWORD_COMMAND", f"{sys.executable} {tmp_path / 'command.py'}")
    assert password() == "from a module"
    assert password(password_file=file) == "from a file"  # a flag comes before the environment


@pytest.mark.parametrize(
    ("content", "settings", "sentence"),
    [
        (None, {"password_file": "password"}, "cannot be read"),
        (b"", {"password_file": "password"}, "does not hold one line"),
        (b"a\nb\n", {"password_file": "password"}, "does not hold one line"),
        (b"\xff", {"password_file": "password"}, "it is not UTF-8"),
        (None, {"password_command": "false"}, "exit status 1"),
        (None, {"password_command": "true"}, "printed nothing"),
        (None, {"password_command": "no-such-command"}, "failed"),
        (b"a", {"password": "hush", "password_file": "password"}, r"password_file \(from password_file\) both give"),
    ],
)
def test_a_way_that_gives_no_password_is_refused(tmp_path, monkeypatch, content, settings, sentence):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        connect(load(url="http://127.0.0.1:1", user="me", **settings))


_ASKS = """
import sys
from termweave.engine.client import credentials
from termweave.settings import load
for _ in range(2):  # asked once
    (address,) = credentials.addresses(load(url=sys.argv[1], user="me", password="-"), sys.argv[1])
print("given:", address.password)
"""


def at_a_terminal(program, question, answer, *arguments):
    """What a terminal shows while a program asks a question there and is answered."""
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-c", program, *arguments])
    shown = b""
    while question.encode() not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, f"{answer}\n".encode())
    while b"given:" not in shown or not shown.endswith(b"\n"):
        shown += os.read(terminal, 1000)
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()


def test_a_dash_asks_for_the_password_and_does_not_show_it():
    shown = at_a_terminal(_ASKS, "Password of me at http://127.0.0.1:1: ", "open sesame", "http://127.0.0.1:1")
    assert shown.count("open sesame") == 1  # what the program printed, and not what was typed


_ASKS_FOR_A_KEY = """
import sys
from termweave.engine import connect
from termweave.settings import load
for _ in range(2):  # asked once
    connect(load(url="https://127.0.0.1:1", client_cert=sys.argv[1], client_key=sys.argv[2])).close()
print("given: the right one")
"""


def test_the_password_of_a_key_is_asked_for_on_a_terminal(tmp_path):
    certificate, key = Authority(tmp_path / "ours", "Ours").issue("client")
    locked = tmp_path / "locked.key"
    openssl("pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:open sesame")
    shown = at_a_terminal(_ASKS_FOR_A_KEY, f"Password of the key {locked}: ", "open sesame", str(certificate), str(locked))
    assert "open sesame" not in shown
    assert shown.count("Password of the key") == 1


def test_a_password_on_the_command_line_is_refused_and_one_in_an_address_warned_of(capsys, caplog):
    assert run(["list", "--url", "http://127.0.0.1:1", "--user", "me", "--password", "hushed"]) == 2
    said = capsys.readouterr().err
    assert "A password on the command line is visible to other users of this machine" in said
    assert "$TERMWEAVE_PASSWORD_FILE" in said
    assert run(["list", "--url", "http://127.0.0.1:1", "--user", "me"]) == 5
    assert "visible" not in caplog.text
    assert run(["list", "--url", "http://me:hushed@127.0.0.1:1"]) == 5
    assert "Warning: the password in --url is visible to other users" in caplog.text
    assert "hushed" not in said + "".join(record.getMessage() for record in caplog.records) + capsys.readouterr().err


def test_without_a_terminal_nobody_is_asked():
    alone = {"stdin": subprocess.DEVNULL, "start_new_session": True, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", _ASKS, "http://127.0.0.1:1"], check=False, **alone)
    assert "There is no terminal to ask for the password." in done.stderr


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("http://search.example:9200", True),
        ("http://10.0.0.7:9200", True),
        ("http://localhost:9200", False),
        ("http://search.localhost:9200", False),
        ("http://localhost.search.example:9200", True),
        ("http://127.search.example:9200", True),
        ("http://127.0.0.2:9200", False),
        ("http://[::1]:9200", False),
        ("https://search.example:9200", False),
    ],
)
def test_a_password_without_encryption_to_another_machine_is_warned_of(address, warned, caplog):
    credentials.addresses(load(url=address, user="me"), address)
    assert ("the password travels to" in caplog.text) is warned
    caplog.clear()
    credentials.addresses(load(url=address), address)
    assert not caplog.text
