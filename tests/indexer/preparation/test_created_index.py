"""What termweave writes is what is stored, whatever index templates and pipelines a cluster has."""

import json
from dataclasses import replace

import pytest

from termweave.catalog.layout import DocumentLayout
from termweave.errors import EngineError, UsageError, VerificationFailed
from termweave.indexer import BuildOptions
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from tests.conftest import SHARED
from tests.indexer.builds import LEXICAL, sources

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
    index = Index.open(desk.engine, desk.name)
    assert index.lineage.types == {"price": "long"}
    for mode in ("lexical", "weights", "dense"):
        (hit,) = index.search("how to rinse a kettle", k=1, mode=mode, fields=("text",))
        assert (hit.id, hit.fields["text"]) == ("a", TEAS[0]["text"]), mode
    assert sources(desk.engine, desk.name)["a"].keys() >= {"vector", "weights", "typed", "text"}


SHORT = {"text": {"type": "keyword", "ignore_above": 3}, "id": {"type": "keyword", "ignore_above": 1}}
FORCED = {"mappings": {"_routing": {"required": True}, "dynamic": True, "properties": {**SHORT, "host": {"type": "ip"}}}}


@pytest.mark.parametrize(
    ("what", "older"), [("drop-fields", False), ("change-text", True), ("no-source", False), ("forced", True)]
)
def test_templates_of_the_cluster_do_not_change_what_is_stored(desk, cluster, what, older):
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


def test_a_document_that_the_server_changes_is_read_back_and_not_published(desk, cluster, monkeypatch):
    cluster({"settings": {"index.final_pipeline": ""}}, CHANGED)
    run, pipeline_of_cluster = Pipeline.run, {"index.final_pipeline": desk.name}

    def meddle(pipeline, progress):
        desk.engine.request("PUT", f"/{pipeline.target.index}/_settings", body=pipeline_of_cluster)
        return run(pipeline, progress)

    monkeypatch.setattr(Pipeline, "run", meddle)
    with pytest.raises(VerificationFailed, match="2 altered") as error:
        desk.build(TEAS)
    assert "ingest pipeline" in error.value.hint
    assert desk.live is None
    monkeypatch.undo()
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


@pytest.mark.parametrize(
    "tokenizer", [{"type": "ngram", "min_gram": 2, "max_gram": 3}, {"type": "keyword"}], ids=["ngram", "keyword"]
)
def test_an_analyzer_of_the_user_decides_what_a_word_is(desk, tokenizer):
    """Parts of words are more tokens than a query may have clauses, and a text that is one token is not that of title and text together."""
    analysis = {"tokenizer": {"parts": tokenizer}, "analyzer": {"own": {"tokenizer": "parts"}}}
    options = replace(LEXICAL, analyzer="own", settings={"index.analysis": analysis})
    texts = [{"_id": str(number), "title": f"title {number}", "text": f"word{number}abc " * 400} for number in range(3)]
    assert desk.build(texts, options).sent == 3
    texts[0]["text"] = "another text " * 400
    assert desk.update(texts, options).counts.changed == 1
