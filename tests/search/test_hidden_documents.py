"""What a name hides in the server, by an alias' filter or routing or by a default search pipeline, termweave hides, too."""

import uuid
from contextlib import contextmanager

import orjson
import pytest

import termweave as tw
from termweave import corpora
from termweave.cli import run
from termweave.corpora import IndexReading, open_source
from termweave.engine.client import resolved_name
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build
from termweave.indexer.enrichment import enrichment
from termweave.search import Index
from termweave.search import index as index_module
from termweave.settings import load

FILTER = {"term": {"tenant": "a"}}
SHOWN = {f"a{number}" for number in range(4)}
#: Documents of tenant b are nearer to the queries, and there are more of them.
TEXTS = {
    **{f"b{number}": f"the salary of the zebra keeper, secret {number}" for number in range(40)},
    **{f"a{number}": f"lunch is paid with the salary {number}" for number in range(4)},
}


def of_tenants(engine, index):
    """Make an enriched index of two tenants; the shard of a document goes by its tenant."""
    keywords = {field: {"type": "keyword"} for field in ("tenant", "kind")}
    settings = {"index.knn": True, "number_of_shards": 2, "number_of_replicas": 0}
    mappings = {"properties": {"text": {"type": "text"}, **keywords}}
    engine.request("PUT", f"/{index}", body={"settings": settings, "mappings": mappings})
    data = b""
    for identity, text in TEXTS.items():
        document = {"text": text, "tenant": identity[0], "kind": f"kind {identity}"}
        for line in ({"index": {"_id": identity, "routing": identity[0]}}, document):
            data += orjson.dumps(line) + b"\n"
    assert not engine.request("POST", f"/{index}/_bulk", params={"refresh": True}, body=data)["errors"]
    reading = IndexReading(settings=lambda _: load(url=engine.url), hidden=True)
    enrichment.enrich(engine, open_source(f"opensearch:{index}", text_fields=("text",), index=reading), BuildOptions())
    return index


@pytest.fixture
def tenants(opensearch_engine, name):
    return of_tenants(opensearch_engine, f"{name}-shop")


@contextmanager
def pipelines(engine, name):
    """A function that gives an index a default search pipeline."""
    path, used = f"/_search/pipeline/{name}", []

    def call(index, *processors, **others):
        used.append(index)
        engine.request("PUT", path, body={"request_processors": list(processors), **others})
        engine.request("PUT", f"/{index}/_settings", body={resolved_name.SETTING: name})
        return name

    yield call
    if used:
        engine.request("PUT", f"/{name}*/_settings", body={resolved_name.SETTING: None})
        engine.request("DELETE", path)


@pytest.fixture
def pipeline(opensearch_engine, name):
    with pipelines(opensearch_engine, name) as call:
        yield call


def add_alias(engine, index, alias, **properties):
    engine.request("POST", "/_aliases", body={"actions": [{"add": {"index": index, "alias": alias, **properties}}]})
    return alias


@pytest.fixture(scope="module", params=["filter", "routing", "pipeline"])
def shown(request, opensearch_engine):
    """A name of an index that shows tenant a alone."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    tenants = of_tenants(opensearch_engine, f"{name}-shop")
    with pipelines(opensearch_engine, name) as pipeline:
        if request.param == "pipeline":
            pipeline(tenants, {"filter_query": {"query": FILTER}})
            yield tenants
        else:
            properties = {"filter": FILTER} if request.param == "filter" else {"routing": "a"}
            yield add_alias(opensearch_engine, tenants, f"{tenants}-a", **properties)
    opensearch_engine.request("DELETE", f"/{tenants}")


def ids(hits):
    return {hit.id for hit in hits}


def test_no_search_shows_what_the_name_hides(shown, opensearch_engine):
    whole = {"size": 100, "_source": False}
    params = {"search_pipeline": None} if shown.endswith("-a") else {"search_pipeline": shown.removesuffix("-shop")}
    seen = opensearch_engine.request("POST", f"/{shown}/_search", params=params, body=whole)["hits"]["hits"]
    assert {hit["_id"] for hit in seen} == SHOWN  # as the server itself shows it
    index = Index.open(opensearch_engine, shown)
    query = "the salary of the zebra keeper"
    for options in (
        *({"mode": mode, "k": 50, "explain": True} for mode in ("weights", "dense", "hybrid")),
        *(
            {"mode": mode, "k": 4, "candidates": 4} for mode in ("weights", "dense", "hybrid")
        ),  # the nearest of those that it may see
        {"server_fusion": True, "k": 50},
        {"rerank": "rnn", "sort": "kind", "collapse": "kind", "k": 50},
        {"pin": ["b1", "a3"], "k": 50},
    ):
        assert ids(index.search(query, **options)) == SHOWN, options
    assert ids(index.search("", like=["a1"], k=50)) == SHOWN - {"a1"}
    assert ids(index.pin().search(query, k=50)) == SHOWN
    answer = index.answer(query, facets=["kind:100"], totals=True, highlight=True, k=50)
    assert {each.value for each in answer.facets["kind:100"]} == {f"kind {each}" for each in SHOWN}
    assert (answer.totals.candidates, answer.totals.passing) == (4, 4)
    assert index.run({"q": query}).scores["q"].keys() == SHOWN
    found = index.answer("zebre", rewrite="spelling", k=50)
    assert "zebra" not in f"{found.remarks}{found!r}"
    empty = index.answer(query, where="kind='kind b7'")
    assert (list(empty.hits), "kind b" in " ".join(empty.remarks).replace("kind b7", "")) == ([], False)


def test_a_hidden_document_cannot_be_named(shown, opensearch_engine, tmp_path, capsys):
    index = Index.open(opensearch_engine, shown)
    assert index.explain("salary", "a1").id == "a1"
    for call, options in ((index.explain, {"document": "b1"}), (index.search, {"like": ["b1"]})):
        with pytest.raises(UsageError, match="no document 'b1'"):
            call("salary", **options)
    (tmp_path / "queries.tsv").write_text("q\tzebra\n")
    files = ["--queries", str(tmp_path / "queries.tsv"), "--run", str(tmp_path / "run")]
    assert run(["search", shown, *files, "--filter", "kind=none", "--url", opensearch_engine.url]) == 0
    remarks = capsys.readouterr().err
    assert ("other documents have 'kind a" in remarks, "kind b" in remarks) == (True, False)


def test_the_printed_requests_find_what_the_search_finds(shown, opensearch_engine):
    index = Index.open(opensearch_engine, shown)
    search, fetch = index.requests("the salary of the zebra keeper")
    answers = opensearch_engine.request("POST", search["path"], body=search["body"])["responses"]
    assert [{hit["sort"][1] for hit in answer["hits"]["hits"]} for answer in answers] == [SHOWN, SHOWN]
    body = orjson.loads(orjson.dumps(fetch["body"]).replace(b'"<the ids of the best after fusion>"', b'"a1","b1"'))
    path, _, read = fetch["path"].partition("?")
    read = dict(pair.split("=") for pair in read.split("&"))
    assert len(opensearch_engine.request("POST", path, params=read, body={**body, "size": 9})["hits"]["hits"]) == 1


def test_a_name_that_hides_something_else_now_is_looked_up_again(tenants, opensearch_engine, monkeypatch):
    alias = add_alias(opensearch_engine, tenants, f"{tenants}-a", filter=FILTER)
    index = Index.open(opensearch_engine, alias)
    assert ids(index.search("salary", k=50)) == SHOWN
    add_alias(opensearch_engine, tenants, alias, filter={"ids": {"values": ["a1"]}})
    monkeypatch.setattr(index_module, "_FRESH", 0.0)
    assert ids(index.search("salary", k=50)) == {"a1"}
    assert index.answer("salary", totals=True).totals.passing == 1


@pytest.mark.parametrize("way", ["filter", "pipeline"])
def test_passages_are_hidden_and_a_new_generation_hides_them_too(way, opensearch_engine, name, tmp_path, pipeline, termweave):
    path = tmp_path / "docs.jsonl"
    texts = {identity: " ".join(f"{text}. Part {part}." for part in range(8)) for identity, text in [*TEXTS.items()][36:]}
    path.write_bytes(b"\n".join(orjson.dumps({"_id": each, "text": text}) for each, text in texts.items()))
    made = build(opensearch_engine, corpora.open_source(path), name, BuildOptions(passages=20))
    clause, alias = {"prefix": {"id": "a"}}, name
    if way == "filter":
        alias = add_alias(opensearch_engine, made.index, f"{name}-of-a", filter=clause)
    else:
        pipeline(made.index, {"filter_query": {"query": clause}})
    index = tw.connect(opensearch_engine.url).index(alias)
    found = index.search("the salary of the zebra keeper", passages="2+1", explain=True, highlight=True, k=50)
    assert ids(found) == SHOWN
    assert all(hit.passages and "zebra" not in str(hit.passages) for hit in found)
    url = ["--url", opensearch_engine.url]
    if way == "filter":
        for command in (["verify", alias], ["index", path, alias], ["index", path, alias, "--update"]):
            assert f"{alias!r} shows only some of the documents of {name!r}" in termweave(*command, *url, status=2)
        add_alias(opensearch_engine, made.index, name, filter=clause)
    assert "all there" in termweave("verify", name, *url)
    again = build(opensearch_engine, corpora.open_source(path), name, BuildOptions(passages=24))
    assert again.index != made.index
    assert ids(tw.connect(opensearch_engine.url).index(name).search("the salary of the zebra keeper", k=50)) == SHOWN


def test_other_processors_are_named_or_refused_and_what_is_hidden_is_enriched(tenants, opensearch_engine, pipeline, termweave):
    renaming = [{"rename_field": {"field": "text", "target_field": "label"}}]
    used = pipeline(tenants, {"filter_query": {"query": FILTER}}, response_processors=renaming)
    answer = Index.open(opensearch_engine, tenants).answer("salary")
    assert ids(answer.hits) == SHOWN
    assert f"{used!r} of {tenants!r} does not run: termweave keeps its filters and leaves out rename_field." in answer.remarks[0]
    body = {"text": "a secret", "tenant": "b"}
    opensearch_engine.request("PUT", f"/{tenants}/_doc/b99", params={"refresh": True, "routing": "b"}, body=body)
    termweave("enrich", tenants, "--text-field", "text", "--url", opensearch_engine.url)
    whole = {"size": 0, "track_total_hits": True, "query": {"exists": {"field": "termweave.source_digest"}}}
    assert opensearch_engine.request("POST", f"/{tenants}/_search", body=whole)["hits"]["total"]["value"] == len(TEXTS) + 1
    pipeline(tenants, {"acl_routing_search": {"acl_field": "tenant"}})
    with pytest.raises(UsageError, match="has processors that may hide documents: acl_routing_search"):
        Index.open(opensearch_engine, tenants)
