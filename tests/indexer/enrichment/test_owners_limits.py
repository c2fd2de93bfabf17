"""`termweave enrich` on an index whose owner set limits, blocks and names of its own: it works, or says in plain words what is in the way."""

from __future__ import annotations

import json

import pytest

from termweave.cli import run
from termweave.dialect import dialect_of
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


@pytest.mark.parametrize(("window", "terms"), [(10, 7), (1, 1)])
def test_small_limits_of_an_index_divide_what_is_read(shop, enrich, opensearch_engine, capsys, window, terms):
    index = shop()
    whole = sources(opensearch_engine, index)
    put(opensearch_engine, index, max_result_window=window, max_terms_count=terms)
    assert enrich(index, "--plan")["to_write"] == 30
    assert enrich(index)["written"] == 30
    if window > 1:
        options = ("-k", "30", "--fields", "stock", "--sort", "stock", "--collapse", "stock", "--json")
        hits = json.loads(said(opensearch_engine, capsys, "search", index, "green tea", *options))["hits"]
        assert [hit["fields"]["stock"] for hit in hits] == list(range(30))
        best = Index.open(opensearch_engine, index).search("green tea", rerank="rnn", k=30, highlight=True)[0]
        assert int(best.id[1:]) % 5 == 4
    assert enrich(index)["written"] == 0
    assert enrich(index, "--remove", fields=())["removed"] == 30
    put(opensearch_engine, index, max_result_window=None)
    assert sources(opensearch_engine, index) == whole


def test_what_the_server_fuses_is_not_divided(shop, enrich, opensearch_engine, capsys):
    if not opensearch_engine.has_search_pipelines:
        pytest.skip("the server has no query `hybrid`")
    index = shop()
    enrich(index)
    put(opensearch_engine, index, max_result_window=12)
    found = Index.open(opensearch_engine, index)
    assert found.search("green tea")  # from here on its engine knows the limit
    with pytest.raises(EngineError) as raised:
        found.search("green tea", server_fusion=True)
    assert raised.value.hint == "Leave --server-fusion out, or lower --candidates to index.max_result_window of the index."
    assert len(found.search("green tea", server_fusion=True, candidates=12)) == 10


def test_a_search_says_that_an_enrichment_did_not_end(shop, enrich, opensearch_engine, capsys, tmp_path):
    index = shop()
    put(opensearch_engine, index, **{"blocks.write": True})
    remedy = 'PUT /INDEX/_settings with {"index.blocks.write": null} takes it away. Run the command again'
    assert remedy in enrich(index, *WEIGHTS, status=1)
    queries = tmp_path / "queries.tsv"
    queries.write_text("q1\tgreen tea\n")
    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    (judged / "corpus.jsonl").write_text('{"_id": "p4", "text": "a kettle"}\n')
    (judged / "queries.jsonl").write_text('{"_id": "q1", "text": "green tea"}\n')
    (judged / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tp4\t1\n")
    for words in (
        ("search", index, "green tea"),
        ("search", index, "green tea", "--json"),
        ("search", index, "--queries", str(queries), "--run", str(tmp_path / "run")),
        ("evaluate", index, str(judged)),
    ):
        error = said(opensearch_engine, capsys, *words, status=1)
        assert f"Nothing can be said yet: 0 of 30 documents of '{index}' are enriched." in error, words
        assert f"Run 'termweave enrich {index}'" in error
    lexical = ("search", index, "zebra", "--mode", "lexical")  # which needs no enrichment
    assert "Nothing found." in said(opensearch_engine, capsys, *lexical)
    put(opensearch_engine, index, **{"blocks.write": None})
    enrich(index, *WEIGHTS)
    assert said(opensearch_engine, capsys, "search", index, "green tea", "-k", "1")
    bulk(opensearch_engine, index, *({"delete": {"_id": f"p{number}"}} for number in range(30)))
    assert "Nothing found." in said(opensearch_engine, capsys, "search", index, "green tea")  # which is so


@pytest.mark.parametrize(
    ("setting", "value", "reason", "remedy"),
    [
        ("mapping.total_fields.limit", 4, "Limit of total fields [4]", "Raise index.mapping.total_fields.limit of the index"),
        ("max_docvalue_fields_search", 0, "docvalue_fields", "Raise that setting of the index: PUT /INDEX/_settings."),
    ],
)
def test_a_limit_that_cannot_be_divided_is_named_with_what_to_do(
    shop, enrich, opensearch_engine, capsys, setting, value, reason, remedy
):
    index = shop()
    put(opensearch_engine, index, **{setting: value})
    error = enrich(index, status=1)
    if setting.startswith("mapping"):
        assert not opensearch_engine.request("HEAD", f"/{index}.stats")  # nothing is left behind
        assert opensearch_engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"] == {"owner": "shop"}
    assert reason in error
    assert remedy in error


@pytest.mark.parametrize(
    ("settings", "mapping", "said"),
    [
        (
            {"index.knn": True, "index.derived_source.enabled": True},
            {},
            "is derived from other fields (index.derived_source.enabled)",
        ),
        (
            {"index.knn": True},
            {"_source": {"excludes": ["stock"]}},
            "leaves fields out (excludes), which writing a document back would lose",
        ),
    ],
)
def test_a_source_that_does_not_give_every_field_back_is_refused(enrich, opensearch_engine, name, settings, mapping, said):
    """Partial updates make the whole document of `_source`: a field that it leaves out would be lost from the index."""
    index, properties = f"{name}-odd", {"name": {"type": "keyword"}, "stock": {"type": "integer"}}
    opensearch_engine.request("PUT", f"/{index}", body={"settings": settings, "mappings": {**mapping, "properties": properties}})
    write(opensearch_engine, index, {"1": {"name": "a chair", "stock": 7}})
    error = enrich(index, status=2)
    assert said in error
    assert "Build a separate index: termweave index opensearch:" in error
    assert not opensearch_engine.request("HEAD", f"/{index}.stats")
    assert opensearch_engine.request("POST", f"/{index}/_count", body={"query": {"term": {"stock": 7}}})["count"] == 1


def test_nothing_calls_what_was_written_numbers_of_a_model(shop, enrich, opensearch_engine, capsys):
    index = shop({"embedding": {"type": "rank_features"}})
    for words in (("--text-field", "name", *WEIGHTS), (), ("--plan",), ("--remove",), ("--text-field", "name", "--plan")):
        assert run(["enrich", index, *words, "--url", opensearch_engine.url]) == 0
        printed = capsys.readouterr()
        assert "left out" not in printed.err + printed.out, words


def test_a_removal_is_repeated_without_the_fields_and_says_what_stays(shop, enrich, opensearch_engine, capsys):
    def ours():
        settings = opensearch_engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
        return {key.split(".")[2] for key in settings if "termweave" in key}, [key for key in settings if "learned_search" in key]

    index = shop()
    if dialect_of(opensearch_engine.capabilities).metadata_type != "flat_object":
        enrich(index)
        enrich(index, "--remove", fields=())
        assert ours() == (set(), [])
        assert f"'{index}' was not enriched" in enrich(index, "--remove", fields=(), status=2)
        return
    enrich(index, "--signals", "learned", "--yes")
    for words, stays, searching in (
        ((), "Analyzers named termweave_learned_search stay in the settings", True),
        (("--yes",), "The analyzer and the similarity termweave_learned stay", False),
        ((), "The analyzer and the similarity termweave_learned stay", False),
    ):
        assert run(["enrich", index, "--remove", *words, "--url", opensearch_engine.url]) == 0
        assert stays in capsys.readouterr().err
        assert bool(ours()[1]) == searching
    assert opensearch_engine.request("POST", f"/{index}/_search", body={})["hits"]["total"]["value"] == 30  # it is open
    assert enrich(index, "--signals", "learned", "--yes")["written"] == 30
    assert Index.open(opensearch_engine, index).search("kettles", mode="learned", k=1)


def test_enriched_indices_are_listed_and_among_the_known_names(shop, enrich, opensearch_engine, capsys):
    index = shop()
    enrich(index, *WEIGHTS)
    listed = json.loads(said(opensearch_engine, capsys, "list", "--json"))["indices"]
    (row,) = [each for each in listed if each["name"] == index]
    shown = {"generation": index, "documents": 30, "generations": 0, "signals": ["lexical", "weights"]}
    assert row.items() >= shown.items()
    assert row["bytes"] > 0
    assert "enriched" in said(opensearch_engine, capsys, "list")
    assert index in said(opensearch_engine, capsys, "search", "no-such-index", "tea", status=2)
    enrich(index, "--remove")
    assert index not in said(opensearch_engine, capsys, "list", "--json")


@pytest.mark.parametrize("enriched", [False, True])
def test_no_hint_would_cost_an_application_its_index(shop, enrich, opensearch_engine, capsys, tmp_path, enriched):
    index = shop()
    if enriched:
        enrich(index, *WEIGHTS)
    alias, source = f"{index}-alias", tmp_path / "corpus.jsonl"
    opensearch_engine.request("PUT", f"/{index}/_alias/{alias}")  # of a name that generations have
    source.write_text('{"_id": "1", "text": "a kettle"}\n')
    for name in (index, alias):
        for verb, *words in (("learn", str(source)), ("index", str(source)), ("delete",), ("prune",), ("rollback",), ("verify",)):
            arguments = (verb, *words, name) if verb == "index" else (verb, name, *words)
            error = said(opensearch_engine, capsys, *arguments, status=2)
            assert opensearch_engine.request("HEAD", f"/{index}")
            assert not {"delete", "rename", "remove", "Delete", "Rename", "Remove"} & set(error.split()), error
    error = said(opensearch_engine, capsys, "learn", index, str(source), status=2)
    assert f"'termweave index opensearch:{index} NAME' builds an index that 'termweave learn NAME ...'" in error
