"""The corpus of attacks through every page that shows a text of somebody else: documents, queries, judges, notes, files."""

import json

import pytest

from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook
from tests.ui.conftest import ATTACKS, DOCUMENTS, remove_book
from tests.ui.test_search_page import Reader

#: Elements that templates have; an attack that is not escaped adds others, or more of these.
_NAMES = """a article aside b badge bdi body button code datalist dd details div dl dt fieldset footer form h1 h2 h3 head header html
    input kbd label legend li link main mark meta nav noscript ol option output p progress rect script section select span strong summary
    svg table tbody td textarea th thead title tr ul"""
HARMLESS = frozenset(_NAMES.split())


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
    """Hold a page to: nothing runs, nothing is loaded, nothing leaves the text that it is."""
    reader = Reader(page)
    assert set(reader.tags) <= HARMLESS, set(reader.tags) - HARMLESS
    assert not {name for name in reader.attributes if name.startswith("on") or name in {"style", "srcdoc"}}
    assert reader.tags.count("script") == page.count('<script src="/static/')
    assert not [link for link in reader.links if not link.startswith(("/", "#")) and link]
    assert all(reader.tags.count(name) == 1 for name in ("title", "main", "body"))
    assert str(1337 * 1337) not in page
    return "".join(reader.text)


@pytest.mark.parametrize("path", ["/book", "/judge", "/evaluate", "/tune", "/generations", "/login", "/search"])
def test_what_the_index_and_the_book_hold_stays_text(client, attacked_book, path):
    answer = client.get(path)
    assert answer.status_code == 200
    text = harmless(answer.text)
    if path == "/book":
        for attack in ATTACKS[:-1]:
            assert text.count(attack) >= 4  # as a query, as a judge, in a note, in the guidelines


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_judge_may_have_any_name_and_any_document(client, attacked_book, attack):
    number = ATTACKS.index(attack)
    for given in (
        {"judge": attack},
        {"judge": "ann", "query": f"q{number}{attack}", "document": f"attack-{number}{attack}"},
        {"judge": attack, "query": attack, "document": attack},
    ):
        answer = client.get("/judge", params=given)
        assert answer.status_code == 200
        harmless(answer.text)


@pytest.mark.parametrize("path", ["/book", "/judge", "/evaluate", "/tune", "/generations", "/progress", "/login"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_parameters_stay_text(client, attack, path):
    for name in ("index", "job", "promote", "added", attack):
        answer = client.get(path, params={name: attack})
        assert answer.status_code in {200, 400}
        harmless(answer.text)


@pytest.mark.parametrize("name", ["qrels.tsv", "queries.jsonl", "grades.jsonl"])
def test_files_are_downloads_and_their_lines_are_whole(client, attacked_book, name):
    answer = client.get(f"/book/{name}")
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "html" not in answer.headers["content-type"]
    lines = answer.text.splitlines()
    if name.endswith(".jsonl"):
        assert len([json.loads(line) for line in lines]) in {len(ATTACKS), 2 * len(ATTACKS)}
