"""The build options: refusals from Python and on the command line, fingerprints, and what a rebuild takes over."""

import json
import shutil
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

import termweave as tw
from termweave import connect, indexer
from termweave.catalog import generations
from termweave.catalog.lineage import Lineage
from termweave.cli import run
from termweave.contracts.signal import Pruning
from termweave.encoders.model_lookup import resolve
from termweave.engine.client.payloads import quote
from termweave.errors import UsageError
from termweave.evaluation import evaluate, tune
from termweave.indexer import BuildOptions, build_plan, rebuild_options
from termweave.indexer.options import Window, build_settings, models_in
from termweave.search import Index
from tests.indexer.builds import LEXICAL, numbered
from tests.indexer.conftest import write_lines


@pytest.mark.parametrize(
    ("option", "value", "sentence", "words"),
    [
        ("signals", "lexical", "signals must be a list, not lexical.", None),
        ("signals", (), "", ("--signals", ",")),
        ("workers", 65, "workers must be at most 64, not 65.", None),
        ("workers", "many", "", ("--workers", "many")),
        ("prune", "most", "", ("--prune", "most")),
        ("allow_refused", 1.5, "allow_refused must be at most 1, not 1.5.", None),
        ("allow_refused", "0.1", "", ("--allow-refused", "0.1")),
        ("mapping", {"_meta": {}}, "mapping contains '_meta': reserved for termweave, or not a part of a mapping.", None),
        ("mapping", "nowhere.json", "", ("--mapping", "nowhere.json")),
        ("settings", {"index.number_of_shards": 3}, "settings sets index.number_of_shards, which has an option.", None),
        ("passages", -1, "passages must be a number of words or a Window, not -1.", None),
        ("passages", "x", "", ("--passage-size", "x")),
        ("types", ["a=date", "price=nummer"], "--types price=nummer: the type does not exist, or the field", None),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_with_one_sentence(tmp_path, capsys, option, value, sentence, words):
    with pytest.raises(UsageError) as caught:
        BuildOptions(**{option: value})
    assert caught.value.message.startswith(sentence)
    assert caught.value.hint
    if words:
        assert run(["index", str(tmp_path), "docs", *words]) == UsageError.exit_status
        assert f"{caught.value.message}\nOption {words[0]}: {caught.value.hint}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--update", "--yes"], "--yes belongs to --update --delete-missing"),
        (["--new"], "belong to --update"),
        (["--fresh", "--update"], "leave out --fresh or --update"),
        (["--model", "fast", "--dense", "none"], "names one model for term weights and vectors, and --dense names another."),
    ],
)
def test_options_that_mean_nothing_together_are_refused(tmp_path, capsys, arguments, said):
    assert run(["index", str(tmp_path), "docs", *arguments]) == UsageError.exit_status
    assert said in capsys.readouterr().err


def test_types_are_read_from_texts_and_mappings():
    assert BuildOptions(types=("a=b=double", "c = date, d=text")).types == {"a=b": "number", "c": "date", "d": "text"}
    assert BuildOptions(types={"a,b": "keyword"}).types == {"a,b": "text"}


def test_one_model_stands_for_both():
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
        ({}, "88d71624228b14de"),
        ({"prune": Pruning.parse("30%")}, "2f8172ac298d6ba0"),
        ({"passages": 160, "shards": 3, "skip_bad": True, "workers": 1, "patience": 1.0, "fresh": True}, "0fb02c0e90e46b96"),
        (
            {"settings": {"index.codec": "best_compression"}, "mapping": {"properties": {"year": {"type": "integer"}}}},
            "3fd57b658c265f42",
        ),
    ],
)
def test_fingerprints_are_those_of_earlier_versions(options, fingerprint):
    """An unfinished build is resumed, and a finished one recognised, by its fingerprint."""
    source = SimpleNamespace(name="corpus", fingerprint="0123456789abcdef")
    models = {"weights": SimpleNamespace(name="m", hash="abcdef0123456789")}
    resolved = {"signals": ("lexical", "weights"), "analyzer": "english"}
    assert build_plan._fingerprint(source, models, BuildOptions(**options), resolved) == fingerprint


def test_arguments_of_another_kind_are_refused_at_the_door(opensearch_engine, name, corpus):
    engine, source, connection = opensearch_engine, corpus(numbered(3)), connect(opensearch_engine.url)
    bad_names = (5, "Upper", "-dash", "with space", "a/b", "", "x" * 300, "star*", "_under", "a.stats")
    indexer.build(engine, source, name, LEXICAL)
    for said, call, *arguments in (
        ("source must be an open source, not str. Write ", indexer.build, engine, "./docs", "docs", LEXICAL),
        ("source must be an open source", indexer.plan, "./docs", engine.capabilities, LEXICAL),
        ("engine must be an Engine, not Connection. Write termweave.connect().", indexer.verify, connection, name, None),
        ("engine must be an Engine", Index.open, connection, name),
        ("options must be BuildOptions, not dict.", indexer.update, engine, source, name, {}),
        ("dataset must be an open data set, not str. Write ", evaluate, Index.open(engine, name), "./docs"),
        ("index must be an open Index, not str. Write termweave.connect().index(NAME).", tune, name, source),
        *((f"{bad!r} cannot be the name of an index.", indexer.build, engine, source, bad, LEXICAL) for bad in bad_names),
        ("5 is not the name of an index.", connection.index, 5),
    ):
        with pytest.raises(UsageError) as caught:
            call(*arguments)
        assert str(caught.value).startswith(said)


MAPPING = {"properties": {"price": {"type": "scaled_float", "scaling_factor": 100}, "brand": {"type": "keyword"}}}
GOODS = [
    {"_id": "a", "text": "Rinse the kettle.", "price": 3.5, "brand": "x"},
    {"_id": "b", "text": "Green tea.", "price": 5, "brand": "y"},
]


@pytest.fixture
def mapping(tmp_path):
    return str(write_lines(tmp_path / "map.json", [MAPPING]))


def stored(engine, name):
    """Mapping, settings and lineage of the live generation."""
    live = generations.find_live(engine, name)
    answer = engine.request("GET", f"/{live.index}", params={"flat_settings": True})[live.index]
    return answer["mappings"]["properties"], answer["settings"], live.lineage


def test_a_rebuild_keeps_the_mapping_and_says_so(opensearch_engine, name, index, mapping):
    """The application's own aggregation goes on."""
    index(GOODS, "--mapping", mapping, "--shards", "2")
    assert "Built like the live generation, with --shards 2 --mapping {" in index(GOODS).err
    fields, settings, recorded = stored(opensearch_engine, name)
    assert {key: fields[key]["type"] for key in MAPPING["properties"]} == {"price": "scaled_float", "brand": "keyword"}
    off = {"weights": "none", "dense": "none"}
    assert (settings["index.number_of_shards"], recorded.options) == ("2", {**off, "shards": 2, "mapping": MAPPING})
    body = {"size": 0, "aggs": {"brands": {"terms": {"field": "brand"}}, "most": {"max": {"field": "price"}}}}
    answer = opensearch_engine.request("POST", f"/{name}/_search", body=body)["aggregations"]
    assert (answer["most"]["value"], len(answer["brands"]["buckets"])) == (5.0, 2)
    for arguments in (["--update"], ["--update", "--new"]):
        index([*GOODS, {"_id": arguments[-1], "text": "A cup.", "price": 1}], *arguments)
        assert stored(opensearch_engine, name)[2].options == recorded.options
    assert "Differences from the live generation before this build: --shards was 2 and is 1." in index(GOODS, "--shards", "1").err
    assert "--mapping was {" in index(GOODS, "--defaults").err
    fields, _, recorded = stored(opensearch_engine, name)
    assert (fields.keys() & MAPPING["properties"].keys(), recorded.options) == (set(), off)
    assert "leave out --defaults or --update" in index(GOODS, "--update", "--defaults", status=2).err


def test_a_rebuild_has_the_models_of_the_live_generation_or_names_what_is_missing(opensearch_engine, name, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(resolve("shipped"), folder)
    connection = tw.connect(opensearch_engine.url)
    tw.index(GOODS, name, connection=connection, weights=str(folder), dense="none")
    _, _, recorded = stored(opensearch_engine, name)
    assert str(tmp_path) not in json.dumps(recorded.as_meta())  # the folder is known to this host alone
    notes = tw.index(GOODS, name, connection=connection).notes
    assert any(note.startswith("Built like the live generation, with ") for note in notes)
    again = stored(opensearch_engine, name)[2]
    assert (again.models, again.options) == (recorded.models, recorded.options)
    assert tw.index(GOODS, name, connection=connection, dense="fast").signals == ("lexical", "weights", "dense")
    tw.index(GOODS, name, connection=connection, defaults=True, weights="none", dense="none")
    assert stored(opensearch_engine, name)[2].options.keys() == {"weights", "dense"}


def of(of_build, **given):
    source, passages = {"name": "x", "options": json.dumps(of_build)}, {"size": 80, "stride": 60}
    signals = {"lexical": {"analyzer": "german"}, "weights": {"prune_share": 0.3}, "dense": {"byte_scale": 3.0}}
    recorded = Lineage(name="x", created="", termweave="", fingerprint="", source=source, signals=signals, passages=passages)
    options = BuildOptions(**given)
    taken = rebuild_options.rebuilt(None, generations.LiveGeneration("index", recorded), options, given)
    names = [each.name for each in fields(BuildOptions)]
    return {each: getattr(taken, each) for each in names if getattr(taken, each) != getattr(options, each)}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {"signals", "prune", "vectors", "passages", "analyzer"}),
        ({"dense": "none"}, {"signals", "prune", "passages", "analyzer"}),
        ({"model": "none"}, {"signals", "passages", "analyzer"}),
        ({"signals": ("lexical",)}, {"passages", "analyzer"}),
        ({"prune": Pruning(), "passages": None}, {"signals", "vectors", "analyzer"}),
        ({"keep_mapping": True}, {"signals", "prune", "vectors", "analyzer"}),
    ],
)
def test_what_contradicts_the_command_is_not_taken_over(given, left):
    options = {"signals": "dense,lexical,weights", "analyzer": "german", "prune": "30%", "vectors": "byte", "passages": "80"}
    taken = of(options, **given)
    assert taken.keys() == left
    assert taken.get("passages") in {None, Window(80)}


def test_what_somebody_wrote_into_the_index_opens_no_file_and_is_checked():
    files = {"mapping": "/etc/passwd", "settings": "../x.json", "weights": "../mine"}
    assert of(files | {"workers": 64, "shards": "2", "no-such": 1}) == {}


def test_a_generation_of_an_earlier_version_keeps_what_it_tells(opensearch_engine, name, index, mapping):
    """It did not store its options: fields of its mapping and the passages are known."""
    index(GOODS, "--mapping", mapping, "--passage-size", "40")
    live = generations.find_live(opensearch_engine, name)
    meta = live.lineage.as_meta()
    del meta["source"]["options"]
    opensearch_engine.request("PUT", f"/{quote(live.index)}/_mapping", body={"_meta": {"termweave": meta}})
    said = index(GOODS).err
    assert "--passage-size 40" in said
    fields, _, recorded = stored(opensearch_engine, name)
    assert (fields["price"]["type"], recorded.passages["size"]) == ("scaled_float", 40)
