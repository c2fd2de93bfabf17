"""Turn text files into title and text: plain text, Markdown, HTML.

The title is HTML's ``<title>``, else the first heading; it is not repeated in the text. Markdown is otherwise kept as it is, because
its markup is punctuation for every analyzer. From HTML the text that a browser shows is kept, without scripts and styles; blocks become
paragraphs.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import turbohtml
from turbohtml import TokenType

if TYPE_CHECKING:
    from collections.abc import Callable

_BLANKS = re.compile(r"[ \t\r\n\f]+")
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
#: The HTML standard wants the charset within this number of bytes.
_DECLARED_WITHIN = 1024
#: Python's names of the encodings of the web (https://encoding.spec.whatwg.org/#names-and-labels).
_OF_THE_WEB = re.compile(r"cp\d+|iso8859-\d+|iso2022_jp|koi8-[ru]|mac-\w+|gb\w+|big5\w*|euc_\w+|shift_jis\w*|ascii")
#: What is read otherwise than the tokenizer would: `noscript` holds markup, because no scripts run here, and in XHTML an element ends at
#: "/>", where HTML would take the rest of the page as its content.
_NOSCRIPT = re.compile(r"(</?)noscript\b", re.IGNORECASE)
_XHTML = "http://www.w3.org/1999/xhtml"
_EMPTY_RAW = re.compile(r"<(script|style|title|textarea|iframe)\b([^<>]*)/>", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")

_RULE = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}")
_ASCIIDOC_HEADING = re.compile(r"^={1,6}[ \t]+(\S.*)\n?", re.MULTILINE)

#: Elements that a browser does not show. (`noscript` is shown, because no scripts run here.)
_HIDDEN = frozenset({"script", "style", "template", "head", "svg", "iframe"})
#: Elements that a block element inside them closes, as in a browser.
_LEFT_BY_BLOCKS = ("head", "svg")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
#: Elements that stand on lines of their own.
_BLOCKS = _HEADINGS | frozenset(
    """
    address article aside blockquote body br caption dd details dialog div dl dt fieldset figcaption figure footer form
    header hr html legend li main nav noscript ol p pre section summary table tbody tfoot thead tr ul
    """.split()  # noqa: SIM905 - reads better than forty quoted strings
)
_CELLS = frozenset({"td", "th"})


def plain(text: str) -> tuple[str, str]:
    """Plain text: no title, and the whole text."""
    return "", text.strip()


def markdown(text: str) -> tuple[str, str]:
    """The first heading outside code (``# Title``, or underlined with ``=``), and the text without it."""
    lines = text.replace("\r\n", "\n").split("\n")
    fence = ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence:
            if (heading := _HEADING.match(line)) and (title := _unclosed(heading[1])):
                return title, "\n".join(lines[:number] + lines[number + 1 :]).strip()
            if number and _UNDERLINE.fullmatch(line) and (above := lines[number - 1].strip()):
                return above, "\n".join(lines[: number - 1] + lines[number + 1 :]).strip()
    return "", text.strip()


def _unclosed(heading: str) -> str:
    """A heading without blanks around it and without closing marks: `Title` for `Title ##`, but `C#` stays."""
    heading = heading.strip(" \t")
    bare = heading.rstrip("#")  # not with a pattern, which would need quadratic time for many blanks
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else heading


def html(text: str) -> tuple[str, str]:
    """Title and visible text of a page.

    The page is read as tokens, not as a tree. Tokens take linear time for every page. A tree does not: libxml2 and lexbor need 20 s for
    1 MB of some nestings, and formatting elements that stay open are repeated in every paragraph.
    """
    text = _NOSCRIPT.sub(r"\1div", text)
    if _XHTML in text[:_DECLARED_WITHIN]:
        text = _EMPTY_RAW.sub(r"<\1\2></\1>", text)
    page = _Page()
    for token in turbohtml.tokenize(text, capture_attributes=False):
        if token.type is TokenType.START_TAG:
            page.start(token.tag or "", empty=token.self_closing)
        elif token.type is TokenType.END_TAG:
            page.end(token.tag or "")
        elif token.type is TokenType.TEXT:
            page.data(token.data or "")
    return page.result()


def restructured(text: str) -> tuple[str, str]:
    """reStructuredText: the first line with an underline of punctuation is the title; its overline is dropped, too."""
    lines = text.replace("\r\n", "\n").split("\n")
    for number, (line, below) in enumerate(pairwise(lines)):
        is_rule, rule = _RULE.fullmatch(line.rstrip()), _RULE.fullmatch(below.rstrip())
        if line.strip() and not is_rule and rule and len(rule[0]) >= len(line.strip()):
            over = number > 0 and _RULE.fullmatch(lines[number - 1].rstrip()) is not None
            kept = [*lines[: number - over], *lines[number + 2 :]]
            return line.strip(), "\n".join(kept).strip()
    return "", text.strip()


def asciidoc(text: str) -> tuple[str, str]:
    """AsciiDoc: the first heading (``= Title``) is the title."""
    text = text.replace("\r\n", "\n")
    before, title, behind = [*_ASCIIDOC_HEADING.split(text, maxsplit=1), "", ""][:3]
    return title.strip(), f"{before}{behind}".strip()


#: Suffix of a file -> function that reads it: in a folder, only the name tells Markdown from plain text.
KINDS: dict[str, Callable[[str], tuple[str, str]]] = {
    **dict.fromkeys((".txt", ".text"), plain),
    **dict.fromkeys((".md", ".markdown"), markdown),
    ".rst": restructured,
    **dict.fromkeys((".adoc", ".asciidoc"), asciidoc),
    **dict.fromkeys((".html", ".htm", ".xhtml"), html),
}


def charset(start: bytes) -> str:
    """The encoding that a page declares; UTF-8 if it declares none, or an unknown one.

    ISO-8859-1 and ASCII mean windows-1252, as in browsers.
    """
    declaration = _CHARSET.search(start[:_DECLARED_WITHIN])
    try:
        name = codecs.lookup(declaration[1].decode("ascii")).name if declaration else ""
    except LookupError:
        name = ""
    if not _OF_THE_WEB.fullmatch(name):
        return "utf-8"
    return "cp1252" if name in {"iso8859-1", "ascii"} else name


class _Page:
    """Collects the title and the visible text of a page."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._hidden: list[str] = []
        #: Number of open elements in `_hidden` by tag: searching the list at every end tag would take quadratic time.
        self._open: Counter[str] = Counter()
        self._in_title = False
        #: Start and end of the first heading in `_pieces`.
        self._heading: list[int] = []

    def start(self, tag: str, *, empty: bool) -> None:
        """Handle a start tag."""
        if tag == "title" and self._hidden in ([], ["head"]):
            self._in_title = True
        elif tag == "body":
            self._hidden.clear()  # close all elements that are still open
            self._open.clear()
        elif tag in _HIDDEN:
            if not (empty and tag == "svg"):  # <svg/> hides nothing
                self._hidden.append(tag)
                self._open[tag] += 1
        elif tag in _BLOCKS:
            while self._hidden and self._hidden[-1] in _LEFT_BY_BLOCKS:
                self._leave()
            self._pieces.append("\n")
            if tag in _HEADINGS and not self._heading and not self._hidden:
                self._heading.append(len(self._pieces))
        elif tag in _CELLS:
            self._pieces.append(" ")

    def end(self, tag: str) -> None:
        """Handle an end tag; it closes all elements that are open inside the element."""
        if tag == "title":
            self._in_title = False
        elif self._open[tag]:
            while self._leave() != tag:
                pass
        elif tag in _BLOCKS:
            if tag in _HEADINGS and len(self._heading) == 1:
                self._heading.append(len(self._pieces))
            self._pieces.append("\n")

    def data(self, text: str) -> None:
        """Keep a text if it is visible."""
        if self._in_title:
            self._title.append(text)
        elif not self._hidden:
            self._pieces.append(_BLANKS.sub(" ", text))

    def _leave(self) -> str:
        """Close the innermost hidden element and return its tag."""
        tag = self._hidden.pop()
        self._open[tag] -= 1
        return tag

    def result(self) -> tuple[str, str]:
        """Title and text, after the page was read."""
        title = _line("".join(self._title))
        if not title and len(self._heading) == 2:
            start, end = self._heading
            title = _line("".join(self._pieces[start:end]))
            del self._pieces[start:end]
        lines = ("".join(self._pieces)).split("\n")
        return title, "\n".join(filter(None, map(_line, lines)))


def _line(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()
