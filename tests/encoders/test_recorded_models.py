"""The models of a generation are found again, and no others taken for them."""

import shutil
from dataclasses import replace

import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.encoders.recorded_models import encoder_of
from termweave.errors import EngineError, ModelError, UsageError
from termweave.indexer import BuildOptions, build, update
from tests.beir_folder import beir_folder
from tests.search.conftest import forty, index  # noqa: F401 - the fixtures

OTHER_HASH = "0123456789abcdef"


def renamed(folder, name):
    """A copy of the shipped model under another name, with another hash."""
    shutil.copytree(resolve("shipped"), folder)
    write_manifest(folder, replace(read_folder(folder).manifest, name=name, hash=OTHER_HASH))
    return folder


@pytest.fixture
def says(index):  # noqa: F811 - the fixture
    """Change what the index says of itself, as whoever may write to it can; in the end it says what it said before."""
    path = f"/{index.generation}/_mapping"

    def meta():
        return index.engine.request("GET", path)[index.generation]["mappings"]["_meta"]

    def change(models=None, **statistics):
        changed = meta()
        for model in changed["termweave"]["models"].values():
            model.update(models or {})
        changed["termweave"]["statistics"].update(statistics)
        index.engine.request("PUT", path, body={"_meta": changed})

    before = meta()
    yield change
    index.engine.request("PUT", path, body={"_meta": before})


def open_index(index, **models):  # noqa: F811 - the fixture
    return tw.connect(index.engine.url).index(index.name, **models)


def test_a_model_that_is_not_found_by_its_name_is_asked_for(index):  # noqa: F811
    recorded = read_lineage(index.engine, index.generation)
    elsewhere = {output: replace(model, name="mine", hash=OTHER_HASH) for output, model in recorded.models.items()}
    with pytest.raises(ModelError, match=r"built with 'mine', and this host has no model of.*weights='DIR' and dense='DIR'"):
        encoder_of(replace(recorded, models=elsewhere), index.name, {})
    with pytest.raises(UsageError, match="no model folder"):  # what was asked for is what is wrong
        encoder_of(recorded, index.name, {"weights": "./nowhere"})


@pytest.mark.parametrize("output", ["weights", "dense"])
def test_a_wrong_model_is_blamed_on_the_option_that_was_given(index, tmp_path, output):  # noqa: F811
    recorded = read_lineage(index.engine, index.generation)
    with pytest.raises(ModelError, match=f"was built with the {output} model.* with {output}, "):
        encoder_of(recorded, index.name, {output: str(renamed(tmp_path / "other", "other"))})
    with pytest.raises(ModelError, match=rf"needs its {output} model.* Name its folder with {output}\."):
        open_index(index, **{output: "none"})


def test_a_folder_given_to_a_build_is_found_again_by_searches_until_it_holds_another_model(opensearch_engine, name, tmp_path):
    own, away = renamed(tmp_path / "own", "its-own-name"), tmp_path / "away"
    source = tmp_path / "own.jsonl"
    source.write_text('{"_id": "only", "text": "json text"}\n')
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions(weights=str(own), dense=str(own)))
    engine = tw.connect(opensearch_engine.url)
    assert [hit.id for hit in engine.index(name).search("json")] == ["only"]
    own.rename(away)
    with pytest.raises(ModelError, match="built with 'its-own-name', and this host has no model of that name"):
        engine.index(name)
    for output in ("weights", "dense"):  # both are one model: its folder need not be named twice
        assert engine.index(name, **{output: away}).search("json")
    update(opensearch_engine, corpora.open_source(source), name, BuildOptions(weights=str(away)))  # says where it lies, too
    assert engine.index(name).search("json")
    write_manifest(away, replace(read_folder(away).manifest, hash="fedcba9876543210"))
    away.rename(own)
    with pytest.raises(ModelError, match="this host has no model of that name"):
        engine.index(name)


def test_models_of_settings_are_tried_where_the_stored_are_not_found(opensearch_engine, name, tmp_path, capsys, monkeypatch):
    """Nobody named them for this index: "none" or another model must not make it unusable."""

    def runs(*arguments, status=0):
        assert run([*arguments, "--url", opensearch_engine.url]) == status
        return capsys.readouterr().err

    judged = beir_folder(tmp_path / "judged", {"only": "json text"}, {"q": "json"}, test=[("q", "only")])
    source = corpora.open_source(judged)
    search, update_it = ("search", name, "json"), ("index", str(judged), name, "--update")
    build(opensearch_engine, source, name, BuildOptions())
    monkeypatch.setenv("TERMWEAVE_DENSE", "none")
    monkeypatch.setenv("TERMWEAVE_WEIGHTS", "bm25-german")
    runs(*search)
    monkeypatch.setenv("TERMWEAVE_WEIGHTS", "none")
    for command in (search, ("explain", name, "json", "only"), (*update_it, "--new", "--require", "nDCG@10>=1")):
        runs(*command)
    assert "An update cannot change --dense" in runs(*update_it, "--dense", "none", status=2)
    with pytest.raises(UsageError, match="An update cannot change"):
        tw.index([{"id": "a", "text": "b"}], name, connection=tw.connect(opensearch_engine.url), update=True, dense="none")
    own = renamed(tmp_path / "own", "its-own-name")
    build(opensearch_engine, source, name, BuildOptions(weights=str(own), dense=str(own)))
    own.rename(tmp_path / "away")
    assert "this host has no model of that name" in runs(*search, status=1)
    monkeypatch.setenv("TERMWEAVE_WEIGHTS", str(tmp_path / "away"))
    runs(*search)
    runs(*update_it)


def test_names_that_an_index_says_open_only_what_this_host_has(index, says, tmp_path, monkeypatch):  # noqa: F811
    """Neither a package's code, nor a path, nor the hub: its hash is unknown here, so that only the name could lead there."""
    package = tmp_path / "site" / "trapped"
    shutil.copytree(resolve("shipped"), package / "part")
    for folder in (package, package / "part"):
        (folder / "__init__.py").write_text("raise SystemExit('the code of a package ran')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for model in ("trapped.part", str(package / "part"), "hf:team/model", "hf:team/../../x", "..", ""):
        says({"name": model, "hash": "fedcba9876543210"})
        with pytest.raises(ModelError, match="An index can open only models that the host already has") as refused:
            open_index(index)
        assert f"--weights {'hf:team/model' if model == 'hf:team/model' else 'DIR'} and" in refused.value.hint


def test_hashes_are_hexadecimal(index, says):  # noqa: F811
    right = read_folder(resolve("shipped")).manifest.hash
    for wrong in ("../../x", "", "0123456789ABCDEF", f"{OTHER_HASH}\n", 7, None):
        for change, statistics in (({"hash": wrong}, {}), ({"hash": right}, {"hash": wrong})):
            says(change, **statistics)
            with pytest.raises(EngineError, match="is damaged"):
                open_index(index)
