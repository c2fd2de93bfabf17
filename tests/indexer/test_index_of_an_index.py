"""`termweave index opensearch:...`: builds, resumes and updates from an index of another application."""

import orjson
import pytest

from termweave.corpora.index import pages, source
from termweave.corpora.index.source import IndexSource
from termweave.indexer.ledger.diff import LedgerDiff
from termweave.indexer.pipeline.bulk_sender import BulkSender
from termweave.indexer.preparation import language_advice
from termweave.search import Index
from termweave.support import paths

from .builds import bulk, clean, command, write
from .conftest import before, stopping

FIELDS = ["--title-field", "name", "--text-field", "description"]


def products(count, word="first"):
    return {f"p{each}": {"name": f"name {each}", "description": f"{word} {each}", "price": each} for each in range(count)}


@pytest.fixture
def shop(opensearch_engine, name):
    """The index NAME-shop of an application, and a function that writes to it."""
    index = f"{name}-shop"
    mapping = {"properties": {"name": {"type": "text"}, "description": {"type": "text"}, "price": {"type": "integer"}}}
    opensearch_engine.request("PUT", f"/{index}", body={"settings": {"number_of_shards": 2}, "mappings": mapping})

    def put(documents, *, gone=()):
        write(opensearch_engine, index, documents)
        for key in gone:
            bulk(opensearch_engine, index, {"delete": {"_id": key}})

    put(products(60))
    put.index = index
    return put


@pytest.fixture
def build(name, shop, shell):
    """A function that runs `termweave index` over the shop and returns what it said."""

    def call(*arguments, status=0):
        return shell(*command(f"opensearch:{shop.index}", name, *FIELDS, *arguments), status=status)

    return call


def snapshots():
    return list((paths.state() / "snapshots").glob("*"))


def test_build_and_verify(build, shop, opensearch_engine, name, shell, tmp_path):
    said = build()
    assert "60 documents" in said.out
    assert f"opensearch:{shop.index}: id = '_id'; title = 'name'; text = 'description'; metadata = 'price'." in said.err
    assert clean(opensearch_engine, name) == 60
    hit = Index.open(opensearch_engine, name).search("first 17", mode="lexical", where="price=17")[0]
    assert (hit.id, hit.fields["title"], hit.fields["metadata"]) == ("p17", "name 17", {"price": 17})
    assert not snapshots()
    said = shell("verify", name, f"opensearch:{shop.index}", *FIELDS)
    assert f"as in opensearch:{shop.index} (compared by digests)" in said.out
    query = tmp_path / "query.json"
    query.write_text('{"query": {"range": {"price": {"lt": 10}}}}')
    assert orjson.loads(build("--plan", "--json", "--source-query", str(query)).out)["documents"] == 10


def test_what_an_alias_hides_is_never_built_updated_or_kept(shop, opensearch_engine, name, shell):
    alias = {"index": shop.index, "alias": f"{name}-tenant", "filter": {"range": {"price": {"lt": 20}}}}
    opensearch_engine.request("POST", "/_aliases", body={"actions": [{"add": alias}]})
    words = command(f"opensearch:{name}-tenant", name, *FIELDS)
    shell(*words)
    assert clean(opensearch_engine, name) == 20
    for since in ([], ["--since", "_seq_no"]):
        count = clean(opensearch_engine, name)
        # One leaves, and one that is hidden changes.
        shop({f"p{count - 1}": products(60)["p59"], "p30": products(60, "second")["p30"]})
        assert "0 new, 0 changed" in shell(*words, "--update", "--delete-missing", *since).out
        assert clean(opensearch_engine, name) == count - 1
    shell("verify", name, f"opensearch:{name}-tenant", *FIELDS)


def test_a_build_that_was_stopped_goes_on_with_its_snapshot_as_long_as_it_exists(build, shop, opensearch_engine, name, shell):
    with stopping(BulkSender, "send"):
        assert "Run the same command to continue" in build(status=130).err
    assert "was begun with another source, model or setting: source was" in build("--text-field", "price", status=2).err
    shop(products(20, "second"), gone=["p59"])
    said = build()
    assert "; later changes of the index are not in it" in said.err
    assert "Resumed" in said.err + said.out
    assert clean(opensearch_engine, name) == 60
    assert not snapshots()
    assert "20 changed" in build("--update", "--delete-missing").out
    for ended in (["prune", "--unfinished"], ["delete"]):
        shop(products(60, "third"))
        with stopping(BulkSender, "send"):
            build("--fresh", status=130)
        shell(ended[0], name, *ended[1:], "--yes")
        assert bool(snapshots()) == (ended[0] == "prune")
        shop(products(60, "fourth"))
        assert "is read on" not in build().err
        assert len(Index.open(opensearch_engine, name).search("fourth", mode="lexical", k=100)) == 60
        assert not snapshots()


def test_a_reading_that_was_stopped_goes_on_where_it_was(build, shop, opensearch_engine, name, monkeypatch):
    monkeypatch.setattr(pages, "_FIRST", 5)
    monkeypatch.setattr(pages, "_MOST", 5)
    monkeypatch.setattr(language_advice, "_SAMPLE", 1)  # the plan reads one page, then the build begins
    read, starts = IndexSource.pages, []

    def stopped(self):
        for number, page in enumerate(read(self)):
            if number == 4:
                raise KeyboardInterrupt
            yield page

    def noted(_, point, slices, at, *rest):
        starts.extend(at.values())

    with monkeypatch.context() as patch:
        patch.setattr(IndexSource, "pages", stopped)
        build(status=130)
    shop(products(20, "second"))
    with before(pages.PageReader, "__init__", noted):
        build()
    assert max(starts) > 0  # a slice was not begun anew
    assert clean(opensearch_engine, name) == 60
    assert len(Index.open(opensearch_engine, name).search("first", mode="lexical", k=100)) == 60
    build("--fresh")
    assert len(Index.open(opensearch_engine, name).search("second", mode="lexical", k=100)) == 20


@pytest.fixture
def read(monkeypatch):
    """The ids of the documents that the source gives, as they are read."""
    ids, rest = [], IndexSource.documents

    def counted(self, progress=None):
        for document in rest(self, progress):
            ids.append(document.id)
            yield document

    monkeypatch.setattr(IndexSource, "documents", counted)
    return ids


def test_an_incremental_update_reads_only_what_changed(build, shop, opensearch_engine, name, monkeypatch, read):
    monkeypatch.setattr(source, "_MARGIN", 0)
    first, by_time = dated(60), ("--update", "--since", "changed", "--delete-missing")
    by_number = ("--update", "--since", "_seq_no", "--delete-missing")
    shop(first)
    build()
    later = {**first["p3"], "description": "second", "changed": "2024-03-01T00:00:00"}
    shop({"p3": later, "new": {"description": "new"}}, gone=["p4"])
    read.clear()
    plan = orjson.loads(build(*by_time, "--plan", "--json").out)
    assert plan["counts"] == {"new": 1, "changed": 1, "unchanged": 58, "gone": 1, "refused": 0}
    assert set(read) == {"p3", "new", "p59"}  # p59 has the newest time of the index itself
    assert "1 new, 1 changed, 58 unchanged" in build(*by_time).out
    assert clean(opensearch_engine, name) == 60
    shop({"p7": {**first["p7"], "description": "third"}}, gone=["p8", "p9"])  # without a new time
    assert "0 changed" in build(*by_time[:3]).out
    said = build(*by_number)
    assert f"so all of opensearch:{shop.index} is compared" in said.err  # the update by time leaves no sequence numbers
    assert "1 changed" in said.out
    shop({"p10": {**first["p10"], "description": "fourth"}}, gone=["p11"])
    read.clear()
    assert "1 changed" in build(*by_number).out
    assert set(read) == {"p10"}
    assert clean(opensearch_engine, name) == 57


def dated(count):
    return {key: {**each, "changed": f"2024-01-01T00:00:{each['price']:02d}"} for key, each in products(count).items()}


#: The newest value of a field; a server that counts in doubles calls it ...456.
NEWEST = 1_861_234_567_890_123_408


@pytest.mark.parametrize(
    ("fields", "words", "since", "newer"),
    [
        (lambda _: {}, ["--mapping", "MAPPING"], "changed", "2024-03-01T00:00:00"),
        (lambda number: {"number": NEWEST - 59 + number}, [], "number", NEWEST + 1),
        (lambda number: {"meta": {"sku": f"sku-{number}"}}, ["--id-field", "meta.sku"], "changed", "2024-03-01T00:00:00"),
        (lambda number: {"meta.sku": [f"sku-{number}"]}, ["--id-field", "meta.sku"], "changed", "2024-03-01T00:00:00"),
    ],
    ids=["a field of the user's mapping", "beyond the precision of doubles", "ids in objects", "ids in lists"],
)
def test_an_incremental_update_finds_the_change(build, shop, opensearch_engine, name, tmp_path, fields, words, since, newer):
    (mapping := tmp_path / "mapping.json").write_text('{"properties": {"changed": {"type": "date"}}}', encoding="utf-8")
    words = [str(mapping) if each == "MAPPING" else each for each in words]
    first = {key: {**body, **fields(body["price"])} for key, body in dated(60).items()}
    shop(first)
    build(*words)
    shop({"p3": {**first["p3"], "description": "second", since: newer}})
    said = build(*words, "--update", "--since", since, "--delete-missing", "--yes")
    assert "0 new, 1 changed, 59 unchanged" in said.out
    assert "no type" not in said.out + said.err
    assert clean(opensearch_engine, name) == 60


def test_after_an_update_that_was_stopped_all_is_compared(build, shop, opensearch_engine, name):
    """The newest document may have been sent, and an older one that had changed, too, not yet."""
    shop(dated(60))
    build()
    late = {"description": "second", "changed": "2024-03-01T00:00:00"}
    shop({"p3": late})
    with stopping(LedgerDiff, "settled"):
        build("--update", "--since", "changed", status=130)
    shop({"p4": {**late, "changed": "2024-02-01T00:00:00"}})
    said = build("--update", "--since", "changed")
    assert "was stopped: all of it is compared" in said.err.replace(f"opensearch:{shop.index}", "it")
    assert "1 changed" in said.out
    assert clean(opensearch_engine, name) == 60
    assert "was stopped" not in build("--update", "--since", "changed").err


def test_a_document_without_the_field_of_the_id_is_not_the_one_named_none(build, shop, opensearch_engine, name):
    documents = {key: {**body, "sku": "None" if key == "p5" else key} for key, body in dated(60).items()}
    shop(documents)
    words = ["--id-field", "sku"]
    build(*words)
    shop({"new": {"description": "no id", "changed": "2023-01-01T00:00:00"}}, gone=["p5"])
    build(*words, "--update", "--since", "changed", "--delete-missing", "--yes")
    assert clean(opensearch_engine, name) == 59
