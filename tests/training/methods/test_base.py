"""What can be trained is data: names, defaults, checks."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from termweave.cli.verbs.methods import command
from termweave.errors import UsageError
from termweave.training import run
from termweave.training.methods import base
from termweave.training.methods.parameters import steps_of

SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "methods.1.json"


@pytest.mark.parametrize("name", base.names())
def test_defaults_pass_their_own_checks(name):
    method = base.get(name)
    settings = method.settings({})
    for parameter in method.every:
        assert parameter.parse(str(parameter.default)) == parameter.default == settings[parameter.name]
        assert parameter.help.endswith(".")
    assert len({parameter.name for parameter in method.every}) == len(method.every)


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("fectek", {"anchr": "idf"}, "Did you mean anchor?"),
        ("fectek", {"zzz": "1"}, "has no parameter 'zzz'"),
        ("fectek", {"anchor": "tf"}, "bm25, idf, none"),
        ("fectek", {"steps": "many"}, "a whole number"),
        ("fectek", {"steps": "1.5"}, "a whole number"),
        ("fectek", {"steps": True}, "a whole number"),
        ("fectek", {"steps": "0"}, "at least 1"),
        ("fectek", {"fcm": "perhaps"}, "true or false"),
        ("dtr", {"epochs": "0"}, "epochs=0 trains nothing. Set epochs above 0"),
        ("sir", {"epochs": "-0.5"}, "epochs=-0.5 trains nothing"),
        ("coder", {"epochs": "many"}, "a finite number"),
        ("fectek", {"rate": "fast"}, "a finite number"),
        ("fectek", {"rate": "nan"}, "a finite number"),
        ("fectek", {"rate": "inf"}, "a finite number"),
        ("fectek", {"rate": "0"}, "above 0"),
        ("fectek", {"scale": "0"}, "above 0"),
        ("fectek", {"seed": "99999999999999999999"}, "at most 4,294,967,295"),
        ("fectek", {"steps": "99999999999999999999"}, "at most 1,000,000,000"),
        ("fectek", {"b": "2"}, "at most 1."),
        ("fectek", {"bits": "64"}, "at most 9."),
        ("fectek", {"views": "foo", "pairs": "qrels"}, "no view 'foo'"),
        ("fectek", {"clicks": "log.tsv", "pairs": "qrels"}, "does not read the click log"),
        ("bert-scorer", {"keep": "0.2"}, "keep=0.2 has no effect"),
        ("fectek", {"keep": "1", "start": "shipped"}, "at most 0.95"),
        ("bert-scorer", {"bits": "10"}, "at most 9."),
        ("fectek", {"ema": "1"}, "at most 0.99999"),
        ("fectek", {"query": "idf"}, "counts idf twice"),
        ("fectek", {"joint": "0.5"}, "backbone is frozen"),
        ("fectek", {"layers": "3"}, "Set outputs=weights"),
        ("fectek", {"layers": "3", "outputs": "weights", "teacher": "dense"}, "a teacher that is a file"),
        ("bert-scorer", {"bmes": "true"}, "top_layers=-1"),
        ("bert-scorer", {"tkgm": "true"}, "has no parameter"),
        ("fectek", {"backbone": "scratch", "outputs": "weights,dense"}, "nobody has trained"),
        ("fectek", {"backbone": "scratch", "teacher": "minmax"}, "nobody has trained"),
    ],
)
def test_mistakes_are_named(method, given, said):
    with pytest.raises(UsageError) as raised:
        base.get(method).settings(given)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", base.names())
def test_epochs_are_passes_over_the_questions(name):
    settings = base.get(name).settings({"epochs": 3, "batch": 4, "accumulate": 2, "steps": 7})
    assert steps_of(settings, 100) == 38  # 3 * 100 / 8
    assert steps_of(settings, 100, share=0.5) == 75
    assert steps_of(base.get(name).settings({"steps": 7}), 100) == 7


def test_the_papers_epochs_and_warmups():
    printed = {"dtr": (30, 500), "sir": (2, 0), "fectek": (5, 0), "coder": (-1, 9000)}
    for name, expected in printed.items():
        settings = base.get(name).settings({"preset": "paper"})
        assert (settings["epochs"], settings["warmup_steps"]) == expected
        assert name == "coder" or settings["questions"] == settings["documents"] == 10**9  # all of them


def test_a_backbone_from_scratch_is_trained_and_gives_weights_alone():
    method = base.get("fectek")
    settings = method.settings({"backbone": "scratch"})
    assert (settings["top_layers"], settings["outputs"]) == (-1, "weights")
    settings = method.settings({"backbone": "scratch", "top_layers": "1", "outputs": "weights,dense", "joint": "1"})
    assert (settings["top_layers"], settings["outputs"]) == (1, "weights,dense")


def test_who_begins_with_a_model_has_its_shape():
    method, shape = base.get("fectek"), ("hidden", "layer", "anchor", "tf_power", "query", "terms", "fcm", "shared")
    begun = method.settings({"start": "shipped"})
    assert [begun[name] for name in shape] == [256, 3, "bm25", 0.5, "learned", "word", False, False]
    assert method.settings({"start": "shipped", "hidden": 64})["hidden"] == 64
    assert base.get("bert-scorer").settings({"start": "shipped"})["hidden"] == 256  # which has no tf_power
    with pytest.raises(UsageError, match="no model named 'nobody'"):
        method.settings({"start": "nobody"})


@pytest.mark.parametrize(
    ("given", "made", "teacher"),
    [
        ({}, True, ("minmax", 9.0, 0.1)),
        ({}, False, ("none", 1.0, 1.0)),
        ({"top_layers": "2"}, True, ("none", 9.0, 1.0)),
        ({"layers": "3", "outputs": "weights"}, True, ("none", 9.0, 1.0)),
        ({"backbone": "scratch"}, True, ("none", 9.0, 1.0)),
        ({"teacher": "dense", "teacher_weight": "2"}, False, ("dense", 2.0, 0.05)),
        ({"teacher": "none", "temperature": "3"}, True, ("none", 9.0, 3.0)),
        ({"teacher": "run.trec"}, False, ("run.trec", 1.0, 1.0)),
    ],
)
def test_the_teacher_where_nobody_named_one(given, made, teacher):
    method = base.get("fectek")
    fitted = method.fitted(method.settings(given), made=made)
    assert (fitted["teacher"], fitted["teacher_weight"], fitted["temperature"]) == teacher
    assert method.fitted(fitted, made=not made) == fitted  # what was settled stays
    plain = base.get("bert-scorer")
    assert plain.fitted(plain.settings({}), made=made) == plain.settings({})


def test_set_wins_over_the_file(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text('steps = 7\nfcm = true\nanchor = "idf"\n')
    given = base.given(["steps=9"], config)
    settings = base.get("fectek").settings(given)
    assert (settings["steps"], settings["fcm"], settings["anchor"]) == (9, True, "idf")
    with pytest.raises(UsageError, match="has no value"):
        base.given(["steps"], None)
    config.write_text('views = ["title", "span"]\noutputs = ["weights", "dense"]\n')
    settings = base.get("fectek").settings(base.given([], config))
    assert (settings["views"], settings["outputs"]) == ("title,span", "weights,dense")
    config.write_text("views = [1]\nsteps = [7]")
    for name, said in (("views", "is not a text"), ("steps", "is not a whole number")):
        with pytest.raises(UsageError, match=said):
            base.get("fectek").settings({name: base.given([], config)[name]})
    config.write_text("steps = 7\n[train]\nrate = 0.1\n")
    with pytest.raises(UsageError, match=r"has the table \[train\]") as raised:
        base.given([], config)
    assert "without a table" in str(raised.value.hint)
    config.write_text("steps 7")
    with pytest.raises(UsageError, match="cannot be read"):
        base.given([], config)


def test_an_unknown_method():
    with pytest.raises(UsageError, match="Did you mean fectek"):
        base.get("fektek")


def test_the_command():
    data = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).stdout)
    jsonschema.validate(data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert [method["name"] for method in data["methods"]] == base.names()
    whole = CliRunner().invoke(command, ["fectek"], catch_exceptions=False).stdout
    for parameter in base.get("fectek").every:
        assert f"  {parameter.name} " in whole


def test_a_run_is_the_same_from_another_folder(tmp_path, monkeypatch):
    method = base.get("fectek")
    settings = method.settings({})
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    run._claim(tmp_path / "out", method, "data:train", settings, resume=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    run._claim(tmp_path / "out", method, "../data:train", settings, resume=True)
    with pytest.raises(UsageError, match="dataset was"):
        run._claim(tmp_path / "out", method, "../data:dev", settings, resume=True)
