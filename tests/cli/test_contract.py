"""The command line's contract without a server: help, usage, sentences, exit statuses; and no text from outside commands the terminal."""

import errno
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from rich.table import Table
from rich.text import Text

from termweave.cli import VERBS, cli, run
from termweave.cli.output import Output, _console
from termweave.errors import EngineError
from termweave.support import paths
from termweave.support.messages import printable
from termweave.ui.api import ENDPOINTS

from .conftest import valid

ROOT = Path(__file__).parents[2]
NOWHERE = ["--url", "http://127.0.0.1:9"]


def python(*arguments, **options):
    """The result of a Python process, for what cannot be seen in this one."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)


def test_every_help_ends_with_examples():
    commands = [(name, cli.get_command(click.Context(cli), name)) for name in VERBS]
    inner = [(name, each) for name, group in commands if isinstance(group, click.Group) for each in group.commands.values()]
    for name, command in (*commands, *inner):
        assert re.search(rf"termweave {name}|\$TERMWEAVE", command.help.partition("Examples:")[2]), command.name


def test_every_output_has_its_schema():
    """What is printed is held to its schema by the tests of each verb; here that none is without one, and none without an output."""
    emitted = {
        name
        for folder in ("cli", "encoders", "engine", "evaluation", "indexer", "search", "serving", "training", "ui")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'"termweave\.([a-z-]+/\d+)"', file.read_text(encoding="utf-8"))
    } | {f"{endpoint.schema}/1" for endpoint in ENDPOINTS.values()}
    assert emitted == {file.stem.replace(".", "/") for file in (ROOT / "docs" / "schemas").glob("*.json")}


def test_the_commands_page_and_the_schemas_are_what_the_commands_say():
    done = python("-m", "tools.generate_docs", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("serch", 2, "Did you mean 'termweave search'?"),
        ("--nothing", 2, "--nothing"),
        ("index", 2, "Missing argument"),
        ("index /no/such/folder docs", 2, "/no/such/folder"),
        (f"index corpus.jsonl docs --shards {2**31}", 2, f"not {2**31}."),
        ("search docs query", 5, "No OpenSearch answers at http://127.0.0.1:9"),
        ("search docs query --show-query --html page.html", 2, "--show-query sends no search"),
        ("search docs --queries q.tsv --run o.trec --fields title", 2, "it takes no QUERY and shows nothing"),
        ("search docs --queries q.tsv --run ./q.tsv", 2, "--run would replace the file of queries"),
        ("search docs query --sort year --sort price", 2, "--sort is given twice, and takes one value"),
        ("search docs query --html /no/such/page.html", 2, "Nothing was done yet"),
        ("search docs json -k 1.5", 2, "k must be a whole number, not 1.5.\nOption -k: How many hits."),
        ("search docs json --filter {}", 2, "is not one clause of the query DSL"),
        ("serve --on nowhere", 2, "no file or folder 'nowhere'"),
        ("serve --model no-such-model", 2, "no model named"),
        ("serve docs --model shipped", 2, "INDEX together with --models"),
        ("serve --model shipped --rerank rnn", 2, "are for pages"),
        ("serve --model shipped --host 0.0.0.0", 2, "no token protects"),
        ("learn docs --minutes nan", 2, "nan is not a finite number."),
        ("verify docs --skip-bad --deep", 2, "need a SOURCE, because they say how it is read"),
        pytest.param(
            *("weights acat --html /dev/full", 1, "The disk is full: free some space"),
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device"),
        ),
    ],
)
def test_mistakes_end_in_a_sentence_and_the_right_status(capsys, monkeypatch, line, status, said):
    monkeypatch.setenv("OPENSEARCH_URL", NOWHERE[1])
    assert run(line.split()) == status
    captured = capsys.readouterr()
    assert (said in captured.err, "Traceback" in captured.err, captured.out) == (True, False, "")


@pytest.mark.parametrize("arguments", [[], ["node"], ["config"]])
def test_a_group_without_a_verb_shows_its_help_line_by_line(capsys, arguments):
    assert run(arguments) == 2
    shown = capsys.readouterr().err.splitlines()
    assert (shown[0].startswith("Usage: termweave"), "  Examples:" in shown, max(map(len, shown)) <= 110) == (True, True, True)


def raising(monkeypatch, error):
    """Let `config show` end with an error."""

    def broken(*_, **__):
        raise error

    monkeypatch.setattr("termweave.settings.load", broken)


def test_a_fault_of_our_own_is_a_sentence_and_a_report(capsys, monkeypatch, own_places):
    error = ZeroDivisionError("inside")
    error.__cause__ = ValueError("caf\udce9")
    raising(monkeypatch, error)
    assert run(["config", "show"]) == 1
    said = capsys.readouterr().err
    assert ("A fault in termweave itself: ZeroDivisionError: inside" in said, "Traceback" in said) == (True, False)
    assert "ValueError: caf\\udce9" in (own_places / "state" / "faults.log").read_text()
    raising(monkeypatch, ZeroDivisionError("inside"))
    assert run(["config", "show", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["search", "docs", "query", "--password", "caf\udce9"], ["caf\udce9"]])
def test_bytes_that_are_not_utf8_are_a_sentence(capsys, arguments):
    """Python holds such bytes of a command line as lone surrogates, which neither JSON nor an address nor a terminal takes."""
    place = next(place for place, each in enumerate(arguments, 1) if "\udce9" in each)
    assert run([*arguments, *NOWHERE]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"Error: Argument {place} of the command line is not UTF-8.\nWrite it in UTF-8")
    assert "caf" not in said


@pytest.mark.parametrize(
    ("line", "content", "status", "said"),
    [
        ("connect docs --token-file", b"caf\xe9", 2, "The token file {file} cannot be read: it is not UTF-8.\n"),
        ("serve docs --token-file", b"", 2, "The token file {file} does not hold one line.\n"),
        ("delete docs --yes --ids", b"a\r\ncaf\xe9\n", 1, "file.txt, line 2: byte 0xe9 at column 4 is not UTF-8.\n"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_named(capsys, tmp_path, line, content, status, said):
    file = tmp_path / "file.txt"
    file.write_bytes(content)
    assert run([*line.split(), str(file), *NOWHERE]) == status
    assert said.format(file=file) in capsys.readouterr().err


@pytest.mark.parametrize(("number", "advice"), [(errno.EROFS, "Name another place"), (errno.EMFILE, "run the command again")])
def test_what_the_system_reports_comes_with_what_to_do(capsys, monkeypatch, number, advice):
    raising(monkeypatch, OSError(number, os.strerror(number), "/somewhere"))
    assert run(["config", "show"]) == 1
    said = capsys.readouterr().err
    assert (f"{os.strerror(number)} (/somewhere).\n" in said, advice in said) == (True, True)


def test_interrupted_is_130_also_while_a_c_extension_is_loaded(capsys, monkeypatch):
    of_pybind11 = ImportError("initialization failed")  # as onnxruntime says it
    of_pybind11.__cause__ = KeyboardInterrupt()
    for error in (KeyboardInterrupt(), of_pybind11):
        raising(monkeypatch, error)
        assert run(["config", "show"]) == 130
        assert capsys.readouterr().err.strip() == "Stopped."


EARLY = """
import os, runpy, signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Stop())
sys.argv[1:] = ["--version"]
"""


def test_interrupted_while_it_is_loaded_is_130_too():
    """By the script as `pyproject.toml` has it made, and as a module."""
    module, _, function = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["termweave"].partition(":")
    for call in (f"from {module} import {function}; {function}()", "runpy.run_module('termweave', run_name='__main__')"):
        done = python("-c", EARLY + call)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "Stopped.\n")


def test_config_shows_what_holds_and_where_things_lie_and_hides_the_password(capsys, monkeypatch):
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hunter2")
    monkeypatch.setenv("TERMWEAVE_URL", "https://me:hunter2/3@search:9200")
    assert run(["config", "show", "--user", "me"]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    for row in (r"user\s+me\s+flag", r"password\s+\*+\s+\$TERMWEAVE_PASSWORD", rf"ledgers\s+{paths.state() / 'ledgers'} "):
        assert re.search(row, out), row
    rows = re.findall(r"^(?:password_file|client_key_password) +- +default +", out, re.MULTILINE)
    assert [len(row) for row in rows] == [len(rows[0])] * 2  # columns stand below each other, also beside the longest name


def test_config_shows_what_is_not_used_for_the_address_in_use(tmp_path):
    """As users see it: one sentence on standard error, and a result that can be parsed on standard output."""
    (tmp_path / "termweave.toml").write_text("url = 'http://cloned:9200'\ninsecure = true\n")
    environment = {**os.environ, "TERMWEAVE_PASSWORD": "hunter2", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment.pop("OPENSEARCH_URL", None)
    done = python("-m", "termweave", "config", "show", "--json", cwd=tmp_path, env=environment)
    rows = valid(done.stdout, "config")["settings"]
    assert (rows["password"]["value"], rows["password"]["from"]) == (None, "default")
    assert rows["password"]["ignored"] == ["$TERMWEAVE_PASSWORD"]
    assert (rows["insecure"]["value"], rows["insecure"]["ignored"]) == (False, [str(tmp_path / "termweave.toml")])
    assert "ignored" not in rows["url"]
    assert done.stderr.startswith("Warning: password from $TERMWEAVE_PASSWORD is not sent to http://cloned:9200: ")
    assert done.stderr.count("\n") == 2


def test_a_library_that_logs_does_not_make_others_speak():
    """A graph is quantised so, and then a client that loses a connection would print a traceback."""
    program = """
import logging
from termweave import cli
def run(arguments):
    logging.warning("of the library")
    logging.getLogger("opensearch").warning("of another")
    logging.getLogger("termweave.engine").warning("of termweave")
    return 0
cli.run = run
cli.main()
"""
    done = python("-c", program)
    assert (done.returncode, done.stderr) == (0, "of termweave\n")


@pytest.mark.parametrize(
    ("stream", "arguments", "status", "said"),
    [("stdout", ["config", "show"], 0, ""), ("stdin", ["search", "docs", "-", *NOWHERE], 2, "The query is empty")],
)
def test_a_closed_stream_is_no_fault(tmp_path, stream, arguments, status, said):
    """As `termweave list >&-` and `termweave search docs - <&-`: Python then has no such stream at all."""
    line = ["termweave", *arguments]
    program = f"import sys; from termweave.cli import main; sys.{stream} = None; sys.argv = {line!r}; main()"
    done = python("-c", program, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr


def test_a_terminal_that_lacks_a_character_shows_another(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "XDG_STATE_HOME": str(tmp_path)}
    done = python("-m", "termweave", "weights", "a good 👍", env=environment)
    assert (done.returncode, done.stderr, {*done.stdout.split()[1::2]}) == (0, "", {"?", "good"})


def test_a_path_that_is_not_utf8_is_shown_in_json(monkeypatch, capsys):
    monkeypatch.setattr("termweave.support.paths.config", lambda: Path("/nowhere/caf\udce9"))
    assert run(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"]["settings"]["path"] == "/nowhere/caf\ufffd"


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
    raising(monkeypatch, error)
    assert run(["config", "show"]) in {1, 2}
    shown = capsys.readouterr().err
    assert not COMMANDS & set(shown)
    assert "Error: all is deleted" in shown
    assert not any(line.startswith("Error: all") for line in shown.splitlines())


@pytest.mark.parametrize("kind", [str, Text, Table])
def test_neither_a_result_nor_a_remark_has_commands_or_loses_text(capsys, kind):
    Output().emit({}, lambda: kind(HOSTILE))  # a table has it as the head of a column
    for method in ("say", "detail", "warn"):
        getattr(Output(verbose=True), method)(f"Reading {HOSTILE}\nError: no")
    shown = capsys.readouterr()
    assert not COMMANDS & set(shown.out + shown.err)
    assert "[old] [/b]" in shown.out
    assert shown.err.count("\n") == 3


def test_colours_of_our_own_stay():
    file = io.StringIO()
    _console(file=file, force_terminal=True, color_system="standard").print(Text(HOSTILE, "red"))
    assert file.getvalue().startswith("\x1b[31mdoc\ufffd[2J")


def test_json_is_exact_and_escaped(capsys):
    Output(json=True).emit({"id": HOSTILE}, "")
    shown = capsys.readouterr().out
    assert not COMMANDS & set(shown)
    assert json.loads(shown) == {"id": HOSTILE}
