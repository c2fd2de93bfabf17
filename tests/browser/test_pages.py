"""The pages that termweave writes, in a real browser: nothing sticks out, nothing is lost, nothing is fetched."""

import numpy as np
import pytest

from termweave import corpora
from termweave.evaluation import html_page
from termweave.evaluation.experiment import Experiment, Row
from termweave.evaluation.measures import MEASURES
from termweave.evaluation.systems import Latency
from termweave.records import Run
from termweave.search.results import pictures
from termweave.search.results.pictures import Picture
from tests.browser.contrast import GROUNDS, contrast, laid_over, parts
from tests.cli.conftest import beir

#: Ligatures, accents, Chinese, emoji, right to left, markup, and words wider than a telephone.
QUERIES = [
    "The ﬁnal cafe\u0301: 你好世界 good👍🏽 1️⃣ İstanbul 𝒜",
    "שלום עולם, זה משפט ארוך בעברית",
    "自然语言处理是人工智能的一个重要方向。" * 6,
    "Donaudampfschifffahrtsgesellschaft" * 8,
    "<script>document.title = 'taken over'</script> & <b>bold</b>",
]
SYSTEMS = ["BM25", "weights", "dense", "hybrid", "hybrid+rNN", "lexical:0.25,weights:0.5,dense:0.25+rNN"]
#: Wider than the window, or wider than what holds them without being a part that is pushed sideways.
OVERFLOWS = """[...document.querySelectorAll('body *')].filter(each =>
    each.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !each.closest('.wide'))
    .map(each => each.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def shaded(tmp_path_factory):
    """A page as `search --html` and `explain --html` write it."""
    rows = [(0.5, "weights", "506.1, rank 3"), (-0.1, "a_plugins_signal", "term" * 60), (0.2, "rnn", "s .6; 文档-12")]
    drawn = [Picture(f"{place}. {text}", text, [(0, 4, 1.0), (5, 9, 0.3)], rows, text) for place, text in enumerate(QUERIES)]
    file = tmp_path_factory.mktemp("shaded") / "page.html"
    file.write_text(pictures.html("查询 " + "query" * 40, [*drawn, Picture("empty", "", [])]), "utf-8")
    return file


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page as `evaluate --html` writes it, of many systems."""
    pytest.importorskip("matplotlib")
    ids = [f"q{place}" for place in range(len(QUERIES))]
    texts = dict(zip(ids, QUERIES, strict=True))
    folder = beir(tmp_path_factory.mktemp("report"), {"d0": "text"}, texts, dict.fromkeys(ids, "d0"))
    random = np.random.default_rng(0)
    values = {name: {measure: random.random(len(ids)) for measure in MEASURES} for name in SYSTEMS}
    p = dict.fromkeys(MEASURES, 0.01)
    means = {name: {measure: each.mean() for measure, each in values[name].items()} for name in SYSTEMS}
    rows = tuple(Row(name, name, "none", means[name], p, 3, 1, 1, 0.5) for name in SYSTEMS)
    runs = {name: Run(name, {query: {"d0": 1.0} for query in ids}) for name in SYSTEMS}
    notes, latency = ("A note: " + "longword" * 20,), dict.fromkeys(SYSTEMS, Latency(5.0, 9.0, 5))
    found = Experiment("a-set-with-a-long-name-" * 6, tuple(ids), "BM25", rows, runs, texts, values, notes, latency)
    (folder / "page.html").write_text(html_page.html(found, corpora.open_dataset(folder), about={"index": "x" * 90}), "utf-8")
    return folder / "page.html"


@pytest.mark.parametrize("kind", ["shaded", "report"])
@pytest.mark.parametrize("width", [400, 1100, 1280])
def test_nothing_sticks_out_is_lost_or_is_fetched(browser, request, kind, width):
    browser.open(request.getfixturevalue(kind), width)
    browser.do("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.do("document.documentElement.scrollWidth") == width
    assert browser.do(OVERFLOWS) == []
    beyond = browser.do("[...document.querySelectorAll('.wide')].map(each => each.scrollWidth - each.clientWidth)")
    assert width < 1100 or max(beyond, default=0) <= 0
    shown = browser.do("document.body.innerText")
    for text in QUERIES:
        assert text in shown
    assert "taken over" not in browser.do("document.title")
    assert browser.complaints() == []


def test_a_page_without_hits_says_so(browser, tmp_path):
    (tmp_path / "page.html").write_text(pictures.html("a query", []), "utf-8")
    browser.open(tmp_path / "page.html", 400)
    assert browser.do("document.body.innerText").split("\n\n") == ["a query", "Nothing found."]


def test_text_from_right_to_left_begins_at_the_right(browser, shaded, report):
    for file, where in ((shaded, "p.text"), (report, "td.text")):
        browser.open(file)
        directions = "map(each => [each.textContent, getComputedStyle(each).direction])"
        found = browser.do(f"[...document.querySelectorAll('{where}')].{directions}")
        assert {text.startswith("שלום") for text, _ in found} == {True, False}
        assert all((direction == "rtl") == text.startswith("שלום") for text, direction in found)


@pytest.mark.parametrize("kind", ["shaded", "report"])
def test_shaded_words_can_be_read_by_day_and_by_night(browser, request, kind):
    """Contrast of letters and ground, as WCAG counts it: 4.5 is what it wants of text."""
    inks = "[...document.querySelectorAll('mark, p.text, td, h1')]"
    script = f"const ground = {GROUNDS}; {inks}.map(each => [getComputedStyle(each).color, ground(each)])"
    for dark, canvas in ((False, "rgb(255,255,255)"), (True, "rgb(18,18,18)")):
        browser.open(request.getfixturevalue(kind), dark=dark)
        pairs = browser.do(script)
        assert len(pairs) > 20
        for ink, ground in pairs:
            assert contrast(parts(ink)[0], laid_over(ground, canvas)) >= 4.5, (dark, ink, ground)
