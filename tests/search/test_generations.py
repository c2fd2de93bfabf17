"""One search sees one generation, from the encoding of the query to the hits, whatever the alias does meanwhile."""

import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.lineage import resolve_index
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from tests.search.conftest import FORTY, index_of

QUERIES = ["json functions", "the timer of a thread", "part 3"]
SECONDS = 5


@pytest.fixture(scope="module")
def both(opensearch_engine):
    """An index of two generations of the same documents; the second has more, so that idf, impacts and scores differ a little."""
    with index_of(opensearch_engine, FORTY, dense="none") as index:
        more = [{"id": f"{each['id'][:-1]}5", "text": each["text"].replace("part 4", "part 5")} for each in FORTY[4::5]]
        first = index.generation
        build(opensearch_engine, corpora.open_documents([*FORTY, *more], name="corpus"), index.name, BuildOptions(dense="none"))
        yield index.name, first, resolve_index(opensearch_engine, index.name)


@pytest.fixture
def name(opensearch_engine, both):
    """The alias, which leads to the second generation."""
    name, *generations = both
    point(opensearch_engine, name, *generations)
    return name


@pytest.fixture
def generations(both):
    return both[1:]


def point(engine, name, other, live):
    """Move the alias."""
    actions = [{"remove": {"index": other, "alias": name, "must_exist": False}}, {"add": {"index": live, "alias": name}}]
    engine.request("POST", "/_aliases", body={"actions": actions})


def answer(index, query):
    return tuple((hit.id, hit.score) for hit in index.search(query, mode="weights,lexical", k=20))


def test_every_answer_of_a_shared_index_is_of_one_generation(opensearch_engine, name, generations):
    pinned = [Index.pinned(opensearch_engine, each) for each in generations]
    expected = {query: {answer(each, query) for each in pinned} for query in QUERIES}
    assert all(len(answers) == 2 for answers in expected.values())
    shared = tw.connect(opensearch_engine.url).index(name)
    seen, stopped, until = set(), threading.Event(), time.monotonic() + SECONDS

    def swap():
        for now in itertools.cycle((1, 0)):
            if stopped.wait(0.02 + 0.1 * random.random()):
                return
            point(opensearch_engine, name, generations[now], generations[1 - now])

    swapper = threading.Thread(target=swap)

    def search(seed):
        chosen, wrong = random.Random(seed), []
        while time.monotonic() < until or (time.monotonic() < until + 60 and not all(each <= seen for each in expected.values())):
            query = chosen.choice(QUERIES)
            seen.add(got := answer(shared, query))
            if got not in expected[query]:
                wrong.append((query, got))
        return wrong

    swapper.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(search, range(8)))
    finally:
        stopped.set()
        swapper.join()
    assert [wrong for wrong in results if wrong] == []
    assert all(answers <= seen for answers in expected.values())  # both generations did answer


def test_the_alias_moves_between_encoding_and_searching(opensearch_engine, name, generations, monkeypatch):
    """A -> B -> A: another thread opens B after the query was bound to A, and the alias is back at A when the query is sent."""
    first, second = generations
    pinned = Index.pinned(opensearch_engine, first)
    index = tw.connect(opensearch_engine.url).index(name)
    assert index.generation == second
    point(opensearch_engine, name, second, first)
    assert answer(index, "json functions") == answer(pinned, "json functions")
    other = Index.pinned(opensearch_engine, second)._now
    encode = index._now.encoder.encode

    def encode_while_another_thread_follows(*args, **options):
        index._now = other
        return encode(*args, **options)

    monkeypatch.setattr(index._now.encoder, "encode", encode_while_another_thread_follows)
    assert answer(index, "json functions") == answer(pinned, "json functions")


def test_an_empty_list_does_not_come_from_another_generation(opensearch_engine, name, generations, monkeypatch):
    """A list without hits does not say which index was searched: the concrete index is asked then."""
    index = tw.connect(opensearch_engine.url).index(name)
    sent, request = [], index.engine.request
    monkeypatch.setattr(
        index.engine, "request", lambda method, path, **options: sent.append(path) or request(method, path, **options)
    )
    assert index.search("nowhere", mode="lexical") == []
    assert f"/{generations[1]}/_msearch" in sent
    sent.clear()
    assert index.search("json", mode="lexical")
    assert [path for path in sent if path.endswith("_msearch")] == [f"/{name}/_msearch"]


def test_a_generation_that_is_deleted_meanwhile_is_left_for_the_live_one(opensearch_engine, name, generations):
    """The last test of this file: the second generation is gone behind it."""
    first, second = generations
    index = tw.connect(opensearch_engine.url).index(name)
    point(opensearch_engine, name, second, first)
    opensearch_engine.request("DELETE", f"/{second}")
    assert answer(index, "json functions") == answer(Index.pinned(opensearch_engine, first), "json functions")
