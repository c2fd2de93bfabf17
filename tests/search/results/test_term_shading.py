"""Words of a passage that gave a hit its score, and the pictures of them."""

import re
from html import unescape
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave.catalog.layout import DocumentLayout
from termweave.encoders import load
from termweave.search.results import explanation
from termweave.search.results.pictures import Picture, html
from termweave.search.results.pictures import shade as shade_of

#: Ligatures, accents composed and not, Chinese, emoji of one and of several code points, right to left.
AWKWARD = "The ﬁnal cafe\u0301 and café: 你好世界 good👍🏽 1️⃣ שלום עולם مرحبا İstanbul 𝒜 end."


@pytest.fixture(scope="module")
def encoder():
    return load()


def shade(text, parts, encoder):
    """No engine: nothing here is of the lexical signal (that is in test_explanations)."""
    return explanation.shade(text, parts, SimpleNamespace(encoder=encoder, layout=DocumentLayout(())))


def test_sub_words_come_back_as_the_words_of_the_original_text(encoder):
    terms = sorted({term for _, _, term in encoder.locate(AWKWARD) if term})
    part = {"name": "weights", "score": 1.0, "share": 0.5, "terms": [{"term": term, "share": 1 / len(terms)} for term in terms]}
    words = shade(AWKWARD, [part], encoder)
    shown = [AWKWARD[each["start"] : each["end"]] for each in words]
    assert shown[:9] == ["ﬁnal", "cafe\u0301", "café", "你", "好", "世", "界", "good", "👍"]
    assert {"1️⃣", "שלום", "עולם", "مرحبا", "İstanbul", "𝒜", "end"} <= set(shown)
    assert all(each["share"] == pytest.approx(0.5 / len(terms)) for each in words)


def test_a_word_counts_what_it_gives_in_all_signals_and_something_where_nothing_counts(encoder):
    terms = [{"term": "timer", "share": 3.0}, {"term": "run", "share": 1.0}]
    parts = [
        {"name": "weights", "score": 4.0, "share": 0.2, "terms": terms},
        {"name": "learned", "score": 2.0, "share": 0.1, "terms": [{"term": "timer", "share": 2.0}]},
        {"name": "rnn", "share": 0.3},
    ]
    words = shade("Timer runs a timer", parts, encoder)
    assert [(each["term"], round(each["share"], 6)) for each in words] == [("timer", 0.25), ("run", 0.05), ("timer", 0.25)]
    silent = [part | {"share": 0.0} for part in parts[:1]]
    assert [each["share"] for each in shade("timer runs", silent, encoder)] == [0.75, 0.25]


@settings(deadline=None)
@given(st.text(alphabet="ab 你👍\n", max_size=300), st.data(), st.integers(40, 120))
def test_the_window_lies_inside_the_text_and_holds_the_heaviest_word(text, data, width):
    starts = data.draw(st.lists(st.integers(0, max(0, len(text) - 2)), max_size=5, unique=True)) if len(text) > 2 else []
    words = [{"start": start, "end": start + 1, "share": 1.0 / (1 + start)} for start in sorted(starts)]
    begin, end = explanation.window(text, words, width)
    assert 0 <= begin <= end <= len(text)
    assert end - begin <= width
    if len(words) == 1:
        assert begin <= words[0]["start"]
        assert words[0]["end"] <= end


@given(st.text(max_size=80), st.data())
def test_runs_are_the_whole_text_and_each_word_once(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8, unique=True)))
    words = [(start, end, float(end)) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    runs = list(Picture("", text, words).runs())
    assert "".join(piece for piece, _, _ in runs) == text
    assert [(piece, weight) for piece, weight, share in runs if share > 0] == [(text[a:b], w) for a, b, w in words if w > 0]
    assert all(0 <= share <= 1 for _, _, share in runs)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=12, unique=True))
def test_words_that_overlap_come_apart_and_none_is_lost(spans):
    words = [{"start": start, "end": start + size, "term": "", "share": 1.0} for start, size in sorted(spans)]
    apart = list(explanation.without_overlaps(words))
    assert all(before["end"] <= after["start"] for before, after in pairwise(apart))
    covered = {place for each in words for place in range(each["start"], each["end"])}
    assert {place for each in apart for place in range(each["start"], each["end"])} == covered
    for each in words:  # whoever does not overlap stays as it is
        if not any(other is not each and other["start"] < each["end"] and each["start"] < other["end"] for other in words):
            assert each in apart


def test_the_page_is_whole_and_needs_nothing_else():
    text = AWKWARD + ' <script>alert("x")</script> & "quotes"'
    start = text.index("你")
    picture = Picture("<b>title</b>", text, [(4, 9, 1.0), (start, start + 1, 0.25)], [(0.5, "weights", "3.1 <i>")], "note & more")
    page = html('q"<&', [picture, picture])
    tags = re.findall(r"<(/?\w+)", page)
    for tag in {*tags} - {"meta"}:
        assert tags.count(tag) == tags.count(f"/{tag.removeprefix('/')}"), tag
    assert not re.search(r"\b(src|href|srcset|action)=|url\(|@import|<script|<i>|<b>", page)
    assert unescape(re.sub(r"<[^>]*>", "", page)).count(text) == 2
    assert [unescape(word) for word in re.findall(r"<mark[^>]*>(.*?)</mark>", page)] == [text[4:9], "你"] * 2
    assert shade_of(1.0) in re.findall(r"<mark[^>]*>", page)[0]


def test_the_page_holds_no_character_that_html_refuses():
    page = html("\x01", [Picture("\x7f", "null\0word\x0b\ufffe, tab\tand\r\nlines", [(4, 6, 1.0)])])
    assert "null<mark" in page
    assert "\ufffdw</mark>ord\ufffd\ufffd, tab\tand\r\nlines" in page
    assert not any(ord(each) < 32 and each not in "\t\r\n" for each in page)
