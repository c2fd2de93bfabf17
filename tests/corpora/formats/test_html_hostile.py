"""Pages that are made to cost time: reading them takes time that grows with their length and not faster."""

import time

import pytest

from termweave.corpora.formats import markup

#: Each of these, repeated, is quadratic for at least one of: the standard library's parser, libxml2, lexbor, resiliparse.
REPEATED = [
    "<meta charset=", "<!--", "<![CDATA[", "<!", "<?", "<", "<a ", "<a b='", "<a =", "</", "</a ", "</script ", "&#", "&a", "<div>", "<b></p>", "<table><b>",
    "<svg>", "<script>", "<title>", "<textarea>", "<h1>", "]]><![CDATA[", "--><!--", "<noscript>", "<script ",
]  # fmt: skip
SIZE = 500_000
PAGES = {
    **{piece: piece * (SIZE // len(piece)) for piece in REPEATED},
    "distinct": "<a " + " ".join(f"a{number}=1" for number in range(SIZE // 9)) + ">",
    "unclosed value": f'<a title="{"=" * SIZE}',
    "blanks": f"<a{' ' * SIZE}b",
    "other end tags": "<svg>" * (SIZE // 12) + "</head>" * (SIZE // 12),
    "end tags": "<svg>" * (SIZE // 12) + "<template>" * 3 + "</svg>" * (SIZE // 12),
    "open formatting": "".join(f"<p><b a={number}>" for number in range(SIZE // 15)),
    "XHTML": "http://www.w3.org/1999/xhtml" + "<title " * (SIZE // 7),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_takes_linear_time(name):
    """Half a megabyte takes about half a second; an input that is quadratic takes minutes."""
    began = time.process_time()
    markup.html(PAGES[name])
    assert time.process_time() - began < 8
