"""What can be trained is data: names, defaults, checks."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from termweave import plugins
from termweave.cli.verbs.train import command
from termweave.declared_settings import LARGEST, settings_of, written
from termweave.errors import UsageError
from termweave.training import run
from termweave.training.methods import base
from tests.training.conftest import train


@pytest.mark.parametrize("name", base.names())
def test_defaults_pass_their_own_checks(name):
    method = base.get(name)
    settings, declared = method.settings({}), settings_of(method.parameters)
    for parameter in declared.values():
        assert parameter.parse(written(parameter.default)) == parameter.default == getattr(settings, parameter.name)
        assert parameter.setting.help.endswith(".")
        assert parameter.heading
    assert set(declared["preset"].choices) == {base.DEFAULT, *method.presets}


def test_all_methods_together_have_at_most_eighty_parameters():
    assert len({name for method in base.names() for name in settings_of(base.get(method).parameters)}) <= 80


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("fectek", {"anchr": "idf"}, "Did you mean anchor?"),
        ("fectek", {"zzz": "1"}, "has no parameter 'zzz'"),
        ("fectek", {"anchor": "tf"}, "anchor must be bm25, idf or none, not tf"),
        ("dtr", {"epochs": "0"}, "epochs=0 trains nothing. Set epochs above 0"),
        ("fectek", {"views": "foo", "pairs": "qrels"}, "views=foo are no views"),
        ("fectek", {"clicks": "log.tsv", "pairs": "qrels"}, "does not read the click log"),
        ("fectek", {"query": "idf"}, "counts idf twice"),
        ("fectek", {"joint": "0.5"}, "backbone is frozen"),
        ("fectek", {"layers": "3"}, "Set outputs=weights"),
        ("fectek", {"layers": "3", "outputs": "weights", "teacher": "dense"}, "a teacher that is a file"),
        ("bert-scorer", {"bmes": "true"}, "top_layers=-1"),
        ("fectek", {"backbone": "scratch", "outputs": "weights,dense"}, "are random"),
        ("fectek", {"backbone": "scratch", "outputs": "weights", "beside": "other"}, "from scratch"),
        ("fectek", {"fcm": True, "max_length": 64, "training_length": 32}, "to be equal"),
        ("fectek", {"in_batch": "false", "negatives": 0}, "No wrong document is drawn"),
        ("le-bs", {"in_batch": "false", "random_negatives": 0, "drawn": 0}, "Set in_batch=true, or negatives and drawn above 0"),
        ("dtr", {"weights": "0,0,0,0"}, "cannot be used"),
        ("dtr", {"weights": "1,-1,0,0"}, "four numbers from 0 on"),
        ("coder", {"top_layers": 0}, "freezes all of them"),
        ("sir", {"variant": "random", "anchor": True}, "no score of random documents"),
        ("sir", {"measure": "recall@100"}, "Reranking 30 documents does not change recall@100"),
        ("sir", {"blocks": "16,16"}, "cannot be used. Write falling whole numbers"),
        ("sir", {"blocks": "88,1"}, "cannot be used. Write falling whole numbers"),
    ],
)
def test_mistakes_are_named(method, given, said):
    with pytest.raises(UsageError) as raised:
        base.get(method).settings(given)
    assert said in str(raised.value)


def test_the_papers_epochs_and_warmups():
    trained_by_passes = {"dtr": (30, 500), "sir": (2, 0.1), "fectek": (5, 0.1)}
    for name, expected in {**trained_by_passes, "coder": (-1, 9000), "le-bs": (-1, 0.1), "bert-scorer": (-1, 0.3)}.items():
        settings = base.get(name).settings({"preset": "paper"})
        assert (settings.epochs, settings.warmup) == expected
        assert settings.questions == settings.documents == LARGEST  # all of them
        assert (settings.patience == LARGEST) == (name not in ("le-bs", "bert-scorer"))  # to the end, where one is printed


def test_what_the_papers_print_beside_their_equations():
    """One learning rate for all that a paper trains (CODER's T too), and the proposed model of DTR's Table 5.2 on CS-P1."""
    rates = {("coder", "paper"): 1.73e-6, ("coder", "cocondenser"): 1.37e-6, ("sir", "paper"): 5e-5, ("fectek", "paper"): 2e-5}
    for (name, preset), rate in rates.items():
        settings = base.get(name).settings({"preset": preset})
        assert settings.rate == settings.layers_rate == rate
    beyond = {preset: base.get("bert-scorer").settings({"preset": preset}).form().beyond for preset in ("paper", "paper-frozen")}
    assert beyond == {"paper": "none", "paper-frozen": "mean"}  # of words behind the cut
    for preset in ("paper", "program"):
        settings = base.get("dtr").settings({"preset": preset})
        assert (settings.batch, settings.epochs, settings.weights, settings.top) == (32, 30, (1.0, 0.5, 0.5, 0.0), 4)


def test_a_backbone_from_scratch_is_trained_and_gives_weights_alone():
    method = base.get("fectek")
    settings = method.settings({"backbone": "scratch"})
    assert (settings.top_layers, settings.outputs) == (-1, "weights")
    settings = method.settings({"backbone": "scratch", "top_layers": "1", "outputs": "weights,dense", "joint": "1"})
    assert (settings.top_layers, settings.outputs) == (1, "weights,dense")


def test_who_begins_with_a_model_has_its_shape():
    method, shape = base.get("fectek"), ("hidden", "anchor", "tf_power", "query", "terms", "fcm", "shared")
    begun = method.settings({"start": "shipped"})
    assert [getattr(begun, name) for name in shape] == [256, "bm25", 0.5, "learned", "word", False, False]
    assert method.settings({"start": "shipped", "hidden": 64}).hidden == 64
    assert base.get("bert-scorer").settings({"start": "shipped"}).hidden == 256  # which has no tf_power
    with pytest.raises(UsageError, match="no model named 'nobody'"):
        method.settings({"start": "nobody"})


@pytest.mark.parametrize(
    ("given", "made", "teacher"),
    [
        ({}, True, ("minmax", 9.0, 0.1)),
        ({}, False, ("none", 1.0, 1.0)),
        ({"layers": "3", "outputs": "weights"}, True, ("none", 9.0, 1.0)),
        ({"teacher": "dense", "teacher_weight": "2"}, False, ("dense", 2.0, 0.05)),
        ({"teacher": "run.trec"}, False, ("run.trec", 1.0, 1.0)),
    ],
)
def test_the_teacher_where_nobody_named_one(given, made, teacher):
    method = base.get("fectek")
    fitted = method.settings(given).fitted(made=made)
    assert (fitted.teacher, fitted.teacher_weight, fitted.temperature) == teacher
    assert fitted.fitted(made=not made) == fitted  # what was settled stays
    plain = base.get("bert-scorer")
    assert plain.settings({}).fitted(made=made) == plain.settings({})


def test_what_was_given_wins_over_the_preset():
    given = base.read_assignments(["steps=9", "preset=paper", "anchor=idf", "views=title, span"])
    settings = base.get("fectek").settings(given)
    assert (settings.steps, settings.fcm, settings.anchor, settings.views) == (9, True, "idf", ("title", "span"))
    assert base.get("fectek").changed(settings) == {"preset": "paper", "steps": 9, "anchor": "idf", "views": ("title", "span")}
    with pytest.raises(UsageError, match="has no value"):
        base.read_assignments(["steps"])


def test_the_help_of_train_lists_the_methods_and_describes_each():
    listed = CliRunner().invoke(command, ["--help"], catch_exceptions=False).stdout
    assert [name for name in base.names() if f"\n  {name} " in listed] == base.names()
    described = CliRunner().invoke(command, ["fectek", "--help"], catch_exceptions=False).stdout
    for words in [*base.get("fectek").presets, *settings_of(base.get("fectek").parameters)]:
        assert f"\n  {words} " in described
    with pytest.raises(UsageError, match=r"There is no method 'fektek'\. Did you mean fectek"):
        CliRunner().invoke(command, ["fektek", "--help"], catch_exceptions=False)


@pytest.fixture
def outside(monkeypatch):
    """The package of an example of CONTRIBUTING.md, which brings a method, is installed for one test."""
    cached = (plugins.installed, plugins.names, plugins.modules, plugins.load)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "outside")
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


@pytest.mark.usefixtures("outside", "own_cache")
def test_a_method_of_another_package_trains_like_termweaves_own(folder, base, tmp_path):
    sets = ("max_length=64", "training_length=64", "batch=12", "layers_rate=0.002", "dev=8", "every=8", "steps=16")
    written = train(folder, base, tmp_path / "out", method="margin", settings=sets)
    assert written["history"]["losses"][-1] < written["history"]["losses"][1]
    assert (tmp_path / "out" / "model.onnx").exists()


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
