"""The command line's contract without a server: help, usage, sentences, exit statuses."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from termweave.cli import VERBS, cli, hit_list, run
from termweave.cli.declared_options import option_group
from termweave.cli.output import Output, fitted_table
from termweave.cli.shared_options import verb
from termweave.cli.verbs import generations, node
from termweave.evaluation import table
from termweave.evaluation.experiment import Experiment, Row
from termweave.evaluation.measures import MEASURES
from termweave.indexer.generations.listing import Generation
from termweave.records import Hit
from termweave.ui.api import ENDPOINTS

ROOT = Path(__file__).parents[2]


def commands():
    context = click.Context(cli)
    for name in VERBS:
        command = cli.get_command(context, name)
        yield name, command
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                yield f"{name} {inner}", command.get_command(context, inner)


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_help_ends_with_examples(name, command):
    examples = command.help.partition("Examples:")[2]
    assert re.search(rf"termweave {name.split()[0]}|\$TERMWEAVE", examples), f"{name} has no example"


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
    done = subprocess.run(
        [sys.executable, "-m", "tools.generate_docs", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["serch"], 2, "Did you mean 'termweave search'?"),
        (["index"], 2, "Missing argument"),
        (["index", "/no/such/folder", "docs", "--url", "http://127.0.0.1:9"], 2, "/no/such/folder"),
        (["search", "docs", "query", "--url", "http://127.0.0.1:9"], 5, "No OpenSearch answers at http://127.0.0.1:9"),
        (["verify", "docs", "--url", "http://127.0.0.1:9"], 5, "termweave node start"),
        (["search", "docs", "query", "--rerank", "magic"], 2, "magic"),
        (["search", "docs", "query", "--url", "nonsense://x"], 2, "nonsense"),
        (["index", "docs", "docs", "--within", "-1"], 2, "within"),
        (["evaluate", "docs", "/no/such/folder"], 2, "/no/such/folder"),
        (["search", "docs", "query", "--rerank", "rnn>rnn>rnn>rnn>rnn"], 2, "at most 4 rerankers"),
        (["search", "docs", "query", "--show-query", "--html", "page.html"], 2, "--show-query sends no search"),
        (
            ["search", "docs", "--queries", "q.tsv", "--run", "o.trec", "--html", "page.html"],
            2,
            "it takes no QUERY and shows nothing",
        ),
        (
            ["search", "docs", "--queries", "q.tsv", "--run", "o.trec", "--fields", "title"],
            2,
            "it takes no QUERY and shows nothing",
        ),
        (["verify", "docs", "--id-field", "sku"], 2, "need a SOURCE, because they say how it is read"),
        (["verify", "docs", "--skip-bad", "--deep"], 2, "need a SOURCE, because they say how it is read"),
        (["--nothing"], 2, "--nothing"),
        (["search", "docs", "query", "--sort", "year", "--sort", "price"], 2, "--sort is given twice, and takes one value"),
        (["search", "docs", "query", "--html", "/no/such/page.html", "--url", "http://127.0.0.1:9"], 2, "Nothing was done yet"),
        pytest.param(
            *(["weights", "a cat", "--html", "/dev/full"], 1, "The disk is full: free some space"),
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device"),
        ),
    ],
)
def test_mistakes_end_in_a_sentence_and_the_right_status(capsys, arguments, status, said):
    assert run(arguments) == status
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_without_arguments_is_no_fault(capsys, name):
    """Those that need none are not run: they would start a server, or ask one."""
    if any(parameter.required for parameter in cli.get_command(None, name).params):
        assert run([name]) == 2
        assert "Missing argument" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["node"], ["config"]])
def test_a_group_without_a_verb_shows_its_help_line_by_line(capsys, arguments):
    assert run(arguments) == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith("Usage: termweave")
    assert "  Examples:" in shown
    assert max(map(len, shown)) <= 110


def test_a_fault_of_our_own_is_a_sentence_and_a_report(capsys, monkeypatch, own_places):
    def broken(*_, **__):
        raise ZeroDivisionError("inside")

    monkeypatch.setattr("termweave.settings.load", broken)
    assert run(["config", "show"]) == 1
    captured = capsys.readouterr()
    assert "A fault in termweave itself: ZeroDivisionError: inside" in captured.err
    assert "Traceback" not in captured.err
    assert "ZeroDivisionError" in (own_places / "state" / "faults.log").read_text()
    assert run(["config", "show", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_report_of_a_fault_takes_any_character(capsys, monkeypatch, own_places):
    def broken(*_, **__):
        raise ZeroDivisionError("inside") from ValueError("caf\udce9")

    monkeypatch.setattr("termweave.settings.load", broken)
    assert run(["config", "show"]) == 1
    assert "A fault in termweave itself: ZeroDivisionError" in capsys.readouterr().err
    assert "ValueError: caf\\udce9" in (own_places / "state" / "faults.log").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "docs", "caf\udce9", "--json"],
        ["search", "caf\udce9", "query"],
        ["explain", "docs", "query", "caf\udce9"],
        ["delete", "docs", "--id", "caf\udce9", "--yes"],
        ["index", "/tmp/caf\udce9.jsonl", "docs", "--plan", "--json"],
        ["search", "docs", "query", "--password", "caf\udce9"],
        ["caf\udce9"],
    ],
)
def test_bytes_that_are_not_utf8_are_a_sentence(capsys, arguments):
    """Python holds such bytes of a command line as lone surrogates, which neither JSON nor an address nor a terminal takes."""
    place = next(place for place, each in enumerate(arguments, 1) if "\udce9" in each)
    assert run([*arguments, "--url", "http://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"Error: Argument {place} of the command line is not UTF-8.\nWrite it in UTF-8")
    assert "caf" not in said


@pytest.mark.parametrize("arguments", [["connect", "docs"], ["serve", "docs"]])
@pytest.mark.parametrize(("held", "said"), [(b"caf\xe9", "cannot be read: it is not UTF-8"), (b"", "does not hold one line")])
def test_a_token_file_that_holds_no_token_is_a_sentence(capsys, tmp_path, arguments, held, said):
    file = tmp_path / "token.txt"
    file.write_bytes(held)
    assert run([*arguments, "--token-file", str(file), "--url", "http://127.0.0.1:9"]) == 2
    assert capsys.readouterr().err.startswith(f"Error: The token file {file} {said}.\n")


def test_ids_that_are_not_utf8_are_named_by_their_line_and_nothing_is_deleted(capsys, tmp_path):
    (tmp_path / "ids.txt").write_bytes(b"a\r\ncaf\xe9\n")
    assert run(["delete", "docs", "--ids", str(tmp_path / "ids.txt"), "--yes", "--url", "http://127.0.0.1:9"]) == 1
    assert "ids.txt, line 2: byte 0xe9 at column 4 is not UTF-8.\nSave the file as UTF-8" in capsys.readouterr().err


def test_a_terminal_that_lacks_a_character_shows_another(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "termweave", "weights", "a good 👍"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("latin-1").split()[1::2] in (["?", "good"], ["good", "?"])


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("-k=1.5", "k must be a whole number, not 1.5.\nOption -k: How many hits."),
        ("--filter={", "is not JSON"),
        ("--filter={}", "is not one clause of the query DSL"),
    ],
)
def test_numbers_that_are_none_are_called_by_their_kind(capsys, option, says):
    assert run(["search", "docs", "json", *option.split("=")]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_time_that_is_no_number_is_refused(capsys, number):
    assert run(["learn", "docs", "--minutes", number]) == 2
    assert f"{number} is not a finite number." in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--passage-size", "--shards", "--replicas"])
def test_a_whole_number_that_no_engine_takes_is_refused_where_it_is_given(capsys, option):
    assert run(["index", "corpus.jsonl", "docs", option, str(2**31)]) == 2
    said = capsys.readouterr().err
    assert " must be " in said
    assert "not 2147483648." in said
    assert f"Option {option}: " in said


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EMFILE])
def test_what_the_system_says_comes_with_what_to_do(capsys, monkeypatch, number):
    def refused(*_, **__):
        raise OSError(number, os.strerror(number), "/somewhere")

    monkeypatch.setattr("termweave.settings.load", refused)
    assert run(["config", "show"]) == 1
    said, advice = capsys.readouterr().err.splitlines()
    assert said == f"Error: The system says: {os.strerror(number)} (/somewhere)."
    assert advice.endswith(".")


def test_interrupted_is_130(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("termweave.settings.load", interrupted)
    assert run(["config", "show"]) == 130


def test_interrupted_while_a_c_extension_is_loaded_is_130_too(capsys, monkeypatch):
    """As pybind11 says it, of which onnxruntime is made."""

    def interrupted(*_, **__):
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("termweave.settings.load", interrupted)
    assert run(["config", "show"]) == 130
    assert capsys.readouterr().err == "Stopped.\n"


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
        done = subprocess.run([sys.executable, "-c", EARLY + call], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "Stopped.\n")


def test_config_shows_what_holds_and_hides_the_password(capsys, monkeypatch):
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hunter2")
    monkeypatch.setenv("TERMWEAVE_URL", "https://me:hunter2/3@search:9200")
    assert run(["config", "show", "--user", "me"]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    assert re.search(r"user\s+me\s+flag", out)
    assert re.search(r"password\s+\*+\s+\$TERMWEAVE_PASSWORD", out)


def test_config_shows_what_is_not_used_for_the_address_in_use(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERMWEAVE_PASSWORD", "hunter2")
    (tmp_path / "termweave.toml").write_text("url = 'http://cloned:9200'\ninsecure = true\n")
    assert run(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    jsonschema.validate(shown, json.loads((ROOT / "docs" / "schemas" / "config.1.json").read_text()))
    rows = shown["settings"]
    assert (rows["password"]["value"], rows["password"]["from"]) == (None, "default")
    assert rows["password"]["ignored"] == ["$TERMWEAVE_PASSWORD"]
    assert (rows["insecure"]["value"], rows["insecure"]["ignored"]) == (False, [str(tmp_path / "termweave.toml")])
    assert "ignored" not in rows["url"]
    assert run(["config", "show"]) == 0
    assert re.search(r"password\s+-\s+default \(not \$TERMWEAVE_PASSWORD\)", capsys.readouterr().out)


def test_a_verb_warns_of_what_it_does_not_send(tmp_path):
    """As users see it: one sentence on standard error, and a result that can be parsed on standard output."""
    (tmp_path / "termweave.toml").write_text("url = 'http://cloned:9200'\n")
    environment = {**os.environ, "TERMWEAVE_PASSWORD": "hunter2", "XDG_CONFIG_HOME": str(tmp_path / "config")}
    command = [sys.executable, "-m", "termweave", "config", "show", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)
    assert done.stderr.startswith("Warning: password from $TERMWEAVE_PASSWORD is not sent to http://cloned:9200: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_generations_are_named_whole_with_their_state_in_any_terminal(width):
    name = f"{'long-' * 6}docs-20261121210000-0123abcd"
    each = Generation(name, "2026-11-21T21:00:00.123+00:00", "a-source-of-many-words", 12_345, 9_000_000, True, True, "")
    made = {"lexical": {}, "weights": {}}
    each = replace(each, signals=made, options={"--passage-size": "200"})
    console = Console(width=width, file=io.StringIO())
    console.print(generations._table([each], console.width))
    lines = console.file.getvalue().splitlines()
    assert lines[1].split()[:2] == ["generation", "state"]
    assert "".join(line.split()[0] for line in lines[3:] if line.strip()) == name
    assert "live" in lines[3]
    assert ("2026-11-21 21:00:00" in lines[3]) == (width > 80)
    assert ("a-source-of-many-words" in lines[3]) == (width == 200)
    assert ("lexical, weights --passage-size 200 " in lines[3]) == (width == 200)


@pytest.mark.parametrize(("width", "left_out"), [(80, set()), (30, {"models"}), (12, {"size", "models"})])
def test_a_table_leaves_out_the_columns_that_do_not_fit(width, left_out):
    columns = {"name": ["docs"], "size": ["1.5 MB"], "state": ["live"], "models": ["minilm-l6-anchored"]}
    table = fitted_table(columns, width, kept={"state"}, right={"size"})
    assert [column.header for column in table.columns] == [name for name in columns if name not in left_out]


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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "of termweave\n")


@pytest.mark.engine
def test_a_closed_standard_output_is_no_fault(opensearch_engine, tmp_path):
    """As `termweave list >&-`: Python then has no sys.stdout at all."""
    arguments = ["termweave", "list", "--url", opensearch_engine.url]
    program = f"import sys; from termweave.cli import main; sys.stdout = None; sys.argv = {arguments!r}; main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == "" or done.stderr.startswith("No index at ")  # the server may be an empty one


def test_a_closed_standard_input_is_an_empty_one(tmp_path):
    """As `termweave search docs - <&-`: Python then has no sys.stdin at all."""
    arguments = ["termweave", "search", "docs", "-", "--url", "http://127.0.0.1:9"]
    program = f"import sys; from termweave.cli import main; sys.stdin = None; sys.argv = {arguments!r}; main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "The query is empty" in done.stderr


def test_a_path_that_is_not_utf8_is_shown_in_json(monkeypatch, capsys):
    monkeypatch.setattr("termweave.support.paths.config", lambda: Path("/nowhere/caf\udce9"))
    assert run(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folders"]["settings"]["path"] == "/nowhere/caf\ufffd"


def test_a_run_does_not_replace_its_queries(tmp_path, capsys):
    file = tmp_path / "queries.tsv"
    file.write_text("q1\tparse json\n")
    assert (
        run(
            [
                "search",
                "docs",
                "--queries",
                str(file),
                "--run",
                str(tmp_path / "." / "queries.tsv"),
                "--url",
                "http://127.0.0.1:9",
            ]
        )
        == 2
    )
    assert "--run would replace the file of queries" in capsys.readouterr().err
    assert file.read_text() == "q1\tparse json\n"


def test_a_bar_in_a_narrow_terminal_keeps_the_time_left(monkeypatch, capsys):
    for columns, told in (("80", False), ("140", True)):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        with Output().progress("Reading") as bar:
            bar(50, 100, "Indexing", "read 60, encoded 55, sent 52, acknowledged 50")
        shown = capsys.readouterr().err
        assert "50/100" in shown
        assert ("acknowledged" in shown) == told


def test_what_to_try_next_is_what_this_shell_finds(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "termweave"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node.called() == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert node.called() == "termweave"
    monkeypatch.setattr(sys, "argv", ["/somewhere/termweave/__main__.py"])
    assert node.called() == f"{sys.executable} -m termweave"


@pytest.mark.parametrize("explained", [False, True])
def test_every_line_of_a_passage_is_indented(capsys, monkeypatch, explained):
    text = "A first line.\n\n\nA second\tone that is " + "very " * 40 + "long."
    told = {"score": 1.0, "parts": [], "text": text, "words": [{"start": 2, "end": 7, "share": 0.0}]}
    hit = Hit("a", 1.0, 1, fields={"text": text}, signals={}, explanation=told if explained else None)
    monkeypatch.setenv("COLUMNS", "60")
    for width in (60, None):
        monkeypatch.setattr(sys.stdout, "isatty", lambda width=width: width is not None)
        hit_list.show([hit], Output())
        _, *lines = capsys.readouterr().out.splitlines()
        passage = [line for line in lines if "in all" not in line]
        assert all(line.startswith("     ") and line.strip() for line in passage)
        assert " ".join("".join(f"{line.strip()} " for line in passage).split()).startswith(
            "A first line. A second one that is very"
        )
        assert (len(passage) > 1) == (width is not None)


def test_a_document_cannot_play_on_the_terminal(capsys):
    text = "a \x1b[31mred\x1b[0m \x9b2J rocket\x07\ttab"
    Output().console().print(Text(text, "bold"))
    shown = capsys.readouterr().out.rstrip("\n")
    assert not set(shown) & {"\x1b", "\x9b", "\x07"}
    assert "red" in shown
    assert shown.endswith("tab")


def test_names_with_brackets_are_printed_as_they_are(capsys):
    """Tables of rich would read them as markup: "[old]" would disappear, and "[/b]" end the command."""
    for name in ("docs[old].jsonl", "a[/b]"):
        Output().emit({}, lambda name=name: fitted_table({name: [name], "source": [name]}, 80))
        row = Row(name, "lexical", "none", dict.fromkeys(MEASURES, 0.5))
        experiment = Experiment(f"{name}:test", ("q",), name, (row, row), {})
        Output().emit({}, lambda experiment=experiment: table.table(experiment))
        assert capsys.readouterr().out.count(name) == 7


def test_help_lists_what_most_users_need_first_and_the_connection_last():
    for arguments in (["search", "--help"], ["evaluate", "--help"]):
        text = CliRunner().invoke(cli, arguments, prog_name="termweave").output
        headings = re.findall(r"^(\w[\w ]*):$", text, flags=re.MULTILINE)
        assert headings[0] == "Options", headings
        assert headings[-2:] == ["Output", "Connection"], headings
        assert "Models" in headings
        options = text[text.index("Options:") :]
        assert re.findall(r"^  (--url|--weights|--json(?!-)|-h)", options, flags=re.MULTILINE) == [
            "--weights",
            "--json",
            "-h",
            "--url",
        ]


def test_options_under_a_heading_keep_it_where_groups_are_nested():
    @verb("inner")
    @click.option("--plain")
    @option_group("Outer", click.option("--a"), option_group("Inner", click.option("--b")), click.option("--c"))
    def command(**_values): ...

    assert {param.name: vars(param).get("heading") for param in command.params} == {
        "a": "Outer", "b": "Inner", "c": "Outer", "plain": None, "as_json": "Output", "quiet": "Output", "verbose": "Output",
    }  # fmt: skip
    assert [param.name for param in command.params][-4:] == ["plain", "a", "b", "c"]
