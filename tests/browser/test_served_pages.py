"""The pages of `termweave serve` in a real browser: narrow and wide, light and dark, and by keyboard alone."""

import socket
import threading
import time

import pytest

pytest.importorskip("starlette", reason="the extra 'ui' is not installed")

import uvicorn

from termweave import corpora, settings
from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook
from termweave.indexer import BuildOptions, build
from termweave.search import Index
from termweave.ui import application
from termweave.ui.serve_options import ServeOptions
from tests.browser.contrast import GROUNDS, contrast, laid_over, parts
from tests.browser.test_pages import OVERFLOWS
from tests.ui.conftest import ATTACKS, DOCUMENTS, attacked, remove_book  # noqa: F401 - the fixture

#: Ink, grounds and tag, for every element with text of its own.
INKS = (
    f"const ground = {GROUNDS};"
    """[...document.querySelectorAll('main *')].filter(each => each.checkVisibility()
        && [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()) && !each.matches(':disabled, option, title'))
    .map(each => [getComputedStyle(each).color, ground(each), each.outerHTML.slice(0, 100)])"""
)


@pytest.fixture(scope="module")
def address(opensearch_engine, attacked):  # noqa: F811 - the fixture above
    """The address of a server on the index of attacks."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = application.create(opensearch_engine, ServeOptions(index=attacked, settings=settings.load(url=opensearch_engine.url)))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    book = JudgementBook(opensearch_engine, attacked)
    book.add([BookQuery("q1", f"run a function {ATTACKS[0]} שלום 👍🏽", tuple(sorted(DOCUMENTS)))])
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    remove_book(opensearch_engine, attacked)


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_can_be_read_and_fetch_nothing_from_elsewhere(browser, address, width, dark):
    for path in (
        "/search?q=run+a+function+%E5%87%BD%E6%95%B0&compare=1&mode=lexical&mode2=dense&facet=kind&facet=note&id=zh",
        "/search?q=run+a+function&judge=ann&curl=1",
        "/judge?judge=ann",
        "/book",
        "/evaluate",
        "/learn",
        "/generations",
    ):
        browser.open(address + path, width, dark=dark)
        browser.do("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert browser.do("document.documentElement.scrollWidth") == width, path
        assert browser.do(OVERFLOWS) == [], path
        assert all(said.startswith(f"{address}/static/") for said in browser.complaints()), path
        assert "taken" not in browser.do("document.title")
        pairs = browser.do(INKS)
        assert len(pairs) > 3
        for ink, ground, element in pairs:
            assert contrast(parts(ink)[0], laid_over(ground, "#fff")) >= 4.5, (path, ink, ground, element)


@pytest.fixture
def twice(opensearch_engine, name, tmp_path):
    """An index with two generations."""
    path = tmp_path / "corpus-with-a-long-name.jsonl"
    path.write_text('{"_id": "1", "text": "a text"}\n')
    for _ in range(2):
        build(opensearch_engine, corpora.open_source(path), name, BuildOptions(weights="none", dense="none"))
    return name


def test_no_table_is_cut_on_a_telephone(browser, address, opensearch_engine, attacked, twice):  # noqa: F811 - the fixture above
    book = JudgementBook(opensearch_engine, attacked)
    book.set_grade(BookGrade("ann", "q1", "timer", 3, "a note"))
    browser.open(f"{address}/evaluate", 400)
    browser.do("document.querySelector('form[action=\"/evaluate/start\"] button').click()")
    browser.until("location.search.includes('job=') && document.querySelector('table') !== null")
    evaluated = browser.do("location.pathname + location.search")
    for path in (evaluated, "/book?scores=1", f"/generations?index={twice}"):
        browser.open(address + path, 400)
        browser.do("document.querySelectorAll('main details').forEach(each => each.open = true)")
        beyond = browser.do("[...document.querySelectorAll('.wide')].map(each => each.scrollWidth - each.clientWidth)")
        assert beyond, path
        assert max(beyond) <= 0, path
    place = "document.querySelector('.action a').getBoundingClientRect()"
    assert browser.do("document.querySelector('.action a').textContent").startswith("Make live")
    assert 0 <= browser.do(f"{place}.left") < browser.do(f"{place}.right") <= 400


def test_a_moved_slider_weighs_a_signal_and_the_list_follows(browser, address, opensearch_engine, attacked):  # noqa: F811 - the fixture above
    index = Index.open(opensearch_engine, attacked)
    browser.open(f"{address}/search?q=run+a+function+later&mode=hybrid@rrf&k=5")
    browser.do("first = document.querySelector('#found').innerText")
    for signal, weight in (("lexical", 0), ("weights", 0), ("dense", 0.5)):
        browser.do(
            f"(() => {{ const each = document.querySelector('[data-signal={signal}]'); each.value = {weight};"
            " each.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
    browser.until("location.search.includes('mode=dense') && document.querySelector('#found').innerText !== first")
    assert browser.do("document.querySelector('[name=mode]').value") == "dense:0.5@rrf"
    shown = browser.do("[...document.querySelectorAll('#found .hit code')].map(each => each.textContent)")
    assert shown == [hit.id for hit in index.answer("run a function later", mode="dense", k=5).hits]


def test_the_search_page_uses_its_width(browser, address):
    for width, columns in ((400, 1), (1100, 3), (1800, 3)):
        browser.open(f"{address}/search?q=run+a+function", width)
        edges = browser.do(
            "['.hit .passage', '.hit .facts', '.beside'].map(each => document.querySelector(each).getBoundingClientRect().left)"
        )
        assert len({round(edge / 30) for edge in edges}) == columns, (width, edges)
    assert browser.do("document.querySelector('.beside').getBoundingClientRect().right") > 1600


@pytest.mark.parametrize("dark", [False, True])
def test_four_grades_have_four_colours(browser, address, dark):
    browser.open(f"{address}/judge?judge=colours", dark=dark)
    colours = browser.do("[...document.querySelectorAll('.grade')].map(each => getComputedStyle(each).backgroundColor)")
    assert len(colours) == len(set(colours)) == 4


def test_a_judge_needs_the_keyboard_alone(browser, address, opensearch_engine, attacked):  # noqa: F811 - the fixture above
    book = JudgementBook(opensearch_engine, attacked)
    browser.open(f"{address}/judge?judge=keys")

    def press(key, grades):
        browser.press(key)
        until = time.monotonic() + 30
        while [each.grade for each in sorted(book.grades("keys"), key=lambda each: each.at)] != grades:
            assert time.monotonic() < until, (key, grades)
            time.sleep(0.05)
        browser.until("document.readyState === 'complete'")

    press("3", [3])
    press("0", [3, 0])
    press("s", [3, 0, None])
    press("u", [3, 0])
    press("n", [3, 0])
    assert browser.do("document.activeElement.name") == "note"
    press("3", [3, 0])  # a digit of the note, no grade
    assert browser.do("document.activeElement.value") == "3"
    press("Escape", [3, 0])
    press("2", [3, 0, 2])
    assert [each.note for each in book.grades("keys") if each.grade == 2] == ["3"]
