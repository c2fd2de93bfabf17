"""What termweave writes is what is stored, whatever index templates and pipelines a cluster has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from termweave.catalog.generations import live
from termweave.catalog.layout import DocumentLayout
from termweave.errors import EngineError, UsageError, VerificationFailed
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.generations import listing
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from tests.conftest import SHARED
from tests.indexer.builds import LEXICAL, clean, numbered, sources

pytestmark = pytest.mark.engine

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


def check_stored(engine, name, source):
    assert clean(engine, name, source) == 3
    index = Index.open(engine, name)
    assert index.lineage.types == {"price": "long"}
    for mode in ("lexical", "weights", "dense"):
        (hit,) = index.search("how to rinse a kettle", k=1, mode=mode, fields=("text",))
        assert (hit.id, hit.fields["text"]) == ("a", TEAS[0]["text"]), mode
    assert sources(engine, name)["a"].keys() >= {"vector", "weights", "typed", "text"}


SHORT = {"text": {"type": "keyword", "ignore_above": 3}, "id": {"type": "keyword", "ignore_above": 1}}
FORCED = {"mappings": {"_routing": {"required": True}, "dynamic": True, "properties": {**SHORT, "host": {"type": "ip"}}}}


@pytest.mark.parametrize(
    ("what", "older"),
    [("drop-fields", False), ("change-text", True), ("no-source", False), ("forced", True)],
)
def test_templates_of_the_cluster_do_not_change_what_is_stored(opensearch_engine, name, corpus, cluster, what, older):
    parts = {"template": {"template": FORCED}} if what == "forced" else case(what)
    cluster(**{key: value["template"] if key == "template" else value for key, value in parts.items()}, older=older)
    source = corpus(TEAS)
    build(opensearch_engine, source, name, BuildOptions())
    check_stored(opensearch_engine, name, source)
    source = corpus([*TEAS[:2], {**TEAS[2], "text": "Bread goes stale in the fridge."}])
    update(opensearch_engine, source, name, BuildOptions(), UpdateMode(new=older))
    check_stored(opensearch_engine, name, source)


def test_what_a_template_forces_on_scores_and_fields_is_named(opensearch_engine, name, corpus, cluster):
    analyzer = {"index.analysis.analyzer.default_search.type": "english"}
    settings = {"index.similarity.default.type": "boolean", "index.mapping.ignore_malformed": "true", **analyzer}
    cluster({"settings": settings})
    for forced, value in settings.items():  # who wants a setting says so
        others = {key: each for key, each in settings.items() if key != forced}
        with pytest.raises(UsageError, match=f"did not ask for: {forced} {value}") as error:
            build(opensearch_engine, corpus(TEAS), name, replace(LEXICAL, settings=others))
        assert repr(name) in error.value.hint
        assert not opensearch_engine.request("GET", f"/{name}*")
    build(opensearch_engine, corpus(TEAS), name, replace(LEXICAL, settings=settings))


def test_a_document_that_the_server_changes_is_read_back_and_not_published(opensearch_engine, name, corpus, cluster, monkeypatch):
    cluster({"settings": {"index.final_pipeline": ""}}, CHANGED)
    run = Pipeline.run

    def meddle(pipeline, progress):
        opensearch_engine.request("PUT", f"/{pipeline.target.index}/_settings", body={"index.final_pipeline": name})
        return run(pipeline, progress)

    monkeypatch.setattr(Pipeline, "run", meddle)
    with pytest.raises(VerificationFailed, match="2 altered") as error:
        build(opensearch_engine, corpus(TEAS), name, LEXICAL)
    assert "ingest pipeline" in error.value.hint
    assert live(opensearch_engine, name) is None
    monkeypatch.undo()
    built = build(opensearch_engine, corpus(TEAS), name, LEXICAL)  # it resumes, and switches the pipeline off
    assert built.sent == 2
    assert clean(opensearch_engine, name) == 3
    opensearch_engine.request("PUT", f"/{built.index}/_settings", body={"index.final_pipeline": name})
    source = corpus([*TEAS[:2], {**TEAS[2], "text": "No bread in a kettle."}])
    update(opensearch_engine, source, name, LEXICAL)
    assert clean(opensearch_engine, name, source) == 3


@pytest.mark.parametrize("signal", ["content", "weights", "vector"])
def test_what_no_search_finds_is_not_published(opensearch_engine, name, corpus, monkeypatch, signal):
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
        build(opensearch_engine, corpus(numbered(3)), name, BuildOptions())
    assert not any(each.complete for each in listing.list_generations(opensearch_engine, name))


def test_stop_words_alone_are_found_by_no_search_and_are_no_fault(opensearch_engine, name, corpus):
    documents = [{"_id": "a", "text": "to be or not to be"}, {"_id": "b", "text": "..."}]
    assert build(opensearch_engine, corpus(documents), name, BuildOptions()).documents == 2


@pytest.mark.parametrize("kind", ["ngram", "keyword"])
def test_an_analyzer_of_the_user_decides_what_a_word_is(opensearch_engine, name, corpus, kind):
    """Parts of words are more tokens than a query may have clauses, and a text that is one token is not that of title and text together."""
    tokenizer = {"type": "ngram", "min_gram": 2, "max_gram": 3} if kind == "ngram" else {"type": "keyword"}
    analysis = {"tokenizer": {"parts": tokenizer}, "analyzer": {"own": {"tokenizer": "parts"}}}
    options = replace(LEXICAL, analyzer="own", settings={"index.analysis": analysis})
    texts = [{"_id": str(number), "title": f"title {number}", "text": f"word{number}abc " * 400} for number in range(3)]
    assert build(opensearch_engine, corpus(texts), name, options).sent == 3
    texts[0]["text"] = "another text " * 400
    assert update(opensearch_engine, corpus(texts), name, options).counts.changed == 1
