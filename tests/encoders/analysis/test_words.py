"""Words, offsets and terms."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import LONGEST_TERM, STOP_WORDS, Analysis, cleaned
from termweave.encoders.model_lookup import resolve

ANALYSIS = Analysis(PieceTokenizer(resolve("shipped") / "tokenizer.json").tokenizer)

CASES = {
    "numbers and dots": ("pi is 3.14 in os.path", ["pi", "3", "14", "o", "path"]),
    "hyphens": ("state-of-the-art snake_case", ["state", "art", "snake", "case"]),
    "apostrophes": ("don't, the world's; l’été", ["don", "t", "world", "l", "et"]),
    "ASCII symbols": ("C++ & a+b $5", ["c", "b", "5"]),
    "emoji": ("good👍 👍🏽 👨‍👩‍👧 10€", ["good", "👍", "👍", "🏽", "👨", "👩", "👧", "10", "€"]),
    "keycap": ("1️⃣", ["1"]),
    "CJK": ("你好world", ["你", "好", "world"]),
    "Hangul": ("한국", ["한국"]),
    "ligatures": ("ﬁnding the ﬄ", ["find", "ffl"]),
    "accents": ("Café cafe\u0301 ZÜRICH", ["cafe", "cafe", "zurich"]),
    "zero width": ("foo\u200bbar co\u00adop\u200der \ufeffbom", ["foo", "bar", "cooper", "bom"]),
    "controls": ("end\x0cstart a\x85b x\x00y", ["end", "start", "b", "xy"]),
    "lone surrogates": ("a\ud800b \udfff", ["ab"]),
    "special tokens are text": ("[SEP] [MASK]", ["sep", "mask"]),
    "stop words": (" ".join(STOP_WORDS), []),
    "stems": ("running Runs ran", ["run", "run", "ran"]),
    "nothing": (" \t\n", []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_decided(name):
    text, terms = CASES[name]
    assert ANALYSIS.terms([text]) == [terms]
    assert [term for term in ANALYSIS.words([text])[0].terms if term] == terms


#: Unicode's awkward corners more often than chance would bring them.
AWKWARD = st.sampled_from(
    list("ﬁﬄ👍🏽€½…’ßİıΣςé\u0301\u0327\u20e3\u200b\u200d\u00ad\ufeff\x00\x0c\x85\ud800\udc00你한か가ﷺ½Ⅷ𝒜\u2028.-_'\"[]#")
)
TEXTS = st.text(alphabet=st.one_of(AWKWARD, st.characters(), st.sampled_from("abc XYZ 012"))) | st.text()


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_offsets_are_exact(text):
    words = ANALYSIS.words([text])[0]
    assert len(words.starts) == len(words.ends) == len(words.clean_ends) == len(words.terms)
    previous = 0
    for start, end, term in zip(words.starts.tolist(), words.ends.tolist(), words.terms, strict=True):
        assert previous <= start < end <= len(text)
        previous = end
        word = ANALYSIS.normalised(text[start:end])
        assert word
        assert " " not in word
        assert (ANALYSIS._make_term(word) or "") == term


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_nothing_but_separators_and_vanishing_characters_lies_between_words(text):
    words = ANALYSIS.words([text])[0]
    covered = set()
    for start, end in zip(words.starts.tolist(), words.ends.tolist(), strict=True):
        covered.update(range(start, end))
    rest = "".join(character for place, character in enumerate(text) if place not in covered)
    assert ANALYSIS.terms([rest]) == [[]]


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=4))
def test_terms_are_those_of_the_words(texts):
    assert ANALYSIS.terms(texts) == [[term for term in words.terms if term] for words in ANALYSIS.words(texts)]


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_the_way_back_has_one_place_for_each_clean_character(text):
    clean, back = cleaned(text)
    assert len(clean) == (len(text) if back is None else len(back))
    clean.encode()  # no lone surrogate is left


def test_long_terms_are_dropped_and_counted():
    analysis = Analysis(PieceTokenizer(resolve("shipped") / "tokenizer.json").tokenizer)
    fits, long = "1" * LONGEST_TERM, "1" * (LONGEST_TERM + 1)
    assert analysis.terms([f"{fits} {long} {'9' * 100_000} word"]) == [[fits, "word"]]
    assert analysis.too_long == 2


@pytest.mark.parametrize("text", ["word " * 200_000, "a.b" * 330_000, "é👍" * 200_000, "x" * 1_000_000, "你" * 300_000])
def test_a_megabyte_is_no_trouble(text):
    def seconds(part):
        begun = time.process_time()
        ANALYSIS.words([part])
        return time.process_time() - begun

    tenth = min(seconds(text[: len(text) // 10]) for _ in range(2))
    whole = seconds(text)
    assert whole < 40 * max(tenth, 0.02)  # quadratic would be 100
