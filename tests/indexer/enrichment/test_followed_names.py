"""`termweave enrich` follows a name: an alias that moves, an index that is made again, a data stream that rolls over, several indices."""

import pytest

from termweave.catalog import statistics_store
from termweave.catalog.lineage import read_lineage
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.search import Index
from tests.indexer.builds import sources

from .conftest import WEIGHTS, bulk, put, write


@pytest.fixture
def alias(opensearch_engine, name):
    """A function that points the alias NAME-shop at these indices and at no other."""

    def point(*indices, **properties):
        entries = [{"add": {"index": index, "alias": f"{name}-shop", **properties}} for index in indices]
        actions = [{"remove": {"index": f"{name}-shop-*", "alias": f"{name}-shop", "must_exist": False}}, *entries]
        opensearch_engine.request("POST", "/_aliases", body={"actions": actions})
        return f"{name}-shop"

    return point


def first(engine, name, query):
    engine.request("POST", f"/{name}/_refresh")
    return Index.open(engine, name).search(query, k=1)[0].id


def has_fields(engine, index):
    return all("encoding_digest" in str(each) for each in sources(engine, index).values())


def test_a_watch_follows_an_alias_to_another_index_and_back(shop, alias, watch, opensearch_engine):
    engine, one, two = opensearch_engine, shop(number=1), shop(number=2)
    name, heard = alias(one), []

    def move():
        alias(two)
        with pytest.raises(UsageError, match=f"'{two}', which '{name}' stands for now, was not built by termweave") as caught:
            Index.open(engine, name)
        assert f"'termweave enrich {name}'" in caught.value.hint
        put(engine, two, new="an umbrella")

    def back():
        heard.append(first(engine, name, "umbrella"))
        put(engine, one, p4="a trampoline")
        alias(one)

    done, said = watch(name, move, back, lambda: heard.append(first(engine, name, "trampoline")))
    assert heard == ["new", "p4"]
    assert done["index"] == one
    assert f"'{name}' stands for '{two}' now. The index gets the models, fields and signals of the first one." in said
    assert has_fields(engine, one)
    assert has_fields(engine, two)
    engine.request("DELETE", f"/{one},{one}.stats")  # the second has statistics of its own
    alias(two)
    assert first(engine, name, "umbrella") == "new"
    assert statistics_store.is_complete(engine, two)


def test_a_watch_goes_on_where_its_index_is_deleted_and_made_again(shop, watch, opensearch_engine):
    engine, index = opensearch_engine, shop()

    def delete():
        engine.request("DELETE", f"/{index}", params={"ignore_unavailable": True})

    def again():
        delete()
        shop()
        put(engine, index, new="an umbrella")

    def unfit():
        delete()
        shop({"termweave": {"type": "keyword"}})

    done, said = watch(index, again, lambda: None, delete, lambda: None, unfit, lambda: None, again)
    text = "\n".join(said)
    assert text.count(f"'{index}' stands for '{index}' now. The index was deleted and made again, and ") == 1
    assert text.count(f"There is no index '{index}' now. The watch waits until it can go on.") == 1
    assert sum("has a field 'termweave' of its own" in each for each in said) == 1
    assert done["documents"] == 31
    assert has_fields(engine, index)
    assert first(engine, index, "umbrella") == "new"


def test_the_same_command_after_a_move_goes_on_with_the_first_enrichment(shop, alias, enrich, opensearch_engine):
    engine, one = opensearch_engine, shop(number=1)
    name = alias(one)
    enrich(name, *WEIGHTS)
    two = shop(number=2)  # whose mapping is not dynamic, filled from the enriched index
    copied = sources(engine, one)
    write(engine, two, copied)
    alias(two)
    assert enrich(name, "--plan", fields=())["to_write"] == 30
    done = enrich(name, fields=())
    assert (done["index"], done["written"], done["signals"]) == (two, 30, ["lexical", "weights"])
    assert f"'{name}' stood for '{one}' when it was enriched." in " ".join(done["notes"])
    assert first(engine, name, "hammock kettle") in {f"p{number}" for number in range(4, 30, 5)}
    before, now = (read_lineage(engine, index) for index in (one, two))
    assert (before.models, before.statistics["hash"]) == (now.models, now.statistics["hash"])
    # With its mapping and lineage, too: what was copied is searched and stays.
    three, four = f"{name}-3", f"{name}-4"
    stored = engine.request("GET", f"/{two}/_mapping")[two]["mappings"]
    settings = {"index.knn": True} if engine.has_search_pipelines else {}
    engine.request("PUT", f"/{three}", body={"mappings": stored, "settings": settings})
    write(engine, three, copied)
    alias(three)
    assert enrich(name, fields=())["written"] == 0
    assert statistics_store.is_complete(engine, three)
    # Filled before its dynamic mapping had the fields, which then have other types.
    write(engine, four, copied)
    alias(four)
    assert f"The index '{four}' has the field 'termweave." in enrich(name, fields=(), status=2)


@pytest.fixture
def two_shops(shop, alias, opensearch_engine):
    """The server, the alias NAME-shop, and its indices: one with thirty documents, and one with a kettle and an umbrella."""
    one = shop({"place": {"type": "keyword"}, "price": {"type": "keyword"}}, number=1)
    two = shop({"price": {"type": "integer"}}, number=2)
    bulk(opensearch_engine, two, *({"delete": {"_id": f"p{number}"}} for number in range(30)))
    put(opensearch_engine, two, q1="a blue kettle", q2="an umbrella")
    return opensearch_engine, alias(one, two), one, two


def test_several_indices_of_one_name_are_searched_as_one(two_shops, enrich, shell):
    engine, name, one, two = two_shops
    with pytest.raises(EngineError, match="stands for 2 indices") as caught:
        Index.open(engine, name)
    assert f"'termweave enrich {name}'" in caught.value.hint
    done = enrich(name)
    assert (done["index"], done["documents"], done["written"]) == (name, 32, 32)
    assert enrich(name, fields=())["written"] == 0
    opened = Index.open(engine, name)
    for mode in ("weights", "dense", "hybrid"):
        assert opened.search("umbrella", k=1, mode=mode)[0].id == "q2"
    answer = opened.answer("kettle", k=9, where="stock<=9", facets=["stock"], sort="stock", totals=True, explain=True)
    assert (len(answer.hits), answer.totals.passing) == (9, 12)
    assert {each.value: each.count for each in answer.facets["stock"]}["1"] == 3
    assert opened.search("kettle", rerank="rnn", k=40).remarks == ()
    assert len(opened.search("kettle", where="NOT exists(place)", k=40)) == 32
    with pytest.raises(UsageError, match="'price' has another type in another index"):  # it has another type in each index
        opened.search("kettle", where="price=3")
    put(engine, two, q3="a trampoline")
    (remark,) = opened.answer("umbrella", k=1).remarks
    assert remark.startswith("1 of 33 documents is not enriched yet")
    shell("profiles", name, "--save", "mine", "--mode", "weights", "--use", "mine")
    for index in (one, two):
        stored = engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"]
        assert (stored["owner"], stored["termweave"]["profile"]) == ("shop", "mine")
    assert enrich(name, "--remove", fields=())["removed"] == 32
    assert not any("encoding_digest" in str(each) for index in (one, two) for each in sources(engine, index).values())
    assert not engine.request("HEAD", f"/{one}.stats")


def test_an_index_that_joins_a_name_is_counted_until_it_is_enriched_alike(two_shops, shop, alias, enrich, monkeypatch):
    monkeypatch.setattr("termweave.search.index._FRESH", 0.0)  # an open index looks at each search what its name stands for
    engine, name, one, two = two_shops
    enrich(name, *WEIGHTS)
    opened = Index.open(engine, name)
    three = shop(number=3)
    alias(one, two, three)
    for index in (one, two):
        filtered = {"index": index, "alias": f"{name}-few", "filter": {"range": {"stock": {"lte": 3}}}}
        engine.request("POST", "/_aliases", body={"actions": [{"add": filtered}]})
    (remark,) = opened.answer("umbrella", k=1).remarks
    assert remark.startswith("30 of 62 documents are not enriched yet")
    assert enrich(name, fields=())["written"] == 30
    assert not statistics_store.is_complete(engine, three)  # they share those of the first
    with pytest.raises(TermweaveError, match="is the _id of a document in"):
        opened.search("a wooden chair", k=40, mode="weights")  # the first and the third have the same ids
    assert Index.open(engine, f"{name}-few").answer("chair", k=40, totals=True).totals.passing == 6
    filtered["filter"] = {"match_all": {}}
    engine.request("POST", "/_aliases", body={"actions": [{"add": filtered}]})
    with pytest.raises(UsageError, match="has different filters or routings"):
        Index.open(engine, f"{name}-few")
    assert enrich(three, "--remove", fields=())["removed"] == 30
    assert statistics_store.is_complete(engine, one)
    assert enrich(three, "--signals", "dense")["signals"] == ["lexical", "dense"]
    with pytest.raises(UsageError, match=f"'{three}' and '{one}' are enriched with different models, signals, statistics"):
        Index.open(engine, name)
    assert "are enriched with different" in enrich(name, fields=(), status=2)


def test_a_data_stream_that_rolls_over_during_a_watch(watch, enrich, opensearch_engine, name):
    engine, stream = opensearch_engine, f"{name}-logs"
    settings = {"index.knn": True} if engine.has_search_pipelines else {}
    template = {"settings": {"number_of_replicas": 0, **settings}, "mappings": {"properties": {"name": {"type": "text"}}}}
    body = {"index_patterns": [stream], "data_stream": {}, "template": template}
    engine.request("PUT", f"/_index_template/{stream}", body=body)

    def log(key, text):
        document = {"@timestamp": "2026-01-01T00:00:00Z", "name": text, "level": "warn"}
        engine.request("PUT", f"/{stream}/_create/{key}", params={"refresh": True}, body=document)

    def roll_over():
        engine.request("POST", f"/{stream}/_rollover")
        log("e3", "the umbrella is wet")
        (remark,) = Index.open(engine, stream).answer("disk", k=1).remarks
        assert remark.startswith("1 of 3 documents is not enriched yet")

    try:
        log("e1", "the disk of node 3 is full")
        log("e2", "the kettle boils over")
        again, late = lambda: engine.request("POST", f"/{stream}/_rollover"), lambda: log("e4", "the trampoline is slack")
        watch(stream, roll_over, again, late, lambda: None, options=())
        opened = Index.open(engine, stream)
        for key, query in (("e1", "full disk"), ("e2", "kettle"), ("e3", "umbrella"), ("e4", "trampoline")):
            assert [opened.search(query, k=1, mode=mode)[0].id for mode in ("weights", "hybrid")] == [key, key]
        answer = opened.answer("umbrella", where="@timestamp>=2026", totals=True)
        assert (answer.totals.passing, answer.remarks) == (4, ())
        engine.request("POST", f"/{stream}/_rollover")  # its mapping has no field level yet
        assert enrich(stream, fields=())["written"] == 0
        assert Index.open(engine, stream).search("kettle", k=2, sort="level")[0].id == "e2"
        assert enrich(stream, "--remove", fields=())["removed"] == 4
    finally:
        engine.request("DELETE", f"/_data_stream/{stream}")
        engine.request("DELETE", f"/_index_template/{stream}")
