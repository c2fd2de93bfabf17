"""An analysis of a model as an analyzer of the server, so that a plain `match` query finds the terms that documents store.

The server's words are those of `encoders.analysis.words` but for three sorts of characters: those that Unicode named lately, which the
server's Java knows and the tokeniser does not; letters of Hangul and halves of Indic vowel signs that are written one by one, which the
model joins; and marks of musical notation.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

from termweave.encoders.analysis.words import ANALYSIS, LONGEST_TERM, STOP_WORDS, replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Ideographs, of which each is a word: the ranges of BERT.
_IDEOGRAPHS = r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{2F800}-\x{2FA1F}"
#: A symbol beyond ASCII; an ideograph; or letters, digits and all else but white space, punctuation and symbols.
_WORD = rf"[\p{{S}}&&[^\x00-\x7F]]|[{_IDEOGRAPHS}]|[^\s\p{{Z}}\p{{P}}\p{{S}}{_IDEOGRAPHS}]+"
#: Characters that vanish: marks, and what BERT takes for control characters.
_NOTHING = r"[\p{Mn}\p{Me}\p{Cf}\p{Co}\p{Cn}\uFFFD]|[\p{Cc}&&[^\t\n\r]]"
_HANGUL = range(0xAC00, 0xD7A4)


def _plain(character: str) -> str:
    """A character as the model's tokeniser reads it, but for its case."""
    read = replacement(character) or character
    if read.isspace():
        return " "
    kept = "".join(part for part in unicodedata.normalize("NFD", read.strip()) if unicodedata.category(part) != "Mn")
    return unicodedata.normalize("NFC", kept) if kept else character


@cache
def _mappings() -> list[str]:
    """What a `mapping` character filter replaces: letters with marks, ligatures, separators."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if code not in _HANGUL and not 0xD800 <= code <= 0xDFFF]
    replaced = ((character, _plain(character)) for character in characters)
    return [f"{_written(character)}=>{_written(plain)}" for character, plain in replaced if plain != character]


def _written(text: str) -> str:
    """A text as a rule of a `mapping` filter writes it, which reads no white space and no line ends."""
    return "".join(sign if sign.isalpha() or sign > "\uffff" else f"\\u{ord(sign):04x}" for sign in text)


def english_words(name: str) -> dict[str, Any]:
    """The settings of an analyzer `name` that repeats the analysis of English words, and of its parts, whose names begin with `name`."""
    parts: Mapping[str, Mapping[str, Any]] = {
        f"char_filter.{name}_plain": {"type": "mapping", "mappings": _mappings()},
        f"char_filter.{name}_nothing": {"type": "pattern_replace", "pattern": _NOTHING, "replacement": ""},
        f"tokenizer.{name}": {"type": "pattern", "pattern": _WORD, "group": 0},
        f"filter.{name}_stop": {"type": "stop", "stopwords": sorted(STOP_WORDS)},
        f"filter.{name}_stem": {"type": "snowball", "language": "Porter"},
        f"filter.{name}_length": {"type": "length", "min": 1, "max": LONGEST_TERM},
        f"analyzer.{name}": {
            "type": "custom",
            "char_filter": [f"{name}_plain", f"{name}_nothing"],
            "tokenizer": name,
            "filter": ["lowercase", f"{name}_stop", f"{name}_stem", f"{name}_length"],
        },
    }
    return {f"index.analysis.{part}.{key}": value for part, settings in parts.items() for key, value in settings.items()}


#: Id of an analysis -> the settings of an analyzer of that name.
OF_ANALYSIS: Mapping[str, Callable[[str], dict[str, Any]]] = {ANALYSIS: english_words}
