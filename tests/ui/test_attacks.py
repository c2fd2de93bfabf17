"""The corpus of attacks through every page that shows a text of somebody else: documents, queries, judges, notes, files."""

from html.parser import HTMLParser

import pytest

from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook
from tests.ui.conftest import ATTACKS, DOCUMENTS, remove_book

#: Elements that templates have; an attack that is not escaped adds others, or more of these.
_NAMES = """a article aside b badge bdi body button code datalist dd details div dl dt fieldset footer form h1 h2 h3 head header html
    input kbd label legend li link main mark meta nav noscript ol option output p progress rect script section select span strong summary
    svg table tbody td textarea th thead title tr ul"""
HARMLESS = frozenset(_NAMES.split())
PAGES = ("/search", "/book", "/judge", "/evaluate", "/tune", "/generations", "/progress", "/login")


class Reader(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.links = [], set(), [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value for name, value in attrs if name == "href"]

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def attacked_book(opensearch_engine, attacked):
    """A book whose queries, judges, notes, ids and guidelines attack."""
    book = JudgementBook(opensearch_engine, attacked)
    pool = tuple(sorted(DOCUMENTS))
    book.add([BookQuery(f"q{number}{text}", f"run a function {text}", pool) for number, text in enumerate(ATTACKS)])
    for number, text in enumerate(ATTACKS):
        for judge in (text, "ann"):
            book.set_grade(BookGrade(judge, f"q{number}{text}", f"attack-{number}{text}", 3, text))
    book.set_guidelines("\n".join(ATTACKS))
    yield book
    remove_book(opensearch_engine, attacked)


def harmless(page):
    """Check that nothing of a page runs, loads or leaves the text that it is; return the text."""
    reader = Reader(page)
    assert set(reader.tags) <= HARMLESS, set(reader.tags) - HARMLESS
    assert not {name for name in reader.attributes if name.startswith("on") or name in {"style", "srcdoc"}}
    assert reader.tags.count("script") == page.count('<script src="/static/')
    assert not [link for link in reader.links if not link.startswith(("/", "#")) and link]
    assert all(reader.tags.count(name) == 1 for name in ("main", "body"))
    assert str(1337 * 1337) not in page
    return "".join(reader.text)


@pytest.mark.parametrize("path", PAGES)
def test_what_the_index_and_the_book_hold_stays_text(client, attacked_book, path):
    text = harmless(client.get(path).text)
    if path == "/book":
        for attack in ATTACKS[:-1]:
            assert text.count(attack) >= 4  # as a query, as a judge, in a note, in the guidelines


@pytest.mark.parametrize("attack", ATTACKS)
def test_parameters_and_hits_stay_text(client, attacked_book, attack):
    document = f"attack-{ATTACKS.index(attack)}{attack}"
    asked = [(path, {name: attack}) for path in PAGES for name in ("index", "job", "promote", "added", attack)]
    asked += [
        ("/judge", {"judge": attack}),
        ("/judge", {"judge": "ann", "query": document.replace("attack-", "q", 1), "document": document}),
        ("/judge", {"judge": attack, "query": attack, "document": attack}),
        ("/search", {"q": attack, "k": 50, "facet": ["kind", "note"]}),
        ("/search", {"q": "function", "filter": f'note="{attack}"', "id": attack, "mode": attack, "sort": attack}),
        ("/search", {"q": f"function {attack}", "id": document, "rerank": "rnn"}),
        ("/search", {"q": "function", "index": attack, "compare": "1", "index2": attack, "rerank2": attack}),
    ]
    for path, parameters in asked:
        answer = client.get(path, params=parameters)
        assert answer.status_code in {200, 400}
        harmless(answer.text)
    answer = client.get("/api/search", params={"q": f"function {attack}", "k": 50})
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("application/json", "nosniff")
    assert any(attack.replace("\x00", "") in hit["fields"]["text"].replace("\x00", "") for hit in answer.json()["hits"])
