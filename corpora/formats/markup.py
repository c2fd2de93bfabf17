"""Files of text to title and text: plain text, Markdown, HTML.

The title is what a reader would call the page: HTML's ``<title>``, else the first heading; it is not repeated in the text.
Markdown otherwise stays as it is written: its marks are punctuation to every analyzer. Of HTML remains what a browser
shows: no scripts, no styles; blocks become paragraphs.
"""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BLANKS = re.compile(r"[ \t\r\n\f]+")
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
#: HTML says that a charset is declared within so many bytes.
_DECLARED_WITHIN = 1024
#: Python's names of the encodings that the web has (https://encoding.spec.whatwg.org/#names-and-labels).
_OF_THE_WEB = re.compile(r"cp\d+|iso8859-\d+|iso2022_jp|koi8-[ru]|mac-\w+|gb\w+|big5\w*|euc_\w+|shift_jis\w*|ascii")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")

#: What a browser does not show. (`noscript` is shown where nothing runs scripts: here.)
_HIDDEN = frozenset({"script", "style", "template", "head", "svg", "iframe"})
#: A block in one of these ends it, as in a browser, though nobody closed it.
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
    """No title, and the text as it is."""
    return "", text.strip()


def markdown(text: str) -> tuple[str, str]:
    """The first heading (``# so`` or underlined with ``=``) that is not code, and the text without it."""
    lines = text.replace("\r\n", "\n").split("\n")
    fence = ""
    for number, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence:
            if (found := _HEADING.match(line)) and (title := _unclosed(found[1])):
                return title, "\n".join(lines[:number] + lines[number + 1 :]).strip()
            if number and _UNDERLINE.fullmatch(line) and (above := lines[number - 1].strip()):
                return above, "\n".join(lines[: number - 1] + lines[number + 1 :]).strip()
    return "", text.strip()


def _unclosed(heading: str) -> str:
    """A heading without the blanks around it and without the marks that may close it: `Title ##`, but `C#`."""
    heading = heading.strip(" \t")
    bare = heading.rstrip("#")  # in Python, because a pattern for both tries every way to share out a run of blanks
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else heading


def html(text: str) -> tuple[str, str]:
    """Title and visible text of a page."""
    page = _Page()
    page.feed(text)
    page.close()
    return page.result()


#: How a file is read, by the end of its name: in a folder nothing else tells Markdown from text.
KINDS: dict[str, Callable[[str], tuple[str, str]]] = {
    ".txt": plain,
    ".text": plain,
    ".md": markdown,
    ".markdown": markdown,
    ".html": html,
    ".htm": html,
    ".xhtml": html,
}


def charset(start: bytes) -> str:
    """The encoding that a page declares; UTF-8 where it declares none, or none of the web.

    ISO-8859-1 and ASCII mean windows-1252, as in browsers.
    """
    found = _CHARSET.search(start[:_DECLARED_WITHIN])
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else ""
    except LookupError:
        name = ""
    if not _OF_THE_WEB.fullmatch(name):
        return "utf-8"
    return "cp1252" if name in {"iso8859-1", "ascii"} else name


class _Page(HTMLParser):
    """Collects what is shown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._hidden: list[str] = []
        self._in_title = False
        #: Where the first heading begins and ends in `pieces`.
        self._heading: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag == "title" and self._hidden in ([], ["head"]):
            self._in_title = True
        elif tag == "body":
            self._hidden.clear()  # whatever was left open before
        elif tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag in _BLOCKS:
            while self._hidden and self._hidden[-1] in _LEFT_BY_BLOCKS:
                self._hidden.pop()
            self._pieces.append("\n")
            if tag in _HEADINGS and not self._heading and not self._hidden:
                self._heading.append(len(self._pieces))
        elif tag in _CELLS:
            self._pieces.append(" ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN:  # <svg/> hides nothing
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._hidden:
            while self._hidden.pop() != tag:
                pass
        elif tag in _BLOCKS:
            if tag in _HEADINGS and len(self._heading) == 1:
                self._heading.append(len(self._pieces))
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif not self._hidden:
            self._pieces.append(_BLANKS.sub(" ", data))

    def result(self) -> tuple[str, str]:
        title = _line("".join(self._title))
        if not title and len(self._heading) == 2:
            start, end = self._heading
            title = _line("".join(self._pieces[start:end]))
            del self._pieces[start:end]
        lines = ("".join(self._pieces)).split("\n")
        return title, "\n".join(filter(None, map(_line, lines)))


def _line(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()
