"""Reading an existing index: every document once, as it was at one moment, whatever happens meanwhile."""

import gc
import threading
import time

import pytest

import termweave as tw
from termweave.corpora import IndexReading, open_dataset, open_source
from termweave.corpora.formats import addresses
from termweave.corpora.index import pages, point_in_time, source
from termweave.corpora.index.point_in_time import open_views
from termweave.engine import EngineResponseError, connect
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.settings import load
from termweave.training.data import dataset

from .conftest import write

TEXT = {"type": "text"}


def numbered(count, word="first"):
    fields = ({"name": f"name {number}", "description": f"{word} {number}", "price": number} for number in range(count))
    return {f"p{number}": each for number, each in enumerate(fields)}


@pytest.fixture
def opened(opensearch_engine):
    """A function that opens an index of the tests' server."""

    def call(index, *, query=None, rate=None, build="", **options):
        reading = IndexReading(query, rate, build=build, settings=lambda _: load(url=opensearch_engine.url))
        return open_source(f"opensearch:{index}", index=reading, **{"text_fields": ("description",), **options})

    return call


@pytest.fixture
def small_pages(monkeypatch):
    """Pages of at most twenty documents."""
    for name in ("_FIRST", "_MOST"):
        monkeypatch.setattr(pages, name, 20)


def test_every_document_once_with_all_fields(products, opened, opensearch_engine, monkeypatch):
    monkeypatch.setattr(pages, "_SMALLEST", 50)  # many slices
    monkeypatch.setattr(pages, "_FIRST", 7)
    index = products(numbered(500), shards=3)
    write(opensearch_engine, index, numbered(40, "second"))  # gaps in the sequence numbers
    opensearch_engine.request("DELETE", f"/{index}/_doc/p499", params={"refresh": True})
    corpus = opened(index, title_field="name")
    assert corpus.total == 499
    seen = []
    documents = list(corpus.documents(seen.append))
    assert sorted(each.id for each in documents) == sorted(f"p{number}" for number in range(499))
    by_id = {each.id: each for each in documents}
    assert (by_id["p3"].title, by_id["p3"].text, by_id["p3"].metadata) == ("name 3", "second 3", {"price": 3})
    assert by_id["p300"].text == "first 300"
    assert [each.id for each in corpus.documents()] == [each.id for each in documents]  # in the same order, from the snapshot
    assert seen == sorted(seen)
    assert abs(seen[-1] / corpus.size - 1) < 0.1
    assert f"opensearch:{index}: id = '_id'; title = 'name'; text = 'description'; metadata = 'price'." in corpus.remarks


def test_training_reads_it_in_the_same_order_each_time(products, opensearch_engine, monkeypatch, slowly):
    """A seed draws questions by their places."""
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    index = products(numbered(60))
    read = []
    for slow in (0, 1):
        slowly(slow)
        documents, _ = dataset.documents_of(f"opensearch:{index}", {"text_fields": ("description",)})
        read.append([each.id for each in documents])
    assert read[0] == read[1]
    assert len(read[0]) == 60


def test_of_the_default_search_pipeline_of_an_index_only_the_filters_count(products, opened, opensearch_engine, name):
    index = products(numbered(30), shards=1)
    path, whole = f"/_search/pipeline/{name}", {"size": 0, "track_total_hits": True}
    hiding = {"filter_query": {"query": {"term": {"_id": "p1"}}}}
    renaming = {"rename_field": {"field": "name", "target_field": "label"}}
    opensearch_engine.request("PUT", path, body={"request_processors": [hiding], "response_processors": [renaming]})
    opensearch_engine.request("PUT", f"/{index}/_settings", body={"index.search.default_pipeline": name})
    try:
        corpus = opened(index, title_field="name")
        documents, remarks = list(corpus.documents()), " ".join(corpus.remarks)
        with_pipeline = opensearch_engine.request("POST", f"/{index}/_search", params={"search_pipeline": name}, body=whole)
        both = [{}, whole, {}, whole | {"search_pipeline": name}]
        searches = opensearch_engine.request("POST", f"/{index}/_msearch", body=both)
    finally:
        opensearch_engine.request("DELETE", f"/{index}")
        opensearch_engine.request("DELETE", path)
    assert {each.id: each.title for each in documents} == {"p1": numbered(30)["p1"]["name"]}
    assert f"its default search pipeline {name!r} hides is not read" in remarks
    assert "leaves out rename_field" in remarks
    assert with_pipeline["hits"]["total"]["value"] == 1
    assert [each["hits"]["total"]["value"] for each in searches["responses"]] == [30, 1]


def test_what_is_written_meanwhile_is_not_in_the_snapshot(products, opened, opensearch_engine):
    index = products(numbered(300))
    corpus = opened(index)
    before = corpus.fingerprint
    half = corpus.documents()
    next(half)
    write(opensearch_engine, index, numbered(20, "second") | {"new": {"description": "new"}})
    half.close()
    documents = {each.id: each.text for each in corpus.documents()}
    assert documents == {identity: each["description"] for identity, each in numbered(300).items()}
    assert opened(index).fingerprint != before
    assert opened(index).fingerprint == opened(index).fingerprint


@pytest.mark.usefixtures("small_pages")
def test_a_lost_point_in_time_is_opened_again(products, opened, opensearch_engine):
    index = products(numbered(400), shards=1)
    corpus = opened(index)
    reading = corpus.documents()
    first = [next(reading) for _ in range(5)]
    reading.close()
    _lose_points_in_time(corpus)
    # p399 was not read yet and leaves the range that is read; p0 was read already.
    write(opensearch_engine, index, {"p399": {"description": "changed"}, "p0": {"description": "changed"}})
    documents = list(corpus.documents())
    texts = {each.id: each.text for each in documents}
    assert len(documents) == len(texts) == 400
    assert texts["p399"] == "changed"
    assert texts[first[0].id] == first[0].text


@pytest.mark.parametrize("said", ["Node not connected", "[indices:data/read/search[phase/query]] disconnected"])
def test_a_node_may_die_after_a_point_in_time_was_opened(products, opensearch_engine, monkeypatch, said):
    """The server's answer when the node of the shard was killed (a cell of tests/cluster)."""
    index, search, died = products(numbered(20), shards=1), point_in_time._search, []

    def dying(engine, pit, body):
        if not died:
            died.append(pit)
            reason = f"[opensearch-1][10.231.77.11:9300] {said}"
            raise EngineResponseError(500, reason, {"error": {"reason": reason}, "status": 500})
        return search(engine, pit, body)

    monkeypatch.setattr(point_in_time, "_search", dying)
    (view,) = open_views(opensearch_engine, index, [index], None)
    assert view.documents == 20
    assert view.pit != died[0]


def _lose_points_in_time(corpus):
    # A request under way would open the point in time again before the test writes.
    for thread in [each for each in threading.enumerate() if each.name == "termweave-source"]:
        thread.join()
    corpus.engine.request("DELETE", "/_search/point_in_time", body={"pit_id": [view.pit for view in corpus._views]})


@pytest.mark.usefixtures("small_pages")
def test_a_resumed_snapshot_knows_which_points_in_time_were_lost(products, opened, opensearch_engine, name, monkeypatch):
    monkeypatch.setattr(pages, "READERS", 1)  # one shard after the other
    index = products(numbered(400))
    first = opened(index, build=name)
    reading = first.pages()
    next(reading)
    reading.close()
    _lose_points_in_time(first)
    body = {"size": 1, "sort": [{"_seq_no": "desc"}]}
    found = opensearch_engine.request("POST", f"/{index}/_search", params={"preference": "_shards:0"}, body=body)
    last = found["hits"]["hits"][0]["_id"]  # not read yet; the write moves it out of the range that is read
    write(opensearch_engine, index, {last: {"description": "changed"}})
    reading = first.pages()
    assert any(page.slice == 1 for page in reading)  # shard 0 is read to its end
    reading.close()
    del first, reading
    gc.collect()  # the first command has ended
    resumed = opened(index, build=name)
    texts = {each.id: each.text for each in resumed.documents()}
    resumed.release()
    assert len(texts) == 400
    assert texts[last] == "changed"


def test_a_snapshot_belongs_to_one_command(products, opened, name):
    """Two builds of one name on two clusters share a snapshot, and no lease keeps them apart."""
    index = products(numbered(30))
    first = opened(index, build=name)
    reading = first.documents()
    next(reading)
    second = opened(index, build=name)
    with pytest.raises(TermweaveError, match="Another command reads the index into the same snapshot"):
        next(second.documents())
    second.release()
    assert len([*reading]) == 29
    first.release()
    assert len(list(second.documents())) == 30
    second.release()


def test_a_resumed_snapshot_has_the_fingerprint_of_its_fields(products, opened, name):
    index = products(numbered(3))
    first = opened(index, build=name)
    before = first.fingerprint
    assert before == opened(index).fingerprint
    del first
    gc.collect()  # the first command has ended
    for fields in ({"text_fields": ("name",)}, {"title_field": "name"}, {"id_field": "name"}):
        assert opened(index, build=name, **fields).fingerprint != before
    resumed = opened(index, build=name)
    assert resumed.fingerprint == before
    resumed.release()


def test_an_older_elasticsearch_answers_with_the_id_alone(scripted):
    pytest.importorskip("elasticsearch")
    scripted.headers = {"X-elastic-product": "Elasticsearch"}
    scripted.answers["*"] = (200, {"version": {"number": "8.15.0"}, "id": "46ToAwM", "hits": {"hits": []}})
    hits, numbers = {"hits": [], "total": {"value": 0}}, {"sum": 0, "sum_of_squares": 0}
    shards = {"_shards": {"total": 1}, "hits": hits, "aggregations": {"numbers": numbers}}
    scripted.answers["/shop/_search"] = scripted.answers["/_search"] = (200, shards)
    scripted.answers["/shop/_settings"] = (200, {"shop": {"settings": {"index.uuid": "u"}}})
    with connect(load(url=scripted.url)) as engine:
        assert [view.pit for view in open_views(engine, "shop", ["shop"], None)] == ["46ToAwM"]


@pytest.mark.usefixtures("small_pages")
def test_an_index_that_is_deleted_while_it_is_read(products, opened, opensearch_engine):
    index = products(numbered(300))
    reading = opened(index).documents()
    next(reading)
    opensearch_engine.request("DELETE", f"/{index}")
    with pytest.raises(InputError, match=f"The index '{index}' was deleted while it was read"):
        list(reading)


def test_a_query_restricts_it_and_a_rate_slows_it(products, opened):
    index = products(numbered(300))
    corpus = opened(index, query={"range": {"price": {"lt": 100}}}, rate=200)
    began = time.monotonic()
    assert sorted(each.metadata["price"] for each in corpus.documents()) == list(range(100))
    assert time.monotonic() - began > 0.3
    assert corpus.fingerprint != opened(index).fingerprint
    with pytest.raises(UsageError, match=r"refuses the query of the source: .*rage"):
        opened(index, query={"rage": {}})


def test_values_that_are_no_plain_text(products, opened):
    odd = {
        "a/b ü#1": {"description": ["one", None, "two"], "info": {"de": "eins", "en": "one", "size": 3}},
        "17": {"description": 17, "info": [{"de": "zwei"}, {"de": "drei"}], "when": "2024-02-29"},
        "none": {"price": 3},
        "null": {"description": None, "vector": [0.5, 0.5]},
    }
    method = {"name": "hnsw", "engine": "lucene"}  # the test's server has no native libraries: faiss would end it
    properties = {"description": {"type": "text"}, "vector": {"type": "knn_vector", "dimension": 2, "method": method}}
    index = products(odd, properties=properties)
    corpus = opened(index, text_fields=("description", "info.de"), title_field="when")
    documents = {each.id: each for each in corpus.documents()}
    assert (documents["a/b ü#1"].text, documents["a/b ü#1"].metadata) == ("one\ntwo\neins", {"info": {"en": "one", "size": 3}})
    assert (documents["17"].text, documents["17"].title) == ("17\nzwei\ndrei", "2024-02-29")
    assert (documents["none"].text, documents["none"].metadata) == ("", {"price": 3})
    assert documents["null"].metadata == {}
    assert any("fields of vectors are not read: vector (knn_vector)" in remark for remark in corpus.remarks)
    with pytest.raises(
        InputError, match=r"document .*: 'info' is an object where text should be. Name a field inside it: info\."
    ):
        list(opened(index, text_fields=("info",)).documents())
    skipping = opened(index, text_fields=("info",), skip_bad=True)
    assert len(list(skipping.documents())) == 2
    assert skipping.skipped.count == 2


def test_ids_of_a_field_and_an_index_without_documents(products, opened):
    index = products({"x": {"sku": ["S1"], "description": "one"}, "y": {"sku": 7, "description": "two"}}, dynamic=False)
    assert sorted(each.id for each in opened(index, id_field="sku").documents()) == ["7", "S1"]
    index = products({"x": {"sku": "S1", "description": "one"}, "y": {"description": "two"}}, suffix="more", dynamic=False)
    with pytest.raises(InputError, match="document 'y': no 'sku', which id_field names"):
        list(opened(index, id_field="sku").documents())
    empty = opened(products({}, properties={"description": TEXT}, suffix="empty"))
    assert (empty.total, list(empty.documents())) == (0, [])


def test_what_is_missing_is_named(products, opened, opensearch_engine, name):
    index = products(numbered(3))
    with pytest.raises(UsageError, match=f"There is no index '{name}-nothing' at ") as error:
        opened(f"{name}-nothing")
    assert index in str(error.value.hint) or "There are: " in error.value.hint
    tw.index([{"id": "a", "text": "tea"}], f"{name}-built", connection=tw.connect(opensearch_engine.url), signals=["lexical"])
    with pytest.raises(UsageError) as error:
        opened(f"{name}-nothing")
    assert f"{name}-built" not in error.value.hint  # a generation is no source
    with pytest.raises(UsageError, match="is a corpus without queries and judgements"):
        open_dataset(f"opensearch:{index}")


SOURCES = {"content": TEXT, "name": TEXT}


@pytest.mark.parametrize(
    ("mapping", "text_fields", "said"),
    [
        ({"properties": {"content": TEXT, "name": TEXT | {"copy_to": ["content"]}}}, ("content",), "fills the field 'content' from name"),
        ({"properties": {"text": TEXT, "name": TEXT | {"copy_to": "text"}}}, (), "fills the field 'text' from name"),
        ({"properties": {"content": {"type": "alias", "path": "name"}, "name": TEXT}}, ("content",), "fills the field 'content' from name"),
        ({"properties": {"info": {"properties": {"all": TEXT}}, "name": TEXT | {"copy_to": "info.all"}}}, ("info.all",), "from name"),
        ({"properties": SOURCES, "_source": {"excludes": ["cont*"]}}, ("content",), "leaves the field 'content' out"),
        ({"properties": SOURCES, "_source": {"excludes": ["content"]}}, (), "leaves the field 'content' out"),
        ({"properties": SOURCES, "_source": {"includes": ["name"]}}, (), "leaves the field 'content' out"),
        ({"_source": {"enabled": False}}, ("name",), "stores no _source"),
        ({}, (), "has no field of a usual name for the text"),
        ({}, ("body",), "has no field 'body'"),
    ],
)  # fmt: skip
def test_a_text_that_no_document_holds_is_refused(products, opened, mapping, text_fields, said):
    entry = {"name": "x", "content": "x"} if mapping.get("properties") == SOURCES else {"name": "x", "price": 1}
    index = products({"a": entry}, **mapping)
    with pytest.raises(UsageError, match=said) as error:
        opened(index, text_fields=text_fields)
    if text_fields == ("body",):  # texts first
        assert error.value.hint.index("name (text)") < error.value.hint.index("price (long)")


def test_a_text_that_the_first_documents_lack_is_remarked_on(products, opened):
    index = products({"a": {"title": "x"}}, properties={"title": TEXT, "more": TEXT, "text": TEXT})
    assert any("no document of the first 1 has the field 'more'" in each for each in opened(index, text_fields=("more",)).remarks)
    assert [each.title for each in opened(index, text_fields=()).documents()] == ["x"]
    properties, source = {"text": TEXT, "body": TEXT}, {"excludes": ["text"]}
    index = products({"a": {"body": "x"}}, properties=properties, suffix="other", _source=source)
    corpus = opened(index, text_fields=())
    assert ([each.text for each in corpus.documents()], len(corpus.remarks)) == (["x"], 1)


def test_an_alias_hides_what_a_search_of_it_does_not_find(products, opened, opensearch_engine, name, monkeypatch):
    monkeypatch.setattr(pages, "_FIRST", 7)
    index, other = products(numbered(60), shards=4), products({"x": {"description": "x", "price": 99}}, shards=1, suffix="other")
    alias = {"index": index, "alias": f"{name}-cheap", "filter": {"range": {"price": {"lt": 30}}}}
    routed = {"index": index, "alias": f"{name}-routed", "search_routing": "7"}
    actions = [{"add": each} for each in (alias, routed, {"index": other, "alias": f"{name}-cheap"})]
    opensearch_engine.request("POST", "/_aliases", body={"actions": actions})
    cheap = sorted([f"p{number}" for number in range(30)] + ["x"])
    corpus = opened(f"{name}-cheap")
    assert sorted(each.id for each in corpus.documents()) == cheap
    assert corpus.total == 31
    known = source.ChangedDocuments(corpus, None, {})
    assert sorted(identity for page in known.identities() for identity in page) == cheap
    assert corpus.fingerprint != opened(index).fingerprint
    some = opened(f"{name}-cheap", query={"range": {"price": {"gte": 28}}}).documents()
    assert sorted(each.metadata["price"] for each in some) == [28, 29, 99]
    body = {"size": 100, "_source": False}
    found = opensearch_engine.request("POST", f"/{name}-routed/_search", body=body)["hits"]["hits"]
    assert 0 < len(found) < 60
    assert {each.id for each in opened(f"{name}-routed").documents()} == {hit["_id"] for hit in found}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("opensearch:products", ("opensearch:products", None)),
        ("elasticsearch:products", ("elasticsearch:products", None)),
        ("https://me:secret@host:9200/products", ("https://host:9200/products", "https://me:secret@host:9200")),
        ("http://host/search/my-index/", ("http://host/search/my-index", "http://host/search")),
        *((spec, "does not name one index") for spec in ("opensearch:", "opensearch:a,b", "opensearch:a*", "https://host:9200", "https://me:secret@host/_all")),
        *((f"opensearch:http://{host}/products", "is not the address of one server") for host in ("[", "[x]", "me:secret@[", "me:[secret]@host", "one,two")),
    ],
)  # fmt: skip
def test_an_address_names_one_index_or_ends_in_a_sentence_without_its_password(spec, place):
    if isinstance(place, str):
        with pytest.raises(UsageError, match=place) as error:
            addresses.parse_index(spec)
        assert "secret" not in f"{error.value} {error.value.hint}"
    else:
        address = addresses.parse_index(spec)
        assert (address.shown, address.url) == place


def test_the_slices_cover_every_number_once():
    views = [source.ShardView("i", 0, documents=9000, first=3, last=99_999), source.ShardView("i", 1, documents=0)]
    numbers = [number for each in pages.slices_of(views) for number in (each.low, each.high)]
    assert (numbers[0], numbers[-1]) == (3, 99_999)
    assert all(high + 1 == low for high, low in zip(numbers[1:-1:2], numbers[2::2], strict=True))
