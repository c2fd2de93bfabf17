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
    "attributes": "<a " + "b=c " * (SIZE // 4),
    "distinct": "<a " + " ".join(f"a{number}=1" for number in range(SIZE // 9)) + ">",
    "value": f"<a title='{'x' * SIZE}'>",
    "unclosed value": f'<a title="{"=" * SIZE}',
    "name": f"<{'a' * SIZE}",
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


def test_a_character_reference_of_any_length_is_a_character():
    """Python refuses to read a number of more than 4,300 digits."""
    assert markup.html(f"a&#{'9' * 5000};b&#{'0' * 5000}67;d") == ("", "a\ufffdbCd")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a<b title='>'>b</b >c", "abc"),
        ("a<b title=x>y'>b", "ay'>b"),
        ("a<b =x'>b", "ab"),
        ("a<!-->b<!--->c<!-- - --!>d", "abcd"),
        ("a<!-- the rest is a comment <p>", "a"),
        ("a<p title='the rest is a tag", "a"),
        ("a</>b</ >c</", "abc</"),
        ("a<![CDATA[ > ]]>b<![CDATA[ > c", "a ]]>b c"),
        ("<SCRIPT>'</scripture>'</Script >a", "a"),
        ("<iframe><p>no</iframe>a<xmp><b></xmp>", "a<b>"),
        ("<textarea><b>&amp;</textarea>c", "<b>&c"),
        ("<script src=x />a", ""),
        ("<html xmlns='http://www.w3.org/1999/xhtml'><title/><script src='x' />a<textarea/><b>b</b>", "ab"),
        ("<noscript>a <b>b</b></noscript>c", "c"),
        ("<noscript>a <b>b</b></noscript>", "a b"),
        ("a<style>the rest is a style", "a"),
    ],
)
def test_tokens_end_where_a_browser_ends_them(page, text):
    assert markup.html(page) == ("", text)


def test_a_title_that_nobody_closes_takes_the_rest_of_the_page_as_in_a_browser():
    assert markup.html("<title>Page<body><p>one") == ("Page<body><p>one", "")
