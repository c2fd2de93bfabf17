"""The models of a generation are found again, and no others taken for them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import termweave as tw
from termweave import corpora
from termweave.encoders.folder import ModelFolder, resolve, write_manifest
from termweave.errors import ModelError, UsageError
from termweave.indexer import Options, build, update
from termweave.search import lineage, models

pytestmark = pytest.mark.engine


def test_a_model_of_another_hash_is_refused(index, opensearch_engine, name):
    generation = index.generation
    meta = opensearch_engine.request("GET", f"/{generation}/_mapping")[generation]["mappings"]["_meta"]
    meta["termweave"]["models"]["weights"]["hash"] = "0123456789abcdef"
    opensearch_engine.request("PUT", f"/{generation}/_mapping", body={"_meta": meta})
    with pytest.raises(ModelError, match="0123456789abcdef"):
        tw.connect(opensearch_engine.url).index(name)


def test_a_model_that_is_not_found_by_its_name_is_asked_for(index, opensearch_engine):
    made = lineage.read(opensearch_engine, index.generation)
    elsewhere = {output: replace(model, name="mine", hash="0123456789abcdef") for output, model in made.models.items()}
    with pytest.raises(ModelError, match=r"made with 'mine', and no model of that name is found here") as refused:
        models.encoder_of(replace(made, models=elsewhere), index.name, {})
    assert "--weights DIR and --dense DIR" in refused.value.hint
    with pytest.raises(UsageError, match="no model folder"):  # what was asked for is what is wrong
        models.encoder_of(made, index.name, {"weights": "./nowhere"})


def test_a_folder_given_to_a_build_is_found_again_by_searches_until_it_holds_another_model(opensearch_engine, name, tmp_path):
    own, away = tmp_path / "own", tmp_path / "away"
    shutil.copytree(resolve("shipped"), own)
    folder = ModelFolder.read(own)
    write_manifest(own, replace(folder.manifest, name="its-own-name", hash="0123456789abcdef"))
    source = tmp_path / "own.jsonl"
    source.write_text('{"_id": "only", "text": "json text"}\n')
    build(opensearch_engine, corpora.open_source(source), name, Options(weights=str(own), dense=str(own)))
    assert [hit.id for hit in tw.connect(opensearch_engine.url).index(name).search("json")] == ["only"]
    own.rename(away)
    with pytest.raises(ModelError, match="made with 'its-own-name', and no model of that name is found here"):
        tw.connect(opensearch_engine.url).index(name)
    for output in ("weights", "dense"):  # both are one model: its folder need not be named twice
        assert tw.connect(opensearch_engine.url).index(name, **{output: away}).search("json")
    update(opensearch_engine, corpora.open_source(source), name, Options(weights=str(away)))  # an update says where it lies, too
    assert tw.connect(opensearch_engine.url).index(name).search("json")
    write_manifest(away, replace(folder.manifest, name="its-own-name"))
    away.rename(own)
    with pytest.raises(ModelError, match="no model of that name is found here"):
        tw.connect(opensearch_engine.url).index(name)


def test_models_switched_off_by_hand_are_a_sentence(opensearch_engine, name, index):
    with pytest.raises(ModelError, match="needs its weights model"):
        tw.connect(opensearch_engine.url).index(name, weights="none")
