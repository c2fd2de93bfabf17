"""Texts from outside do not command the terminal: one function makes them safe, and everything printed passes through it."""

import json
from io import StringIO

import click
import pytest
from rich.table import Table
from rich.text import Text

from termweave import cli
from termweave.cli.output import Output
from termweave.errors import EngineError
from termweave.support.messages import escaped, printable

HOSTILE = "doc\x1b[2J\x9b31m\u202egnp.exe\u2066\u2028\r\x07"
COMMANDS = set("\x1b\x9b\u202e\u2066\u2028\r\x07")


@pytest.mark.parametrize("lines", [False, True])
def test_a_text_is_shown_without_commands_and_keeps_its_length(lines):
    safe = printable(HOSTILE, lines=lines)
    assert not COMMANDS & set(safe)
    assert len(safe) == len(HOSTILE)
    assert printable("Größe 日本 ▲ שלום", lines=lines) == "Größe 日本 ▲ שלום"
    assert printable("a\n\tb", lines=lines) == ("a\n\tb" if lines else "a  b")


def raising(monkeypatch, error):
    def main(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", main)


@pytest.mark.parametrize(
    "error",
    [
        EngineError(f"OpenSearch answered 400: {HOSTILE}\nError: all is deleted.", f"Look at {HOSTILE}."),
        click.UsageError(f"There is no file {HOSTILE}\nError: all is deleted."),
        OSError(2, "No such file", f"{HOSTILE}\nError: all is deleted"),
        ValueError(f"{HOSTILE}\nError: all is deleted"),
    ],
)
def test_an_error_is_one_line_without_commands(monkeypatch, capsys, error):
    raising(monkeypatch, error)
    assert cli.run([]) in {1, 2}
    shown = capsys.readouterr().err
    assert not COMMANDS & set(shown)
    assert "Error: all is deleted" in shown
    assert not any(line.startswith("Error: all") for line in shown.splitlines())


@pytest.mark.parametrize("method", ["say", "detail", "warn"])
def test_what_is_going_on_is_one_line_without_commands(capsys, method):
    getattr(Output(verbose=True), method)(f"Reading {HOSTILE}\nError: no")
    shown = capsys.readouterr().err
    assert not COMMANDS & set(shown)
    assert shown.count("\n") == 1


def table():
    cells = Table("id")
    cells.add_row(HOSTILE)
    return cells


@pytest.mark.parametrize("result", [lambda: HOSTILE, lambda: Text(HOSTILE), table], ids=["string", "text", "table"])
def test_a_result_has_no_commands(capsys, result):
    Output().emit({}, result)
    shown = capsys.readouterr().out
    assert "doc" in shown
    assert not COMMANDS & set(shown)


def test_colours_of_our_own_stay():
    from termweave.cli.output import _console

    file = StringIO()
    _console(file=file, force_terminal=True, color_system="standard").print(Text(HOSTILE, "red"))
    assert file.getvalue().startswith("\x1b[31mdoc\ufffd[2J")


def test_json_is_exact_and_escaped(capsys):
    Output(json=True).emit({"id": HOSTILE}, "")
    shown = capsys.readouterr().out
    assert not COMMANDS & set(shown)
    assert json.loads(shown) == {"id": HOSTILE}
    assert json.loads(escaped(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE
