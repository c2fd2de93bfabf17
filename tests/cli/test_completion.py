"""`termweave completion`, the folders of `config show`, and the generations of all names."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from termweave.cli import run
from termweave.engine.embedded import folders
from termweave.support import paths

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_one_command_installs_completion_and_repeating_it_changes_nothing(shell, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(paths, "models", lambda: tmp_path / "data" / "models")
    (tmp_path / f".{shell}rc").write_text("alias ll='ls -l'")  # without a line end
    for _ in range(2):
        assert run(["completion", "--install", "--json"]) == 0
        installed = json.loads(capsys.readouterr().out)
        jsonschema.validate(installed, json.loads((SCHEMAS / "completion.1.json").read_text()))
    script = Path(installed["files"][0])
    assert "_TERMWEAVE_COMPLETE" in script.read_text()
    if shell != "fish":
        assert (
            tmp_path / f".{shell}rc"
        ).read_text() == f'alias ll=\'ls -l\'\n[ -f "{script}" ] && . "{script}"  # termweave completion\n'
    if shell == "bash":
        subprocess.run(["bash", "-n", script], check=True)


def test_verbs_and_options_are_completed():
    environment = {**os.environ, "_TERMWEAVE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "termweave gen"}
    done = subprocess.run([sys.executable, "-m", "termweave"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,generations"]


def test_an_unknown_shell_is_named(monkeypatch, capsys):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert run(["completion"]) == 2
    assert "The shell 'tcsh' is unknown. Name bash, zsh or fish." in capsys.readouterr().err


def test_config_show_says_where_things_lie(capsys):
    assert run(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["folders"]["ledgers"]["path"] == str(paths.state() / "ledgers")
    assert shown["folders"].keys() == {"settings", "models", "cache", "state", "ledgers", "node"}
    assert shown["folders"]["node"]["path"] == str(folders.run_folder(folders.default_home()))
    assert run(["config", "show"]) == 0
    text = capsys.readouterr().out
    assert str(paths.cache()) in text
    rows = re.findall(r"^(?:password_file|client_key_password) +- +default +", text, re.MULTILINE)
    assert [len(row) for row in rows] == [len(rows[0])] * 2  # columns stand below each other, also beside the longest name


def test_generations_without_a_name_are_those_of_all_names(termweave, live):
    listed = json.loads(termweave("generations", "--json").stdout)
    jsonschema.validate(listed, json.loads((SCHEMAS / "generations.1.json").read_text()))
    assert listed["name"] is None
    assert any(each["index"].startswith(f"{live}-") for each in listed["generations"])
