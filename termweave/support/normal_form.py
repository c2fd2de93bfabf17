"""Bring texts into the normal form, in which texts that look the same have the same characters: documents, queries, filters, synonyms, pins.

    composed            ``u`` and U+0308 become ``ü`` (Unicode's NFC)
    invisible           soft hyphens, word joiners, byte order marks, marks of direction, selectors of variants: left out. U+200B stays in
                        scripts that write no blanks between words, U+200C and U+200D where they shape letters (Persian, Hindi, emoji)
    another shape       ligatures (``ﬁ``), full-width letters and digits, half-width kana, Arabic presentation forms, radicals, letters of
                        mathematics, blanks and hyphens that keep a line together: written as usual

Characters with a meaning of their own (``²``, ``½``, ``①``, ``™``, full-width punctuation) stay: NFKC would change what people read. Ids stay
as they are, because other programs know them; `forms` finds them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from termweave.support.messages import readable

#: Letters of scripts without blanks between words (Thai to Lao, Myanmar, Khmer, Tai), and those that joiners shape, with emoji.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
_SHAPED = (
    "\u0600-\u07bf\u0840-\u0dff\u0f00-\u109f\u1780-\u18af\u1b00-\u1c7f\ua800-\uabff\ufb50-\ufdff\ufe0f\ufe70-\ufefc"
    "\u2190-\u2bff\U00010a00-\U00011fff\U0001f000-\U0001faff"
)
_ALWAYS = "\u00ad\u034f\u061c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0d\ufeff\U000e0100-\U000e01ef"
#: Compiled at the first text that needs it: that takes 15 ms.
_INVISIBLE = f"[{_ALWAYS}]|(?<![{_SPACELESS}])\u200b(?![{_SPACELESS}])|(?<![{_SHAPED}])[\u200c\u200d]|\u200c(?![{_SHAPED}])"
#: Characters whose compatible form (NFKC) is how they are usually written. Runs of them, because a mark of half-width kana follows its letter.
_SHAPES = (
    "\u00a0\u0132\u0133\u0149\u01c4-\u01cc\u01f1-\u01f3\u2007\u2010\u2011\u202f\u2e9f\u2ef3\u2f00-\u2fd5\ufb00-\ufb17\ufb20-\ufb28\ufb4f"
    "\ufb50-\ufc5d\ufc64-\ufdf9\ufe80-\ufefc\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f\U0001d400-\U0001d7ff"
)
_SHAPE = re.compile(f"[{_SHAPES}]+")
_ANY = re.compile(f"[\u200b-\u200d{_ALWAYS}{_SHAPES}]")


def normal(text: str) -> str:
    r"""Bring a text into the normal form.

    Example:
        >>> normal("Bru\u0308cke"), normal("Ge\u00adsamt"), normal("of\ufb01ce \uff21\uff11"), normal("m\u00b2")
        ('Brücke', 'Gesamt', 'office A1', 'm²')
    """
    if text.isascii():
        return text
    if _ANY.search(text):
        text = re.sub(_INVISIBLE, "", text)
        text = _SHAPE.sub(lambda shape: unicodedata.normalize("NFKC", shape[0]).replace("\u2010", "-"), text)
    return text if unicodedata.is_normalized("NFC", text) else unicodedata.normalize("NFC", text)


def normal_value(value: Any) -> Any:
    """Bring all texts in a JSON value into the normal form; the names in objects stay."""
    if isinstance(value, str):
        return normal(value)
    if isinstance(value, Mapping):
        return {key: normal_value(each) for key, each in value.items()}
    return [normal_value(each) for each in value] if isinstance(value, list | tuple) else value


def query_text(text: str) -> str:
    """Bring a query into the form in which it is searched: the normal form, without characters that UTF-8 cannot write."""
    return normal(readable(text))


def normalised(query: str) -> str:
    """Bring a query into the normal form, in lower case and with single blanks. Queries that are equal after this count as the same query."""
    return " ".join(normal(query).split()).casefold()


def forms(text: str) -> tuple[str, ...]:
    """The forms in which another program may have stored a text: the normal form, the decomposed form (NFD), and the text as it is."""
    one = normal(text)
    return tuple(dict.fromkeys((one, unicodedata.normalize("NFD", one), text)))


def in_all_forms(ids: Iterable[str]) -> list[str]:
    """Each of the given ids in all forms in which an index may have it (`forms`)."""
    return [form for each in ids for form in forms(each)]
