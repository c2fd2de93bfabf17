"""The one form of texts: what changes, what stays, and that it is one."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave.records import Document, Query
from termweave.support.normal_form import forms, normal, normalised, query_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bru\u0308cke", "Br\u00fccke"),
        ("\u1112\u1161\u11ab", "\ud55c"),  # letters of Hangul
        ("Ge\u00adsamt\u00adkonzept", "Gesamtkonzept"),
        ("rain\u200bcoat\u200b now", "raincoat now"),
        ("\ufeffword\u2060s \u200eC++\u200e \u202aand\u202c \u2068more\u2069", "words C++ and more"),
        ("Auf\u200clage a\u200db", "Auflage ab"),
        ("e\u00ad\u0301t\u00e9", "\u00e9t\u00e9"),  # the accent follows its letter once the hyphen is gone
        ("\u8fbb\U000e0100", "\u8fbb"),
        ("o\ufb03ce \ufb01fth \u0133s", "office fifth ijs"),
        ("\uff21\uff22\uff23 \uff11\uff12", "ABC 12"),
        ("\uff8a\uff9f\uff7f\uff7a\uff9d", "\u30d1\u30bd\u30b3\u30f3"),
        ("\ufef3\ufea4\ufeea \ufdf2", "\u064a\u062d\u0647 \u0627\u0644\u0644\u0647"),
        ("\u2f00\u2f08", "\u4e00\u4eba"),
        ("\U0001d412\U0001d41a\U0001d425\U0001d41e", "Sale"),
        ("e\u2011mail, 5\u00a0km, \u00ab\u202fmot\u202f\u00bb", "e-mail, 5 km, \u00ab mot \u00bb"),
    ],
)
def test_what_looks_the_same_is_the_same(text, expected):
    assert normal(text) == expected == normal(expected)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "Gr\u00f6\u00dfe m\u00b2 \u00bd \u2460 \u2163 \u2122 \u2026 \u2014 \u3316",
        "\u4f60\u597d\uff0c\u4e16\u754c\uff01\uff08\u4e2d\u6587\uff09",  # full-width punctuation is Chinese
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
        "\u0915\u094d\u200d\u0937 \u0d15\u0d4d\u200d",  # Hindi, Malayalam
        "\u1781\u17d2\u1798\u17c2\u179a\u200b\u1797\u17b6\u179f\u17b6",  # Khmer: between words
        "\U0001f469\u200d\U0001f4bb \u2764\ufe0f",
        "\u3131\u314b\u314b",
    ],
)
def test_what_has_a_meaning_stays(text):
    assert normal(text) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_decomposed_text_is_read_as_composed(text):
    assert normal(unicodedata.normalize("NFD", text)) == normal(unicodedata.normalize("NFC", text))


def test_forms_are_those_that_another_program_may_have_stored():
    assert forms("plain") == ("plain",)
    assert forms("Jos\u00e9") == forms("Jose\u0301") == ("Jos\u00e9", "Jose\u0301")
    assert forms("o\ufb03ce") == ("office", "o\ufb03ce")


def test_a_document_keeps_its_id_and_the_names_of_its_fields():
    nested = {"Gro\u0308\u00dfe": ["Jose\u0301", {"x": "a\u00adb"}, 1, None, True]}
    expected = Document("Bru\u0308cke", "ab", "Jos\u00e9", {"Gro\u0308\u00dfe": ["Jos\u00e9", {"x": "ab"}, 1, None, True]}, 3)
    assert Document("Bru\u0308cke", "a\u00adb", "Jose\u0301", nested, 3).normal == expected


def test_queries_that_look_the_same_are_one():
    assert Query("q", "Jose\u0301") == Query("q", "Jos\u00e9")
    assert normalised(" Bru\u0308cke\u200b  BAU ") == "br\u00fccke bau"
    assert query_text("Jose\u0301 \udce9") == "Jos\u00e9 \ufffd"
