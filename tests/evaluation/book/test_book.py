"""The book on the real server: no grade is lost, grades are taken back, and the book is a data set; agreement of its judges by hand."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from termweave import corpora
from termweave.errors import InputError, UsageError
from termweave.evaluation.book import agreement
from termweave.evaluation.book.reader import BookDataset
from termweave.evaluation.book.store import INDEX, BookGrade, BookQuery, JudgementBook, order_for
from termweave.records import Query

POOL = tuple(f"d{number}" for number in range(20))


@pytest.fixture
def book(opensearch_engine, name):
    made = JudgementBook(opensearch_engine, name)
    assert made.add([BookQuery("q1", "first", POOL), BookQuery("q2", "second <b>", POOL[:3])]) == 2
    yield made
    query = {"query": {"term": {"book": name}}}
    opensearch_engine.request("POST", f"/{INDEX}/_delete_by_query", params={"refresh": True}, body=query)


def test_two_judges_at_once_lose_no_grade(book):
    given = [BookGrade(judge, "q1", document, place % 4) for judge in ("ann", "bob") for place, document in enumerate(POOL)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(book.set_grade, given))
    stored = {(each.judge, each.document): each.grade for each in book.grades()}
    assert stored == {(each.judge, each.document): each.grade for each in given}
    assert len(book.grades("ann")) == len(POOL)


def test_two_judges_at_once_lose_no_document_of_a_pool(book):
    """Each adds what it found to the query as it was when its page was read."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda document: book.change("q2", [document]), ("a", "b", "c")))
        book.change("q2", ["e"], text="changed")
    assert book.queries()[1] == BookQuery("q2", "changed", (*"abc", *POOL[:3], "e"))
    book.remove_query("q2")
    for change in (lambda: book.change("q2", ["f"]), lambda: book.change("q2", text="changed")):
        with pytest.raises(UsageError, match="does not have this query any more"):
            change()


def test_a_grade_is_changed_and_taken_back(book):
    book.set_grade(BookGrade("ann", "q1", "d1", 2, "a note"))
    book.set_grade(BookGrade("ann", "q2", "d1", None))
    book.set_grade(BookGrade("ann", "q1", "d1", 3))
    assert [(each.query, each.grade, each.note) for each in book.grades()] == [("q1", 3, ""), ("q2", None, "")]
    assert book.undo("bob") is None
    assert replace(book.undo("ann"), at="") == BookGrade("ann", "q1", "d1", 3)
    assert [(each.query, each.grade, each.note) for each in book.grades()] == [("q1", 2, "a note"), ("q2", None, "")]
    assert (book.undo("ann").query, book.undo("ann").query) == ("q2", "q1")
    assert book.grades() == []
    for grade in (3, 1, 2):
        book.set_grade(BookGrade("ann", "q1", "d1", grade))
    assert [book.undo("ann").grade for _ in range(3)] == [2, 1, 3]
    assert book.undo("ann") is None


def test_a_name_is_one_judge_however_it_is_typed(book):
    book.set_grade(BookGrade("Zo\u00eb", "q1", "d1", 1))
    book.set_grade(BookGrade(" Zoe\u0308 ", "q1", "d1", 2))
    book.import_qrels("Zo\u00eb ", [], {"q1": {"d2": 3}})
    assert {(each.judge, each.document, each.grade) for each in book.grades()} == {("Zo\u00eb", "d1", 2), ("Zo\u00eb", "d2", 3)}
    assert book.undo(" Zo\u00eb").document == "d2"


def test_a_query_that_is_removed_while_a_judge_saves_leaves_no_grade(book, monkeypatch):
    put, name = JudgementBook._put_grades, "_put_grades"
    monkeypatch.setattr(JudgementBook, name, lambda *each, **options: (book.remove_query("q1"), put(*each, **options)))
    with pytest.raises(UsageError, match="does not ask about this document"):
        book.set_grade(BookGrade("ann", "q1", "d1", 2))
    assert book.grades() == []
    book._put_grades([BookGrade("ann", "q1", "d1", 2)])  # as an earlier version left it
    assert (len(book.grades()), book.qrels()) == (1, {})


def test_what_is_no_grade_is_refused(book):
    right, judges = BookGrade("ann", "q1", "d1", 1), ({"judge": ""}, {"judge": "a" * 101})
    for wrong in ({"grade": 4}, *judges, {"document": "another"}, {"query": "q9"}, {"note": "x" * 2_001}):
        with pytest.raises(UsageError):
            book.set_grade(replace(right, **wrong))
    assert book.grades() == []


def test_a_query_is_added_once_and_queries_keep_their_order(book):
    assert book.add([BookQuery("q2", "changed", ()), BookQuery("a", "third", ("d0",))]) == 1
    assert [(each.id, each.text) for each in book.queries()] == [("q1", "first"), ("q2", "second <b>"), ("a", "third")]


def test_the_book_is_a_data_set_with_the_median_of_the_judges(book, name, monkeypatch, opensearch_engine):
    for judge, document, grade in (("ann", "d1", 0), ("bob", "d1", 2), ("eve", "d1", 3), ("ann", "d2", 1), ("bob", "d2", 2)):
        book.set_grade(BookGrade(judge, "q1", document, grade))
    book.set_grade(BookGrade("ann", "q2", "d1", None))
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    dataset = corpora.open_dataset(f"book:{name}")
    assert isinstance(dataset, BookDataset)
    assert dataset.queries() == [Query("q1", "first")]
    assert dataset.qrels() == {"q1": {"d1": 2, "d2": 1}}
    with pytest.raises(UsageError, match="no documents"):
        corpora.open_source(f"book:{name}")
    with pytest.raises(InputError, match="holds no grade"):
        corpora.open_dataset(f"book:{name}-other").qrels()


def test_judgements_are_imported_as_those_of_one_judge(book):
    assert book.import_qrels("file", [Query("q7", "seventh")], {"q1": {"d1": 3, "new": 1}, "q7": {"x": 2, "y": -1}}) == 4
    assert book.qrels() == {"q1": {"d1": 3, "new": 1}, "q7": {"x": 2, "y": 0}}
    pools = {each.id: each for each in book.queries()}
    assert "new" in pools["q1"].pool
    assert (pools["q7"].text, pools["q7"].pool) == ("seventh", ("x", "y"))
    with pytest.raises(UsageError, match="highest grade is 4"):
        book.import_qrels("file", [], {"q1": {"d1": 4}})


def test_imported_grades_go_to_the_query_with_the_same_words(book):
    """Ids of files and logs do not know that the words of a query were edited, nor which queries were typed."""
    book.set_grade(BookGrade("file", "q1", "d1", 0, "a note"))
    queries = [Query("q2", "first"), Query("q1", "other words"), Query("x", " other words ")]
    assert book.import_qrels("file", queries, {"q2": {"d1": 3}, "q1": {"d1": 1, "d2": 2}, "x": {"d1": 2}}) == 3
    assert [(each.id, each.text) for each in book.queries()] == [("q1", "first"), ("q2", "second <b>"), ("q1-2", "other words")]
    assert book.qrels() == {"q1": {"d1": 3}, "q1-2": {"d1": 2, "d2": 2}}
    assert [each.note for each in book.grades() if each.query == "q1"] == ["a note"]


def test_the_text_of_an_imported_query_may_come_later(book):
    book.import_qrels("file", [], {"q7": {"x": 2}})
    assert book.queries()[-1] == BookQuery("q7", "q7", ("x",))
    book.import_qrels("file", [Query("q7", "seventh")], {"q7": {"y": 1}})
    assert book.queries()[-1] == BookQuery("q7", "seventh", ("x", "y"))
    assert book.qrels() == {"q7": {"x": 2, "y": 1}}


def test_guidelines_are_stored_and_books_do_not_see_each_other(book, opensearch_engine, name):
    book.set_guidelines("Grade what the text says.")
    assert book.guidelines() == "Grade what the text says."
    with pytest.raises(UsageError):
        book.set_guidelines("x" * 20_001)
    book.set_grade(BookGrade("ann", "q1", "d1", 1))
    other = JudgementBook(opensearch_engine, f"{name}-other")
    assert (other.queries(), other.grades(), other.undo("ann"), other.guidelines()) == ([], [], None, "")


def test_each_judge_sees_another_order_which_stays_the_same():
    query = BookQuery("q1", "first", POOL)
    orders = {judge: order_for(judge, query) for judge in ("ann", "bob", "eve")}
    assert all(sorted(order) == sorted(POOL) for order in orders.values())
    assert len({tuple(order) for order in orders.values()} | {POOL}) == 4
    assert order_for("ann", query) == orders["ann"]


def measured(*more, **table):
    """The agreement of judges, by judge: grades of documents 0, 1, 2 ...; None: the judge did not see the document."""
    pytest.importorskip("krippendorff", reason="the extra 'ui' is not installed")
    cells = [BookGrade(judge, "q", str(place), grade) for judge, of in table.items() for place, grade in enumerate(of)]
    return agreement.measure([*more, *(each for each in cells if each.grade is not None)])


def test_cohens_kappa_of_a_table():
    """20 yes by both, 15 no by both, 5 and 10 on which they differ: 0.4, the standard example of two readers of 50 proposals."""
    ann = [1] * 20 + [1] * 5 + [0] * 10 + [0] * 15
    bob = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    (pair,) = measured(ann=ann, bob=bob).pairs
    assert (pair.items, pair.kappa) == (50, pytest.approx(0.4))


def test_fleiss_kappa_of_a_table():
    """Three judges, four documents, worked by hand: observed (1 + 1/3 + 1/3 + 1)/4 = 2/3, expected (6/12)^2 + (6/12)^2 = 1/2."""
    made = measured(a=[0, 0, 1, 1], b=[0, 0, 1, 1], c=[0, 1, 0, 1])
    assert (made.complete, made.fleiss) == (4, pytest.approx((2 / 3 - 1 / 2) / (1 - 1 / 2)))


def test_krippendorffs_alpha_counts_what_some_judges_did_not_see():
    """All agree wherever two judged: 1. One judge alone about a document changes nothing."""
    made = measured(a=[0, 1, 2, None, 3], b=[0, 1, None, 3, None], c=[None, 1, 2, 3, None])
    assert made.alpha == pytest.approx(1)
    assert (made.shared, made.complete, made.fleiss) == (4, 1, None)
    assert made.judges == {"a": 4, "b": 3, "c": 3}
    near, far = (measured(a=[0, 1, 2, 3], b=[first, 1, 2, 3]).alpha for first in (1, 3))
    assert far < near < 1  # the distance of grades counts


def test_what_is_not_defined_is_none():
    same = measured(a=[1, 1], b=[1, 1])
    assert (same.pairs[0].kappa, same.fleiss, same.alpha) == (None, None, None)
    alone = measured(BookGrade("b", "q", "0", None), a=[1, 2])
    assert (alone.judges, alone.pairs, alone.fleiss, alone.alpha) == ({"a": 2}, (), None, None)
