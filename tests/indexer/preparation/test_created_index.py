"""What termweave writes is what is stored, whatever templates and pipelines a cluster has; and the fields that `--keep-mapping` takes over."""

import json
from dataclasses import replace

import pytest

from termweave.catalog.layout import DocumentLayout
from termweave.errors import EngineError, UsageError, VerificationFailed
from termweave.indexer import BuildOptions
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from tests.conftest import SHARED
from tests.indexer.builds import LEXICAL, clean, command, sources, write
from tests.indexer.conftest import before

CASES = SHARED / "cases" / "templates" / "templates.json"
TEAS = [
    {"_id": "a", "title": "Limescale", "text": "Rinse the kettle with vinegar once a month.", "price": 3},
    {"_id": "b", "title": "Green tea", "text": "Let the water in the kettle cool to 75 degrees.", "price": 5},
    {"_id": "c", "title": "Bread", "text": "Keep bread in a paper bag.", "price": 7},
]
CHANGED = {"processors": [{"gsub": {"field": "text", "pattern": "kettle", "replacement": "pot", "ignore_missing": True}}]}


@pytest.fixture
def cluster(opensearch_engine, name):
    """Puts pipelines and templates for the indices of this test's name into the cluster; they are removed afterwards."""
    engine, paths = opensearch_engine, []

    def put(template, pipeline=None, *, older=False):
        if pipeline is not None:
            paths.append(f"/_ingest/pipeline/{name}")
            engine.request("PUT", paths[-1], body=pipeline)
            key = next(iter({*template["settings"]} & {"index.default_pipeline", "index.final_pipeline"}))
            template = {**template, "settings": {**template["settings"], key: name}}
        paths.append(f"/_template/{name}" if older else f"/_index_template/{name}")
        wrapped = template if older else {"template": template, "priority": 5}
        engine.request("PUT", paths[-1], body={"index_patterns": [f"{name}*"], **wrapped})

    yield put
    engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})
    for path in reversed(paths):
        engine.request("DELETE", path)


def case(what):
    if not CASES.is_file():
        pytest.skip("the cases stand beside the project and are not here")
    return json.loads(CASES.read_text())[what]


def check_stored(desk, source):
    assert desk.clean(source) == 3
    index = desk.open()
    assert index.lineage.types == {"price": "long"}
    for mode in ("lexical", "weights", "dense"):
        (hit,) = index.search("how to rinse a kettle", k=1, mode=mode, fields=("text",))
        assert (hit.id, hit.fields["text"]) == ("a", TEAS[0]["text"]), mode
    assert sources(desk.engine, desk.name)["a"].keys() >= {"vector", "weights", "typed", "text"}


SHORT = {"text": {"type": "keyword", "ignore_above": 3}, "id": {"type": "keyword", "ignore_above": 1}}
FORCED = {"mappings": {"_routing": {"required": True}, "dynamic": True, "properties": {**SHORT, "host": {"type": "ip"}}}}


@pytest.mark.parametrize("what", ["drop-fields", "change-text", "no-source", "forced"])
def test_templates_of_the_cluster_do_not_change_what_is_stored(desk, cluster, what):
    older = what in {"change-text", "forced"}
    parts = {"template": {"template": FORCED}} if what == "forced" else case(what)
    cluster(**{key: value["template"] if key == "template" else value for key, value in parts.items()}, older=older)
    source = desk.source(TEAS)
    desk.build(source, BuildOptions())
    check_stored(desk, source)
    source = desk.source([*TEAS[:2], {**TEAS[2], "text": "Bread goes stale in the fridge."}])
    desk.update(source, BuildOptions(), new=older)
    check_stored(desk, source)


def test_what_a_template_forces_on_scores_and_fields_is_named(desk, cluster):
    analyzer = {"index.analysis.analyzer.default_search.type": "english"}
    settings = {"index.similarity.default.type": "boolean", "index.mapping.ignore_malformed": "true", **analyzer}
    cluster({"settings": settings})
    for forced, value in settings.items():  # who wants a setting says so
        others = {key: each for key, each in settings.items() if key != forced}
        with pytest.raises(UsageError, match=f"did not ask for: {forced} {value}") as error:
            desk.build(TEAS, replace(LEXICAL, settings=others))
        assert repr(desk.name) in error.value.hint
        assert not desk.engine.request("GET", f"/{desk.name}*")
    desk.build(TEAS, replace(LEXICAL, settings=settings))


def test_a_document_that_the_server_changes_is_read_back_and_not_published(desk, cluster):
    cluster({"settings": {"index.final_pipeline": ""}}, CHANGED)
    pipeline_of_cluster = {"index.final_pipeline": desk.name}

    def meddle(pipeline, _):
        desk.engine.request("PUT", f"/{pipeline.target.index}/_settings", body=pipeline_of_cluster)

    with before(Pipeline, "run", meddle), pytest.raises(VerificationFailed, match="2 altered") as error:
        desk.build(TEAS)
    assert "ingest pipeline" in error.value.hint
    assert desk.live is None
    assert desk.build(TEAS).sent == 2  # it resumes, and switches the pipeline off
    assert desk.clean() == 3
    desk.request("PUT", "/_settings", body=pipeline_of_cluster)
    source = desk.source([*TEAS[:2], {**TEAS[2], "text": "No bread in a kettle."}])
    desk.update(source)
    assert desk.clean(source) == 3


@pytest.mark.parametrize("signal", ["content", "weights", "vector"])
def test_what_no_search_finds_is_not_published(desk, monkeypatch, signal):
    """The documents come back as they were sent, and are not in the index of that signal."""
    mapping = DocumentLayout.mapping

    def unsearched(layout, *arguments):
        changed = mapping(layout, *arguments)
        changed["properties"] |= {signal: {"type": "object", "enabled": False}}
        if signal == "content":  # a text field that is never filled
            changed["properties"] |= {name: {"type": "text"} for name in ("title", "text", "content")}
        return changed

    monkeypatch.setattr(DocumentLayout, "mapping", unsearched)
    expected = "a search of lexical does not find it" if signal == "content" else f"could not search .*{signal}"
    with pytest.raises((VerificationFailed, EngineError), match=expected.replace("vector", "dense")):
        desk.build(3, BuildOptions())
    assert not any(each.complete for each in desk.generations)


def test_stop_words_alone_are_found_by_no_search_and_are_no_fault(desk):
    assert desk.build({"a": "to be or not to be", "b": "..."}, BuildOptions()).documents == 2


@pytest.mark.parametrize("tokenizer", [{"type": "ngram", "min_gram": 2, "max_gram": 3}, {"type": "keyword"}], ids=str)
def test_an_analyzer_of_the_user_decides_what_a_word_is(desk, tokenizer):
    """Parts of words are more tokens than a query may have clauses, and a text that is one token is not that of title and text together."""
    analysis = {"tokenizer": {"parts": tokenizer}, "analyzer": {"own": {"tokenizer": "parts"}}}
    options = replace(LEXICAL, analyzer="own", settings={"index.analysis": analysis})
    texts = [{"_id": str(number), "title": f"title {number}", "text": f"word{number}abc " * 400} for number in range(3)]
    assert desk.build(texts, options).sent == 3
    texts[0]["text"] = "another text " * 400
    assert desk.update(texts, options).counts.changed == 1


SETTINGS = {
    "number_of_shards": 2,
    "number_of_replicas": 0,
    "mapping.total_fields.limit": 1200,
    "analysis": {
        "filter": {"same": {"type": "synonym", "synonyms": ["sofa, couch"]}},
        "analyzer": {"shop": {"tokenizer": "standard", "filter": ["lowercase", "same", "porter_stem"]}},
    },
    "similarity": {"short": {"type": "BM25", "k1": 0.4, "b": 0.2}},
}
PROPERTIES = {
    "name": {"type": "text", "analyzer": "shop", "copy_to": "all", "fields": {"raw": {"type": "keyword"}}},
    "text": {"type": "text", "analyzer": "whitespace", "similarity": "short"},
    "all": {"type": "text", "store": True},
    "price": {"type": "scaled_float", "scaling_factor": 100},
    "tags": {"type": "keyword"},
    "day": {"type": "date"},
    "offers": {"type": "nested", "properties": {"shop": {"type": "keyword"}, "price": {"type": "float"}}},
    "made": {"properties": {"in": {"type": "keyword"}, "year": {"type": "integer"}}},
}
QUERIES = [
    {"match": {"name": "red couches"}},
    {"match_phrase": {"text": "Very soft"}},
    {"multi_match": {"query": "soft sofa", "fields": ["name^3", "text"]}},
    {"match": {"all": "blue"}},
    {"term": {"name.raw": "red sofa 12"}},
    {"nested": {"path": "offers", "query": {"range": {"offers.price": {"gt": 20}}}}},
    {"bool": {"should": [{"term": {"tags": "new"}}, {"range": {"price": {"gte": 12.5}}}], "filter": {"term": {"made.in": "de"}}}},
    {"function_score": {"query": {"match": {"text": "soft"}}, "field_value_factor": {"field": "price"}}},
]


def goods():
    colours, kinds = ("red", "blue", "green"), ("sofa", "chair", "couches", "table")
    for number in range(60):
        colour, kind = colours[number % 3], kinds[number % 4]
        yield {
            "name": f"{colour} {kind} {number}",
            "text": f"Very soft {kind}" + " and warm" * (number % 5),
            "price": number / 3,
            "tags": ["new", colour] if number % 2 else [],
            "offers": [{"shop": f"s{number % 3}", "price": number}, {"shop": "s1", "price": 1}],
            "made": {"in": "de" if number % 4 else "fr", "year": 2000 + number, "by": {"hand": True}},
            "day": f"202{number // 10}-06-15",
            "unmapped": number,
        }


@pytest.fixture
def shop(opensearch_engine, name):
    """The index NAME-shop of an application."""

    def make(properties, **mapping):
        index = f"{name}-shop"
        body = {"settings": SETTINGS, "mappings": {"dynamic": False, "properties": properties, **mapping}}
        opensearch_engine.request("PUT", f"/{index}", body=body)
        write(opensearch_engine, index, {f"p{number}": body for number, body in enumerate(goods())})
        return index

    return make


@pytest.fixture
def build(name, shell):
    """A function that runs `termweave index --keep-mapping` and returns what it said."""

    def call(index, *arguments, status=0):
        return shell(*command(f"opensearch:{index}", name, "--title-field", "name", *arguments), status=status)

    return call


def test_the_applications_queries_find_the_same(shop, build, opensearch_engine, name, shell, tmp_path):
    index = shop(PROPERTIES)
    settings = tmp_path / "settings.json"
    settings.write_text('{"index.mapping.total_fields.limit": 1500}')
    build(index, "--keep-mapping", "--settings", str(settings), "--shards", "2")
    (kept,) = opensearch_engine.of_indices(f"/{name}/_settings", "settings").values()
    assert kept["settings"]["index"]["mapping"]["total_fields"]["limit"] == "1500"  # what the user says wins
    assert clean(opensearch_engine, name) == 60
    for query in QUERIES:
        body = {"query": query, "size": 100, "sort": ["_score", {"made.year": "asc"}], "stored_fields": ["all"], "_source": True}
        old, new = (opensearch_engine.request("POST", f"/{which}/_search", body=body)["hits"]["hits"] for which in (index, name))
        for hit in (*old, *new):
            hit["_source"] = {each: hit["_source"][each] for each in PROPERTIES.keys() - {"all"}}
        before, after = ([(hit["_id"], hit["_score"], hit["_source"]) for hit in hits] for hits in (old, new))
        assert after == before != [], query
    found = Index.open(opensearch_engine, name)
    days = [len(found.search("blue red green", k=60, where=where)) for where in ("day<=2021", "day=2021", "day>2021")]
    assert days == [20, 10, 40]
    hits = found.search("blue chair", mode="lexical", where="price<5 AND unmapped>0")
    assert hits[0].fields["title"].startswith("blue chair")
    # an update takes the fields over, too, and does not do without them
    changed = {"doc": {"tags": ["changed"], "made": {"colour": "x"}}}
    opensearch_engine.request("POST", f"/{index}/_update/p7", params={"refresh": True}, body=changed)
    assert "Add --keep-mapping" in build(index, "--update", status=2).err
    assert "1 changed, 59 unchanged" in build(index, "--update", "--keep-mapping").out
    found = opensearch_engine.request("POST", f"/{name}/_search", body={"query": {"term": {"tags": "changed"}}})["hits"]["hits"]
    assert [hit["_id"] for hit in found] == ["p7"]
    assert clean(opensearch_engine, name) == 60
    shell("verify", name, f"opensearch:{index}", "--title-field", "name")


def test_conflicts_are_named_before_anything_is_made(shop, build, opensearch_engine, name):
    odd = {"id": {"type": "long"}, "metadata": {"type": "object"}, "vector": {"type": "keyword"}}
    index = shop({**PROPERTIES, **odd, "parent": {"type": "join", "relations": {"a": "b"}}})
    said = build(index, "--keep-mapping", "--passage-size", "50", "--shards", "3", status=2).err
    fields = ("'id' (long) has the name", "'metadata' (object) has", "'parent' is of type join")
    assert [part for part in (*fields, "--passage-size stores", "--shards 3 is") if part not in said] == []
    assert not opensearch_engine.request("HEAD", f"/{name}")
