"""Passages and marks: text in, offsets out."""

import re

from hypothesis import given
from hypothesis import strategies as st

from termweave import encoders
from termweave.search.features.highlight import PASSAGE, passage

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "x", "äöü", "長い", "🙂"]), min_size=1, max_size=200)


@given(WORDS, st.sets(st.integers(0, 199)))
def test_a_passage_is_a_piece_of_the_field_and_its_marks_are_the_words_marked(words, chosen):
    text = " ".join(words)
    spans, at = [], 0
    for number, word in enumerate(words):
        if number in chosen:
            spans.append((at, at + len(word)))
        at += len(word) + 1
    if not spans:
        return
    found = passage("text", text, spans)
    assert text[found.start : found.start + len(found.text)] == found.text
    assert len(found.text) <= PASSAGE
    assert found.matches
    assert {found.text[start:end] for start, end in found.matches} <= {text[start:end] for start, end in spans}
    for start, end in found.matches:  # whole words at both ends
        assert (found.start + start, found.start + end) in spans


def test_the_passage_shows_most_different_words_and_overlapping_marks_as_one():
    text = "timer " * 100 + "a timer in a thread " + "timer " * 100
    spans = [(match.start(), match.end()) for match in re.finditer("timer|thread", text)]
    assert "thread" in passage("text", text, spans).text
    assert passage("title", "parsing json", [(0, 7), (0, 7), (8, 12), (3, 7)]).matches == ((0, 7), (8, 12))


def test_terms_are_found_where_they_stand_in_the_original():
    encoder = encoders.load()
    text = "Ｐａｒｓｉｎｇ ﬁles: naïve PARSER parses 3.5 🙂 files"
    terms = {encoder.analyse([word])[0][0] for word in ("parses", "files")}
    assert {text[start:end] for start, end in encoder.spans(text, terms)} >= {"ﬁles", "parses", "files"}
    assert encoder.spans(text, set()) == []
