"""The search page on the real server: what it shows is what the search found, and attacks in documents stay text."""

import json
import re
import subprocess
from html import unescape
from urllib.parse import urlencode

import pytest

import termweave as tw
from termweave.records import Hit
from termweave.search.results.pictures import Picture
from termweave.ui import searching
from termweave.ui.pages import search_page
from tests.programs import program
from tests.ui.conftest import ATTACKS, DOCUMENTS, TOKEN, WORKBENCH, built, client_of, lexical, opened
from tests.ui.test_attacks import Reader


def show(client, **given):
    pairs = [(name.rstrip("_"), value) for name, each in given.items() for value in (each if isinstance(each, list) else [each])]
    answer = client.get(f"/search?{urlencode(pairs)}")
    return answer.status_code, answer.text


def hits_of(page):
    """The ids of the hits of a page."""
    return [unescape(part.partition("</code>")[0]) for part in page.split('<code dir="auto">')[1:]]


@pytest.mark.parametrize("mode", ["", "lexical", "dense"])
def test_the_page_shows_the_hits_of_the_search_with_their_scores(client, attacked, opensearch_engine, mode):
    index = opened(client, attacked)
    found = index.search("run a function later", mode=mode or None, k=5, explain=True)
    _, page = show(client, q="run a function later", mode=mode, k=5)
    assert hits_of(page) == [hit.id for hit in found]
    for hit in found:
        assert f'<span class="score">{hit.score:.4f}</span>' in page
        assert sum(part["share"] for part in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-6)


def test_a_document_is_explained_whether_it_is_found_or_not(client, attacked):
    _, page = show(client, q="run a function later", id="csv", mode="lexical", k=3)
    assert "not among the candidates of any signal" in page
    _, page = show(client, q="run a function later", id="json", mode="dense", candidates="1")
    assert "not among its candidates, the last of which has" in page  # what it would need


def test_the_best_passages_of_a_long_document(client, opensearch_engine, name, tmp_path):
    filler = "The committee met again on that day and spoke for a long time about nothing of interest to anybody. " * 3
    text = f"A red kettle boils water. {filler} A kettle {ATTACKS[0]} of steel is beside the green tea. {filler}"
    built(opensearch_engine, name, tmp_path, {"_id": "letters", "text": text}, passages=30)
    found = opened(client, name).search("kettle", passages="2+1", k=1)[0].passages
    _, page = show(client, index=name, q="kettle", passages="2+1")
    assert ('name="passages" value="2+1"' in page, ATTACKS[0] in page) == (True, False)
    shown = " ".join(" ".join(Reader(page.partition('<ol class="passages">')[2].partition("</ol>")[0]).text).split())
    for each in found:
        assert f"passage {each.number}, characters {each.start:,} to {each.end:,} · {each.score:.4f}" in shown
        assert " ".join(each.text.split()) in shown
    assert 'class="passages"' not in show(client, index=name, q="kettle")[1]
    assert 'name="passages"' not in show(client, q="function")[1]  # an index without passages offers none


def test_a_reranked_hit_names_its_neighbours_by_title(client, attacked):
    index = opened(client, attacked)
    first = index.search("run a function later", rerank="rnn", k=3, explain=True)[0]
    near = {document for part in first.explanation["parts"] for document in part.get("neighbours", ())}
    shown = unescape(show(client, q="run a function later", rerank="rnn", k=3)[1]).partition("Shares its neighbourhood with")[2]
    assert near
    for document in sorted(near)[:2]:
        assert f'title="{document}">{DOCUMENTS[document][0]}</span>' in shown.partition("</p>")[0]


def test_two_lists_show_how_far_each_hit_moved(client, attacked):
    index = opened(client, attacked)
    left, right = (index.search("run a function later", mode=mode, k=50) for mode in ("lexical", "dense"))
    _, page = show(client, q="run a function later", mode="lexical", mode2="dense", compare="1", k=3)
    ranks, first = {hit.id: hit.rank for hit in left}, right[0]
    up = ranks[first.id] - first.rank if first.id in ranks else None
    moved = "only here" if up is None else f"▲ {up}" if up > 0 else f"▼ {-up}" if up < 0 else "="
    assert moved in page.partition('aria-label="Right"')[2].partition("</h3>")[0]


def test_hits_below_the_compared_ranks_are_not_said_to_be_missing(client, attacked, monkeypatch):
    for module in (searching, search_page):
        monkeypatch.setattr(module, "DEPTH", 3)
    asked = {"q": "run a function later", "mode": "lexical", "mode2": "lexical", "compare": "1", "judge": "ann", "id": "csv"}
    _, page = show(client, **asked)
    assert page.count('class="hit"') > 10
    assert page.count('class="move same"') == 6
    assert "only here" not in page
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("selection", [{"collapse": "kind"}, {"sort": "year:desc"}])
def test_what_selects_hits_holds_for_lists_and_comparison(client, attacked, selection):
    index = opened(client, attacked)
    query, modes = "run a function later", ("hybrid", "dense")
    left, right = ([hit.id for hit in index.search(query, mode=mode, k=20, **selection)] for mode in modes)
    assert left != [hit.id for hit in index.search(query, mode="hybrid", k=20)]
    _, page = show(client, q=query, mode="hybrid", k=20, **selection)
    hidden = re.compile("[\x00-\x1f\ufffd-\uffff]")  # the page writes one sign for each of these
    assert [hidden.sub("", hit) for hit in hits_of(page)] == [hidden.sub("", hit) for hit in left]
    _, page = show(client, q=query, mode="hybrid", mode2="dense", compare="1", k=3, **selection)
    assert f"<strong>{len({*left[:10]} & {*right[:10]})} of {max(len(left[:10]), len(right[:10]))}</strong>" in page


@pytest.mark.slow
def test_facets_count_ten_thousand_candidates(opensearch_engine, name, tmp_path):
    documents = ({"_id": str(n), "text": f"the same word {n}", "kind": f"k{n % 7}"} for n in range(10_000))
    lexical(opensearch_engine, name, tmp_path, *documents)
    _, page = show(client_of(opensearch_engine, index=name), q="word", mode="lexical", candidates="10000", facet="kind")
    for kind in range(7):
        assert f"<bdi>k{kind}</bdi> <b>{sum(n % 7 == kind for n in range(10_000))}</b>" in page


def test_filters_facets_and_pages_are_links(client, attacked):
    _, page = show(client, q="function", facet=["kind"], k=2)
    links = Reader(page).links
    filtered = next(link for link in links if "filter=kind%3D%22attack%22" in link)
    narrowed = client.get(filtered).text
    assert all(hit.startswith("attack-") for hit in hits_of(narrowed))
    assert "kind=&#34;attack&#34;" in narrowed
    following = next(link for link in links if "from=2" in link)
    assert set(hits_of(client.get(following).text)).isdisjoint(hits_of(page))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"filter": "AND kind"}, "AND kind"),
        ({"k": "1000000"}, "number from 1 to 100"),
        *(({"rerank": name}, "Pages may not use the reranker") for name in ("ranker@/etc", "hf:OWNER/NAME", "diverse/../../x")),
        ({"rewrite": "synonyms@/etc/passwd"}, "Pages may not use"),
        ({"q": "x" * 10_001}, "more than 10,000 characters"),
        ({"passages": "2"}, "are not cut into passages"),
        *(({"index": name}, "index") for name in ("no-such-index", "_all", "a,b", ".kibana", "../_cat")),
    ],
)
def test_a_mistake_is_a_sentence_and_keeps_what_was_typed(client, attacked, typed, said):
    values = {"q": "function"} | typed
    status, page = show(client, **values)
    assert (status, said in unescape(page), 'class="problem"' in page) == (400, True, True)
    assert f'value="{values["q"]}"' in page


def test_a_mistake_keeps_the_options(client, attacked):
    options = {"filter": ["year>=2000", "NOT kind=a"], "facet": "kind", "from_": "9500", "k": "7", "compare": "1"}
    page = unescape(show(client, q="function", **options)[1])
    for part in ('"filter" value="year>=2000"', '"filter" value="NOT kind=a"', '"facet" value="kind"', 'value="7"'):
        assert part in page


def test_the_title_is_said_once_and_the_metadata_stand_beside_the_text(client, attacked):
    _, page = show(client, q="JSON decoder", k=1, mode="lexical")
    card = page.partition('<article class="hit"')[2].partition("<details")[0]
    text = " ".join(Reader(card).text)
    assert (text.count("decoder"), "Parse a" in text, "<dt>year</dt>" in card) == (1, True, True)
    parts = search_page._parted("ab cd", Picture("", "ab cd. ef", [(0, 2, 1.0), (3, 8, 0.5)]))
    assert ["".join(piece for piece, _, _ in part) for part in parts] == ["ab cd", "ef"]
    values = {"false": False, "net, math, 3": ["net", "math", 3], '{"a":[1]}': {"a": [1]}, "text": "text", "null": None}
    assert searching.metadata_of(values) == [(written, written) for written in values]  # as people write them


@pytest.mark.programs
def test_the_request_of_a_list_runs_in_a_shell(client, attacked):
    program("curl")
    index = opened(client, attacked)
    query = "what's 'quoted' \"function\" 函数"
    _, page = show(client, q=query, curl="1")
    command = unescape(page.partition('aria-label="Request as curl">')[2].partition("</pre>")[0])
    answers = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=60).stdout)["responses"]
    candidates = index.candidates([query], ["weights", "dense"])[0].lists
    assert len(answers) == len(candidates) == 2
    found = [hit["sort"][-1] for answer in answers for hit in answer["hits"]["hits"]]
    assert found == [document for each in candidates.values() for document in each.scores]


def test_every_page_lets_choose_another_index(client, opensearch_engine, attacked):
    for path in ("/search?q=json", *WORKBENCH):
        page = client.get(path).text
        address = f"{path.partition('?')[0]}?index={attacked}"
        link = f'{address}&amp;q=json" aria-current="true"' if "q=" in path else f'{address}" aria-current="true"'
        assert link in page.partition("<nav")[0], path
    assert f"/judge?index={attacked}" in client.get("/judge?index=no-such-index").text.partition("<nav")[0]
    locked = client_of(opensearch_engine, index=attacked, token=TOKEN)
    for path in ("/login", "/static/nothing", "/search"):
        assert attacked not in locked.get(path).text, path


def test_a_server_without_an_index_says_one_thing_to_do_on_every_page(opensearch_engine):
    client = client_of(opensearch_engine)
    client.app._app.state.workspace.names = lambda: ()  # as an empty server: other tests have indices on this one
    for path in ("/search", "/search?q=x", *WORKBENCH):
        page = client.get(path).raise_for_status().text
        assert ("termweave index ./docs docs" in page, "<nav" in page) == (True, False), path
    assert client.get("/api/search?q=x").status_code == 400


def test_fields_of_a_mapping_have_buttons_and_facets_count_what_is_listed(opensearch_engine, name):
    connection = tw.connect(opensearch_engine.url)
    documents = [{"id": str(n), "text": "kettle " * (n % 3 + 1), "price": n * 2.02, "room": "ab"[n % 2]} for n in range(9)]
    mapping = {"properties": {"price": {"type": "scaled_float", "scaling_factor": 100}, "prose": {"type": "text"}}}
    tw.index(documents, name, connection=connection, signals=("lexical",), mapping=mapping)
    client = client_of(opensearch_engine, index=name)
    _, page = show(client, q="kettle", facet=["price", "room"], collapse="room")
    links = Reader(page).links
    assert {"facet=price", "facet=room"} <= {part for link in links for part in link.replace("?", "&").split("&")}
    # Two documents are left, with a price and a room each.
    assert ("prose" in page, page.count("<b>1</b></a>")) == (False, 4)
    assert "Listed: 2 documents (9 candidates)." in page


@pytest.mark.parametrize(
    ("first", "second", "figures"),
    [
        ("abc", "cba", (3, 3, 3, -1)),
        ("abc", "abc", (3, 3, 3, 1)),
        ("abcde", "bxadc", (5, 4, 4, 1 / 3)),  # of the six pairs of a, b, c, d four are in the same order
        ("abcdefghijkl", "lkjihgfedcba", (10, 8, 12, -1)),  # the heads are ten long
        ("ab", "c", (2, 0, 0, None)),
        ("", "", (0, 0, 0, None)),
    ],
)
def test_the_agreement_of_two_lists_with_kendalls_tau(first, second, figures):
    made = searching.compare(first, second)
    assert (made.head, made.shared, made.both, made.correlation) == pytest.approx(figures)
    for document, ranks in made.as_dict()["ranks"].items():
        listed = (each.find(document) + 1 or None for each in (first, second))
        assert (ranks["first"], ranks["second"]) == tuple(listed)


def test_bars_sum_to_the_score_and_fit_into_the_best():
    terms = [{"term": "a", "word": "ab", "share": 4.0}, {"term": "b", "word": "bc", "share": 6.0}]
    parts = [
        {"name": "dense", "share": 0.2, "score": 0.4, "rank": 1, "terms": []},
        {"name": "weights", "share": 0.5, "score": 10.0, "rank": 2, "lowest": 1.0, "terms": terms},
        {"name": "rnn", "share": 0.1, "similarity": 0.1, "jaccard": 0.5, "weight": 0.5, "neighbours": ["x", "y"]},
    ]
    hit = Hit("d", 0.8, 1, explanation={"score": 0.8, "parts": parts, "text": "", "words": []})
    bars = search_page.bars_of(hit, 1.6)
    assert [(bar.name, bar.kind) for bar in bars] == [("weights", "words"), ("dense", "meaning"), ("rnn", "rerank")]
    assert [sum(bar.share for bar in bars), sum(bar.width for bar in bars)] == pytest.approx([hit.score, 50])
    assert [bar.start for bar in bars] == pytest.approx([0, bars[0].width, bars[0].width + bars[1].width])
    assert [(word["word"], word["share"]) for word in bars[0].words] == [("bc", pytest.approx(0.3)), ("ab", pytest.approx(0.2))]
    assert bars[2].neighbours == ("x", "y")
    assert [search_page.best_of([hit]), search_page.best_of([])] == pytest.approx([0.8, 0])
