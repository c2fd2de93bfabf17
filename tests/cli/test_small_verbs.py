"""Completion with the Tab key, the folders of `config show`, and the generations of all names."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema

from termweave.cli import run
from termweave.engine.embedded import folders
from termweave.support import paths

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def test_verbs_and_options_are_completed():
    environment = {**os.environ, "_TERMWEAVE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "termweave gen"}
    done = subprocess.run([sys.executable, "-m", "termweave"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,generations"]


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
