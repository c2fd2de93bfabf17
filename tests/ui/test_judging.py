"""Judging on the real server: every form needs its token, judges are blind, and grades come out as qrels."""

import json
import re
import time
from html import unescape
from urllib.parse import quote, urlencode

import pytest

from termweave.catalog.lineage import resolve_index
from termweave.corpora.formats.compression import zstd_module
from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook
from termweave.evaluation.measures import per_query
from termweave.records import Query
from termweave.ui.pages.judge_page import token
from tests.ui.conftest import ATTACKS, DOCUMENTS, client_of, lexical, opened, post, remove_book
from tests.ui.test_api import valid
from tests.ui.test_attacks import harmless
from tests.ui.test_search_page import hits_of


def field(page, name):
    return unescape(re.search(rf'name="{name}" value="([^"]*)"', page).group(1))


def test_a_judge_grades_skips_undoes_and_exports(client, attacked, book):
    added = post(client, "/book/add", index=attacked, typed="run a function later\n\nparse json\nparse json")
    assert added.headers["location"] == f"/book?index={attacked}&added=2"
    judging, seen = f"/judge?index={attacked}&judge=ann", []
    for grade in ("3", "0", "skip"):
        page = client.get(judging).text
        given = {name: field(page, name) for name in ("index", "judge", "query", "document")}
        assert given["document"] in {token(each) for query in book.queries() for each in query.pool}
        assert not re.search(r"\b(lexical|dense|weights|hybrid|score|rank)\b", page.partition("<main")[2])  # blind
        seen.append(given)
        assert post(client, "/judge/grade", **given, grade=grade).status_code == 303
    assert len({each["document"] for each in seen}) == 3
    graded = {token(each.document): each.grade for each in book.grades("ann")}
    assert graded == dict(zip((each["document"] for each in seen), (3, 0, None), strict=True))
    said = valid(client.get(f"/api/judge?index={attacked}&judge=ann"), "judge")
    assert (said["done"], said["documents"]) == (3, sum(len(query.pool) for query in book.queries()))
    assert token(said["next"]["document"]) == field(client.get(judging).text, "document")
    first, second = valid(client.get("/api/book"), "book")["queries"]
    assert (first["text"], first["grades"] + second["grades"]) == ("run a function later", 2)
    assert {each["grade"] for each in valid(client.get("/api/grades"), "grades")["grades"]} == {3, 0, None}
    undone = post(client, "/judge/undo", index=attacked, judge="ann")
    assert field(client.get(undone.headers["location"]).text, "document") == seen[2]["document"]
    lines = client.get(f"/book/qrels.tsv?index={attacked}").text.splitlines()
    assert (lines[0], len(lines)) == ("query-id\tcorpus-id\tscore", 3)
    queries = [json.loads(line) for line in client.get(f"/book/queries.jsonl?index={attacked}").text.splitlines()]
    assert [each["text"] for each in queries] == ["run a function later", "parse json"]


def test_uploaded_queries_and_grades_may_hold_attacks(client, attacked, book):
    lines = "".join(f"{json.dumps({'_id': f'q{place}{attack}', 'text': attack})}\n" for place, attack in enumerate(ATTACKS[:7]))
    added = post(client, "/book/add", index=attacked, file=("queries.jsonl", lines.encode()))
    assert added.headers["location"].endswith("added=7")
    qrels = b"query-id\tcorpus-id\tscore\nx<b>\tjson\t2\n"
    sent = post(client, "/book/import", index=attacked, judge="<i>ann</i>", texts="x<b>\t<img src=x>", qrels=("qrels.tsv", qrels))
    assert sent.headers["location"].endswith("imported=1")
    harmless(client.get(f"/book?index={attacked}").text)
    for wrong in (b"no table\n", b"", b"\xff\xfe"):
        assert post(client, "/book/import", index=attacked, judge="a", qrels=("qrels.tsv", wrong)).status_code == 400
    assert post(client, "/book/add", index=attacked, typed=" ").status_code == 400


def test_hits_are_rated_on_the_search_page(client, attacked, book):
    """As in Quepid: the query comes into the book with its pool, the list says how good it is, and the page is the same as before."""
    asked = {"index": attacked, "q": "run a function later", "judge": "ann", "mode": "lexical"}
    page = client.get("/search", params=asked).text
    first, second = hits_of(page)[:2]
    assert book.queries() == []
    sent = {name: unescape(field(page, name)) for name in ("index", "judge", "q", "document", "back", "rank")}
    answer = post(client, "/judge/rate", **sent, grade="3")
    assert answer.headers["location"] == f"/search?{urlencode(asked)}#hit-1"
    (query,) = book.queries()
    assert query.text == "run a function later"
    assert len(query.pool) > 2  # of every way to search
    assert [(each.document, each.grade) for each in book.grades("ann")] == [(first, 3)]
    post(client, "/judge/rate", **sent | {"document": quote(second)}, grade="1")
    index = opened(client, attacked)
    run = index.run({query.id: query.text}, mode="lexical", k=10)
    value = per_query(run, book.qrels(), [query.id], measures=("nDCG@10",))["nDCG@10"][0]
    page = client.get("/search", params=asked).text
    assert f"nDCG@10 <strong>{value:.3f}</strong>, 2 of 10 rated" in page
    assert re.findall(r'value="(\d)" title="[^"]*" aria-label="[^"]*" aria-pressed="true"', page) == ["3", "1"]


def test_a_rating_takes_any_document_of_the_index_and_leads_nowhere_else(client, attacked, book):
    odd = next(key for key in DOCUMENTS if "\x00" in key)
    sent = {"index": attacked, "judge": "ann", "q": "json", "grade": "2", "back": "//evil.example?q=x", "rank": "x"}
    answer = post(client, "/judge/rate", **sent, document=quote(odd))
    assert answer.headers["location"].startswith("/search?")
    assert [(each.document, each.grade) for each in book.grades()] == [(odd, 2)]
    before, nowhere = book.queries(), {"document": "no-such-document"}
    for wrong in (nowhere, nowhere | {"q": "a query that the book does not have"}, {"q": " "}, {"grade": "4"}, {"judge": ""}):
        assert post(client, "/judge/rate", **{"document": "csv", **sent, **wrong}).status_code == 400, wrong
    assert (book.queries(), len(book.grades())) == (before, 1)


def test_a_hit_of_another_generation_is_rated(client, opensearch_engine, name, tmp_path):
    """One that was not promoted, for example, before it goes live."""
    older, _ = (lexical(opensearch_engine, name, tmp_path, key) for key in ("earlier", "later"))
    page = client.get("/search", params={"index": older, "q": "parse json", "judge": "ann"}).text
    form = page.partition('action="/judge/rate"')[2]
    sent = {each: field(form, each) for each in ("index", "generation", "judge", "q", "document", "back", "rank")}
    assert (sent["index"], sent["generation"], sent["document"]) == (name, older, "earlier")
    book = JudgementBook(opensearch_engine, name)
    other = post(client, "/judge/rate", **sent | {"generation": client.app._app.state.workspace.options.index}, grade="2")
    assert (other.status_code, "is not a generation of" in other.text, book.queries()) == (400, True, [])
    assert post(client, "/judge/rate", **sent, grade="2").status_code == 303
    assert list(book.qrels().values()) == [{"earlier": 2}]
    remove_book(opensearch_engine, name)


def test_a_judge_sees_metadata_and_is_told_that_a_book_is_empty(client, attacked, book):
    page = client.get(f"/judge?index={attacked}&judge=ann").text
    assert ("has no documents to judge yet" in page, "are judged" in page) == (True, False)
    book.add([BookQuery("q", "json", ("json",))])
    page = client.get(f"/judge?index={attacked}&judge=ann").text
    assert f'<dt>year</dt><dd dir="auto">{2000 + list(DOCUMENTS).index("json")}</dd>' in page


def test_downloads_know_generations_and_refuse_what_does_not_exist(client, opensearch_engine, attacked, book):
    book.import_qrels("ann", [Query("q", "parse json")], {"q": {"json": 2}})
    for path in ("qrels.tsv", "queries.jsonl", "grades.jsonl"):
        of_name, of_generation, refused = (
            client.get(f"/book/{path}?index={index}")
            for index in (attacked, resolve_index(opensearch_engine, attacked), "nosuch")
        )
        assert "q" in of_name.text == of_generation.text
        headers = of_name.headers
        assert (headers["content-disposition"], "html" in headers["content-type"]) == (f'attachment; filename="{path}"', False)
        assert (refused.status_code, "no index named" in refused.text) == (400, True)


def test_a_query_is_edited_with_its_grades_and_removed_with_them(client, attacked, book):
    post(client, "/book/add", index=attacked, typed="run a function\nparse json")
    query, other = book.queries()
    book.set_grade(BookGrade("ann", query.id, query.pool[0], 2, "a note"))
    book.set_grade(BookGrade("ann", other.id, other.pool[0], 1))
    sent = {"index": attacked, "query": token(query.id)}
    post(client, "/book/edit", **sent, text="自然语言处理")
    edited = book.queries()[0]
    assert (edited.id, edited.text, len(book.grades())) == (query.id, "自然语言处理", 2)
    assert set(query.pool) | {"zh"} <= set(edited.pool)
    assert post(client, "/book/edit", **sent, text=" ").status_code == 400
    page = client.get(f"/book?index={attacked}&scores=1").text
    row = page.partition("自然语言处理</a>")[2].partition("</tr>")[0]
    assert all(part in row for part in (f"1 of {len(edited.pool)}", "<bdi>ann</bdi>", "(2): a note"))
    index = opened(client, attacked)
    texts = {each.id: each.text for each in book.queries()}
    values = per_query(index.run(texts, k=10), book.qrels(), list(texts), measures=("nDCG@10",))["nDCG@10"]
    assert f'data-label="nDCG@10">{values[0]:.3f}</td>' in row
    assert f"<strong>{values.mean():.3f}</strong>" in page
    assert [post(client, "/book/remove", **sent).status_code for _ in range(2)] == [303, 400]
    assert [each.id for each in book.queries()] == [each.query for each in book.grades()] == [other.id]


def test_the_former_words_of_an_edited_query_are_another_query(client, attacked, book):
    """Ids of typed queries come from their words, so that a grade for the old words would go to the new ones."""
    post(client, "/book/add", index=attacked, typed="run a function")
    (query,) = book.queries()
    post(client, "/book/edit", index=attacked, query=token(query.id), text="parse json")
    sent = {"index": attacked, "judge": "ann", "grade": "2", "document": "csv"}
    assert post(client, "/judge/rate", **sent, q="run a function").status_code == 303
    edited, new = book.queries()
    assert (edited.id, edited.text, new.text) == (query.id, "parse json", "run a function")
    assert [each.query for each in book.grades()] == [new.id] != [edited.id]
    added = post(client, "/book/add", index=attacked, typed="run a function\nparse json")
    assert added.headers["location"].endswith("&added=0")  # both are there, whatever their ids


def test_an_uploaded_query_is_the_one_with_its_words_or_is_named(client, attacked, book):
    book.import_qrels("ann", [], {"q3": {"json": 2}})
    assert "1 query has no text but its id" in client.get("/book").text
    post(client, "/book/add", index=attacked, typed="parse json")
    (lacking, typed) = book.queries()
    lines = b"q1\tparse json\nq2\tparse json\nq3\tread a file\nq4\tjoin paths\n"
    added = post(client, "/book/add", index=attacked, file=("queries.tsv", lines))
    assert added.headers["location"].endswith("&added=2")
    texts = {"q3": "read a file", typed.id: "parse json", "q4": "join paths"}
    assert [(each.id, each.text) for each in book.queries()] == list(texts.items())
    assert len(book.queries()[0].pool) > len(lacking.pool)
    assert "has no text but its id" not in client.get("/book").text
    before = book.queries()
    for other in (b"q4\tanother text\nq5\tnew\n", b'{"_id": "q4", "text": " "}'):
        refused = post(client, "/book/add", index=attacked, file=("queries.tsv", other))
        assert (refused.status_code, " for q4." in refused.text) == (400, True)
    assert "with these words" in post(client, "/book/edit", index=attacked, query=token("q4"), text="parse json").text
    assert book.queries() == before


def test_queries_of_an_import_have_a_text(client, attacked, book):
    sent = {"index": attacked, "judge": "ann", "qrels": ("qrels.tsv", b"q\tjson\t2\n")}
    for wrong in ("q parse json", '{"_id": "q"}'):
        answer = post(client, "/book/import", **sent, texts=wrong)
        assert (answer.status_code, "The list of queries" in answer.text, book.queries()) == (400, True, []), wrong
    assert post(client, "/book/import", **sent, texts='{"_id": "q", "text": "parse json"}\n\n').status_code == 303
    assert [(each.id, each.text) for each in book.queries()] == [("q", "parse json")]


def test_a_rating_keeps_the_note_of_the_judge(client, attacked, book):
    post(client, "/book/add", index=attacked, typed="parse json")
    (query,) = book.queries()
    book.set_grade(BookGrade("ann", query.id, "json", 2, "a note"))
    sent = {"index": attacked, "judge": "ann ", "q": "parse json", "document": "json"}
    post(client, "/judge/rate", **sent, grade="1")
    assert [(each.judge, each.grade, each.note) for each in book.grades()] == [("ann", 1, "a note")]
    assert valid(client.get("/api/judge", params={"judge": "ann "}), "judge")["done"] == 1


FORMS = [f"/judge/{name}" for name in ("grade", "rate", "undo")]
FORMS += [f"/book/{name}" for name in ("add", "edit", "remove", "guidelines", "import")]
FORMS += ["/generations/promote", "/tune/adopt", "/learn/start", "/learn/stop", "/evaluate/start", "/tune/start"]


def test_the_forms_above_are_all_there_are(client):
    routes = client.app._app.routes
    posted = {route.path for route in routes if "POST" in (getattr(route, "methods", None) or ())}
    assert {path for path in posted if not path.startswith("/api/")} == {*FORMS, "/login"}
    # Links of other sites are followed.
    assert not [route.path for route in routes if route.path in FORMS and "GET" in route.methods]
    answers = {"search", "explain", "compare", "requests", "encode"}  # these read the same by GET
    assert {path for path in posted if path.startswith("/api/")} == {f"/api/{name}" for name in answers}
    assert client.post("/api/search", json={"q": "json"}, headers={"sec-fetch-site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("path", FORMS)
def test_no_form_is_taken_from_another_site_or_by_a_read_only_server(client, opensearch_engine, attacked, book, path):
    fields = {"index": attacked, "dataset": f"book:{attacked}", "judge": "ann", "typed": "json", "guidelines": "x", "grade": "1"}
    for foreign in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert client.post(path, data=fields, headers=foreign).status_code == 403
    if "start" not in path or "learn" in path:  # evaluations and tuning write nothing
        assert post(client_of(opensearch_engine, index=attacked, read_only=True), path, **fields).status_code == 403
    assert (book.queries(), book.grades(), book.guidelines()) == ([], [], "")
    missing = JudgementBook(opensearch_engine, "no-such-index")
    for index in ("_all", missing.name):
        answer = post(client, path, **fields | {"index": index})
        assert answer.status_code == 400 or (path, index) == ("/judge/undo", missing.name)  # there is nothing to take back
    assert (missing.queries(), missing.guidelines()) == ([], "")


@pytest.mark.parametrize("path", ["/evaluate/start", "/tune/start"])
def test_work_uses_only_the_book_of_its_index(client, attacked, path):
    for spec in ("/etc", "demo", "book:another", "opensearch:x", ""):
        answer = post(client, path, index=attacked, dataset=spec)
        assert (answer.status_code, "may not use the data set" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("bomb", "said"),
    [
        (b"".join(b"%d\td\t1\n" % number for number in range(300_000)), "The file has more than 200,000 lines."),
        (b"q\td\t1\n" + (b" " * 900_000 + b"\n") * 80, "The file has more than 64 MB when it is decompressed."),
        (b"q" * 60_000_000 + b"\td\t1\n", "The file, line 1: "),
        (b"q" * 9_000 + b"\td\t1\n", "9,000 characters"),
    ],
    ids=["lines", "bytes", "line", "id"],
)
def test_what_is_unpacked_from_an_upload_has_limits(client, attacked, book, bomb, said):
    """Such a file took gigabytes of memory, or minutes."""
    packed = zstd_module().compress(bomb)
    began = time.monotonic()
    answer = post(client, "/book/import", index=attacked, judge="ann", qrels=("qrels.tsv", packed))
    assert (answer.status_code, said in unescape(answer.text), book.grades()) == (400, True, [])
    assert time.monotonic() - began < 60
    assert post(client, "/book/add", index=attacked, file=("queries", packed)).status_code == 400


@pytest.mark.parametrize("odd", ["a\tb\t3", "a\nq\td\t3", "a\rb", "a\x85b", "a\u2028"])
def test_an_id_forges_no_row_of_the_exported_grades(client, attacked, book, odd):
    book.import_qrels("ann", [], {"q": {"json": 2}})
    assert client.get("/book/qrels.tsv").text == "query-id\tcorpus-id\tscore\nq\tjson\t2\n"
    book.import_qrels("ann", [], {"q": {odd: 2}} if "q" in odd else {odd: {"json": 2}})
    answer = client.get("/book/qrels.tsv")
    assert (answer.status_code, "holds a tab or a line end" in answer.text) == (400, True)
    lines = client.get("/book/grades.jsonl").content.splitlines()
    assert odd in {json.loads(line)[name] for line in lines for name in ("query", "document")}


def test_pages_of_an_alias_judge_only_what_it_shows(opensearch_engine, attacked):
    """Its book is its own: pools and texts of the whole index would show what the alias hides."""
    alias, shown, generation = f"{attacked}-some", {"timer", "json"}, resolve_index(opensearch_engine, attacked)
    add = {"index": generation, "alias": alias, "filter": {"terms": {"id": [*shown]}}}
    opensearch_engine.request("POST", "/_aliases", body={"actions": [{"add": add}]})
    try:
        client = client_of(opensearch_engine, index=alias)
        assert {hit["id"] for hit in client.get("/api/search?q=function").json()["hits"]} == shown
        post(client, "/book/add", index=alias, typed="run a function later")
        (query,) = JudgementBook(opensearch_engine, alias).queries()
        assert {*query.pool} == shown
        assert client.get("/api/judge?judge=ann").json()["next"]["document"] in shown
        rated = {"index": alias, "generation": generation, "judge": "ann", "q": "run a function later", "grade": "3"}
        assert [post(client, "/judge/rate", **rated, document=key).status_code for key in ("csv", "json")] == [400, 303]
        for page in ("/generations", "/learn", "/evaluate", "/tune"):
            assert client.get(page).status_code in {200, 400}
    finally:
        remove_book(opensearch_engine, alias)
        opensearch_engine.request("DELETE", f"/{generation}/_alias/{alias}")
