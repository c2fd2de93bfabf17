"""Metadata, from all its values to the search: types, odd cells, notations, declared types, and terms that somebody added."""

import json

import pytest

from termweave.catalog import typed_fields
from termweave.errors import UsageError
from termweave.indexer import BuildOptions
from termweave.indexer.preparation.metadata_types import TypeInference
from termweave.records import Document
from termweave.search import Index
from tests.indexer.builds import clean, command


def inferred(*documents, **options):
    inference = TypeInference(**options)
    for metadata in documents:
        inference.count(metadata)
    return inference


def test_types_are_those_of_all_values():
    inference = inferred(
        {"year": 1999, "price": "9", "day": "2024-02-29", "open": True, "zip": "01234", "author": {"age": 3}, "tags": ["a", "b"]},
        {"year": "2001", "price": "9.50", "day": "2024-02-29T10:00Z", "open": "false", "zip": "12345", "author": {"age": None}},
    )
    kinds = {"author.age": "long", "day": "date", "open": "boolean", "price": "double", "tags": "keyword", "year": "long"}
    assert inference.types() == {**kinds, "zip": "keyword"}
    assert inference.types(taken=["year"]).keys() == inference.types().keys() - {"year"}


def decided(values, *, commas=False, declared=""):
    inference = inferred(*({"x": value} for value in values), declared={"x": declared} if declared else None, commas=commas)
    return inference.types()["x"], " ".join(inference.notes())


@pytest.mark.parametrize(
    ("values", "form"),
    [(["10", "9"], "long"), (["10", "9.5"], "double"), (["2024-05-01"], "date"), (["18.11.2026"], "date"), ([10, 9.5], "double")],
)
def test_a_text_that_says_that_there_is_no_value_is_missing_and_is_named(values, form):
    for nothing in ("N/A", "n/a", "TBD", "-", "\u2013", "?", "unknown", "NULL", "\\N", "#N/A", "#WERT!", "keine Angabe", " NaN "):
        found, said = decided([*values, nothing])
        assert (found, f"{nothing!r} (1)." in said) == (form, True)
    assert decided([*values, " ", ""]) == (form, "")  # a blank cell is no odd one


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["12.5"] * 10 + ["on request"], "double"),
        (["12.5"] * 9 + ["on request", "sold out"], "keyword"),
        ([12.5, "x" * 300, *[3] * 20], "double"),  # however long the odd one is
        (["text"] * 20 + ["42"], "keyword"),
        (["2025-01-01"] * 20 + ["2024-02-30", "03/04/2025"], "date"),
        ([True, "unknown"], "keyword"),  # three values to count, and no order
    ],
)
def test_a_few_odd_values_among_many_decide_nothing(values, form):
    assert decided(values)[0] == form


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["1001", "1002", "A-77"], "'A-77' (perhaps number)"),
        (["2025-01-01", "2025-01-02", 7], "(perhaps date)"),
        (["1,234", "5"], "(perhaps decimal-comma or decimal-point)"),
        (["12,50", "7,25"], "(perhaps decimal-comma)"),  # or lists of two numbers
        (["03/04/2025", "05/06/2025"], "(perhaps day-month-year or month-day-year)"),
    ],
)
def test_what_is_doubtful_is_text_and_is_said_with_the_option(values, said):
    found, notes = decided(values)
    assert (found, said in notes, "`--types FIELD=TYPE` decides otherwise." in notes) == ("keyword", True, True)


@pytest.mark.parametrize(
    ("values", "form", "first"),
    [
        (["12,50", "1.299,00", "7,00"], "decimal-comma", 12.5),
        (["1\u202f299,00", "2"], "decimal-comma", 1299),
        (["1,299.00", "5"], "decimal-point", 1299),
        (["1,299", "5.25"], "decimal-point", 1299),
        (["03/04/2025", "24/12/2025"], "day-month-year", "2025-04-03T00:00:00+00:00"),
        (["03/04/2025", "12/24/2025 10:30"], "month-day-year", "2025-03-04T00:00:00+00:00"),
        (["18.11.2026", "1.2.2026"], "date", "2026-11-18T00:00:00+00:00"),
        (["Wed, 18 Nov 2026 11:06:40 GMT", "2026/11/18"], "date", "2026-11-18T11:06:40+00:00"),
    ],
)
def test_a_notation_is_read_where_the_values_prove_it(values, form, first):
    assert decided(values)[0] == form
    assert typed_fields.convert(form, values[0]) == first


def test_commas_of_a_table_with_semicolons_are_decimal_commas():
    assert decided(["12,50", "7,00", "1.299,00"], commas=True)[0] == decided(["12,50", "7"], commas=True)[0] == "decimal-comma"
    assert decided(["12,50", "12.5"], commas=True)[0] == decided(["1,234", "5"], commas=True)[0] == "keyword"


def test_a_declared_type_holds_whatever_the_values_are():
    found, said = decided(["1795000000", "soon", 1795000000], declared="epoch-seconds")
    assert found == "epoch-seconds"
    assert "'x' has dates, and 'soon' (1)" in said
    assert decided([5, 7], declared="keyword") == ("keyword", "")


def test_what_cannot_be_a_field_is_left_out():
    assert inferred({"a": 1}, {"a": {"b": 2}}).types() == {"a.b": "long"}  # a value here, an object there
    assert inferred({"": 1, " . ": 2, "long": "x" * 300, "deep": {"er": {"z": 1}}}).types() == {"deep.er.z": "long"}


def test_an_update_says_what_does_not_fit():
    types = {"year": "long", "price": "double", "cost": "decimal-comma"}
    documents = {"year": "n/a", "price": 3, "cost": "12,50"}, {"year": 5, "new": 1, "cost": "12.5"}
    inference = inferred(*documents, declared=types)
    misfits, new = inference.against({**types, "cost": "double"})
    assert "'cost' (1, not numbers), 'year' (1, not whole numbers)" in misfits
    assert "no type for: 'new'" in new
    assert inference.against({}) == []  # an index without types


SKUS = ("--id-field", "sku")


@pytest.fixture
def cases(shared):
    if not (folder := shared / "cases").is_dir():
        pytest.skip("the cases stand beside the project and are not here")
    return folder


@pytest.fixture
def build(name, shell):
    """Build with the command, and return what it said."""

    def call(source, *options, status=0):
        return "".join(shell(*command(source, name, *options), status=status))

    return call


@pytest.fixture
def found(opensearch_engine, name):
    """A function that searches; returns the ids of the hits, and the remarks."""

    def call(query, **options):
        searched = Index.open(opensearch_engine, name).search(query, k=20, **options)
        return [hit.id for hit in searched], " ".join(searched.remarks)

    return call


def test_an_odd_cell_is_missing_and_the_column_keeps_its_type(cases, build, found):
    said = build(cases / "odd-cell" / "odd.csv", *SKUS)
    assert "'price' has numbers, and 'N/A' (1); 'released' has dates, and 'TBD' (1)." in said
    by_price, _ = found("kettle", sort="price")
    assert by_price == ["p03", "p08", "p05", "p00", "p01", "p09", "p04", "p07", "p02", "p06", "p99"]
    recent, remarks = found("kettle", where="released>=2025")
    assert (set(recent), remarks) == ({"p04", "p05", "p06", "p07", "p09"}, "")
    assert found("kettle", where="price=N/A")[0] == ["p99"]  # it is stored as it was
    assert found("kettle", rerank="boost@price")[0]


def test_dates_in_other_notations_and_times_that_are_declared(opensearch_engine, name, cases, build, found, tmp_path):
    news = cases / "epoch" / "news.jsonl"
    assert "add `--types ms=epoch-milliseconds,sec=epoch-seconds`" in build(news)
    for where in ("de>=2026-11", "rfc>=2026-11", "iso>=2026-11", "de=18.11.2026", "de>17.11.2026", "rfc=2026-11-18"):
        assert found("bridge", where=where) == (["n0"], "")
    for where, passing in (("sec>=2025", 6), ("ms<2027", 0)):
        documents, remarks = found("bridge", where=where)
        assert len(documents) == passing
        assert f"--types {where[:3].strip('<')}=epoch-seconds, or epoch-milliseconds" in remarks
    with pytest.raises(UsageError, match="'2026-11' is not a number") as refused:
        found("bridge", where="sec>=2026-11")
    assert "--types sec=epoch-seconds" in refused.value.hint

    build(news, "--types", "sec=epoch-seconds", "--types", "ms=epoch-milliseconds")
    for where in ("sec>=2026-11", "ms>=2026-11", "sec=1795000000"):
        assert found("bridge", where=where) == (["n0"], "")
    assert clean(opensearch_engine, name) == 6

    later = tmp_path / "later.jsonl"
    later.write_text(json.dumps({"id": "n9", "text": "The bridge is built.", "sec": 1795100000, "ms": "later"}))
    assert "'ms' (1, not dates)" in build(later, "--update")  # an update keeps notations ...
    assert found("bridge", where="sec>=2026-11-19")[0] == ["n9"]
    assert clean(opensearch_engine, name) == 7
    assert "An update cannot change --types" in build(later, "--update", "--types", "sec=number", status=2)
    build(later, "--update", "--types", "sec=epoch-seconds")
    taken = build(news, "--shards", "1")  # ... and so does a rebuild
    assert "--types ms=epoch-milliseconds,sec=epoch-seconds" in taken
    assert found("bridge", where="ms>=2026-11")[0] == ["n0"]


DOCUMENTS = [
    {"_id": "terms", "text": "The guitar is tuned from low to high.", "expansion": ["ukulele", "how to tune strings"]},
    {"_id": "text", "title": "Cats", "text": "They sleep all day.", "expansion": "feline purring"},
    {"_id": "none", "title": "Guitars", "text": "Wood and strings."},
    {"_id": "odd", "text": "An entry of this name may hold anything.", "expansion": {"pack": 7}},
]


def test_what_the_encoder_sees():
    seen = {each["_id"]: Document(each["_id"], each["text"], each.get("title", ""), each).content for each in DOCUMENTS}
    assert seen["terms"] == "The guitar is tuned from low to high.\nukulele how to tune strings"
    assert seen["text"] == "Cats. They sleep all day.\nfeline purring"
    assert seen["odd"] == "An entry of this name may hold anything."
    assert Document("alone", "", metadata={"expansion": ["only", 3, "this"]}).content == "only this"


def test_a_document_is_found_by_a_term_that_only_its_expansion_holds(desk):
    source = desk.source(DOCUMENTS)
    desk.build(source, BuildOptions())
    desk.clean(source)
    index = desk.open()
    assert index.search("ukulele", mode="lexical") == []
    for mode, word, found in (("weights", "ukulele", "terms"), ("hybrid", "purring", "text")):
        hit = index.search(word, mode=mode, highlight=True, explain=True)[0]
        assert hit.id == found
        assert word not in hit.fields["text"]
        assert hit.highlights == ()
        assert hit.explanation["words"] == []
    hit = index.search("tune guitar", mode="weights", highlight=True, explain=True)[0]
    text = hit.explanation["text"]
    assert (hit.id, text) == ("terms", DOCUMENTS[0]["text"])
    assert {text[each["start"] : each["end"]] for each in hit.explanation["words"]} == {"guitar", "tuned"}
    for each in hit.highlights:
        assert each.text == text[each.start : each.start + len(each.text)]
    source = desk.source([{**DOCUMENTS[0], "expansion": ["banjo"]}, *DOCUMENTS[1:]])
    desk.update(source, BuildOptions())
    desk.clean(source)
    index = desk.open()
    assert index.search("ukulele", mode="weights") == []
    assert [hit.id for hit in index.search("banjo", mode="weights")] == ["terms"]
