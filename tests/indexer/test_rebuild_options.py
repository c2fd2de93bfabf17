"""A rebuild has the options of the live generation, unless it says otherwise."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace

import orjson
import pytest

import termweave as tw
from termweave.catalog import generations
from termweave.catalog.lineage import Lineage
from termweave.contracts.signal import Pruning
from termweave.encoders.model_lookup import resolve
from termweave.engine.client.payloads import quote
from termweave.indexer import BuildOptions, rebuild_options
from termweave.indexer.options import Window
from termweave.indexer.stored_documents import LiveDocuments

from .builds import LEXICAL

pytestmark = pytest.mark.engine

MAPPING = {"properties": {"price": {"type": "scaled_float", "scaling_factor": 100}, "brand": {"type": "keyword"}}}
GOODS = [
    {"_id": "a", "text": "Rinse the kettle.", "price": 3.5, "brand": "x"},
    {"_id": "b", "text": "Green tea.", "price": 5, "brand": "y"},
]


@pytest.fixture
def mapping(tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(orjson.dumps(MAPPING))
    return str(path)


def stored(engine, name):
    """Mapping, settings and lineage of the live generation."""
    live = generations.find_live(engine, name)
    answer = engine.request("GET", f"/{live.index}", params={"flat_settings": True})[live.index]
    return answer["mappings"]["properties"], answer["settings"], live.lineage


def test_a_rebuild_keeps_the_mapping_and_says_so(opensearch_engine, name, index, mapping):
    """The application's own aggregation goes on."""
    index(GOODS, "--mapping", mapping, "--shards", "2")
    assert "Built as the live generation was, with --shards 2 --mapping {" in index(GOODS).err
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
    assert "Unlike the live generation before it: --shards was 2 and is 1." in index(GOODS, "--shards", "1").err
    assert "--mapping was {" in index(GOODS, "--defaults").err
    fields, _, recorded = stored(opensearch_engine, name)
    assert (fields.keys() & MAPPING["properties"].keys(), recorded.options) == (set(), off)
    assert "leave out --defaults or --update" in index(GOODS, "--update", "--defaults", status=2).err


def test_python_keeps_them_too(opensearch_engine, name):
    connection = tw.connect(opensearch_engine.url)
    tw.index(GOODS, name, connection=connection, mapping=MAPPING, passages=60, prune="10%", weights="fast", dense="none")
    done = tw.index(GOODS, name, connection=connection)
    assert done.signals == ("lexical", "weights")
    assert any(note.startswith("Built as the live generation was") for note in done.notes)
    _, _, recorded = stored(opensearch_engine, name)
    assert (recorded.options.keys(), recorded.passages["size"]) == ({"mapping", "passages", "prune", "weights", "dense"}, 60)
    tw.index(GOODS, name, connection=connection, defaults=True, weights="none", dense="none")
    assert stored(opensearch_engine, name)[2].options.keys() == {"weights", "dense"}


def test_a_rebuild_has_the_models_of_the_live_generation_or_names_what_is_missing(opensearch_engine, name, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(resolve("shipped"), folder)
    connection = tw.connect(opensearch_engine.url)
    tw.index(GOODS, name, connection=connection, weights=str(folder), dense="none")
    _, _, recorded = stored(opensearch_engine, name)
    assert str(tmp_path) not in json.dumps(recorded.as_meta())  # the folder is known to this host alone
    tw.index(GOODS, name, connection=connection)
    again = stored(opensearch_engine, name)[2]
    assert (again.models, again.options) == (recorded.models, recorded.options)
    assert tw.index(GOODS, name, connection=connection, dense="fast").signals == ("lexical", "weights", "dense")


def of(engine, name, of_build, **given):
    recorded = Lineage(
        name=name,
        created="",
        termweave="",
        fingerprint="",
        source={"name": "x", "options": json.dumps(of_build)},
        signals={"lexical": {"analyzer": "german"}, "weights": {"prune_share": 0.3}, "dense": {"byte_scale": 3.0}},
        passages={"size": 80, "stride": 60},
    )
    options = BuildOptions(**given)
    taken = rebuild_options.rebuilt(engine, generations.LiveGeneration("index", recorded), options, given)
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
def test_what_contradicts_the_command_is_not_taken_over(opensearch_engine, given, left):
    options = {"signals": "dense,lexical,weights", "analyzer": "german", "prune": "30%", "vectors": "byte", "passages": "80"}
    taken = of(opensearch_engine, "x", options, **given)
    assert taken.keys() == left
    assert taken.get("passages") in {None, Window(80)}


def test_what_somebody_wrote_into_the_index_opens_no_file_and_is_checked(opensearch_engine):
    files = {"mapping": "/etc/passwd", "settings": "../x.json", "weights": "../mine"}
    assert of(opensearch_engine, "x", files | {"workers": 64, "shards": "2", "no-such": 1}) == {}


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


def test_a_trial_generation_has_the_mapping(desk):
    """`learn` builds from the documents of the live generation, which its `index` command alone could before."""
    desk.build(GOODS, replace(LEXICAL, mapping=MAPPING))
    live = generations.find_live(desk.engine, desk.name)
    options = rebuild_options.options_of(desk.engine, live, {"weights": "none", "dense": "none"})
    desk.build(LiveDocuments(desk.engine, live), options)
    fields, *_ = stored(desk.engine, desk.name)
    assert fields["price"]["type"] == "scaled_float"
    assert desk.clean() == 2
