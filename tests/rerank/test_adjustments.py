"""Boosts, decays and diversity: against their formulas, in a search, and where they cannot be used."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from tokenizers import Tokenizer

from termweave.cli import run
from termweave.encoders.analysis.analyses import OF_LANGUAGE, ChineseWords
from termweave.encoders.analysis.words import Analysis
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.model_lookup import resolve
from termweave.errors import UsageError
from termweave.records import Encoding, RewrittenQuery
from termweave.rerank import rerankers
from termweave.rerank.adjustments import boost, decay, diverse, match
from termweave.rerank.candidate_features import seconds_since
from termweave.rerank.rerankers import IndexTerms, RerankRequest
from tests.search.conftest import index_of

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "explain.1.json").read_text(encoding="utf-8"))
NOW = datetime.now(UTC)
SCORES = (1.0, 0.8, 0.5, 0.0)


def totals(reranker, metadata=None, vectors=None):
    request = RerankRequest(Encoding("x"), "abcd", SCORES, vectors, metadata=metadata)
    result = reranker.rerank(request)
    assert all(result.details(row) is not None for row in range(4))
    return [result.keep * score + share for score, share in zip(SCORES, result.shares, strict=True)]


def days(*ago, date=False):
    """Metadata with a day so long ago, for each document; None for one without."""
    moments = [None if each is None else NOW - timedelta(days=each) for each in ago]
    return [{"day": [(each.date() if date else each).isoformat()]} if each else {} for each in moments]


VOTES = [{}, {"votes": [9]}, {"votes": [1, 99]}, {"votes": [-5]}]  # the largest counts; none and a negative one are worth nothing
PLACES = [{"place": ["52.52, 13.405", "0, 0"]}, {"place": ["48.8566, 2.3522"]}, {"place": ["52.52, 13.405"]}, {}]
PRICES = [{"price": [25]}, {"price": [35.0]}, {"price": [5]}, {}]


@pytest.mark.parametrize(
    ("rule", "metadata", "expected"),
    [
        (boost("votes:0.2"), VOTES, [0.8, 0.64 + 0.2 * math.log1p(9) / math.log1p(99), 0.4 + 0.2, 0.0]),
        (boost("votes:0.2:9"), VOTES, [0.8, 0.64 + 0.1, 0.4 + 0.2 * 99 / 108, 0.0]),
        (boost("votes"), [{}] * 4, [0.9 * score for score in SCORES]),
        (decay("day:0.4:30d"), days(0, 30, 60, None), [0.6 + 0.4, 0.48 + 0.2, 0.3 + 0.1, 0.0]),
        (decay("day:0.4:720h"), days(0, 30, 60, None), [1.0, 0.68, 0.4, 0.0]),
        (decay("day:1:1d"), days(*[-9] * 4, date=True), [1.0] * 4),
        (decay("place:0.5:877.5km:52.52,13.405"), PLACES, [1.0, 0.4 + 0.25, 0.25 + 0.5, 0.0]),  # Berlin to Paris; to itself 0
        (decay("place:1:111.2km:0,-179.5"), [{"place": ["0, 179.5"]}] * 4, [0.5] * 4),
        (decay("price:0.5:10:25"), PRICES, [1.0, 0.4 + 0.25, 0.25 + 0.125, 0.0]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_boosts_and_decays(rule, metadata, expected):
    assert totals(rule, metadata) == pytest.approx(expected, abs=1e-3 if "place" in rule.name else 1e-4)


def test_dates_of_years_that_python_has_not():
    then = datetime(2026, 11, 26, tzinfo=UTC)
    assert seconds_since("+2026-11-25", then) == 86_400
    first = seconds_since("9999-12-31", then) - 86_400
    days_before = {"+10000-01-01": 0, "+10000-03-01T00:00:00.000Z": -60, "+10400-01-01": -146_097, "-0001-01-01": 3_652_790}
    assert {each: (seconds_since(each, then) - first) / 86_400 for each in days_before} == days_before
    dates = [{"day": ["+10000-01-01T00:00:00.000Z"]}, {"day": ["-0565-11-17T00:00:00.000Z"]}, {}, {}]
    assert totals(decay("day:0.5:1d"), dates) == pytest.approx([1.0, 0.4, 0.25, 0.0])


def test_an_explanation_shows_the_value_that_counts():
    metadata = [{"votes": [1, 9, 3], "price": [1, 24, 50]}, {}, {}, {"votes": [-1]}]
    for rule, values in ((boost("votes"), [9, None, None, -1]), (decay("price:0.5:10:25"), [24, None, None, None])):
        result = rule.rerank(RerankRequest(Encoding("x"), "abcd", SCORES, None, metadata=metadata))
        assert [result.details(row)["value"] for row in range(4)] == values


def worths(query, titles, idf, analysis=Analysis, parts=()):
    """What `match@title` finds each title worth for a query, and the terms that it names."""
    tokenizer = Tokenizer.from_file(str(resolve("shipped") / TOKENIZER))
    encoded = Encoding(query, rewritten=RewrittenQuery(query, parts=parts) if parts else None)
    held = [{"words.title": [title]} if title else {} for title in titles]
    index_terms = IndexTerms(analysis(tokenizer).terms, lambda term: idf.get(term, 1.0))
    ids = [str(number) for number in range(len(titles))]
    result = match("title:0.2").rerank(RerankRequest(encoded, ids, [0.5] * len(ids), metadata=held, index_terms=index_terms))
    details = [result.details(row) for row in range(len(ids))]
    assert result.keep == 0.8
    assert [each["worth"] * 0.2 for each in details] == pytest.approx(result.shares)
    return [(pytest.approx(each["worth"]), each["matched"]) for each in details]


def test_terms_in_a_field():
    idf = {"robot": 3.0, "space": 2.0, "ship": 1.0}
    titles = ["Robots!", "The ships of space, space and space", "", "robot SPACE ship"]
    expected = [(0.5, ["robot"]), (0.5, ["ship", "space"]), (0.0, []), (1.0, ["robot", "ship", "space"])]
    assert worths("a robot in the space ship", titles, idf) == expected
    assert worths("in the", ["in the"], idf) == [(0.0, [])]  # stop words alone
    german = worths("Köpfe der Stadt", ["Der Kopf", "Städte"], {"kopf": 3.0}, OF_LANGUAGE["german"])
    assert german == [(0.75, ["kopf"]), (0.25, ["stadt"])]
    assert worths("研究生命起源", ["生命的意义", "关于研究的书"], {}, ChineseWords) == [(1 / 3, ["生命"]), (1 / 3, ["研究"])]
    # "tv" or "television set": the better of them counts for the part.
    parts = ((Encoding("robot"),), (Encoding("tv"), Encoding("television set")))
    found = worths("robot tv", ["tv", "television", "robot of a television set"], {"robot": 3.0}, parts=parts)
    assert found == [(0.25, ["tv"]), (0.125, ["televis"]), (1.0, ["robot", "set", "televis"])]


def test_diversity_is_the_greedy_choice():
    draw = np.random.default_rng(2)
    vectors = draw.normal(size=(4, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[1] = vectors[0]
    chosen = []

    def marginal(row):
        return 0.6 * SCORES[row] - 0.4 * max([0.0, *(float(vectors[row] @ vectors[other]) for other in chosen)])

    while len(chosen) < 4:  # the definition, literally
        chosen.append(max(set(range(4)) - set(chosen), key=marginal))
    scores = totals(diverse("0.4"), vectors=vectors)
    assert sorted(range(4), key=lambda row: -scores[row]) == chosen
    assert scores[1] == pytest.approx(0.6 * 0.8 - 0.4, abs=1e-6)  # the same text again
    assert totals(diverse("0"), vectors=vectors) == pytest.approx(SCORES)


def test_an_opposite_document_does_not_gain():
    vectors = np.array([[1, 0, 0, 0], [-0.1, 0.995, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=np.float32)
    result = diverse("0.3").rerank(RerankRequest(Encoding("x"), "abcd", SCORES, vectors))
    assert (result.shares, result.details(1)) == ([0.0] * 4, {"cosine": 0.0, "of": None, "weight": 0.3})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("boost", "names no field"),
        ("boost@votes:2", "from 0 to 1"),
        ("boost@votes:nan", "'nan' in boost is not a number"),
        ("boost@votes:0.1:0", "above 0"),
        ("boost@a:0.1:1:1", "cannot be read"),
        ("decay@day", "names no half-life"),
        ("decay@day:0.2:30", "has no unit"),
        ("decay@price:0.2:30d:5", "'30d' in decay is not a number"),
        ("decay@place:0.2:10km", "'' in decay is not a place"),
        ("decay@place:0.2:10km:91,0", "'91,0' in decay is not a place"),
        ("boost@votes>profile", "come first in a chain"),
    ],
)
def test_what_cannot_be_read_is_said(asked, message):
    with pytest.raises(UsageError, match=message):
        rerankers.choose(asked)


@pytest.fixture(scope="module")
def shop(opensearch_engine):
    """Twelve lamps, three of them twins; the last one has most votes."""
    texts = ["red lamp", "red lamp", "red lamp", "blue desk lamp", "green lamp for children", "lamp of brass with a dimmer"]
    same = {"kind": "lamp"}
    rows = [
        {"id": f"{at}", "text": f"A {texts[at % 6]}.", "votes": at, "day": f"2024-01-{at + 1:02d}", **same} for at in range(12)
    ]
    with index_of(opensearch_engine, rows) as index:
        yield index


def test_a_search_with_rules_explains_itself_and_pages(shop, capsys):
    chains = "rnn>boost@votes:0.3:5>decay@day:0.2:52w", "diverse@0.5", "decay@votes:1:2:11", "rnn>match@text:0.5>match@kind:0.1"
    for rerank in chains:
        hits = shop.search("red lamp", rerank=rerank, k=12, explain=True)
        for hit in hits:
            assert sum(part["share"] for part in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-6)
        assert run(["explain", shop.name, "red lamp", "4", "--rerank", rerank, "--json", "--url", shop.engine.url]) == 0
        jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)
        pages = [hit.id for start in range(0, 12, 4) for hit in shop.search("red lamp", rerank=rerank, k=4, start=start)]
        assert pages == [hit.id for hit in hits]
        assert len(set(pages)) == 12
    assert shop.search("red lamp", rerank="decay@votes:1:2:11", k=1)[0].id == "11"
    plain, spread = ({int(hit.id) % 6 for hit in shop.search("red lamp", rerank=each, k=3)} for each in ("none", "diverse@0.8"))
    assert len(spread & {0, 1, 2}) < len(plain & {0, 1, 2})


def test_fields_that_do_not_fit_are_said(shop, capsys):
    saved = ["profiles", shop.name, "--url", shop.engine.url, "--save", "new", "--rerank"]
    with pytest.raises(UsageError, match="reads the metadata entry 'price'"):
        shop.search("lamp", rerank="boost@price")
    for rule, message in (("boost@kind", "of numbers, and 'kind' holds"), ("decay@votes:0.2:30d", "of dates, and 'votes' holds")):
        with pytest.raises(UsageError, match=message):
            shop.search("lamp", rerank=rule)
        assert run([*saved, rule, "--use", "new"]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    rule = "decay@metadata.day:0.1:30d"
    assert run([*saved, rule]) == 0
    found, same = ([hit.id for hit in shop.search("lamp", rerank=each)] for each in (rule, rule.replace("metadata.", "")))
    assert found == same


@pytest.mark.parametrize("passages", [None, 30])
def test_words_in_titles_and_metadata(built, passages):
    filler = "The committee met on that day and spoke for a long time about nothing of any interest. " * 4
    films = {
        "red": ("Red Planet", {"director": "Ann Miller", "crew": ["Bob Stone", "Eve Moon"], "plot": "moon " * 60}),
        "moon": ("Robots of the Moon", {"director": "Bob Stone"}),
        "none": ("", {}),
    }
    rows = [{"id": key, "title": title, "text": f"A robot on the moon. {filler}", **more} for key, (title, more) in films.items()]
    index = built(rows, passages=passages, mapping={"properties": {"plot": {"type": "text"}}})
    for rerank, query, mode, expected in (
        ("match@title:1", "robot moon", "hybrid", {"moon": ["moon", "robot"], "red": [], "none": []}),
        ("match@director:1", "miller's robot", "lexical", {"red": ["miller"], "moon": [], "none": []}),
        ("match@metadata.crew:1", "eve stone moon", "hybrid", {"red": ["ev", "moon", "stone"], "moon": [], "none": []}),
        ("match@plot:1", "moon", "lexical", {"red": ["moon"], "moon": [], "none": []}),  # longer than a keyword may be
    ):
        hits = index.search(query, rerank=rerank, mode=mode, explain=True)
        parts = {hit.id: hit.explanation["parts"] for hit in hits}
        assert {key: next(p["matched"] for p in each if "matched" in p) for key, each in parts.items()} == expected
        assert hits[0].id == max(expected, key=lambda key: len(expected[key]))
    scores = index.run({"q": "robot moon"}, rerank="match@title:1").scores["q"]
    assert max(scores, key=scores.get) == "moon"
    with pytest.raises(UsageError, match="reads the field 'titel'"):
        index.search("moon", rerank="match@titel")


def test_an_index_without_terms_has_no_match(built):
    index = built([{"id": "a", "title": "one", "text": "two"}], weights="none", dense="none")
    with pytest.raises(UsageError, match="needs the terms of the signal weights, which the index"):
        index.search("one", rerank="match@title")


def test_pinned_documents_come_first(shop):
    pins = ["9", "gone", "4", "9"]
    whole = shop.search("red lamp", pin=pins, k=12, explain=True)
    others = [hit.id for hit in shop.search("red lamp", k=12) if hit.id not in {"9", "4"}]
    assert [hit.id for hit in whole] == ["9", "4", *others]
    for hit in whole[:2]:
        assert sum(part["share"] for part in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-6)
        assert "pin" in [part["name"] for part in hit.explanation["parts"]]
    pages = [hit.id for start in range(0, 12, 3) for hit in shop.search("red lamp", pin=pins, k=3, start=start)]
    assert pages == [hit.id for hit in whole]
    # A pinned document below a minimum score: what the signals give it is as it was.
    (high,) = shop.search("red lamp", pin=["4"], min_score=9, explain=True)
    assert next(part for part in whole[1].explanation["parts"] if part["name"] == "dense") in high.explanation["parts"]
    # A document that the search would never find, and one that a filter leaves out.
    assert [hit.id for hit in shop.search("dimmer", mode="lexical", pin=["0"], k=1)] == ["0"]
    assert "0" not in [hit.id for hit in shop.search("lamp", pin=["0"], where="votes>=5", k=12)]
    jsonschema.validate(whole[0].explanation, SCHEMA["properties"]["hit"]["properties"]["explanation"])
    for options, message in (({"pin": ["0"], "sort": "votes"}, "none can be put first"), ({"pin": "0"}, "list of ids")):
        with pytest.raises(UsageError, match=message):
            shop.search("lamp", **options)


@pytest.fixture(scope="module")
def brands(opensearch_engine):
    """Sixty lamps of seven brands, some without a brand; more than the ten candidates of the first round."""
    rows = [
        {"id": f"{number:02d}", "text": f"A lamp, number {number}, for the {'desk' if number % 3 else 'wall'}", "price": number}
        | ({"brand": f"b{number % 7}"} if number % 10 else {})
        for number in range(60)
    ]
    with index_of(opensearch_engine, rows) as index:
        yield index


def collapsed(ids, most):
    """The definition, literally: the first of each brand, and all without one."""
    counts, kept = {}, []
    for each in ids:
        brand = int(each) % 7 if int(each) % 10 else None
        counts[brand] = counts.get(brand, 0) + 1
        if brand is None or counts[brand] <= most:
            kept.append(each)
    return kept


@pytest.mark.parametrize(
    "given",
    [{"rerank": "rnn>boost@price:0.3"}, {"pin": ["59", "52"]}, {"sort": "price:desc"}, {"mode": "dense", "where": "price>=9"}],
    ids=str,
)
def test_the_best_of_each_group_is_kept_on_every_page(brands, given):
    def found(**options):
        return [hit.id for hit in brands.search("desk lamp", **{"k": 60, "candidates": 60, **options, **given})]

    for most in (1, 2):
        kept = found(collapse=f"brand:{most}")
        assert kept == collapsed(found(), most)
        # Pages of four: searched deeper from the tenth document on, and no document twice.
        for candidates in (10, 60):
            options = {"candidates": candidates, "collapse": f"brand:{most}"}
            pages = [each for start in range(0, 60, 4) for each in found(k=4, start=start, **options)]
            assert len(pages) == len(set(pages))
            assert pages == found(**options)
            if candidates == 10 and not given.get("sort"):
                assert len(pages) == len(kept)  # none is missing


def test_what_cannot_be_collapsed_is_said(brands):
    hits = brands.search("lamp", collapse="metadata.brand", explain=True, k=5)
    assert sum(part["share"] for part in hits[0].explanation["parts"]) == pytest.approx(hits[0].score, abs=1e-6)
    for value, message in (
        ("maker", "no field 'maker'"),
        (":2", "does not name a field to collapse"),
        ("brand:0", "does not name"),
    ):
        with pytest.raises(UsageError, match=message):
            brands.search("lamp", collapse=value)
    answer = brands.answer("lamp", collapse="brand", where="NOT exists(brand)", k=60)
    assert len(answer.hits) == 6
    assert "No document of this answer has a value of 'brand'" in " ".join(answer.remarks)
