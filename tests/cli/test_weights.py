"""`termweave weights`."""

import json

import pytest

from termweave.cli.hit_list import weighed
from termweave.records import WordWeight

TEXT = "The mitochondrion is the powerhouse of the cell."


@pytest.fixture
def weights(termweave):
    return lambda *arguments, **options: termweave("weights", *arguments, **options)


def test_a_plain_list_where_there_is_no_terminal(weights):
    shown = weights(TEXT).stdout
    assert {line.split()[1] for line in shown.splitlines()} == {"mitochondrion", "powerhous", "cell"}
    assert "\x1b" not in shown


@pytest.mark.parametrize("kind", ["document", "query"])
def test_json(weights, kind):
    data = json.loads(weights(TEXT, "--json", "--kind", kind).stdout)
    assert data["schema"] == "termweave.weights/1"
    assert [word["word"] for word in data["words"]] == ["The", "mitochondrion", "is", "the", "powerhouse", "of", "the", "cell"]
    for word in data["words"]:
        assert TEXT[word["start"] : word["end"]] == word["word"]
        assert word["weight"] == (data["terms"][word["term"]] if word["term"] else 0)
    assert list(data["terms"].values()) == sorted(data["terms"].values(), reverse=True)


def test_what_stands_in_the_place_of_a_text(weights):
    result = weights("-", "--json", stdin=b"caf\xc3\xa9 \xff cat")
    assert "bytes that are not UTF-8" in result.stderr
    assert set(json.loads(result.stdout)["terms"]) == {"cafe", "cat"}
    assert "UTF-8" not in weights("-", stdin="café").stderr
    nothing = weights("the ...")
    assert (nothing.stdout, "no term" in nothing.stderr) == ("", True)
    assert "no model named" in weights(TEXT, "--weights", "nope", status=2).stderr


def test_shades():
    shaded = weighed("a cat", [WordWeight(0, 1, "", 0.0), WordWeight(2, 5, "cat", 2.0)])
    assert shaded.plain.startswith("a cat\n")
    assert next((span.start, span.end) for span in shaded.spans) == (2, 5)
