"""The page of the sliders without script: a form whose ranking is that of the search with these weights."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from termweave.evaluation import evaluate
from termweave.evaluation.book.reader import BookDataset
from termweave.evaluation.systems import grid
from termweave.search.render.html import allowed
from tests.ui.conftest import client_of
from tests.ui.test_search_page import hits_of
from tests.ui.test_workflow import judged  # noqa: F401 - the fixture

pytestmark = pytest.mark.engine
QUERY = "run a function later"


def shown(client, **given):
    answer = client.get("/sliders", params={name.replace("weight_", "weight."): value for name, value in given.items()})
    return answer.status_code, answer.text


def searched(client, page):
    """The hits of the search that a page links."""
    link = unescape(re.search(r'id="search"[^>]* href="([^"]+)"', page).group(1))
    return hits_of(client.get(f"{link}&k=20").text)


@pytest.mark.parametrize("fusion", ["adaptive", "rrf"])
def test_the_ranking_is_that_of_the_search_with_these_weights(client, attacked, fusion):
    index = client.app._app.state.workspace.index(attacked)
    status, page = shown(client, q=QUERY, weight_lexical=0.2, weight_weights=0.5, weight_dense=0.3, fusion=fusion)
    assert status == 200
    found = index.search(QUERY, mode=f"lexical:0.2,weights:0.5,dense:0.3@{fusion}", k=20)
    assert hits_of(page) == [allowed(hit.id) for hit in found]
    assert re.findall(r'<span class="score">([\d.]+)</span>', page) == [f"{hit.score:.4f}" for hit in found]
    assert searched(client, page) == [allowed(hit.id) for hit in found]


def test_lambda_is_the_weight_of_the_reranker(client, attacked):
    index = client.app._app.state.workspace.index(attacked)
    _, page = shown(client, q=QUERY, rnn=0.9)
    assert hits_of(page) == searched(client, page) == [allowed(hit.id) for hit in index.search(QUERY, rerank="rnn", k=20)]
    assert "With λ below 1 that search reranks by rNN with its defaults, λ = 0.9." in page
    _, page = shown(client, q=QUERY)
    assert hits_of(page) == [allowed(hit.id) for hit in index.search(QUERY, k=20)]


def test_the_link_of_a_search_has_its_reranker_and_says_what_it_leaves_out(client, attacked):
    def linked(**given):
        page = client.get("/search", params={"q": QUERY, **given}).text
        link, without = re.search(
            r'href="(/sliders[^"]*)">Move the weights</a>(?: <span class="dim">([^<]*)</span>)?', page
        ).groups()
        return scores_of(page), scores_of(client.get(unescape(link)).text), without

    def scores_of(page):
        return list(zip(hits_of(page), re.findall(r'<span class="score">([^<]+)</span>', page), strict=True))

    searched, moved, without = linked(k=20, rerank="rnn")
    assert (moved, without) == (searched, None)
    assert moved != linked(k=20, rerank="none")[1]
    assert linked(rerank="rnn@dense", rewrite="spelling", sort="year")[2] == "(without rerank, rewrite, sort)"


def test_filters_and_rewriting_stay_in_the_linked_search_and_what_does_not_is_named(
    client, attacked, termweave, opensearch_engine, monkeypatch, tmp_path
):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    (tmp_path / "synonyms.txt").write_text("later, delay\n")
    changes = ["--rerank", "rnn@dense", "--rewrite", f"operators,spelling,synonyms@{tmp_path / 'synonyms.txt'}"]
    termweave("profiles", attacked, "--save", "paper", "--mode", "hybrid", *changes)
    try:
        fresh = client_of(opensearch_engine, index=attacked)
        _, page = shown(fresh, q="run a functoin -json", mode="paper", filter="year<2006")
        index = fresh.app._app.state.workspace.index(attacked)
        found = index.search("run a functoin -json", mode="hybrid", rewrite="operators,spelling", where="year<2006", k=20)
        assert hits_of(page) == searched(fresh, page) == [allowed(hit.id) for hit in found]
        assert 0 < len(found) < 6
        assert "Left out here, and part of a search: rnn@dense." in unescape(page)
        assert "Not in it: rnn@dense, synonyms." in unescape(page)
    finally:
        termweave("profiles", attacked, "--drop", "paper")


def test_queries_are_rewritten_as_the_profile_says_and_what_is_left_out_is_named(
    client, attacked, termweave, opensearch_engine, monkeypatch, tmp_path
):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    pins = tmp_path / "pins.tsv"
    pins.write_text("query\tdocument\taction\nrun later\tcsv\tpin\nrun later\tsched\thide\n")
    changes = ["--rerank", "diverse@0.3", "--rewrite", f"spelling,pins@{pins}"]
    termweave("profiles", attacked, "--save", "moved", "--mode", "hybrid", *changes)
    try:
        fresh = client_of(opensearch_engine, index=attacked)
        index = fresh.app._app.state.workspace.index(attacked)
        hidden = {"bool": {"must_not": [{"term": {"id": "sched"}}]}}
        for query, where in (("run a functoin later", []), ("run later", [hidden])):
            found = index.search(query, mode="hybrid", rewrite="spelling", where=where, k=20)
            _, page = shown(fresh, q=query, mode="moved")
            assert hits_of(page) == [allowed(hit.id) for hit in found]
            assert ("sched" in hits_of(page)) != bool(where)
            assert "Left out here, and part of a search: diverse@0.3, pins." in unescape(page)
        assert "Left out here" not in shown(fresh, q=QUERY)[1]
    finally:
        termweave("profiles", attacked, "--drop", "moved")


def test_the_measure_is_that_of_an_evaluation(client, attacked, judged):  # noqa: F811 - the fixture above
    index = client.app._app.state.workspace.index(attacked)
    mode = "lexical:0.7,dense:0.3"
    expected = evaluate(index, BookDataset(f"book:{attacked}", judged), grid([mode], ["none"], index))
    (row,) = [row for row in expected.rows if row.mode == mode]
    _, page = shown(client, weight_lexical=0.7, weight_dense=0.3)
    assert f"<strong data-figure>{row.values['nDCG@10']:.4f}</strong>" in page
    assert "of 24 judged queries" in page
    kept = json.loads(unescape(re.search(r'data-kept="([^"]*)"', page).group(1)))
    assert kept == client.get("/api/candidates", params={"mode": mode, "judged": 1}).json()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weight_lexical": 0, "weight_dense": 0}, "All weights are 0"),
        ({"weight_lexical": 2}, "number from 0 to 1"),
        ({"weight_lexical": "nan"}, "number from 0 to 1"),
        ({"weight_nothing": 1}, "no parameter"),
        ({"rnn": "-1"}, "number from 0 to 1"),
        ({"fusion": "nothing"}, "no fusion method"),
        ({"mode": "nothing"}, "no signal"),
        ({"index": "no-such-index"}, "no index named"),
        ({"filter": "AND"}, "AND"),
    ],
)
def test_mistakes_are_a_sentence(client, given, said):
    status, page = shown(client, q=QUERY, **given)
    assert status == 400
    assert said in unescape(page)


def test_without_grades_and_without_a_query_the_page_says_what_to_do(client, attacked):
    status, page = shown(client)
    assert status == 200
    assert "has no grades yet" in page
    assert 'data-kept=""' in page
