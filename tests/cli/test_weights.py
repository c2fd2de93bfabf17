"""`termweave weights`."""

import json

import pytest
from click.testing import CliRunner

from termweave.cli.verbs.search import weights as command
from termweave.errors import UsageError

TEXT = "The mitochondrion is the powerhouse of the cell."


def run(*arguments, **options):
    return CliRunner().invoke(command, arguments, catch_exceptions=False, **options)


def test_a_plain_list_where_there_is_no_terminal():
    result = run(TEXT)
    assert result.exit_code == 0
    terms = [line.split()[1] for line in result.stdout.splitlines()]
    assert set(terms) == {"mitochondrion", "powerhous", "cell"}
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize("kind", ["document", "query"])
def test_json(kind):
    data = json.loads(run(TEXT, "--json", "--kind", kind).stdout)
    assert data["schema"] == "termweave.weights/1"
    assert [word["word"] for word in data["words"]] == ["The", "mitochondrion", "is", "the", "powerhouse", "of", "the", "cell"]
    for word in data["words"]:
        assert TEXT[word["start"] : word["end"]] == word["word"]
        assert word["weight"] == (data["terms"][word["term"]] if word["term"] else 0)
    assert list(data["terms"].values()) == sorted(data["terms"].values(), reverse=True)


def test_standard_input_and_bytes_that_are_no_text():
    result = run("-", "--json", input=b"caf\xc3\xa9 \xff cat")
    data = json.loads(result.stdout)
    assert "bytes that are not UTF-8" in result.stderr
    assert "UTF-8" not in run("-", input="café".encode()).stderr
    assert list(data["terms"]) != []
    assert set(data["terms"]) == {"cafe", "cat"}


def test_nothing_to_weigh():
    result = run("the ...")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "no term" in result.stderr


def test_an_unknown_model():
    with pytest.raises(UsageError, match="no model named"):
        run(TEXT, "--weights", "nope")


def test_help_ends_with_examples():
    text = run("--help").stdout
    assert "Examples:\n" in text
    assert '  termweave weights "what is' in text


def test_shades(monkeypatch):
    from termweave.cli.hit_list import weighed
    from termweave.records import WordWeight

    shaded = weighed("a cat", [WordWeight(0, 1, "", 0.0), WordWeight(2, 5, "cat", 2.0)])
    assert shaded.plain.startswith("a cat\n")
    assert next((span.start, span.end) for span in shaded.spans) == (2, 5)
