"""A shard without a living copy: the search is repeated and then an error, and never a ranking of the rest.

The server says `"failed": 0` of such a search and leaves the shard's documents out, unless it is asked not to.
"""

import threading
from dataclasses import replace

import orjson
import pytest

from termweave import corpora
from termweave.errors import EngineError
from termweave.evaluation import judgements
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.search.feature import Ranking, Search
from termweave.search.features import facets, sort
from termweave.search.options import SearchOptions
from termweave.search.ranking.order import order
from termweave.search.results import hits
from termweave.search.retrieval.plan import Retrieval
from termweave.ui import searching

LIMIT = "index.routing.allocation.total_shards_per_node"


@pytest.fixture
def index(opensearch_engine, name):
    """A copy of an index, of two shards, the second of which is on no node."""
    documents = [{"id": f"d{number}", "text": f"A text about number {number}.", "year": 2000 + number} for number in range(20)]
    corpus = corpora.open_documents(documents, name="numbers")
    whole = build(opensearch_engine, corpus, name, BuildOptions(weights="none", dense="none")).index
    mapping = opensearch_engine.request("GET", f"/{whole}/_mapping")[whole]["mappings"]
    stored = opensearch_engine.request("POST", f"/{whole}/_search", body={"size": 20})["hits"]["hits"]
    part = f"{name}-part"
    body = {"settings": {"index.number_of_shards": 2, "index.number_of_replicas": 0, LIMIT: 1}, "mappings": mapping}
    opensearch_engine.request("PUT", f"/{part}", params={"wait_for_active_shards": 0}, body=body)
    active = {"wait_for_active_shards": 1, "timeout": "60s"}
    opensearch_engine.request("GET", f"/_cluster/health/{part}", params=active, timeout=70)
    lines = [line for hit in stored for line in ({"index": {"_id": hit["_id"]}}, hit["_source"])]
    data = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    items = opensearch_engine.request("POST", f"/{part}/_bulk", params={"refresh": True, "timeout": "100ms"}, body=data)["items"]
    assert {item["index"]["status"] for item in items} == {201, 503}
    return Index.open(opensearch_engine, part)


def test_a_search_and_what_is_read_beside_its_hits_need_all_shards(index, opensearch_engine, name):
    """The shard may also be lost after the search: counts, an order and texts of the rest would be wrong ones."""
    with pytest.raises(EngineError, match="not search the signal 'lexical': some of its shards are on no living node") as caught:
        index.search("text", k=20)
    assert "_cluster/health" in caught.value.hint
    whole = Index.open(opensearch_engine, name)
    (candidates,) = whole.candidates(["text"], ["lexical"], depth=20)
    places = order(candidates, whole.mode("lexical"))
    assert len(places) == 20
    generation = index.open_generation
    ranking = Ranking(Retrieval(["lexical"], 20), replace(candidates, index=index.generation), places, places, 0)
    search = Search(generation, name, whole.mode("lexical"), None, ranking.plan)
    with pytest.raises(
        EngineError, match="not read the documents that were found: some of their shards are on no living"
    ) as caught:
        hits.make(generation, ranking, places, first=1, fields=["id"])  # they are not called damaged
    assert "_cluster/health" in caught.value.hint
    for read in (
        lambda: facets.Facets(SearchOptions(facets=["year"]), search).count([ranking]),
        lambda: sort.Sort(SearchOptions(sort="year"), search).rank(ranking),
        lambda: searching.titles(index, [place.id for place in places]),
        lambda: searching.content_of(index, places[0].id),
        lambda: judgements.absent_from_index(index, "set", {"q": {place.id: 1 for place in places}}),
    ):
        with pytest.raises(EngineError, match="shard"):
            read()


def test_a_search_is_repeated_until_the_shard_is_back(index, opensearch_engine):
    path, settings = f"/{index.generation}/_settings", {LIMIT: -1}
    late = threading.Timer(0.1, lambda: opensearch_engine.request("PUT", path, body=settings))
    late.start()
    found = []
    for _ in range(20):  # one search is repeated for up to a second and a half: a busy server may take longer
        try:
            found = index.search("text", k=20)
        except EngineError:
            continue
        break
    late.join()
    assert 0 < len(found) < 20  # the shard came back empty
