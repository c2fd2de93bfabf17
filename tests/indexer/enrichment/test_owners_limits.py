"""`termweave enrich` on an index whose owner set limits, blocks and names of its own: it works, or says in plain words what is in the way."""

import json
from itertools import product

import pytest

from termweave.cli import run
from termweave.errors import EngineError
from termweave.search import Index
from tests.indexer.builds import sources

from .conftest import WEIGHTS, bulk, write


def put(engine, index, **settings):
    engine.request("PUT", f"/{index}/_settings", body={f"index.{name}": value for name, value in settings.items()})


def said(engine, capsys, *arguments, status=0):
    """What a verb prints, or its error."""
    capsys.readouterr()
    assert run([*arguments, "--url", engine.url]) == status
    printed = capsys.readouterr()
    return printed.err if status else printed.out


def test_small_limits_of_an_index_divide_what_is_read(shop, enrich, opensearch_engine, capsys):
    index = shop()
    whole = sources(opensearch_engine, index)
    put(opensearch_engine, index, max_result_window=10, max_terms_count=7)
    assert enrich(index, "--plan")["to_write"] == 30
    assert enrich(index)["written"] == 30
    options = ("-k", "30", "--fields", "stock", "--sort", "stock", "--collapse", "stock", "--json")
    hits = json.loads(said(opensearch_engine, capsys, "search", index, "green tea", *options))["hits"]
    assert [hit["fields"]["stock"] for hit in hits] == list(range(30))
    found = Index.open(opensearch_engine, index)
    assert int(found.search("green tea", rerank="rnn", k=30, highlight=True)[0].id[1:]) % 5 == 4
    if opensearch_engine.has_search_pipelines:  # what the server fuses is not divided
        with pytest.raises(EngineError) as raised:
            found.search("green tea", server_fusion=True)
        assert "lower --candidates to index.max_result_window" in raised.value.hint
        assert len(found.search("green tea", server_fusion=True, candidates=10)) == 10
    assert enrich(index)["written"] == 0
    assert enrich(index, "--remove", fields=())["removed"] == 30
    put(opensearch_engine, index, max_result_window=None)
    assert sources(opensearch_engine, index) == whole


def test_a_search_says_that_an_enrichment_did_not_end(shop, enrich, opensearch_engine, capsys, tmp_path):
    index = shop()
    put(opensearch_engine, index, **{"blocks.write": True})
    remedy = 'PUT /INDEX/_settings with {"index.blocks.write": null} removes the block. Run the command again'
    assert remedy in enrich(index, *WEIGHTS, status=1)
    queries = tmp_path / "queries.tsv"
    queries.write_text("q1\tgreen tea\n")
    for words in (("green tea",), ("--queries", str(queries), "--run", str(tmp_path / "run"))):
        error = said(opensearch_engine, capsys, "search", index, *words, status=1)
        assert f"The search found nothing, but only 0 of 30 documents of '{index}' are enriched." in error
    lexical = ("search", index, "zebra", "--mode", "lexical")  # which needs no enrichment
    assert "Nothing found." in said(opensearch_engine, capsys, *lexical)
    put(opensearch_engine, index, **{"blocks.write": None})
    enrich(index, *WEIGHTS)
    bulk(opensearch_engine, index, *({"delete": {"_id": f"p{number}"}} for number in range(30)))
    assert "Nothing found." in said(opensearch_engine, capsys, "search", index, "green tea")  # which is so


def test_a_limit_that_cannot_be_divided_is_named_with_what_to_do(shop, enrich, opensearch_engine):
    index = shop()
    put(opensearch_engine, index, **{"mapping.total_fields.limit": 4})
    assert "Raise index.mapping.total_fields.limit of the index" in enrich(index, status=1)
    assert not opensearch_engine.request("HEAD", f"/{index}.stats")  # nothing is left behind
    assert opensearch_engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"] == {"owner": "shop"}
    put(opensearch_engine, index, **{"mapping.total_fields.limit": None, "max_docvalue_fields_search": 0})
    assert "Raise that setting of the index: PUT /INDEX/_settings." in enrich(index, status=1)


@pytest.mark.parametrize("derived", [True, False])
def test_a_source_that_does_not_give_every_field_back_is_refused(enrich, opensearch_engine, name, derived):
    """Partial updates make the whole document of `_source`: a field that it leaves out would be lost from the index."""
    index, said = f"{name}-odd", "is derived from other fields" if derived else "writing a document back would lose them"
    mappings = {
        "properties": {"name": {"type": "keyword"}, "stock": {"type": "integer"}},
        "_source": {} if derived else {"excludes": ["stock"]},
    }
    settings = {"index.knn": True} if opensearch_engine.has_search_pipelines else {}
    settings |= {"index.derived_source.enabled": True} if derived else {}
    opensearch_engine.request("PUT", f"/{index}", body={"settings": settings, "mappings": mappings})
    write(opensearch_engine, index, {"1": {"name": "a chair", "stock": 7}})
    assert said in enrich(index, status=2)
    assert not opensearch_engine.request("HEAD", f"/{index}.stats")
    assert opensearch_engine.request("POST", f"/{index}/_count", body={"query": {"term": {"stock": 7}}})["count"] == 1


def test_no_hint_would_cost_an_application_its_index(shop, enrich, opensearch_engine, capsys, tmp_path):
    index = shop()
    alias, source = f"{index}-alias", tmp_path / "corpus.jsonl"
    opensearch_engine.request("PUT", f"/{index}/_alias/{alias}")  # of a name that generations have
    source.write_text('{"_id": "1", "text": "a kettle"}\n')
    verbs = (("learn", str(source)), ("index", str(source)), ("delete",), ("prune",), ("rollback",), ("verify",))
    for step in (lambda: None, lambda: enrich(index, *WEIGHTS)):
        step()
        for name, (verb, *words) in product((index, alias), verbs):
            arguments = (verb, *words, name) if verb == "index" else (verb, name, *words)
            error = said(opensearch_engine, capsys, *arguments, status=2)
            assert opensearch_engine.request("HEAD", f"/{index}")
            assert not {"delete", "rename", "remove"} & set(error.lower().split()), error
    listed = json.loads(said(opensearch_engine, capsys, "list", "--json"))["indices"]
    (row,) = (each for each in listed if each["name"] == index)
    assert (row["generation"], row["documents"], row["signals"]) == (index, 30, ["lexical", "weights"])
