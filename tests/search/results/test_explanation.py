"""Explanations on a real server: every part, every term, every mode; documents that were not found; awkward texts."""

from types import SimpleNamespace

import pytest

from termweave.rerank import ReciprocalNeighbours
from termweave.search.results import explanation, pictures
from termweave.signals.fusion import METHODS
from tests.search.conftest import index_of

SUBJECTS = ("timer", "json", "thread", "file", "socket", "date", "random", "queue", "ﬁnal café", "你好世界", "👍🏽 party", "שלום")


@pytest.fixture(scope="module")
def index(opensearch_engine):
    """A hundred and forty-four documents, more than a signal returns, with all signals."""
    documents = [
        {"id": f"{row}-{number}", "title": f"{subject} 👍", "text": f"The {subject} module, part {number}: {subject} functions."}
        for row, subject in enumerate(SUBJECTS)
        for number in range(12)
    ]
    with index_of(opensearch_engine, documents) as opened:
        yield opened


@pytest.mark.parametrize(
    ("mode", "rerank"), [("lexical", "none"), ("hybrid", "none"), ("hybrid", "rnn"), ("lexical:1,weights:2,dense:3", "rnn")]
)
def test_contributions_add_up_for_every_hit(index, mode, rerank):
    for query in ("json functions", "café 你好 👍", "part 7 of the timer"):
        hits = index.search(query, mode=mode, rerank=rerank, k=120, explain=True)
        assert hits
        for hit in hits:
            told = hit.explain()
            assert told["score"] == hit.score
            assert sum(part["share"] for part in told["parts"]) == pytest.approx(hit.score, abs=1e-5)
            assert sum(each.share for each in hit.signals.values()) + hit.reranked == pytest.approx(hit.score, abs=1e-5)
            for part in told["parts"]:
                if part["name"] == "rnn":
                    mixed = part["weight"] * part["similarity"] + (1 - part["weight"]) * part["jaccard"]
                    assert mixed == pytest.approx(hit.score, abs=1e-5)
                    assert hit.id not in part["neighbours"]
                    continue
                if part["terms"]:  # from stored weights, against what the engine scored
                    assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)
                if part["rank"] is None:
                    assert (part["share"], "counts" in part) == (0, False)
                elif "counts" in part:
                    assert 0 <= part["normalised"] <= 1
                    assert part["share"] == part["normalised"] * part["counts"]
                    assert part["score"] >= part["lowest"] or not part["normalised"]
                else:  # one signal alone keeps its own scores
                    assert part["share"] == part["score"] == hit.score


def test_words_lie_where_the_terms_stand(index):
    for mode, query, words in [
        ("weights", "café 你好 👍", {"café", "你", "好", "👍"}),
        ("lexical", "café 👍 functions", {"café", "functions", "👍"}),  # Lucene counts in UTF-16
        ("lexical:1,weights:1", "json functions", {"json", "functions"}),
    ]:
        shown = set()
        for hit in index.search(query, mode=mode, k=120, explain=True):
            told = hit.explain()
            assert told["text"] == f"{hit.fields['title']}. {hit.fields['text']}"
            shown |= {told["text"][each["start"] : each["end"]] for each in told["words"]}
            assert all(each["share"] >= 0 for each in told["words"])
        assert shown == words


def test_words_that_overlap_are_shown_once_and_words_behind_a_null_are_marked(built):
    """Signals cut "3.5" differently, the analyzer of Chinese gives pairs of characters, the highlighter starts anew at U+0000."""
    texts = ("你好世界的语言 release 3.5", "python\0parser 3.5 and json\0timer")
    documents = [{"id": str(row), "title": "", "text": text} for row, text in enumerate(texts)]
    index = built(documents, analyzer="cjk", signals=("lexical", "weights", "dense"))
    for query, mode, words in (
        ("你好世界", "lexical,weights", ["你", "好", "世", "界"]),
        ("你好世界", "lexical,dense", ["你", "好", "世", "界"]),
        ("3.5", "lexical,weights", ["3.5"]),
    ):
        for hit in index.search(query, mode=mode, explain=True):
            (picture,) = pictures.of_hit(hit)
            assert "".join(piece for piece, _, _ in picture.runs()) == picture.text
            assert [picture.text[start:end] for start, end, _ in picture.words] in ([], words)
            assert picture.words or hit.id == "1"
    (hit,) = index.search("timer parser", mode="lexical", highlight=True)
    (shown,) = hit.highlights
    assert {shown.text[start:end] for start, end in shown.matches} == {"timer", "parser"}


def test_a_document_that_was_not_found_says_what_it_would_take(index):
    query = "the timer module"
    found = {hit.id for hit in index.search(query, mode="dense", k=100)}
    missing = next(f"{row}-{number}" for row in range(len(SUBJECTS)) for number in range(12) if f"{row}-{number}" not in found)
    alone = index.explain(query, missing, mode="dense")
    (part,) = alone.explain()["parts"]
    assert (alone.rank, part["rank"]) == (0, None)
    assert alone.score == part["score"] == part["share"] == alone.signals["dense"].score
    assert part["score"] <= part["lowest"] + 1e-6
    # Asked for more candidates, the search gives it that very score.
    deep = {hit.id: hit.score for hit in index.search(query, mode="dense", k=144, candidates=144)}
    assert deep[missing] == pytest.approx(part["score"], abs=1e-5)
    # The paper's similarity takes whole lists below 0, and what was not found lies below those.
    by_dense = ReciprocalNeighbours(candidates=10, weight=1.0, similarity="dense")
    last = index.search(query, mode="dense", rerank=by_dense, k=100)[-1]
    lower = index.explain(query, missing, mode="dense", rerank=by_dense)
    assert lower.score <= last.score < 0
    for explained in (lower, index.explain(query, missing, mode="hybrid", rerank="rnn")):
        assert sum(each["share"] for each in explained.explain()["parts"]) == pytest.approx(explained.score, abs=1e-5)
    silent = index.explain("timer", "9-0", mode="lexical")
    assert (silent.rank, silent.score, silent.explain()["parts"]) == (0, 0.0, [])


@pytest.mark.parametrize("by", sorted(METHODS))
def test_the_figures_shown_lead_to_the_share_by_every_method(index, by):
    """The minimum in use is shown: words that few documents hold count from 0, and their last candidate lies above that."""
    hits = index.search("json functions", mode=f"weights,dense@{by}", explain=True)
    parts = [part for hit in hits for part in hit.explain()["parts"] if part["rank"] is not None]
    assert {part["name"] for part in parts} == {"weights", "dense"}
    for part in parts:
        low, high = part["lowest"], max(each["score"] for each in parts if each["name"] == part["name"])
        expected = 61 / (60 + part["rank"]) if by == "rrf" else (part["score"] - low) / (high - low)
        assert part["normalised"] == pytest.approx(expected, abs=1e-4)
    assert f"normalised {parts[0]['normalised']:.4f} x {parts[0]['counts']:.4f}" in explanation.as_text(hits[0].explain())
    short = index.search("json", mode="weights,dense", k=1, explain=True)[0].explain()["parts"]
    assert next(part for part in short if part["name"] == "weights")["lowest"] == 0


def test_a_document_that_the_filter_excludes_is_said_to_be(index):
    only = [{"term": {"id": "1-3"}}]
    hit = index.explain("json functions", "1-4", mode="hybrid", where=only)
    assert (hit.rank, hit.score, hit.explain()["excluded"]) == (0, 0.0, True)
    assert explanation.place(hit) == "excluded by a filter or the rewriting"
    parts = {part["name"]: part for part in hit.explain()["parts"]}
    assert {"weights", "dense"} <= parts.keys()  # what they would give it
    assert all(part["share"] == 0 for part in parts.values())
    assert "excluded" not in index.explain("json functions", "1-3", where=only).explain()


def test_the_score_of_a_missed_document_says_whether_the_signal_passed_it_over():
    part = {"name": "dense", "rank": None, "share": 0.0, "lowest": 0.5, "terms": []}
    parts = [{**part, "score": score} for score in (0.5, 0.500005, 0.51)]
    found = {**part, "rank": 2, "score": 0.7, "share": 0.7, "terms": [{"word": word, "share": 0.1} for word in "abcdefgh"]}
    first, *missed = explanation.as_rows({"parts": [*parts, found]})
    assert first == (0.7, "dense", "0.7000, rank 2; a 0.1  b 0.1  c 0.1  d 0.1  e 0.1  f 0.1  and 2 more")
    assert ["passed over" in sentence for _, _, sentence in missed] == [False, False, True]
    matched = {"name": "match", "share": 0.2, "field": "title", "matched": list("abcdefgh"), "worth": 0.5, "weight": 1}
    ((_, _, told),) = explanation.as_rows({"parts": [matched]})
    assert told == "title holds a  b  c  d  e  f and 2 more: 0.5000 of their idf, weight 1"


def test_words_share_what_their_signals_give_or_the_scores_where_no_signal_gives_anything():
    located = [(0, 4, "json"), (5, 9, "file")]
    generation = SimpleNamespace(layout=SimpleNamespace(signals=()), encoder=SimpleNamespace(locate=lambda _: located))
    part = {"name": "weights", "score": 4.0, "terms": [{"term": "json", "share": 3.0}, {"term": "file", "share": 1.0}]}
    for shares, expected in (([0.5], [0.375, 0.125]), ([0.0], [0.75, 0.25]), ([0.5, 0.0], [0.375, 0.125])):
        words = explanation.shade("json file", [{**part, "share": share} for share in shares], generation)
        assert [word["share"] for word in words] == expected


@pytest.mark.parametrize(
    ("places", "width", "shown"),
    [
        ([(0, 0.2), (40, 0.5), (50, 0.5)], 14, (40, 54)),  # both words that fill the window, and not the weaker one
        ([(0, 0.2), (40, 0.5), (50, 0.5)], 24, (35, 54)),  # a word before them, for context
        ([(0, 1.0), (40, 0.5)], 14, (0, 14)),
        ([(55, 1.0)], 14, (45, 59)),
        ([(0, 1.0)], 60, (0, 59)),
        ([], 14, (0, 14)),
    ],
)
def test_the_shown_part_of_a_text_has_the_words_with_the_largest_sum(places, width, shown):
    words = [{"start": start, "end": start + 4, "share": share} for start, share in places]
    assert explanation.window("word " * 11 + "word", words, width) == shown
