"""The build options: the same refusals from Python and on the command line, and fingerprints that stay what they were."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from termweave.cli import run
from termweave.contracts.signal import Pruning
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build_plan
from termweave.indexer.options import Window, build_settings, models_in


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("signals", "lexical", "signals must be a list, not lexical."),
        ("workers", 65, "workers must be at most 64, not 65."),
        ("allow_refused", 1.5, "allow_refused must be at most 1, not 1.5."),
        ("mapping", {"_meta": {}}, "mapping contains '_meta': reserved for termweave, or not a part of a mapping."),
        ("settings", {"index.number_of_shards": 3}, "settings sets index.number_of_shards, which has an option."),
        ("passages", -1, "passages must be a number of words or a Window, not -1."),
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
        ("--workers", "many", {"workers": "many"}),
        ("--signals", ",", {"signals": ()}),
        ("--prune", "most", {"prune": "most"}),
        ("--passage-size", "x", {"passages": "x"}),
        ("--allow-refused", "0.1", {"allow_refused": "0.1"}),
        ("--mapping", "nowhere.json", {"mapping": "nowhere.json"}),
    ],
)
def test_python_and_the_command_line_refuse_with_the_same_sentence(tmp_path, capsys, flag, value, options):
    with pytest.raises(UsageError) as caught:
        BuildOptions(**options)
    assert run(["index", str(tmp_path), "docs", flag, value]) == UsageError.exit_status
    assert f"{caught.value.message}\nOption {flag}: {caught.value.hint}" in capsys.readouterr().err


def test_one_model_stands_for_both_and_another_for_an_output_contradicts_it(tmp_path, capsys):
    assert run(["index", str(tmp_path), "docs", "--model", "fast", "--dense", "none"]) == UsageError.exit_status
    assert "--model names the model of both, and --dense another one." in capsys.readouterr().err
    options = BuildOptions(model="fast")
    assert (options.weights, options.dense) == ("fast", "fast")
    assert replace(options, shards=2).dense == "fast"
    settings = SimpleNamespace(weights="mine", dense=None)
    assert models_in({"model": "fast"}, settings) == {"model": "fast"}
    assert models_in({"dense": "other"}, settings) == {"weights": "mine", "dense": "other"}


def test_every_option_is_declared_and_those_of_a_fingerprint_are_kept_by_an_update():
    settings = build_settings()
    assert list(settings) == list(BuildOptions.__dataclass_fields__)
    for name, setting in settings.items():
        assert setting.help.endswith(".")
        assert setting.fixed == ((setting.fingerprint in {"always", "if set"} and name != "skip_bad") or name == "replicas")
        assert setting.stored is None or setting.fixed


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
def test_fingerprints_are_those_of_earlier_versions(options, fingerprint):
    """An unfinished build is resumed, and a finished one recognised, by its fingerprint."""
    source = SimpleNamespace(name="corpus", fingerprint="0123456789abcdef")
    models = {"weights": SimpleNamespace(name="m", hash="abcdef0123456789")}
    resolved = {"signals": ("lexical", "weights"), "analyzer": "english"}
    assert build_plan._fingerprint(source, models, options, resolved) == fingerprint
