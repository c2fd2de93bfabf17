"""The sliders in a real browser: each move ranks as the library does, and asks the server for nothing."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra 'ui' is not installed")

from termweave.evaluation.book.store import BookGrade, JudgementBook
from termweave.search import Index
from termweave.ui import kept_candidates
from tests.browser.test_served_pages import Address, address  # noqa: F401 - the fixture
from tests.ui.conftest import DOCUMENTS, attacked  # noqa: F401 - the fixture

pytestmark = pytest.mark.engine
QUERY = "run a function later"
MOVE = """(() => { for (const [name, value] of Object.entries(%s)) {
    const slider = document.querySelector(`[name="${name}"]`);
    slider.value = value;
    slider.dispatchEvent(new Event("input", {bubbles: true}));
} })()"""
HITS = """[...document.querySelectorAll("#ranking li")].map(each =>
    [each.querySelector("code").textContent, each.querySelector(".score").textContent])"""


@pytest.fixture
def graded(opensearch_engine, attacked, address):  # noqa: F811 - the fixtures above
    """A book with a grade of three documents for its one query."""
    book = JudgementBook(opensearch_engine, attacked)
    for document, grade in (("sched", 3), ("timer", 2), ("json", 1)):
        book.set_grade(BookGrade("sliders", "q1", document, grade))
    yield book
    while book.undo("sliders"):
        pass


@pytest.mark.parametrize("fusion", ["adaptive", "rrf", "sum", "z-score"])
def test_a_moved_slider_ranks_as_the_library_and_asks_nothing(
    browser,
    address,  # noqa: F811
    opensearch_engine,
    attacked,  # noqa: F811
    graded,
    fusion,
):
    index = Index.open(opensearch_engine, attacked)
    opened = kept_candidates.setting_of(index, f"hybrid@{fusion}")
    kept = kept_candidates.keep(index, QUERY, graded, [], None)
    browser.open(Address(f"{address}/sliders?q={QUERY.replace(' ', '+')}&mode=hybrid@{fusion}"))
    asked = len(browser.events)
    figures = set()
    for lexical, weights, dense, rnn in (
        (1, 0, 0, 1),
        (0, 0, 1, 1),
        (0.25, 0.5, 0.25, 1),
        (0.1, 0.03, 0.87, 1),
        (0, 0.5, 0.5, 0.4),
        (0, 0.5, 0.5, 0),
    ):
        moved = {"weight.lexical": lexical, "weight.weights": weights, "weight.dense": dense, "rnn": rnn}
        browser.do(MOVE % moved)
        neighbours = type(opened.neighbours)(weight=rnn)
        given = {"lexical": lexical, "weights": weights, "dense": dense}
        setting = kept_candidates.SliderSetting(given, fusion, neighbours)
        expected = [[document, f"{score:.4f}"] for document, score in kept_candidates.ranked(kept[0], setting)[:20]]
        assert [hit[0] for hit in browser.do(HITS)] == [hit[0] for hit in expected], moved
        assert [float(hit[1]) for hit in browser.do(HITS)] == pytest.approx([float(hit[1]) for hit in expected], abs=1.01e-4)
        figure, judged = kept_candidates.measure(kept, setting)
        assert judged == 1
        figures.add(browser.do("document.querySelector('[data-figure]').textContent"))
        assert float(browser.do("document.querySelector('[data-figure]').textContent")) == pytest.approx(figure, abs=1e-4)
    assert len(figures) > 1
    assert browser.do("document.querySelector('#search').href").endswith(
        f"&mode=weights%3A0.5%2Cdense%3A0.5%40{fusion}&rerank=rnn"
    )
    browser.do(MOVE % {"rnn": 1})
    assert browser.do("document.querySelector('#search').href").endswith(f"%40{fusion}")
    later = [
        event["params"]["request"]["url"] for event in browser.events[asked:] if event["method"] == "Network.requestWillBeSent"
    ]
    # The browser fetches the icon of its tab when it likes, on a busy machine after the page has loaded.
    assert [url for url in later if url != f"{address}/static/icon.svg"] == []
    assert DOCUMENTS.keys() >= {"sched", "timer", "json"}


def test_all_weights_at_0_are_a_sentence_and_keep_the_ranking(browser, address):  # noqa: F811
    browser.open(Address(f"{address}/sliders?q=function"))
    browser.do(MOVE % {"weight.lexical": 0, "weight.weights": 0})
    before = browser.do(HITS)
    browser.do(MOVE % {"weight.dense": 0})
    assert browser.do("document.getElementById('nothing').hidden") is False
    assert browser.do(HITS) == before
    browser.do(MOVE % {"weight.lexical": 1})
    assert browser.do("document.getElementById('nothing').hidden") is True
