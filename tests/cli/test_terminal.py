"""Texts from outside do not command the terminal: one function makes them safe, and everything printed passes through it."""

import json
from io import StringIO

import click
import pytest
from rich.table import Table
from rich.text import Text

from termweave import cli
from termweave.cli.output import Output, _console
from termweave.errors import EngineError
from termweave.support.messages import printable

#: Commands of a terminal, and markup of rich, which would swallow "[old]" and fail at "[/b]".
HOSTILE = "doc\x1b[2J\x9b31m\u202egnp.exe\u2066\u2028\r\x07[old] [/b]"
COMMANDS = set("\x1b\x9b\u202e\u2066\u2028\r\x07")


@pytest.mark.parametrize("lines", [False, True])
def test_a_text_is_shown_without_commands_and_keeps_its_length(lines):
    safe = printable(HOSTILE, lines=lines)
    assert (COMMANDS & set(safe), len(safe)) == (set(), len(HOSTILE))
    assert printable("Größe 日本 ▲ שלום", lines=lines) == "Größe 日本 ▲ שלום"
    assert printable("a\n\tb", lines=lines) == ("a\n\tb" if lines else "a  b")


@pytest.mark.parametrize(
    "error",
    [
        EngineError(f"OpenSearch answered 400: {HOSTILE}\nError: all is deleted.", f"Look at {HOSTILE}."),
        click.UsageError(f"There is no file {HOSTILE}\nError: all is deleted."),
        OSError(2, "No such file", f"{HOSTILE}\nError: all is deleted"),
        ValueError(f"{HOSTILE}\nError: all is deleted"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_one_line_without_commands(monkeypatch, capsys, error):
    def main(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", main)
    assert cli.run([]) in {1, 2}
    shown = capsys.readouterr().err
    assert not COMMANDS & set(shown)
    assert "Error: all is deleted" in shown
    assert not any(line.startswith("Error: all") for line in shown.splitlines())


def table():
    cells = Table("id")
    cells.add_row(HOSTILE)
    return cells


@pytest.mark.parametrize("result", [lambda: HOSTILE, lambda: Text(HOSTILE), table], ids=["string", "text", "table"])
def test_neither_a_result_nor_a_remark_has_commands_or_loses_text(capsys, result):
    Output().emit({}, result)
    for method in ("say", "detail", "warn"):
        getattr(Output(verbose=True), method)(f"Reading {HOSTILE}\nError: no")
    shown = capsys.readouterr()
    assert not COMMANDS & set(shown.out + shown.err)
    assert "[old] [/b]" in shown.out
    assert shown.err.count("\n") == 3


def test_colours_of_our_own_stay():
    file = StringIO()
    _console(file=file, force_terminal=True, color_system="standard").print(Text(HOSTILE, "red"))
    assert file.getvalue().startswith("\x1b[31mdoc\ufffd[2J")


def test_json_is_exact_and_escaped(capsys):
    Output(json=True).emit({"id": HOSTILE}, "")
    shown = capsys.readouterr().out
    assert not COMMANDS & set(shown)
    assert json.loads(shown) == {"id": HOSTILE}
