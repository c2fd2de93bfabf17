"""Every page by keyboard alone: Tab reaches whatever can be used, shows where it is, and the search and the book work without a mouse."""

import pytest

pytest.importorskip("starlette", reason="the extra 'ui' is not installed")

from termweave.evaluation.book.store import BookGrade, JudgementBook
from tests.browser.test_served_pages import address  # noqa: F401 - the fixture
from tests.ui.conftest import WORKBENCH, attacked  # noqa: F401 - the fixture

PAGES = (
    "/search?q=run+a+function&compare=1&mode=lexical&mode2=dense&facet=kind",
    "/search?q=run+a+function&judge=tab&k=3",
    "/judge?judge=tab",
    *WORKBENCH,
    "/login",
)
#: Everything that a mouse could use. Radio buttons and the summary of a details element are reached as they are.
USABLE = """[...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter(each =>
    !each.disabled && each.type !== 'hidden' && each.checkVisibility())"""


def tab_to(browser, selector):
    for _ in range(200):
        browser.press("Tab")
        if browser.do(f"document.activeElement.matches({selector!r})"):
            return
    raise AssertionError(f"Tab does not reach {selector}")


@pytest.mark.parametrize("path", PAGES)
def test_tab_reaches_everything_and_shows_where_it_is(browser, address, path):  # noqa: F811 - the fixture above
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


def test_the_first_tab_skips_the_navigation(browser, address):  # noqa: F811 - the fixture above
    browser.open(f"{address}/book")
    browser.press("Tab")
    assert browser.do("document.activeElement.className") == "skip"
    assert browser.do("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Enter")
    browser.press("Tab")
    assert browser.do("document.activeElement.closest('main') !== null")


def test_a_search_and_its_options_need_no_mouse(browser, address):  # noqa: F811 - the fixture above
    browser.open(f"{address}/search")
    assert browser.do("document.activeElement.name") == "q"
    browser.tell("Input.insertText", text="run a function")
    browser.press("Enter")
    browser.until("document.querySelectorAll('article.hit').length > 3")
    tab_to(browser, "details.options > summary, form summary")
    browser.press("Enter")
    assert browser.do("document.activeElement.parentElement.open")
    tab_to(browser, "input[name=compare]")
    browser.press(" ")
    browser.press("Enter")
    browser.until(
        "new URLSearchParams(location.search).get('compare') === '1' && document.body?.innerText.includes('of the best are the same')",
    )
    tab_to(browser, "article.hit summary")
    browser.press("Enter")
    assert browser.do("document.activeElement.parentElement.open")


def test_a_query_is_added_to_the_book_without_a_mouse(browser, address, opensearch_engine, attacked):  # noqa: F811 - the fixtures above
    browser.open(f"{address}/book")
    tab_to(browser, "textarea[name=typed]")
    browser.tell("Input.insertText", text="typed by keyboard alone")
    tab_to(browser, "form[action='/book/add'] button")
    browser.press("Enter")
    browser.until("document.body?.innerText.includes('1 query was added')")
    assert "typed by keyboard alone" in {query.text for query in JudgementBook(opensearch_engine, attacked).queries()}


def test_a_key_that_is_held_down_takes_back_one_grade(browser, address, opensearch_engine, attacked):  # noqa: F811 - the fixtures above
    book = JudgementBook(opensearch_engine, attacked)
    query = next(each for each in book.queries() if each.pool)
    book.set_grade(BookGrade("held", query.id, query.pool[0], 1))
    browser.open(f"{address}/judge?judge=held")
    undo = "document.querySelector('button[data-key=u]')"
    browser.do(f"clicks = 0, {undo}.addEventListener('click', event => {{ event.preventDefault(); clicks += 1; }})")
    browser.press("u", times=3)
    assert browser.do("clicks") == 1
    book.undo("held")
