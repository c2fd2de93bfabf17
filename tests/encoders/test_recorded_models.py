"""The models of a generation are found again, and no others taken for them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.encoders import recorded_models as models
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.errors import EngineError, ModelError, UsageError
from termweave.indexer import BuildOptions, build, update
from tests.search.conftest import own_index  # noqa: F401 - the fixture

pytestmark = pytest.mark.engine


@pytest.fixture
def index(own_index):  # noqa: F811 - the fixture
    """These tests write into it."""
    return own_index


def test_a_model_of_another_hash_is_refused(index, opensearch_engine, name):
    generation = index.generation
    meta = opensearch_engine.request("GET", f"/{generation}/_mapping")[generation]["mappings"]["_meta"]
    meta["termweave"]["models"]["weights"]["hash"] = "0123456789abcdef"
    opensearch_engine.request("PUT", f"/{generation}/_mapping", body={"_meta": meta})
    with pytest.raises(ModelError, match="0123456789abcdef"):
        tw.connect(opensearch_engine.url).index(name)


def test_a_model_that_is_not_found_by_its_name_is_asked_for(index, opensearch_engine):
    made = read_lineage(opensearch_engine, index.generation)
    elsewhere = {output: replace(model, name="mine", hash="0123456789abcdef") for output, model in made.models.items()}
    with pytest.raises(ModelError, match=r"built with 'mine', and this host has no model of that name") as refused:
        models.encoder_of(replace(made, models=elsewhere), index.name, {})
    assert "--weights DIR and --dense DIR" in refused.value.hint
    with pytest.raises(UsageError, match="no model folder"):  # what was asked for is what is wrong
        models.encoder_of(made, index.name, {"weights": "./nowhere"})


@pytest.mark.parametrize("output", ["weights", "dense"])
def test_a_wrong_model_is_blamed_on_the_option_that_was_given(index, opensearch_engine, tmp_path, output):
    made = read_lineage(opensearch_engine, index.generation)
    other = tmp_path / "other"
    shutil.copytree(resolve("shipped"), other)
    write_manifest(other, replace(read_folder(other).manifest, name="other", hash="0123456789abcdef"))
    with pytest.raises(ModelError, match=f"was built with the {output} model") as refused:
        models.encoder_of(made, index.name, {output: str(other)})
    assert f"with --{output}, " in refused.value.hint


def test_a_folder_given_to_a_build_is_found_again_by_searches_until_it_holds_another_model(opensearch_engine, name, tmp_path):
    own, away = tmp_path / "own", tmp_path / "away"
    shutil.copytree(resolve("shipped"), own)
    folder = read_folder(own)
    write_manifest(own, replace(folder.manifest, name="its-own-name", hash="0123456789abcdef"))
    source = tmp_path / "own.jsonl"
    source.write_text('{"_id": "only", "text": "json text"}\n')
    build(opensearch_engine, corpora.open_source(source), name, BuildOptions(weights=str(own), dense=str(own)))
    assert [hit.id for hit in tw.connect(opensearch_engine.url).index(name).search("json")] == ["only"]
    own.rename(away)
    with pytest.raises(ModelError, match="built with 'its-own-name', and this host has no model of that name"):
        tw.connect(opensearch_engine.url).index(name)
    for output in ("weights", "dense"):  # both are one model: its folder need not be named twice
        assert tw.connect(opensearch_engine.url).index(name, **{output: away}).search("json")
    update(
        opensearch_engine, corpora.open_source(source), name, BuildOptions(weights=str(away))
    )  # an update says where it lies, too
    assert tw.connect(opensearch_engine.url).index(name).search("json")
    write_manifest(away, replace(folder.manifest, name="its-own-name"))
    away.rename(own)
    with pytest.raises(ModelError, match="this host has no model of that name"):
        tw.connect(opensearch_engine.url).index(name)


def test_models_of_the_settings_are_tried_only_where_the_stored_ones_are_not_found(
    opensearch_engine, name, tmp_path, capsys, monkeypatch
):
    """Nobody named them for this index: "none" or another model must not make it unusable."""

    def runs(*arguments):
        status = run([*arguments, "--url", opensearch_engine.url])
        return status, capsys.readouterr().err

    judged, own = tmp_path / "judged", tmp_path / "own"
    (judged / "qrels").mkdir(parents=True)
    (judged / "corpus.jsonl").write_text('{"_id": "only", "text": "json text"}\n')
    (judged / "queries.jsonl").write_text('{"_id": "q", "text": "json"}\n')
    (judged / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tonly\t1\n")
    source = corpora.open_source(judged)
    update_it = ("index", str(judged), name, "--update")
    build(opensearch_engine, source, name, BuildOptions())
    for model in ("none", "bm25-german"):
        monkeypatch.setenv("TERMWEAVE_WEIGHTS", model)
        monkeypatch.setenv("TERMWEAVE_DENSE", "none")
        for command in (
            ("search", name, "json"),
            ("explain", name, "json", "only"),
            (*update_it, "--new", "--require", "nDCG@10>=1"),
        ):
            assert runs(*command)[0] == 0
    assert "An update cannot change --dense" in runs(*update_it, "--dense", "none")[1]
    with pytest.raises(UsageError, match="An update cannot change"):
        tw.index([{"id": "a", "text": "b"}], name, connection=tw.connect(opensearch_engine.url), update=True, dense="none")
    shutil.copytree(resolve("shipped"), own)
    write_manifest(own, replace(read_folder(own).manifest, name="its-own-name", hash="0123456789abcdef"))
    build(opensearch_engine, source, name, BuildOptions(weights=str(own), dense=str(own)))
    own.rename(tmp_path / "away")
    monkeypatch.setenv("TERMWEAVE_WEIGHTS", "none")
    assert "this host has no model of that name" in runs("search", name, "json")[1]
    monkeypatch.setenv("TERMWEAVE_WEIGHTS", str(tmp_path / "away"))
    for command in (("search", name, "json"), update_it):
        status, said = runs(*command)
        assert status == 0, said


@pytest.fixture
def says(opensearch_engine, index):
    """Change what the index says of itself, as whoever may write to it can."""

    def change(models=None, **statistics):
        generation = index.generation
        meta = opensearch_engine.request("GET", f"/{generation}/_mapping")[generation]["mappings"]["_meta"]
        for model in meta["termweave"]["models"].values():
            model.update(models or {})
        meta["termweave"]["statistics"].update(statistics)
        opensearch_engine.request("PUT", f"/{generation}/_mapping", body={"_meta": meta})

    return change


def test_names_that_an_index_says_open_only_what_this_host_has(opensearch_engine, name, says, tmp_path, monkeypatch):
    """Neither a package's code, nor a path, nor the hub: its hash is unknown here, so that only the name could lead there."""
    package = tmp_path / "site" / "trapped"
    shutil.copytree(resolve("shipped"), package / "part")
    for folder in (package, package / "part"):
        (folder / "__init__.py").write_text("raise SystemExit('the code of a package ran')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for given in ("trapped.part", "trapped", str(package / "part"), "hf:team/model", "hf:team/../../x", "..", "none", ""):
        says({"name": given, "hash": "fedcba9876543210"})
        with pytest.raises(ModelError, match="An index can open only models that the host already has") as refused:
            tw.connect(opensearch_engine.url).index(name)
        assert f"--weights {'hf:team/model' if given == 'hf:team/model' else 'DIR'} and" in refused.value.hint


@pytest.mark.parametrize("wrong", ["../../x", "/etc/hostname", "", "0123456789ABCDEF", "0123456789abcdef\n", 7, None])
def test_hashes_are_hexadecimal(opensearch_engine, name, says, wrong):
    says({"hash": wrong})
    with pytest.raises(EngineError, match="is damaged"):
        tw.connect(opensearch_engine.url).index(name)
    says({"hash": read_folder(resolve("shipped")).manifest.hash}, hash=wrong)
    with pytest.raises(EngineError, match="is damaged"):
        tw.connect(opensearch_engine.url).index(name)


@pytest.mark.parametrize("output", ["weights", "dense"])
def test_a_model_switched_off_by_hand_is_asked_for_by_its_own_option(opensearch_engine, name, index, output):
    with pytest.raises(ModelError, match=f"needs its {output} model") as refused:
        tw.connect(opensearch_engine.url).index(name, **{output: "none"})
    assert refused.value.hint == f"Name its folder with --{output}."
