"""Queries as people type them: phrases and exclusions, misspelt words, synonyms; in every mode, explained, on every page."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

import termweave as tw
from termweave.catalog.lineage import read_lineage
from termweave.cli import run as main
from termweave.encoders import TextEncoder
from termweave.errors import EngineError, UsageError
from termweave.evaluation import runs
from termweave.evaluation.experiment import runs_of
from termweave.evaluation.systems import system_of
from termweave.records import Query
from termweave.search import profiles
from termweave.search.rewriting import operators
from termweave.search.rewriting import synonyms as synonym_rules
from termweave.search.rewriting.configuration import QueryPins, parse
from termweave.search.rewriting.synonyms import MOST_SYNONYMS, Span, Synonyms
from tests.search.conftest import index_of
from tests.ui.conftest import client_of

MODES = ("lexical", "weights", "dense", "hybrid")
TEXTS = {
    "tv": "A television with a large screen for the living room",
    "set": "A tv of the newest kind",
    "radio": "A radio with a large dial",
    "laptop": "A laptop for students",
    "notebook": "The notebook computer comes with a charger",
    "paper": "A computer, and beside it a notebook of paper",
    "thread": "Functions that run in a thread of their own",
    "threads": "Threads share a large memory",
    "case": "A phone case in red leather",
    "red": "The red case of a large radio",
    "leather": "Leather in red or blue",
}


@pytest.fixture(scope="module")
def shop(opensearch_engine):
    """Eleven documents with all signals."""
    documents = [{"id": name, "text": text, "words": len(text.split())} for name, text in TEXTS.items()]
    with index_of(opensearch_engine, documents) as index:
        yield index


def ids(hits):
    return [hit.id for hit in hits]


def synonyms(tmp_path, *lines):
    path = tmp_path / "synonyms.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return f"synonyms@{path}"


@pytest.mark.parametrize(
    ("query", "text", "phrases", "excluded"),
    [
        ('"red leather" case', "red leather case", ("red leather",), ()),
        ("case -red", "case ", (), ("red",)),
        ('case -"red leather"', "case ", (), ("red leather",)),
        ("\u201cred leather\u201d", "red leather", ("red leather",), ()),
        ('a 27" screen', 'a 27" screen', (), ()),  # inches
        ('"red leather', '"red leather', (), ()),
        ("state-of-the-art 5 - 3", "state-of-the-art 5 - 3", (), ()),
        ('""', '""', (), ()),
    ],
)
def test_operators_are_taken_apart(query, text, phrases, excluded):
    read = operators.parse(query)
    assert (read.text, read.phrases, read.excluded) == (text, phrases, excluded)
    assert [read.text[a:b] for a, b in read.quoted] == list(phrases)


@pytest.mark.parametrize("opening", ['"', '-"', "\u201c"])
def test_a_quote_without_its_partner_takes_no_time(opening):
    query, began = f"x {opening}{'a b ' * 5_000}", time.process_time()
    assert operators.parse(query).text == query
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize("mode", MODES)
def test_phrases_and_exclusions_hold_in_every_mode_and_on_every_page(shop, mode):
    asked = {"mode": mode, "rewrite": "operators"}
    found = shop.search('"red case" radio', **asked, k=20)
    assert ids(found) == ["red"]
    if mode != "hybrid":  # a fused score is relative to other candidates
        plain = {hit.id: hit.score for hit in shop.search("red case radio", mode=mode, k=20)}
        assert found[0].score == pytest.approx(plain["red"], rel=1e-5)
    whole = ids(shop.search("large -screen -memory", **asked, k=20))
    assert whole
    assert not {"tv", "threads"} & set(whole)
    assert whole == [each for at in range(0, 20, 2) for each in ids(shop.search("large -screen -memory", **asked, k=2, start=at))]


def test_operators_reach_pins_explanations_counts_and_runs(shop):
    assert ids(shop.search("large -screen", rewrite="operators", pin=["tv", "set"], k=1)) == ["set"]
    assert shop.explain("large -screen", "tv", rewrite="operators").explanation["excluded"]
    assert shop.answer("large -screen", rewrite="operators", totals=True).totals.passing == len(TEXTS) - 1
    many = " ".join(f"-word{number}" for number in range(101))
    queries = {"a": '"red case"', "b": "large -screen", "c": "large", "d": "-screen", "e": f"large {many}"}
    run = shop.run(queries, rewrite="operators").scores
    assert list(run["a"]) == ["red"]
    assert ["tv" in run[query] for query in "bc"] == [False, True]
    assert (run["d"], run["e"]) == ({}, {})
    assert 'large leather"' in shop.answer('"large leather"', rewrite="operators").remarks[0]
    assert "With --rewrite operators" in " ".join(shop.answer("large -screen").remarks)
    excluding = ids(shop.search("-radio", like=["tv"], rewrite="operators", k=20))
    assert excluding == [each for each in ids(shop.search(like=["tv"], k=20)) if "radio" not in TEXTS[each]]
    stop_word = shop.search('"the" case', rewrite="operators", k=20)  # stop words are in no index
    assert ids(stop_word) == ids(shop.search("the case", k=20))
    for query, said in (("-screen", "only excludes"), (queries["e"], "has 101 phrases and exclusions")):
        with pytest.raises(UsageError, match=said):
            shop.search(query, rewrite="operators")
    assert shop.search("large" + " -word" * 100, rewrite="operators")


def test_a_query_that_only_excludes_is_named(shop, tmp_path, capsys):
    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    texts = {"q1": "-screen", "q2": "large", "q3": "-tv", "q4": "-red", "q5": "-tv -red"}
    (judged / "queries.jsonl").write_text("".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in texts.items()))
    (judged / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{name}\tradio\t1\n" for name in texts))
    (judged / "corpus.jsonl").write_text('{"_id": "radio", "text": "A radio"}\n')
    search = ["search", shop.name, "--queries", str(judged), "--run", str(tmp_path / "out.trec"), "--rewrite", "operators"]
    for command, said in (
        (search, "Query 'q1' was not searched. The query '-screen' only excludes words."),
        (["profiles", shop.name, "--save", "typed", "--rewrite", "operators"], ""),
        (["evaluate", shop.name, f"{judged}:test", "--mode", "typed"], "finds nothing, as do 3 queries like it."),
    ):
        assert main([*command, "--url", shop.engine.url]) == 0
        assert said in " ".join(capsys.readouterr().err.split())
    assert set(runs.read(tmp_path / "out.trec").scores) == {"q2"}


def test_operators_look_at_whole_documents_where_they_are_cut(built, monkeypatch):
    filler = "The committee met again on that day and spoke for a long time about nothing of interest to anybody. " * 3
    texts = {
        "both": f"A red kettle boils water. {filler} Its settings are a file of xml beside the green tea.",
        "kettle": f"A kettle of steel. {filler} It has no settings.",
        "short": "A kettle beside green tea.",
    }
    index = built([{"id": key, "text": text} for key, text in texts.items()], passages=30)
    for mode in MODES:
        assert sorted(ids(index.search("kettle -xml", mode=mode, rewrite="operators"))) == ["kettle", "short"]
        assert ids(index.search('"red kettle" "green tea"', mode=mode, rewrite="operators")) == ["both"]
        assert not index.search('"red kettle" -"green tea"', mode=mode, rewrite="operators")
    assert set(index.run({"q": "kettle -xml"}, rewrite="operators", mode="hybrid").scores["q"]) == {"kettle", "short"}
    assert index.explain("kettle -xml", "both", rewrite="operators").explanation["excluded"]
    monkeypatch.setattr(operators, "MOST_DOCUMENTS", 0)
    answer = index.answer("kettle -xml", rewrite="operators", mode="lexical")
    assert "both" in ids(answer.hits)
    assert "More than 0 documents hold 'xml': each passage was checked alone" in answer.remarks[0]


def test_a_misspelt_word_is_corrected_and_said(shop):
    for typed, meant in (("thraed", "thread"), ("televison screne", "television screen"), ("Funktions", "Functions")):
        answer = shop.answer(typed, rewrite="spelling", mode="lexical")
        assert ids(answer.hits) == ids(shop.search(meant, mode="lexical"))
        assert answer.remarks[0].startswith(f"Searched for {meant!r} instead of {typed!r}: no document holds ")
    for fine in ("thread", "xylophone qwrtzp"):
        assert not shop.answer(fine, rewrite="spelling", mode="dense").remarks
    assert not shop.search('"thraed" memry', rewrite="operators,spelling", mode="dense")  # what is quoted is searched as typed
    assert ids(shop.search('memry "red case"', rewrite="operators,spelling", k=1)) == ["red"]
    for before, remarks in ((99, 1), (100, 0)):  # 3,000 words took half a minute
        assert len(shop.answer("thread " * before + "thraed", rewrite="spelling", mode="lexical").remarks) == remarks


def test_product_codes_stay_and_words_are_spelt_as_in_documents(built):
    texts = ("The XKART5500 of the company", "A kart for children", "The maxlength of a field", "Eine lange Stra\u00dfe am Fluss")
    index = built([{"id": str(at), "text": text} for at, text in enumerate(texts)], weights="none", dense="none")
    for typed in ("XKART5500", "5500XKART", "max_lenght", "\u65e5" * 1500):  # more characters than a query may have clauses
        answer = index.answer(typed, rewrite="spelling")
        assert ids(answer.hits) == ids(index.search(typed))
        assert not answer.remarks
    (remark,) = index.answer("Strasze", rewrite="spelling").remarks
    assert "'Stra\u00dfe' instead of 'Strasze'" in remark


def test_synonyms_find_documents_and_count_once(shop, tmp_path):
    lines = ("# of the shop", "", "tv, television, telly", "notebook computer, laptop", "wireless => radio", "kind => the")
    rules = synonyms(tmp_path, *lines)
    for mode in ("lexical", "weights"):
        assert ids(shop.search("tv", mode=mode, k=20)) == ["set"]
        for query in ("TV", "telly"):
            hits = shop.search(query, mode=mode, rewrite=rules, k=20, explain=True)
            assert set(ids(hits)) == {"tv", "set"}
        (part,) = next(hit for hit in hits if hit.id == "tv").explanation["parts"]
        assert {term["word"] for term in part["terms"]} == {"television"}
        assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)
        # Replaced: what was typed is not searched.
        assert ids(shop.search("wireless", mode=mode, rewrite=rules)) == ids(shop.search("radio", mode=mode))
        assert not shop.search("kind", mode=mode, rewrite=rules)
        assert ids(shop.search("kind dial", mode=mode, rewrite=rules)) == ["radio"]
    # The best alternative counts: a document with one of the words scores as for this word alone.
    alone = {hit.id: hit.score for word in ("tv", "television") for hit in shop.search(f"{word} screen", mode="lexical")}
    both = {hit.id: hit.score for hit in shop.search("tv screen", mode="lexical", rewrite=rules)}
    assert both == pytest.approx(alone, rel=1e-5)
    # Words of an entry with several words stand together.
    assert set(ids(shop.search("laptop", mode="lexical", rewrite=rules))) == {"laptop", "notebook"}
    hits = shop.search("telly screen", rewrite=rules, rerank="rnn", explain=True, highlight=True, k=3)
    assert hits[0].id == "tv"
    assert sum(part["share"] for part in hits[0].explanation["parts"]) == pytest.approx(hits[0].score, abs=1e-6)
    assert "television" in [hits[0].highlights[0].text[a:b] for a, b in hits[0].highlights[0].matches]
    assert ids(shop.search('"tv"', mode="lexical", rewrite=f"operators,{rules}")) == ["set"]  # as typed


def test_a_long_query_is_bounded_and_says_so(shop, tmp_path, monkeypatch):
    """3,000 synonyms took 75 s."""
    rules = synonyms(tmp_path, "tv, television, telly")
    read, encode = [], TextEncoder.encode
    monkeypatch.setattr(TextEncoder, "encode", lambda self, texts, **more: read.append(len(texts)) or encode(self, texts, **more))
    answer = shop.answer("tv " * 60 + "large", mode="lexical", rewrite=rules, k=3)
    assert max(read) == 100
    assert {"tv", "set"} <= set(ids(answer.hits))
    assert answer.remarks == ("The query has too many synonyms: those of 'tv' are not all searched.",)
    assert shop.answer("tv " * 50 + "large", mode="lexical", rewrite=rules, k=3).remarks == ()
    query = " ".join(f"word{number}" for number in range(1500)) + " tv"  # its highlights and counts leave synonyms out
    answer = shop.answer(query, mode="lexical", rewrite=rules, highlight=True, totals=True)
    assert (ids(answer.hits), answer.totals.matching, answer.hits[0].highlights[0].matches) == (["set"], 1, ((2, 4),))


def test_rules_of_synonyms():
    lines = "a => b\nb => a\nnew york, nyc\nyork, yorkshire\na\\,b, c\nx, y => y\nx => z\ntv, TV, telly, Telly\ntv, TV"
    rules = Synonyms.parse(lines.split("\n"))
    for text, span in (
        ("a", Span(0, 1, keeps=False, others=("b",))),  # once: rules do not run in a circle
        ("B", Span(0, 1, keeps=False, others=("a",))),
        ("in New York now", Span(3, 11, keeps=True, others=("nyc",))),  # the longest rule
        ("york", Span(0, 4, keeps=True, others=("yorkshire",))),
        ("c", Span(0, 1, keeps=True, others=("a,b",))),
        ("x y", Span(0, 1, keeps=False, others=("y", "z"))),
        ("tv", Span(0, 2, keeps=True, others=("telly", "Telly"))),
    ):
        assert rules.spans(text) == [span]
    assert rules.spans("newyork new") == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_rule_of_thousands_of_terms_is_read_term_by_term(monkeypatch, kept):
    """A rule of 2,000 terms took 57 seconds, and again in every search where a profile stores it."""
    read = []
    words = synonym_rules._words
    monkeypatch.setattr(synonym_rules, "_words", lambda text: read.append(text) or words(text))
    terms = ", ".join(f"t{number}" for number in range(10_000))
    rules = Synonyms.parse([terms if kept else f"{terms} => {terms}, x"])
    assert len(read) == (10_000 if kept else 20_001)
    (span,) = rules.spans("t7")
    assert (span.keeps, len(span.others)) == (True, MOST_SYNONYMS + 1)  # too many to be searched
    assert len({id(others) for _, others in rules.rules.values()}) == 1
    joined = Synonyms.parse([f"t7, a{number}, b{number}" for number in range(8_000)])
    assert len(joined.spans("t7")[0].others) == MOST_SYNONYMS + 1
    assert Synonyms.parse(["a " * 90_000 + "=> b", "a => c"]).lengths == (90_000, 1)  # not every length between is looked up


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tv", "Line 1 of the synonyms, 'tv', is not a rule"),
        ("# fine\ntv, telly\na => b => c", "Line 3"),
        ("# nothing", "holds no rule"),
        ("a, " + "b" * 200_000, "200,003 characters"),
        ("tv, telly\n" + "#" * 10_000_000, "has more than 10,000,000 bytes"),
        (b"tv, fernseher f\xfcr alle", "not UTF-8"),
    ],
    ids=["alone", "arrows", "empty", "long", "large", "latin"],
)
def test_files_that_cannot_be_read_are_said(tmp_path, content, message):
    path = tmp_path / "synonyms.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=message) as caught:
        parse(f"synonyms@{path}")
    assert caught.value.hint not in caught.value.message  # the command line prints both


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("magic", "cannot be rewritten by 'magic'"),
        ("spelling,spelling", "names something twice"),
        ("synonyms@none.txt", "cannot be read: No such file"),
        ("synonyms@a\0b", "cannot be read: embedded null byte"),
    ],
)
def test_what_cannot_be_read_is_said(value, message):
    with pytest.raises(UsageError, match=message):
        parse(value)


def pins(tmp_path, *rows, header="query,document,action"):
    path = tmp_path / "pins.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return f"pins@{path}"


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("query,document,action", ["Red  Case,leather,pin", "red case,tv,PIN", "red case,red,hide", ",,"]),
        ("\ufeffnote;Action;document;query", ["ask Ann;pin;leather;red case", "x;pin;tv; RED case ", "x;hide;red;red case"]),
        ("sep=|\nquery|document|action", ['"red case"|leather|pin', "red case|tv|pin", "red case|tv|pin", "red case|red|hide"]),
    ],
    ids=["commas", "semicolons", "announced"],
)
def test_tables_of_pins_are_read(tmp_path, header, rows):
    rewriting = parse(f"spelling,{pins(tmp_path, *rows, header=header)}")
    (of_query,) = rewriting.of_queries.items()
    assert of_query == ("red case", QueryPins(("leather", "tv"), ("red",)))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["red case,tv,top"], "Row 1 of the pins, 'red case, tv, top', does not name a query, a document and pin or hide."),
        (["a,b,pin", "red case,,pin"], "Row 2 of the pins, 'red case, , pin', does not name"),
        (
            ["a,b,pin", "A,b,hide"],
            "Row 2 of the pins contradicts another row: for the query 'A', one pins the document 'b', and the other hides it.",
        ),
        ([f"a,{number},pin" for number in range(101)], "The pins name more than 100 documents for 'a'."),
        ([f"{'a' * 999}{number},1,pin" for number in range(250)], "characters.\nAt most 200,000 are read"),
        ([], "has no columns query, document, action, or no row below them."),
        (['"x, y",b,pin', '"a, b",c,pin', 'a,"b,pin'], "cannot be read at line 4: unexpected end of data."),
    ],
)
def test_tables_of_pins_that_say_something_else_are_refused(tmp_path, rows, said):
    with pytest.raises(UsageError) as refused:
        parse(pins(tmp_path, *rows))
    assert said in f"{refused.value.message}\n{refused.value.hint}"
    assert "pins.csv" in refused.value.message


@pytest.mark.parametrize("given", [{"mode": "lexical"}, {"rerank": "rnn"}], ids=str)
def test_pins_hold_on_every_page(shop, tmp_path, given):
    rows = ("large screen,gone,pin", "large screen,case,pin", "large screen,radio,pin", "Large screen,tv,hide")
    asked = {**given, "rewrite": pins(tmp_path, *rows)}
    plain = ids(shop.search("large screen", **given, where="NOT id=tv", k=20))
    whole = shop.search("large  SCREEN", **asked, k=20, explain=True)
    assert ids(whole) == ["case", "radio", *(each for each in plain if each not in {"case", "radio"})]
    assert sum(part["share"] for part in whole[1].explanation["parts"]) == pytest.approx(whole[1].score, abs=1e-6)
    pages = [each for at in range(0, 20, 2) for each in ids(shop.search("large screen", **asked, k=2, start=at, candidates=5))]
    assert (pages[:2], len(pages), "tv" in pages) == (["case", "radio"], len(set(pages)), False)
    explained = shop.explain("large screen", "radio", **asked)
    assert (explained.rank, explained.score) == (2, pytest.approx(whole[1].score, abs=1e-5))


def test_pins_go_with_other_options(shop, tmp_path):
    table = pins(tmp_path, "large screen,case,pin", "large screen,leather,pin", "large screen,tv,hide", "xyzzy,tv,pin")
    assert ids(shop.search("large screen", rewrite=table, pin=["leather", "tv"], k=2)) == ["leather", "case"]
    assert ids(shop.search("large screen", rewrite=table, where="words>4", k=20))[0] == "case"
    assert "leather" not in ids(shop.search("large screen", rewrite=table, where="words>5", k=20))
    unsorted = shop.search("large screen", where="NOT id=tv", sort="words", k=20)
    assert ids(shop.search("large screen", rewrite=table, sort="words", k=20)) == ids(unsorted)
    assert shop.run({"a": "xyzzy"}, rewrite=table, mode="lexical").scores["a"] == {"tv": 2.0}
    assert shop.explain("large screen", "tv", rewrite=table).explanation["excluded"]


def test_a_profile_keeps_pins_for_every_client(shop, tmp_path, capsys):
    table = pins(tmp_path, "large screen,case,pin", "large screen,tv,hide")
    url = ["--url", shop.engine.url]
    assert main(["profiles", shop.name, "--save", "pinned", "--mode", "hybrid", "--rewrite", table, *url]) == 0
    Path(table.removeprefix("pins@")).unlink()
    index = tw.connect(shop.engine.url).index(shop.name)
    wanted = ids(index.search("Large screen", mode="pinned"))
    assert (wanted[0], "tv" in wanted) == ("case", False)
    other = pins(tmp_path, "large screen,radio,pin", "large screen,missing,pin", "other,missing,pin")
    unpinned = ids(index.search("large screen", mode="hybrid"))[0]
    for rewrite, first in (("operators,spelling", "case"), (other, "radio"), ("none", unpinned)):
        assert ids(index.search("large screen", mode="pinned", rewrite=rewrite))[0] == first
        assert next(iter(index.run({"q": "large screen"}, mode="pinned", rewrite=rewrite).scores["q"])) == first
    assert main(["profiles", shop.name, "--save", "other", "--mode", "pinned", "--rewrite", other, *url]) == 0
    assert "1 pinned document is not in the index: missing." in capsys.readouterr().err
    evaluated = runs_of(index, [Query("q", "large screen")], [system_of("pinned", None, index)], lambda *_: None, 10)
    assert list(evaluated[0]["pinned"].scores["q"]) == wanted
    with client_of(shop.engine) as client:
        answer = client.get("/api/search", params={"index": shop.name, "q": "large screen", "mode": "pinned"}).json()
        assert [hit["id"] for hit in answer["hits"]] == wanted
        refused = client.get("/api/search", params={"index": shop.name, "q": "large", "rewrite": "pins@/etc/passwd"})
        assert "names a file" in refused.json()["error"]
    lineage = read_lineage(shop.engine, index.generation)
    for damage in ([["q", "d"]], [["q", "d", "drop"]], [3]):
        damaged = replace(lineage, profiles={"pinned": {**lineage.profiles["pinned"], "rewrite": {"pins": damage}}})
        with pytest.raises(EngineError, match="is damaged"):
            profiles.find(damaged, "pinned")
