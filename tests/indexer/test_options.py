"""The table of build options: the same refusals from Python and on the command line, and fingerprints that stay what they were."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build_plan
from termweave.indexer.option_declaration import refusal
from termweave.indexer.options import DECLARED, DEFAULTS, from_flags
from termweave.indexer.preparation.passages import Window
from termweave.signals import Pruning


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("signals", "lexical", "signals must be a list of signal names, not 'lexical'."),
        ("signals", (), "signals must be a list of signal names, not ()."),
        ("prune", "30%", "prune must be a Pruning, not '30%'."),
        ("vectors", "bits", "'bits' is no type of vectors."),
        ("vectors", 8, "vectors must be 'float' or 'byte', not 8."),
        ("workers", "2", "workers must be a whole number from 1 to 64, not '2'."),
        ("workers", 0, "workers must be a whole number from 1 to 64, not 0."),
        ("workers", True, "workers must be a whole number from 1 to 64, not True."),
        ("patience", float("nan"), "patience must be a number of at least 0, not nan."),
        ("shards", 2**31, "shards must be a whole number from 1 to 2,147,483,647, not 2147483648."),
        ("allow_refused", 1.5, "allow_refused must be a share from 0 to 1, not 1.5."),
        ("mapping", "mapping.json", "mapping must be a JSON object, not 'mapping.json'."),
        ("mapping", {"_meta": {}}, "mapping contains '_meta': reserved for termweave, or not a part of a mapping."),
        ("settings", {"index.number_of_shards": 3}, "settings sets index.number_of_shards, which has an option."),
        ("settings", {"codec": "best"}, "settings contains 'codec', which is not an index setting."),
        ("passages", 160, "passages must be a Window, not 160."),
        ("weights", 5, "weights must be the name or folder of a model, not 5."),
        ("fresh", 1, "fresh must be True or False, not 1."),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_when_the_options_are_made(option, value, sentence):
    with pytest.raises(UsageError) as caught:
        BuildOptions(**{option: value})
    assert caught.value.message == sentence
    assert caught.value.hint


@pytest.mark.parametrize(
    ("flag", "value", "options"),
    [
        ("--workers", "0", {"workers": 0}),
        ("--patience", "nan", {"patience": float("nan")}),
        ("--signals", ",", {"signals": ()}),
        ("--vectors", "int4", {"vectors": "int4"}),
        ("--shards", "0", {"shards": 0}),
        ("--replicas", "-1", {"replicas": -1}),
        ("--allow-refused", "120%", {"allow_refused": 1.2}),
    ],
)
def test_python_and_the_command_line_refuse_with_the_same_sentence(tmp_path, capsys, flag, value, options):
    with pytest.raises(UsageError) as caught:
        BuildOptions(**options)
    assert run(["index", str(tmp_path), "docs", flag, value]) == UsageError.exit_status
    assert f"{caught.value.message}\n{caught.value.hint}" in capsys.readouterr().err


def test_the_example_of_a_refusal_is_one_value():
    for name, declared in DECLARED.items():
        for flag in declared.flags:
            sentence = refusal(name, "2f8172ac298d6ba0", flag.values or declared.values, (flag,)).hint
            values = re.findall(rf"{flag.name} (\d+) \(in Python: \w+=(\d+)\)", sentence)
            assert all(shell == python for shell, python in values), sentence


@pytest.mark.parametrize(("option", "value"), [("saturation", 0.75), ("neighbours", 5)])
def test_an_option_of_earlier_versions_is_unknown(tmp_path, capsys, option, value):
    with pytest.raises(TypeError, match=option):
        BuildOptions(**{option: value})
    assert run(["index", str(tmp_path), "docs", f"--{option}", str(value)]) == UsageError.exit_status
    assert f"--{option}" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "value"), [("--workers", "many"), ("--patience", "long"), ("--allow-refused", "0.1")])
def test_text_that_is_no_value_of_a_flag_is_refused_in_the_same_words(tmp_path, capsys, flag, value):
    assert run(["index", str(tmp_path), "docs", flag, value]) == UsageError.exit_status
    said = capsys.readouterr().err
    assert f"{flag.removeprefix('--').replace('-', '_')} must be a " in said
    assert f", not '{value}'." in said


def test_every_option_is_declared_with_a_flag_and_its_default_is_allowed():
    assert list(DECLARED) == list(DEFAULTS)
    nothing = {flag.argument: None for option in DECLARED.values() for flag in option.flags}
    assert from_flags(nothing) == BuildOptions()
    for option in DECLARED.values():
        assert option.flags
        assert all(flag.help and flag.name.startswith("--") for flag in option.flags)


@pytest.mark.parametrize(
    ("options", "fingerprint"),
    [
        (BuildOptions(), "88d71624228b14de"),
        (BuildOptions(prune=Pruning.parse("30%")), "2f8172ac298d6ba0"),
        (
            BuildOptions(passages=Window(160, 120), shards=3, skip_bad=True, workers=1, patience=1.0, fresh=True),
            "0fb02c0e90e46b96",
        ),
        (
            BuildOptions(settings={"index.codec": "best_compression"}, mapping={"properties": {"year": {"type": "integer"}}}),
            "3fd57b658c265f42",
        ),
    ],
)
def test_fingerprints_are_those_of_the_version_before_the_table(options, fingerprint):
    """An unfinished build is resumed, and a finished one recognised, by its fingerprint."""
    source = SimpleNamespace(name="corpus", fingerprint="0123456789abcdef")
    models = {"weights": SimpleNamespace(name="m", hash="abcdef0123456789")}
    resolved = {"signals": ("lexical", "weights"), "analyzer": "english"}
    assert build_plan._fingerprint(source, models, options, resolved) == fingerprint
