"""The pages of `termweave serve` in a real browser: narrow and wide, light and dark, by keyboard alone, and held to the rules of axe-core."""

import os
import shutil
import socket
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'ui' is not installed")

import uvicorn

from termweave import settings
from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook
from termweave.search import Index
from termweave.ui import application
from termweave.ui.serve_options import ServeOptions
from tests.browser.contrast import GROUNDS, contrast, laid_over, parts
from tests.browser.test_pages import OVERFLOWS
from tests.ui.conftest import ATTACKS, DOCUMENTS, WORKBENCH, attacked, lexical, remove_book  # noqa: F401 - the fixture
from tests.ui.processes import until

#: Ink, grounds and tag, for every element with text of its own.
INKS = (
    f"const ground = {GROUNDS};"
    """[...document.querySelectorAll('main *')].filter(each => each.checkVisibility()
        && [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()) && !each.matches(':disabled, option, title'))
    .map(each => [getComputedStyle(each).color, ground(each), each.outerHTML.slice(0, 100)])"""
)


@pytest.fixture(scope="module")
def address(opensearch_engine, attacked, book):  # noqa: F811 - the fixture above
    """The address of a server on the index of attacks."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = application.create(opensearch_engine, ServeOptions(index=attacked, settings=settings.load(url=opensearch_engine.url)))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def book(opensearch_engine, attacked):  # noqa: F811 - the fixture above
    """The book of that index, with a query."""
    book = JudgementBook(opensearch_engine, attacked)
    book.add([BookQuery("q1", f"run a function {ATTACKS[0]} שלום 👍🏽", tuple(sorted(DOCUMENTS)))])
    yield book
    remove_book(opensearch_engine, attacked)


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_pages_fit_can_be_read_and_fetch_nothing_from_elsewhere(browser, address, width, dark):
    for path in (
        "/search?q=run+a+function+%E5%87%BD%E6%95%B0&compare=1&mode=lexical&mode2=dense&facet=kind&facet=note&id=zh",
        "/search?q=run+a+function&judge=ann&curl=1",
        *("/judge?judge=ann", "/book", "/evaluate", "/learn", "/generations"),
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


def test_no_table_is_cut_on_a_telephone(browser, address, book, opensearch_engine, name, tmp_path):
    for key in ("1", "2"):
        lexical(opensearch_engine, name, tmp_path, key)
    book.set_grade(BookGrade("ann", "q1", "timer", 3, "a note"))
    browser.open(f"{address}/evaluate", 400)
    browser.do("document.querySelector('form[action=\"/evaluate/start\"] button').click()")
    browser.until("location.search.includes('job=') && document.querySelector('table') !== null")
    evaluated = browser.do("location.pathname + location.search")
    for path in (evaluated, "/book?scores=1", f"/generations?index={name}"):
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


def test_a_judge_needs_the_keyboard_alone(browser, address, book):
    browser.open(f"{address}/judge?judge=keys")

    def press(key, grades):
        browser.press(key)
        until(lambda: [each.grade for each in sorted(book.grades("keys"), key=lambda each: each.at)] == grades)
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


TABBED = (
    "/search?q=run+a+function&compare=1&mode=lexical&mode2=dense&facet=kind",
    "/search?q=run+a+function&judge=tab&k=3",
    *("/judge?judge=tab", *WORKBENCH, "/login"),
)
#: Everything that a mouse could use. Radio buttons and the summary of a details element are reached as they are.
USABLE = """[...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter(each =>
    !each.disabled && each.type !== 'hidden' && each.checkVisibility())"""


@pytest.mark.parametrize("path", TABBED)
def test_tab_reaches_everything_and_shows_where_it_is(browser, address, path):
    browser.open(address + path)
    browser.do("document.activeElement.blur()")
    browser.do(f"{USABLE}.forEach((each, place) => each.setAttribute('data-place', place))")
    count = browser.do(f"{USABLE}.length")
    assert count > (3 if path == "/login" else 8)
    reached, hidden = set(), []
    for _ in range(3 * count):  # a field for dates or files may take several
        browser.press("Tab")
        place, seen, tag = browser.do(
            "(() => { const each = document.activeElement, style = getComputedStyle(each); return"
            " [each.getAttribute('data-place'), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0, each.outerHTML.slice(0, 120)]; })()"
        )
        if place is not None:
            reached.add(int(place))
            hidden += [] if seen else [tag]
        if len(reached) == count:
            break
    missing = [browser.do(f"{USABLE}[{place}].outerHTML.slice(0, 120)") for place in set(range(count)) - reached]
    assert missing == []
    assert hidden == []


def test_a_key_that_is_held_down_takes_back_one_grade(browser, address, book):
    query = next(each for each in book.queries() if each.pool)
    book.set_grade(BookGrade("held", query.id, query.pool[0], 1))
    browser.open(f"{address}/judge?judge=held")
    undo = "document.querySelector('button[data-key=u]')"
    browser.do(f"clicks = 0, {undo}.addEventListener('click', event => {{ event.preventDefault(); clicks += 1; }})")
    browser.press("u", times=3)
    assert browser.do("clicks") == 1
    book.undo("held")


AXE = "axe-core@4.10.3"
RULED = (
    "/search?q=run+a+function&facet=kind&id=zh",
    "/search?q=run+a+function&compare=1&mode=lexical&mode2=dense",
    "/search?q=run+a+function&judge=ann&curl=1",
    *("/search", "/search?q=x&mode=nothing", "/judge?judge=ann", *WORKBENCH, "/login", "/nothing"),
)


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core, which npm fetches into the user's cache once. It is no part of termweave."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "termweave-tests"
    script = cache / f"{AXE}.js"
    if not script.is_file():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        cache.mkdir(parents=True, exist_ok=True)
        line = ["npm", "pack", AXE, "--silent", "--pack-destination", str(cache)]
        packed = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
        if packed.returncode:
            pytest.skip(f"npm cannot fetch {AXE}: {packed.stderr.strip()[:200]}")
        with tarfile.open(cache / packed.stdout.split()[-1]) as archive:
            script.write_bytes(archive.extractfile("package/axe.min.js").read())
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [1280, 400])
def test_no_page_violates_a_rule(browser, address, axe, book, width):
    """Contrast by night is what `test_pages_fit_can_be_read_and_fetch_nothing_from_elsewhere` measures."""
    for judge, grade in (("bob", 3), ("eve", 1)):  # so that the pages show all that they can
        for document in ("timer", "json", "csv"):
            book.set_grade(BookGrade(judge, "q1", document, grade, "a note"))
    violations = []
    for path in RULED:
        browser.open(address + path, width)
        browser.do("document.querySelectorAll('details').forEach(each => each.open = true)")
        browser.do(f"{axe}; 0")
        found = browser.do("axe.run().then(found => ({passes: found.passes.length, violations: found.violations}))")
        assert found["passes"] > 10
        violations += [(path, each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found["violations"]]
    assert violations == []
