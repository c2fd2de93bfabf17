"""`termweave enrich`: the fields of the signals in an application's own index, beside concurrent writes."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from termweave.catalog import audit
from termweave.cli import run
from termweave.corpora import IndexReading, open_source
from termweave.dialect import dialect_of
from termweave.engine.client import retries
from termweave.errors import EngineError
from termweave.indexer.enrichment import enrichment, index_passes
from termweave.rerank.candidate_features import FeatureReader
from termweave.rerank.rerankers import Reranker, RerankResult
from termweave.search import Index
from termweave.search.results.feature_log import FeatureRecorder
from termweave.settings import load
from termweave.signals.modes import Mode
from termweave.ui import searching
from tests.indexer.builds import sources
from tests.indexer.conftest import before

from .conftest import WEIGHTS, bulk, change, write


@pytest.mark.slow
def test_enriched_searched_changed_and_removed(shop, enrich, opensearch_engine, capsys):
    index = shop()
    first, calls = sources(opensearch_engine, index), []

    def meanwhile(engine, index, _):
        """The application changes two documents, adds one and deletes one."""
        if not calls:
            calls.append(index)
            change(engine, index, {"p3": {"stock": 1000}})
            new = {"name": "an umbrella", "stock": 1, "bucket": 2}
            write(engine, index, {"p4": {"name": "a bicycle", "stock": 4}, "new": new})
            bulk(engine, index, {"delete": {"_id": "p5"}})

    with before(index_passes, "send", meanwhile):
        done = enrich(index)
    assert (done["documents"], done["signals"]) == (30, ["lexical", "weights", "dense"])
    assert done["conflicts"] >= 2
    after = sources(opensearch_engine, index)
    assert (after["p3"]["stock"], after["p4"]["name"], "p5" in after) == (1000, "a bicycle", False)
    added = {"id", "source_digest", "encoding_digest", "weights", "weights_terms", "weights_sum", "vector", "vector_fp16"}
    for identity in first.keys() - {"p3", "p4", "p5"}:
        assert after[identity].pop("termweave").keys() == added
        assert after[identity] == first[identity]
    mapping = opensearch_engine.request("GET", f"/{index}/_mapping")[index]["mappings"]
    assert mapping["_meta"]["owner"] == "shop"
    found = Index.open(opensearch_engine, index)
    assert found.search("bicycle")[0].id == "p4"
    for mode in ("lexical", "weights", "dense", "hybrid"):
        hit = found.search("umbrella", mode=mode, fields=["name", "stock"], explain=True)[0]
        assert (hit.id, dict(hit.fields)) == ("new", {"name": "an umbrella", "stock": 1})
    fields = found.search("umbrella", fields=["*"])[0].fields  # the application's, and none of the signals
    assert dict(fields) == {"name": "an umbrella", "stock": 1, "bucket": 2}
    assert found.search("umbrella", where="stock>=900")[0].id == "p3"
    assert found.search("umbrella", where={"range": {"stock": {"gte": 900}}})[0].id == "p3"
    assert found.search("green tea", rerank="rnn")[0].id in {f"p{number}" for number in range(4, 30, 5)}

    assert enrich(index, fields=())["written"] == 0  # the fields are those of the first enrichment
    damage, other = {"termweave": {"vector_fp16": "AAAA"}}, {"stock": 3}
    change(opensearch_engine, index, {"p6": {"name": "a trampoline"}, "p7": damage, "p8": other})
    assert enrich(index)["written"] == 2
    assert len(sources(opensearch_engine, index)["p6"]["termweave"]["weights"]) == 1  # no term of the former text
    assert Index.open(opensearch_engine, index).search("trampoline")[0].id == "p6"

    assert run(["delete", index, "--id", "p1", "--yes", "--url", opensearch_engine.url]) == 2
    assert "is an index of another application" in capsys.readouterr().err
    assert enrich(index, "--remove", fields=())["removed"] == 30
    assert all("termweave" not in body for body in sources(opensearch_engine, index).values())
    assert opensearch_engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"] == {"owner": "shop"}
    assert not opensearch_engine.request("HEAD", f"/{index}.stats")
    lines = [(each.act, each.documents) for each in audit.read(opensearch_engine, index, 9)]
    assert lines[::2] == [("remove fields", 30), ("enrich", done["written"])]
    assert "was not enriched" in enrich(index, "--remove", status=2)
    assert enrich(index, "--dense", "none")["signals"] == ["lexical", "weights"]


@pytest.mark.parametrize("which", ["default", "final"])
def test_the_applications_pipelines_run_on_its_own_writes_alone(shop, enrich, opensearch_engine, name, which):
    """A pipeline that stamps what the application writes, and throws away fields that it does not know."""
    engine, index, path = opensearch_engine, shop({"at": {"type": "keyword"}}), f"/_ingest/pipeline/{name}"
    remove = {"remove": {"field": ["termweave"], "ignore_missing": True}}
    engine.request("PUT", path, body={"processors": [{"set": {"field": "at", "value": "{{_ingest.timestamp}}"}}, remove]})
    engine.request("PUT", f"/{index}/_settings", body={f"index.{which}_pipeline": name})
    try:
        write(engine, index, {"p1": {"name": "a chair", "stock": 1, "price": 1.10, "ean": 2**53 + 1}})
        before = sources(engine, index)
        assert enrich(index, *WEIGHTS)["written"] == 30
        engine.request("PUT", f"/{index}/_doc/p2", body={"name": "a trampoline"})
        engine.request("POST", f"/{index}/_update/p3", body={"doc": {"name": "a bicycle"}})
        names = {"p2": {"name": "a trampoline"}, "p3": before["p3"] | {"name": "a bicycle"}}
        before |= {key: {**own, "at": sources(engine, index)[key]["at"]} for key, own in names.items()}
        assert enrich(index, *WEIGHTS)["written"] == 2
        assert enrich(index, *WEIGHTS)["written"] == 0
        assert Index.open(engine, index).search("bicycle", mode="weights")[0].id == "p3"
        assert enrich(index, "--remove", fields=())["removed"] == 30
        assert sources(engine, index) == before
    finally:
        engine.request("PUT", f"/{index}/_settings", body={f"index.{which}_pipeline": None})
        engine.request("DELETE", path)


def test_a_plan_writes_nothing_and_other_signals_or_fields_than_the_first_are_refused(shop, enrich, opensearch_engine):
    index = shop({"body": {"type": "text"}})
    before = sources(opensearch_engine, index)
    plan = enrich(index, "--plan")
    assert (plan["documents"], plan["to_write"], plan["signals"]) == (30, 30, ["weights", "dense"])
    assert plan["seconds"] > 0
    mapping = opensearch_engine.request("GET", f"/{index}/_mapping")[index]["mappings"]
    assert (sources(opensearch_engine, index), mapping["_meta"]) == (before, {"owner": "shop"})
    assert "termweave" not in mapping["properties"]
    enrich(index, *WEIGHTS)
    change(opensearch_engine, index, {"p6": {"name": "a trampoline"}})
    before = sources(opensearch_engine, index)
    after = enrich(index, "--plan", fields=())
    assert (after["documents"], after["to_write"], after["seconds"]) == (30, 1, None)
    assert "was enriched with the signals weights." in enrich(index, "--signals", "learned", "--yes", status=2)
    for fields in (("--text-field", "body"), ("--text-field", "name", "--title-field", "body")):
        assert "was enriched with the fields name." in enrich(index, fields=fields, status=2)
    assert sources(opensearch_engine, index) == before
    assert enrich(index, fields=())["written"] == 1


def test_pages_rules_rankers_and_rewriting_read_the_fields_of_the_application(shop, enrich, opensearch_engine):
    raw = {"type": "text", "fields": {"raw": {"type": "keyword"}}}
    index = shop({"day": {"type": "date", "format": "dd.MM.yyyy"}, "brand": {"type": "keyword"}, "headline": raw})
    values = {f"p{each}": {"day": f"{each % 28 + 1:02d}.01.2024", "headline": f"Shop {each % 3}"} for each in range(30)}
    change(opensearch_engine, index, values)
    change(opensearch_engine, index, {f"p{number}": {"brand": f"b{number % 3}"} for number in range(1, 30, 2)})
    enrich(index, fields=("--title-field", "headline", "--text-field", "name"))
    opened = Index.open(opensearch_engine, index)
    hits = opened.search("sofa chair lamp towels kettle", k=30, where='headline="Shop 2" AND stock>20')
    assert {hit.id for hit in hits} == {"p23", "p26", "p29"}
    hit = opened.search("warm light", highlight=True, explain=True)[0]
    assert hit.fields["title"].startswith("Shop ")
    assert hit.fields["text"].startswith("a lamp that gives warm light")
    assert [each.text[a:b] for each in hit.highlights for a, b in each.matches] == ["warm", "light"]
    assert hit.explanation["text"].startswith(f"{hit.fields['title']}. a lamp")
    assert opened.search("", like=[hit.id])[0].fields["text"].startswith("a lamp")

    class Longest(Reranker):
        name, candidates, needs = "longest", 30, frozenset({"texts"})

        def rerank(self, request):
            assert all(text.startswith("Shop ") for text in request.texts)
            return RerankResult([float(len(text)) for text in request.texts])

    assert len(opened.search("sofa", rerank=Longest())) == 10
    named = opened.search("a lamp for b1", rerank="match@name:0.5>match@brand:0.5", k=30, explain=True)
    found = {hit.id: {tuple(part["matched"]) for part in hit.explanation["parts"] if "matched" in part} for hit in named}
    assert named[0].id == "p7"
    assert (found["p7"], found["p2"]) == ({("lamp",), ("b1",)}, {("lamp",), ()})
    names = ("metadata.stock", "metadata.day.age", "metadata.brand=b1")
    recorder = FeatureRecorder(FeatureReader(names, opened.layout.kinds, now=datetime(2024, 2, 1, tzinfo=UTC)), 30)
    (candidates,) = opened.candidates(["a lamp"], ["dense"], needs=recorder.needs)
    logged = recorder.features(candidates, Mode("dense", {"dense": 1.0}))
    rows = dict(zip(logged.ids, logged.rows.tolist(), strict=True))
    assert (rows["p7"], rows["p4"]) == ([7.0, 24.0, 1.0], [4.0, 27.0, 0.0])  # the second has no brand
    assert {hit.fields["text"].split()[1] for hit in opened.search('"warm light"', rewrite="operators", k=9)} == {"lamp"}
    answer = opened.answer("a wodoen chiar -1", rewrite="operators,spelling", k=3)
    assert answer.remarks[0].startswith("Searched for 'a wooden chair' instead of")


def test_documents_that_the_application_routes_are_found(shop, enrich, opensearch_engine):
    index = shop()
    routed = {f"r{number}": f"a parasol {number}" for number in range(8)}  # one shard has all, so that `_id` misleads for some
    lines = (line for key, text in routed.items() for line in ({"index": {"_id": key, "routing": "x"}}, {"name": text}))
    bulk(opensearch_engine, index, *lines)
    enrich(index, "--dense", "none")
    found = Index.open(opensearch_engine, index)
    hits = found.search("parasol", k=8, fields=["name"])
    assert {hit.id: hit.fields["name"] for hit in hits} == routed
    assert found.explain("parasol", "r3").rank


def test_an_index_whose_vectors_would_end_the_embedded_node_is_refused_before_a_write(opensearch_engine, shop, enrich):
    if not opensearch_engine.request("GET", "/_nodes", params={"filter_path": "nodes.*.attributes.native_vectors"}):
        pytest.skip("this server is not the embedded node")
    index = shop({"picture": {"type": "knn_vector", "dimension": 2}})
    before = opensearch_engine.request("GET", f"/{index}")
    assert "picture is a knn_vector" in enrich(index, status=2)
    assert opensearch_engine.request("GET", f"/{index}") == before


def test_what_does_not_allow_it_is_said_before_anything_is_written(shop, enrich, opensearch_engine):
    index = shop({"termweave": {"properties": {"weights": {"type": "float"}, "shuttles": {"type": "long"}}}}, knn=False)
    before = opensearch_engine.request("GET", f"/{index}/_mapping")
    assert "its setting index.knn is not true" in enrich(index, status=2)
    assert "has a field 'termweave' of its own" in enrich(index, *WEIGHTS, status=2)
    assert opensearch_engine.request("GET", f"/{index}/_mapping") == before


@pytest.mark.parametrize("kind", ["long", "text"])
def test_fields_of_the_application_keep_names_that_termweave_uses_elsewhere(shop, enrich, opensearch_engine, kind):
    """Rails and Django write the number of a row as `id`."""
    index = shop({"id": {"type": "keyword" if kind == "text" else kind}, "passage": {"type": kind}})
    passages = {number: f"a parasol {number}" if kind == "text" else number for number in range(2, 5)}
    values = {f"p{number}": {"id": 100 + number, "vector": [1, 2], "weights": "heavy"} for number in range(30)}
    for number, passage in passages.items():
        values[f"p{number}"] |= {"passage": passage, "metadata": "plain", "name": "a parasol"}
    change(opensearch_engine, index, values)
    before = sources(opensearch_engine, index)
    enrich(index, fields=("--text-field", "passage" if kind == "text" else "name"))
    found = Index.open(opensearch_engine, index)
    rules = {"rerank": f"boost@{'passage' if kind == 'long' else 'stock'}", "sort": "stock:desc"}
    options = {"fields": ["text", "*"], "facets": ["stock"], "totals": True, "explain": True}
    answer = found.answer("parasol", mode="weights", k=3, **rules, **options)
    assert [hit.id for hit in answer.hits] == ["p4", "p3", "p2"]
    assert ({each.value for each in answer.facets["stock"]}, answer.totals.passing) == ({"2", "3", "4"}, 30)
    for hit in answer.hits:
        assert {name: value for name, value in hit.fields.items() if name not in {"title", "text"}} == before[hit.id]
        assert (hit.fields["text"].startswith("a parasol"), hit.passage) == (True, None)
        assert all("passage" not in part for part in hit.explanation["parts"])
    assert found.explain("parasol", "p3", mode="hybrid").explanation["parts"]
    assert {hit.id for hit in found.search("", like=["p2"], mode="weights", k=2)} == {"p3", "p4"}
    title, shown, metadata = searching.content_of(found, "p3")
    assert (title, shown.startswith("a parasol"), ("metadata", "plain") in searching.metadata_of(metadata)) == ("", True, True)
    assert [each.id for each in found.search("parasol", where="id>=103 AND id<=104", sort="id:desc")] == ["p4", "p3"]
    enrich(index, "--remove", fields=())
    assert sources(opensearch_engine, index) == before


def test_lexical_searches_the_text_fields_of_the_application_with_its_weights(shop, enrich, opensearch_engine):
    label = {"type": "text", "index": False, "fields": {"en": {"type": "text", "analyzer": "english"}}}
    nested = {"type": "nested", "properties": {"body": {"type": "text"}}}
    brand = {"type": "text", "analyzer": "whitespace"}
    index = shop({"brand": brand, "sku": {"type": "keyword"}, "label": label, "reviews": nested})
    brands = {f"p{number}": {"brand": f"Lamp & Co {number}" if number < 3 else "none"} for number in range(30)}
    change(opensearch_engine, index, brands)
    for wrong in ("sku", "label", "reviews.body"):
        assert f"'{wrong}' is not a text field" in (said := enrich(index, "--lexical-field", wrong, status=2))
        assert "brand, label.en and name" in said or "brand, label.en, name" in said
    done = enrich(index, "--dense", "none")
    assert "The signal lexical searches the application's own name^1." in done["notes"]

    def hits(query, **options):
        return Index.open(opensearch_engine, index).search(query, mode="lexical", **options)

    def of_server(query):
        answer = opensearch_engine.request("POST", f"/{index}/_search", body={"size": 30, "query": query, "search_pipeline": {}})
        return {hit["_id"]: hit["_score"] for hit in answer["hits"]["hits"]}

    assert {hit.id: hit.score for hit in hits("warm lamps", k=30)} == of_server({"match": {"name": "warm lamps"}})  # exact
    done = enrich(index, "--lexical-field", "name", "--lexical-field", "brand^2.5", fields=())
    assert (done["written"], done["signals"]) == (0, ["lexical", "weights"])
    fields = {"query": "warm light Lamp", "type": "most_fields", "fields": ["name", "brand^2.5"]}
    found = hits("warm light Lamp", k=30, explain=True)
    assert {hit.id: hit.score for hit in found} == of_server({"multi_match": fields})
    assert found[0].id == "p2"  # in both fields
    shares = [{term["term"]: term["share"] for term in hit.explanation["parts"][0]["terms"]} for hit in found]
    assert [sum(each.values()) for each in shares] == [pytest.approx(hit.score, rel=1e-5) for hit in found]
    assert shares[0].keys() == {"warm", "light", "lamp", "Lamp"}
    write(opensearch_engine, index, {"new": {"name": "a hammock", "brand": "Lamp"}})
    assert [hit.id for hit in hits("hammock", explain=True)] == ["new"]
    answer = Index.open(opensearch_engine, index).answer("hammock", mode="lexical:0.5,weights:0.5", totals=True, highlight=True)
    assert (answer.hits[0].id, answer.totals.matching) == ("new", 1)
    assert "1 of 31 documents is not enriched yet and found by lexical alone" in " ".join(answer.remarks)
    assert [hit.id for hit in hits('"a hammock" -sofa', rewrite="operators", where="id=new OR exists(brand)")] == ["new"]


def test_an_index_that_an_earlier_version_enriched_goes_on_as_it_is(shop, enrich, opensearch_engine):
    """Its fields stand beside those of the application."""
    index, engine = shop(), opensearch_engine
    enrich(index)
    new = Index.open(engine, index).search("green tea", rerank="rnn", explain=True)
    mapping = engine.request("GET", f"/{index}/_mapping")[index]["mappings"]
    inside = mapping["properties"].pop("termweave")["properties"]
    meta = mapping["_meta"]["termweave"]
    meta["signals"].pop("lexical")
    for signal in meta["signals"].values():
        del signal["prefix"]
    meta["source"]["enriched"] = " ".join(inside)
    stored = sources(engine, index)
    earlier = replace(Index.open(engine, index).layout, models="")
    for each in stored.values():
        each["termweave"]["encoding_digest"] = earlier.encoding_digest(each["termweave"])
    engine.request("DELETE", f"/{index}")
    shop(mapping["properties"] | inside, _meta=mapping["_meta"])
    write(engine, index, {key: {**each.pop("termweave"), **each} for key, each in stored.items()})
    old = Index.open(engine, index)
    assert old.signals == ["weights", "dense"]
    scores = [(hit.id, hit.score) for hit in old.search("green tea", rerank="rnn")]
    assert scores == [(hit.id, pytest.approx(hit.score)) for hit in new]
    assert set(old.search("green tea", fields=["*"])[0].fields) == {"name", "stock", "info"}
    change(engine, index, {"p3": {"name": "a hammock"}})
    done = enrich(index, fields=())
    assert (done["written"], done["signals"]) == (1, ["weights", "dense", "lexical"])
    assert "weights" in sources(engine, index)["p3"]
    assert [hit.id for hit in Index.open(engine, index).search("hammock", mode="lexical")] == ["p3"]
    assert enrich(index, "--remove", fields=())["removed"] == 30
    assert all(each.keys() <= {"name", "stock", "info"} for each in sources(engine, index).values())
    assert enrich(index)["written"] == 30  # into the object, beside the empty fields
    assert Index.open(engine, index).search("hammock")[0].id == "p3"


def test_a_killed_enrichment_goes_on_where_it_was(shop, enrich, opensearch_engine, monkeypatch):
    index = shop()
    monkeypatch.setattr(index_passes, "_PAGE", 5)
    sent = []

    def dies(_, __, writes):
        if sum(sent) >= 15:
            raise KeyboardInterrupt
        sent.append(len(writes))

    with before(index_passes, "send", dies):
        enrich(index, *WEIGHTS, status=130)
    stored = sources(opensearch_engine, index)
    done = sum("termweave" in each for each in stored.values())
    assert 15 <= done == sum(sent) < 30
    said = enrich(index, *WEIGHTS)
    assert (said["documents"], said["written"]) == (30, 30 - done)
    assert f"{done} of 30 documents had the fields already" in " ".join(said["notes"])
    after = sources(opensearch_engine, index)
    assert all(after[key] == each for key, each in stored.items() if "termweave" in each)


def test_the_learned_field_needs_a_closed_index_for_a_moment_and_its_removal_another(shop, enrich, opensearch_engine):
    if dialect_of(opensearch_engine.capabilities).metadata_type != "flat_object":
        pytest.skip("Elasticsearch has no filter for term frequencies")
    index = shop()

    def settings():
        return str(opensearch_engine.request("GET", f"/{index}/_settings"))

    assert "Add --yes" in enrich(index, "--signals", "learned", status=2)
    assert "termweave_learned" not in settings()
    assert enrich(index, "--signals", "learned", "--yes")["written"] == 30
    body = {"query": {"multi_match": {"query": "warm lamps", "fields": ["name", "termweave.learned"], "type": "most_fields"}}}
    hits = opensearch_engine.request("POST", f"/{index}/_search", body=body)["hits"]["hits"]
    assert {"lamp" in hit["_source"]["name"] for hit in hits[:6]} == {True}
    (best,) = Index.open(opensearch_engine, index).search("kettles", mode="learned", k=1)
    assert int(best.id[1:]) % 5 == 4
    for words, stays in (((), True), (("--yes",), False), ((), False)):  # what nobody allows to take away stays
        enrich(index, "--remove", *words, fields=())
        assert ("termweave_learned_search" in settings()) == stays
    assert enrich(index, "--signals", "learned", "--yes")["written"] == 30  # it is open


def test_the_statistics_never_touch_an_index_of_the_application(shop, enrich, opensearch_engine, name):
    index = shop()
    own = f"{index}.stats"
    opensearch_engine.request("PUT", f"/{own}/_doc/0", params={"refresh": True}, body={"visits": 3})
    before = opensearch_engine.request("GET", f"/{index}/_mapping")
    assert f"'{own}', where the statistics of an enrichment are stored" in enrich(index, status=2)
    assert opensearch_engine.request("GET", f"/{index}/_mapping") == before
    assert enrich(index, "--signals", "dense")["written"] == enrich(index, "--remove")["removed"] == 30
    assert opensearch_engine.request("GET", f"/{own}/_doc/0")["_source"] == {"visits": 3}
    opensearch_engine.request("DELETE", f"/{own}")
    opensearch_engine.request("PUT", f"/{name}-visits", body={"aliases": {own: {}}})
    assert own in enrich(index, *WEIGHTS, status=2)


def test_an_alias_that_hides_documents_is_refused(shop, enrich, opensearch_engine, name):
    index = shop()
    aliases = [{"alias": f"{name}-few", "filter": {"range": {"stock": {"lt": 9}}}}, {"alias": f"{name}-routed", "routing": "7"}]
    opensearch_engine.request("POST", "/_aliases", body={"actions": [{"add": {"index": index, **each}} for each in aliases]})
    for alias in aliases:
        assert f"is an alias that hides a part of {index}" in enrich(alias["alias"], status=2)
    opensearch_engine.request("POST", "/_aliases", body={"actions": [{"add": {"index": index, "alias": f"{name}-all"}}]})
    assert enrich(f"{name}-all", *WEIGHTS)["written"] == 30


def test_a_removal_among_constant_changes_keeps_the_lineage_and_goes_on(shop, enrich, opensearch_engine):
    index = shop()
    enrich(index, *WEIGHTS)

    def meanwhile(engine, index, _):
        engine.request("POST", f"/{index}/_update/p3", body={"script": "ctx._source.stock += 1"})

    with before(index_passes, "send", meanwhile):
        assert "after 6 passes 1 document left to write" in enrich(index, "--remove", status=4)
    stored = sources(opensearch_engine, index)
    assert [key for key, each in stored.items() if "termweave" in each] == ["p3"]
    assert enrich(index, "--remove")["removed"] == 1
    assert not any("termweave" in each for each in sources(opensearch_engine, index).values())
    assert not opensearch_engine.request("HEAD", f"/{index}.stats")


def test_writes_that_a_full_disk_turns_away_are_sent_again_or_end_with_its_reason(shop, enrich, opensearch_engine, monkeypatch):
    index = shop()
    enrich(index, *WEIGHTS)
    source = open_source(f"opensearch:{index}", index=IndexReading(settings=lambda _: load(url=opensearch_engine.url)))
    waited = []

    def block(value):
        body = {"index.blocks.read_only_allow_delete": value}
        opensearch_engine.request("PUT", f"/{index}/_settings", body=body)

    def full(_, __, writes):
        if writes:
            block(True)

    def pause(attempt, asked, end):
        waited.append(attempt)
        block(None)  # somebody has freed some space
        return 0.01

    with before(index_passes, "send", full):
        with pytest.raises(EngineError, match=r"429 .*: free some space; .* Run the command again"):
            enrichment.remove(opensearch_engine.patient(0.5), source)
        block(None)
        assert all("termweave" in each for each in sources(opensearch_engine, index).values())
        monkeypatch.setattr(retries, "_pause", pause)
        assert enrichment.remove(opensearch_engine.patient(20), source) == 30
    assert waited == [1, 1]  # once for each shard
    assert not any("termweave" in each for each in sources(opensearch_engine, index).values())


def test_documents_that_cannot_be_read_are_named_and_keep_no_fields(shop, enrich, opensearch_engine):
    index, wood = shop({"about": {"type": "object", "enabled": False}}), {"about": [{"of": "wood"}]}
    change(opensearch_engine, index, {f"p{number}": {"about": f"a chair {number}"} for number in range(30)})
    fields = ("--text-field", "about", *WEIGHTS, "--skip-bad")
    change(opensearch_engine, index, {"p3": wood})
    done = enrich(index, fields=fields)
    assert (done["documents"], done["written"]) == (29, 29)
    assert f"could not be read and left out (opensearch:{index}, document 'p3'" in " ".join(done["notes"])
    change(opensearch_engine, index, {"p4": wood})
    plan = enrich(index, "--plan", fields=fields)
    assert (plan["documents"], plan["to_write"]) == (28, 0)
    done = enrich(index, fields=fields)
    assert (done["documents"], done["written"]) == (28, 1)
    assert "termweave" not in sources(opensearch_engine, index)["p4"]
    change(opensearch_engine, index, {"p4": {"about": "a chair of wood"}})
    assert enrich(index, fields=fields)["written"] == 1
