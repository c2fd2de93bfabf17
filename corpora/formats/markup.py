"""Turn text files into title and text: plain text, Markdown, HTML.

The title is HTML's ``<title>``, else the first heading; it is not repeated in the text. Markdown is otherwise kept as it is, because
its markup is punctuation for every analyzer. From HTML the text that a browser shows is kept; blocks, list items and options stand on lines of
their own. Left out are elements that a browser hides (scripts, templates, `noscript`, closed dialogs, the attribute `hidden`, `display: none` at
an element), and elements that surround the content: `nav` everywhere, `footer` outside of `main`, articles and sections, and on a page with
`main` also a `header` outside of these. A page without other text keeps `noscript` and the elements that surround the content.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from itertools import pairwise

import turbohtml
from turbohtml import TokenType
from turbohtml.detect import detect

from termweave.corpora.formats.lines import is_utf16

_BLANKS = re.compile(r"[ \t\r\n\f]+")
#: A declaration, and the bytes in which one that browsers find late is looked for.
_CHARSET = re.compile(rb"<meta\b[^>]{1,200}charset\s*=[^>]{1,100}>", re.IGNORECASE)
_DECLARED_WITHIN = 1 << 16
#: With less confidence, or with fewer bytes that tell it, an encoding of Latin letters is no better guess than windows-1252.
_SURE, _FEWEST = 0.6, 6
#: What is read otherwise than the tokenizer would: on a page without other text `noscript` holds markup, and in XHTML an element ends at
#: "/>", where HTML would take the rest of the page as its content.
_NOSCRIPT = re.compile(r"(</?)noscript\b", re.IGNORECASE)
_XHTML = "http://www.w3.org/1999/xhtml"
_EMPTY_RAW = re.compile(r"<(script|style|title|textarea|iframe)\b([^<>]*)/>", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")

_RULE = re.compile(r"([=\-~^\"'`#*+.:_<>])\1{2,}")
_ASCIIDOC_HEADING = re.compile(r"^={1,6}[ \t]+(\S.*)\n?", re.MULTILINE)

#: Elements that a browser does not show; those that are closed from the start; and an attribute that hides any.
_HIDDEN = frozenset(
    ["script", "style", "template", "head", "svg", "iframe", "noscript", "noframes", "audio", "video", "canvas", "datalist"]
)
_INVISIBLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
#: Elements without content, and those that may contain a header or footer of their own.
_VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"})
_PARTS = frozenset({"main", "article", "section", "aside", "blockquote", "td"})
_MAIN = re.compile(r"<main\b|\brole\s*=\s*[\"']?main\b", re.IGNORECASE)
#: What older pages call these elements.
_ROLES = {"navigation": "nav", "contentinfo": "footer", "banner": "header"}
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
#: Elements that stand on lines of their own.
_BLOCKS = _HEADINGS | frozenset(
    """
    address article aside blockquote body br caption center dd details dialog dir div dl dt fieldset figcaption figure footer form
    header hgroup hr html legend li main menu nav ol optgroup option p pre search section select summary table tbody
    tfoot thead tr ul
    """.split()  # noqa: SIM905 - reads better than forty quoted strings
)
_CELLS = frozenset({"td", "th", "button", "input"})
#: Start tag -> the open elements that it closes, if their end tag is missing and none of `_LISTS` lies between.
_BY_BLOCKS = frozenset({"p", "head", "svg"})
_CLOSES = {
    **dict.fromkeys(_BLOCKS, _BY_BLOCKS),
    **{each: _BY_BLOCKS | {each} for each in ("li", "tr", "option")},
    **dict.fromkeys(("dt", "dd"), _BY_BLOCKS | {"dt", "dd"}),
    **dict.fromkeys(("td", "th"), _BY_BLOCKS | {"td", "th"}),
    **dict.fromkeys(("tbody", "tfoot"), _BY_BLOCKS | {"thead", "tbody", "tr"}),
    "optgroup": _BY_BLOCKS | {"option", "optgroup"},
}
_LISTS = frozenset({"ul", "ol", "menu", "dir", "dl", "table", "select", "datalist"})
#: Open elements, counted from the innermost one, among which such elements are looked for: pages may nest them without end.
_NEAR = 16


def plain(text: str) -> tuple[str, str]:
    """Return title and text of plain text: "" and the whole text."""
    return "", text.strip()


def markdown(text: str) -> tuple[str, str]:
    """Return title and text of Markdown: the first heading outside code (``# Title``, or underlined with ``=``), and the text without this heading."""
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
    """Strip the blanks around a heading and its closing marks: `Title ##` becomes `Title`, but `C#` stays."""
    heading = heading.strip(" \t")
    bare = heading.rstrip("#")  # not with a pattern, which would need quadratic time for many blanks
    return bare.rstrip(" \t") if not bare or bare[-1] in " \t" else heading


def html(text: str) -> tuple[str, str]:
    """Return title and visible text of an HTML page.

    The page is read as tokens, not as a tree. Tokens take linear time for every page. A tree does not: libxml2 and lexbor need 20 s for
    1 MB of some nestings, and formatting elements that stay open are repeated in every paragraph.
    """
    title, content = _title_and_text(text, whole=False)
    return (title, content) if content else _title_and_text(_NOSCRIPT.sub(r"\1div", text), whole=True)


def _title_and_text(text: str, *, whole: bool) -> tuple[str, str]:
    """Return title and text of an HTML page; with `whole` the elements that surround the content are kept."""
    xhtml = _XHTML in text[:_DECLARED_WITHIN]
    page = _Page(() if whole else ("nav", "footer", "header") if _MAIN.search(text) else ("nav", "footer"), xhtml=xhtml)
    for token in turbohtml.tokenize(_EMPTY_RAW.sub(r"<\1\2></\1>", text) if xhtml else text):
        if token.type is TokenType.START_TAG:
            page.start(token.tag or "", dict(token.attrs or ()), empty=token.self_closing)
        elif token.type is TokenType.END_TAG:
            page.end(token.tag or "")
        elif token.type is TokenType.TEXT:
            page.data(token.data or "")
    return page.result()


def restructured(text: str) -> tuple[str, str]:
    """Return title and text of reStructuredText: the first line with an underline of punctuation (and perhaps an overline), and the rest."""
    lines = text.replace("\r\n", "\n").split("\n")
    for number, (line, below) in enumerate(pairwise(lines)):
        is_rule, rule = _RULE.fullmatch(line.rstrip()), _RULE.fullmatch(below.rstrip())
        if line.strip() and not is_rule and rule and len(rule[0]) >= len(line.strip()):
            over = number > 0 and _RULE.fullmatch(lines[number - 1].rstrip()) is not None
            return line.strip(), "\n".join([*lines[: number - over], *lines[number + 2 :]]).strip()
    return "", text.strip()


def asciidoc(text: str) -> tuple[str, str]:
    """Return title and text of AsciiDoc: the first heading (``= Title``), and the rest."""
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


def decoded(page: bytes) -> str:
    """Decode an HTML page in the encoding that browsers would take.

    The encoding is that of the byte order mark, else the declared one, with its name understood as on the web
    (https://encoding.spec.whatwg.org/#names-and-labels), else UTF-8, an encoding that the bytes suggest, or windows-1252. Bytes that the encoding
    does not have become U+FFFD.
    """
    if is_utf16(page[:4]) and b"\0" in page[:2]:
        return page.decode("utf-16-be" if page[0] == 0 else "utf-16-le", "replace")
    guess = detect(page)
    if guess.confidence < 1 and (late := _CHARSET.search(page[:_DECLARED_WITHIN])):
        guess = detect(late[0] + page)
    few = len(page) - len(page.translate(None, bytes(range(128, 256)))) < _FEWEST
    unsure = guess.codec is None or (guess.language is None and guess.confidence < (1 if few else _SURE))
    return page.decode("whatwg-windows-1252" if unsure else str(guess.codec)).removeprefix("\ufeff").replace("\0", "")


class _Page:
    """Collects the title and the visible text of a page."""

    def __init__(self, around: Collection[str], *, xhtml: bool) -> None:
        """Begin a page without open elements.

        Args:
            around: Tags of elements that surround the content and are left out.
            xhtml: Whether the page is XHTML, in which each element may end at "/>".
        """
        self._around, self._xhtml = around, xhtml
        self._pieces: list[str] = []
        self._title: list[str] = []
        #: The open elements, and whether each is hidden; how many there are of each tag: searching them at every end tag would take
        #: quadratic time; and the hidden ones.
        self._elements: list[tuple[str, bool]] = []
        self._open: Counter[str] = Counter()
        self._hidden: list[str] = []
        self._in_title = False
        #: Start and end of the first heading in `_pieces`.
        self._heading: list[int] = []

    def start(self, tag: str, attributes: dict[str, str | None], *, empty: bool) -> None:
        """Handle a start tag; `empty` says whether the tag ends with "/>"."""
        if tag == "title" and self._hidden in ([], ["head"]):
            self._in_title = True
            return
        if tag == "body":  # closes all elements that are still open
            self._close(0)
        elif tag in _CLOSES:
            self._close_missing(_CLOSES[tag])
        if tag in _BLOCKS:
            self._pieces.append("\n")
        elif tag in _CELLS:
            self._pieces.append(" ")
        if tag not in _VOID and not (empty and (self._xhtml or tag == "svg" or self._open["svg"])):
            hidden = self._hides(tag, attributes)
            self._elements.append((tag, hidden))
            self._open[tag] += 1
            if hidden:
                self._hidden.append(tag)
        if tag in _HEADINGS and not self._heading and not self._hidden:
            self._heading.append(len(self._pieces))

    def end(self, tag: str) -> None:
        """Handle an end tag; it closes all elements that are open inside the element."""
        if tag == "title":
            self._in_title = False
        if tag in _BLOCKS:
            if tag in _HEADINGS and len(self._heading) == 1:
                self._heading.append(len(self._pieces))
            self._pieces.append("\n")
        elif tag in _CELLS:
            self._pieces.append(" ")
        if self._open[tag]:
            while self._leave() != tag:
                pass

    def data(self, text: str) -> None:
        """Keep a text if it is visible."""
        if self._in_title:
            self._title.append(text)
        elif not self._hidden:
            self._pieces.append(_BLANKS.sub(" ", text))

    def _hides(self, tag: str, attributes: dict[str, str | None]) -> bool:
        """Whether an element is left out, because a browser does not show it or because it surrounds the content."""
        part = _ROLES.get(attributes.get("role") or "", tag)
        if part in self._around and (part == "nav" or not any(self._open[each] for each in _PARTS)):
            return True
        if tag in _HIDDEN or (tag == "dialog" and "open" not in attributes):
            return True
        if tag in {"html", "body"}:  # a script shows the page later
            return False
        hidden = attributes.get("hidden", "until-found") != "until-found"  # what browsers show to who searches the page
        return hidden or _INVISIBLE.search(attributes.get("style") or "") is not None

    def _close_missing(self, tags: frozenset[str]) -> None:
        """Close elements whose end tag is missing: the outermost with one of `tags`, up to the nearest list or table, and all elements inside it."""
        last = len(self._elements)
        for place in range(last - 1, max(-1, last - 1 - _NEAR), -1):
            tag = self._elements[place][0]
            if tag in _LISTS:
                break
            if tag in tags:
                last = place
        self._close(last)

    def _close(self, count: int) -> None:
        """Close all elements but the outermost `count`."""
        while len(self._elements) > count:
            self._leave()

    def _leave(self) -> str:
        """Close the innermost element and return its tag."""
        tag, hidden = self._elements.pop()
        self._open[tag] -= 1
        if hidden:
            self._hidden.pop()
        return tag

    def result(self) -> tuple[str, str]:
        """Return title and text, once the whole page was read."""
        title = _line("".join(self._title))
        if not title and len(self._heading) == 2:
            start, end = self._heading
            title = _line("".join(self._pieces[start:end]))
            del self._pieces[start:end]
        lines = ("".join(self._pieces)).split("\n")
        return title, "\n".join(filter(None, map(_line, lines)))


def _line(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()
