"""The terms of English words; `test_registry` proves what holds of the words of every analysis."""

import time

import pytest

from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import LONGEST_TERM, STOP_WORDS, Analysis
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
