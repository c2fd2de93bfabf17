"""Typed metadata in a real index: filters, facets, order, updates and verification."""

import json
from pathlib import Path

import jsonschema
import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, update
from termweave.indexer.ledger import storage
from termweave.indexer.verification import verify
from tests.search.conftest import index_of

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "search.1.json"
LEXICAL = BuildOptions(signals=("lexical",))
DOCUMENTS = [
    {
        "id": f"d{number}",
        "text": "json " * (number + 1) + "river",
        "year": 2015 + number,
        "price": f"{number}.5",
        "day": f"2024-0{number + 1}-15",
        "kind": "ab"[number % 2],
        "pages": number or "unknown",
    }
    for number in range(6)
]


@pytest.fixture(scope="module")
def index(opensearch_engine):
    """Six documents with metadata, to be searched only."""
    with index_of(opensearch_engine, DOCUMENTS, signals=("lexical",)) as opened:
        yield opened


def test_filters_facets_and_order(index, capsys):
    def ids(**options):
        return [hit.id for hit in index.search("json", **options)]

    plain = {hit.id: hit.score for hit in index.search("json")}
    for where, found in (
        ("year>=2018 AND price<5", ["d3", "d4"]),
        (["day>2024-03", "NOT kind=b"], ["d4"]),
        ("pages=unknown OR year=2016", ["d0", "d1"]),
        ("kind IN (a, c) AND id=d*", ["d0", "d2", "d4"]),
        ("kind=a*", ["d0", "d2", "d4"]),
        ("day<now-1y AND year IN (2016, 2017)", ["d1", "d2"]),
        ("day>now-1d", []),
    ):
        assert sorted(ids(where=where)) == found, where
    listed = ["a", *map(str, range(2000))]  # more values than the server allows clauses
    years = {"terms": {"typed.year": list(range(2000, 4000))}}
    for where in (f"kind IN ({', '.join(listed)})", {"terms": {"metadata.kind": listed}}, years):
        hits = index.search("json river", where=where)
        assert (len(hits), hits.remarks) == (6 if "typed.year" in str(where) else 3, ())
        assert {hit.id: hit.score for hit in hits}.items() <= {hit.id: hit.score for hit in index.search("json river")}.items()
    assert ids(sort="year:desc") == ["d5", "d4", "d3", "d2", "d1", "d0"]
    assert ids(sort="day", k=2, start=1) == ["d1", "d2"]
    answer = index.answer("json", where="year>2015", facets=["kind", "day"], sort="year")
    assert [(each.value, each.count) for each in answer.facets["kind"]] == [("b", 3), ("a", 2)]
    assert answer.facets["day"][0].value == "2024-02-15"
    assert {hit.id: hit.score for hit in answer.hits}.items() <= plain.items()  # neither changes a score
    filters = ["--filter", "year>2015", "--filter", "kind=a", "--facet", "kind"]
    assert run(["search", index.name, "json", "--url", index.engine.url, *filters, "--json"]) == 0
    answered = json.loads(capsys.readouterr().out)
    jsonschema.validate(answered, json.loads(SCHEMA.read_text()))
    assert answered["facets"] == {"kind": [{"value": "a", "count": 2, "filter": 'kind="a"'}]}
    assert answered["totals"] == {"listed": 2, "deeper": False, "candidates": 2, "passing": 2, "matching": 2}


def test_facets_have_a_size_and_ranges_whose_filters_find_what_was_counted(index):
    answer = index.answer("json", facets=["year:2", "price:2/4.5", "day:2024-03/2024-05-15", "metadata.kind"])
    assert [len(values) for values in answer.facets.values()] == [2, 3, 3, 2]
    prices = {each.value: each.count for each in answer.facets["price:2/4.5"]}
    assert prices == {"below 2": 2, "2 to 4.5": 2, "from 4.5": 2}
    assert [each.count for each in answer.facets["day:2024-03/2024-05-15"]] == [2, 2, 2]
    for values in answer.facets.values():
        for each in values:
            assert len(index.search("json", where=each.filter)) == each.count
    for wrong, sentence in (
        ("kind:1/2", "which have no ranges"), ("price:5/2", "lowest first"), ("price:a/b", "must be numbers"), ("kind:0", "does not say"),
    ):  # fmt: skip
        with pytest.raises(UsageError) as refused:
            index.search("json", facets=[wrong])
        assert sentence in f"{refused.value.message} {refused.value.hint}"


def test_the_date_that_never_ends_is_a_date(built):
    ends = {"a": "9999-12-31T23:59:59.999Z", "b": "9999-12-30", "c": "9998-12-31"}
    index = built([{"id": key, "text": "json", "until": value} for key, value in ends.items()], signals=("lexical",))
    answer = index.answer("json", facets=["until"])
    for where, found in (
        *((each.filter, each.count) for each in answer.facets["until"]),
        ("until=9999", 2), ("until=9999-12", 2), ("until=9999-12-31", 1), ("until<=9999-12-31", 3), ("until>=9999-12-31", 1),
        ("until<9999", 1), ("until>9999", 0), ("until>9999-12-31T23:59:59.999Z", 0),
    ):  # fmt: skip
        assert len(index.search("json", where=where)) == found, where


def test_numbers_of_19_digits_are_compared_exactly(built):
    documents = [{"id": str(last), "text": "json", "post": 1500000000000000000 + last} for last in range(3)]
    index = built(documents, signals=("lexical",))
    facet = index.answer("json", facets=["post"]).facets["post"]
    found = [[hit.id for hit in index.search("json", where=each.filter)] for each in facet]
    assert found == [["0"], ["1"], ["2"]]
    assert [hit.id for hit in index.search("json", where="post>=1500000000000000001", sort="post")] == ["1", "2"]


def test_totals_count_documents_and_not_passages(built):
    long = [{"id": f"d{number}", "text": f"{'river ' * 30}{'json ' * (number % 2)}"} for number in range(6)]
    totals = built(long, signals=("lexical",), passages=10).answer("json", totals=True, candidates=2).totals
    assert (totals.candidates, totals.passing, totals.matching) == (2, 6, 3)


def test_a_minimum_score_leaves_documents_out_on_every_page(index):
    plain = index.search("json", k=6)
    scores = [hit.score for hit in plain]
    assert [hit.id for hit in index.search("json", min_score=scores[2])] == [hit.id for hit in plain[:3]]
    second = index.search("json", min_score=f"lexical:{scores[3]}", k=2, start=2, candidates=1)
    assert [hit.id for hit in second] == [hit.id for hit in plain[2:4]]
    answer = index.answer("json", sort="year", min_score=scores[1])
    assert ([hit.id for hit in answer.hits], answer.remarks) == (sorted(hit.id for hit in plain[:2]), ())
    for wrong, sentence in (
        ("dense:0.3", "this search uses lexical"),
        ("lots", "is not a minimum score"),
        ("nan", "is not a"),
        ("infe5", "is not a"),
    ):
        with pytest.raises(UsageError, match=sentence):
            index.search("json", min_score=wrong)


@pytest.mark.parametrize(
    ("options", "listed", "deeper"),
    [
        ({"candidates": 2}, 2, True),
        ({"candidates": 2, "pin": ["d0"]}, 3, True),
        ({"where": "year>2015", "sort": "price:desc", "collapse": "kind:2"}, 4, False),
        ({"rewrite": "operators"}, 6, False),
        ({"min_score": "lexical:0"}, 6, False),
    ],
)
def test_facets_and_totals_count_what_the_pages_list(index, options, listed, deeper):
    answer = index.answer("json -nothing", facets=["kind", "id"], k=1, **options)
    assert (answer.totals.listed, answer.totals.deeper) == (listed, deeper)
    shown = [hit.id for hit in index.search("json -nothing", k=6, **options)]
    assert {each.value for each in answer.facets["id"]} == {*shown[:listed]}
    assert sum(each.count for each in answer.facets["kind"]) == listed
    assert len(shown) == listed or deeper
    assert ("further pages search deeper" in str(answer.totals)) == deeper
    assert index.answer("json -nothing", totals=True, k=1, **options).totals == answer.totals


def test_a_filter_that_leaves_nothing_is_named(index):
    def remarks(*where):
        return index.answer("json", where=where).remarks

    assert remarks("year>2015", "year>2030") == ("No document passes the filter year>2030.",)
    (together,) = remarks("kind=a", "year=2016")
    assert together == "No document passes all filters together. Documents that pass each one alone: kind=a: 3; year=2016: 1."
    assert index.answer("nothing", where="kind=a").remarks == ("3 documents pass the filter, and the query finds none of them.",)


def test_an_update_keeps_the_types_and_verification_compares_them(built, opensearch_engine, tmp_path):
    index = built(DOCUMENTS, signals=("lexical",))
    path = tmp_path / "more.jsonl"
    path.write_text(json.dumps({"id": "d6", "text": "json", "year": "soon", "price": 1, "new": 1}))
    done = update(opensearch_engine, corpora.open_source(path), index.name, LEXICAL)
    assert any("'year' (1, not whole numbers)" in note for note in done.notes)
    assert index.lineage.types == read_lineage(opensearch_engine, index.generation).types
    assert [hit.id for hit in index.search("json", where="year=soon")] == ["d6"]
    with storage.open_(opensearch_engine, index.generation) as ledger:
        assert verify(opensearch_engine, index.generation, ledger, deep=1.0).ok
        body = {"doc": {"typed": {"year": 1900}}}
        opensearch_engine.request("POST", f"/{index.generation}/_update/d3", params={"refresh": "true"}, body=body)
        assert verify(opensearch_engine, index.generation, ledger, deep=1.0).inside == ["d3"]


def test_an_index_without_types_works_as_before(built, opensearch_engine):
    """Indices of earlier versions have no types in their lineage and no typed fields."""
    index = built(DOCUMENTS, signals=("lexical",))
    made = read_lineage(opensearch_engine, index.generation).as_meta()
    del made["types"]
    opensearch_engine.request("PUT", f"/{index.generation}/_mapping", body={"_meta": {"termweave": made}})
    old = tw.connect(opensearch_engine.url).index(index.name)
    assert [hit.id for hit in old.search("json", where="year=2016")] == ["d1"]
    assert len(old.search("json", where="kind=a")) == 3
    with pytest.raises(UsageError, match="no field 'year'") as refused:
        old.search("json", sort="year")
    assert "built again" in refused.value.hint
