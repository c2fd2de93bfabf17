"""An HTML tokenizer that takes linear time for every page.

The standard library's `HTMLParser` needs 23 s for 200 kB of ``<meta charset=``: it searches for the end of an unclosed tag again and
again. The tree builders (libxml2, lexbor, resiliparse) each have quadratic inputs of their own: deep nesting, end tags without a
start, many attributes. Visible text needs only tokens and no tree, so this module reads tokens. It follows HTML's tokenization rules
(https://html.spec.whatwg.org/multipage/parsing.html#tokenization), with two exceptions that keep the text of damaged pages: a CDATA
section ends at ``]]>``, and the text of a ``<title>`` or ``<textarea>`` that is never closed is read as markup.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from html import unescape

#: Beginning of a tag, comment, declaration or processing instruction; any other "<" is text.
_MARKUP = re.compile(r"<(?:[A-Za-z!?]|/.)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z][^ \t\r\n\f/>]*")
#: Blanks, or one attribute with its value. Every repetition ends at a character that it excludes, so that no character is read twice.
_ATTRIBUTE = re.compile(
    r"""[ \t\r\n\f/]+|[^ \t\r\n\f/>][^ \t\r\n\f/>=]*"""
    r"""(?:[ \t\r\n\f]*=[ \t\r\n\f]*(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^ \t\r\n\f>"'][^ \t\r\n\f>]*)?)?"""
)
_COMMENT_END = re.compile(r"--!?>")
#: A character reference with many digits; Python does not parse numbers of more than 4,300 digits.
_LONG_REFERENCE = re.compile(r"&#([0-9]{9,});?")

#: Elements whose content is not markup.
_RAW = ("script", "style", "iframe", "noembed", "noframes", "xmp")
#: Elements whose content is not markup except for character references.
_RAW_WITH_REFERENCES = ("title", "textarea")
_RAW_END = {tag: re.compile(rf"</{tag}(?=[ \t\r\n\f/>])", re.IGNORECASE) for tag in (*_RAW, *_RAW_WITH_REFERENCES)}


class Tokenizer(ABC):
    """Reads a page from its beginning to its end and calls one method for each start tag, end tag and piece of text."""

    @abstractmethod
    def start(self, tag: str, *, empty: bool) -> None:
        """Handle a start tag; `tag` is in lower case, `empty` is True for a tag that ends in ``/>``."""

    @abstractmethod
    def end(self, tag: str) -> None:
        """Handle an end tag; `tag` is in lower case."""

    @abstractmethod
    def data(self, text: str) -> None:
        """Handle text between two tags, with its character references replaced."""

    def read(self, page: str) -> None:
        """Read a whole page."""
        unclosed: set[str] = (
            set()
        )  # raw elements without an end tag in the rest of the page, so that it is searched for only once
        last_cdata_end = page.rfind("]]>")
        position = text_begin = 0
        while (mark := page.find("<", position)) >= 0:
            if not _MARKUP.match(page, mark):
                position = mark + 1  # an ordinary character
                continue
            if mark > text_begin:
                self._text(page[text_begin:mark])
            closes = page[mark + 1] == "/"
            name = _NAME.match(page, mark + 1 + closes)
            if name is None:
                position = text_begin = _markup_end(page, mark, last_cdata_end)
                continue
            position = text_begin = _tag_end(page, name.end())
            if not position:
                return  # a browser does not show a tag in which the page ends
            tag = name[0].lower()
            if closes:
                self.end(tag)
                continue
            empty = page[position - 2] == "/"
            self.start(tag, empty=empty)
            if tag in _RAW_END and tag not in unclosed and not empty:
                position = text_begin = self._raw(page, tag, position, unclosed)
        if text_begin < len(page):
            self._text(page[text_begin:])

    def _raw(self, page: str, tag: str, begin: int, unclosed: set[str]) -> int:
        """Handle the content of a raw element; return the position of its end tag, or where markup continues if there is none."""
        closing = _RAW_END[tag].search(page, begin)
        if closing is None:
            unclosed.add(tag)
            if tag in _RAW_WITH_REFERENCES:
                return begin
        stop = closing.start() if closing else len(page)
        if tag in _RAW_WITH_REFERENCES:
            self._text(page[begin:stop])
        else:
            self.data(page[begin:stop])
        return stop

    def _text(self, text: str) -> None:
        if "&" in text:
            # Eight digits without leading zeros are already beyond the last character.
            text = unescape(_LONG_REFERENCE.sub(lambda match: f"&#{match[1].lstrip('0')[:8] or '0'};", text))
        self.data(text)


def _tag_end(page: str, position: int) -> int:
    """The offset after the ``>`` of a tag whose name ends at `position`; 0 if the page ends first."""
    while page[position : position + 1] not in {">", ""}:
        attribute = _ATTRIBUTE.match(page, position)
        position = attribute.end() if attribute else position + 1
    return position + 1 if position < len(page) else 0


def _markup_end(page: str, mark: int, last_cdata_end: int) -> int:
    """The offset after the comment, declaration, CDATA section or processing instruction that begins at `mark`."""
    if page.startswith("<!--", mark):
        if page.startswith((">", "->"), mark + 4):
            return page.index(">", mark) + 1
        closing = _COMMENT_END.search(page, mark + 4)
        return closing.end() if closing else len(page)
    if page.startswith("<![CDATA[", mark) and mark < last_cdata_end:
        return page.index("]]>", mark) + 3
    return page.find(">", mark) + 1 or len(page)
