"""Folders of text: what is a document, what its title is, what of a page is its text, and which files are refused."""

import gzip
import os
import shutil
import sys
import time

import pytest

from termweave.cli import run
from termweave.corpora import open_dataset, open_source
from termweave.corpora.formats import compression, lines, markup
from termweave.corpora.readers import text_folder
from termweave.errors import InputError, UsageError
from tests.corpora.files import make


def test_a_folder_of_all_kinds(tmp_path):
    packed = {"a.md.gz": gzip.compress(b"packed"), "b.txt.zst": compression.zstd_module().compress(b"packed, too")}
    below = {"sub/page.HTML": "<title>Page</title><p>one<p>two", "sub/notes.md": "# Notes\n\nbody\n"}
    ignored = {"picture.png": b"\x89PNG", "data.csv": "id,text\n", "no_ending": "x", ".git/config.txt": "x", ".hidden.md": "x"}
    folder = make(tmp_path / "site", {"z.txt": "plain\ntext\n", "empty.txt": "", **packed, **below, **ignored})
    source, seen = open_source(folder), []
    found = [(each.id, each.title, each.text, each.line) for each in source.documents(seen.append)]
    assert found == [
        ("a.md.gz", "", "packed", 1),
        ("b.txt.zst", "", "packed, too", 1),
        ("empty.txt", "", "", 1),
        ("z.txt", "", "plain\ntext", 1),
        ("sub/notes.md", "Notes", "body", 1),
        ("sub/page.HTML", "Page", "one\ntwo", 1),
    ]
    assert (source.name, source.total, seen[-1]) == ("site", 6, source.size)
    mapping, remark = source.remarks
    assert "each text file is a document (3 .txt, 2 .md, 1 .html); id = its path; title = its heading or <title>." in mapping
    assert "3 files are of other types and ignored" in remark
    assert "1 .png" in remark
    assert remark.endswith("--include '*.py' reads texts of any type.")
    with pytest.raises(UsageError, match="corpus without queries"):
        open_dataset(folder)
    with pytest.raises(UsageError, match=r"cannot be used with a folder of \.txt, \.md, .*or \.xlsx files"):
        open_source(folder, text_fields=["body"])


def test_what_changes_the_fingerprint(tmp_path):
    folder = make(tmp_path, {"a.txt": "one", "b.txt": "two"})
    before = open_source(folder).fingerprint
    assert open_source(make(folder, {"picture.png": "x"})).fingerprint == before
    (folder / "b.txt").rename(folder / "c.txt")
    assert open_source(folder).fingerprint != before


def test_a_folder_with_a_corpus_is_that_corpus_and_one_of_beir_folders_names_them(tmp_path):
    folder = make(tmp_path / "one", {"README.md": "# about", "corpus.jsonl": '{"_id": "a", "text": "x"}\n'})
    assert [each.id for each in open_source(folder).documents()] == ["a"]
    folder = make(tmp_path, {"README.md": "# about", "two/corpus.jsonl.gz": "", "notes/a.txt": "x"})
    with pytest.raises(UsageError, match="one/, two/ in it are BEIR folders") as caught:
        open_source(folder)
    assert caught.value.hint == f"Name one: {folder / 'one'}"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# Title\nbody", ("Title", "body")),
        ("before\n\n## Title ##\r\nbody\r\n", ("Title", "before\n\nbody")),
        ("Title\n=====\nbody", ("Title", "body")),
        ("```sh\n# comment\n```\n# Title", ("Title", "```sh\n# comment\n```")),
        ("~~~\n```\n# code\n~~~\ntext", ("", "~~~\n```\n# code\n~~~\ntext")),
        ("#\n# Title", ("Title", "#")),
        ("# C#\n# Title", ("C#", "# Title")),
        ("### ###\n#\tA # b \t##\t", ("A # b", "### ###")),
        ("---\nlayout: post\n---\n# Title", ("Title", "---\nlayout: post\n---")),
        ("", ("", "")),
    ],
)
def test_markdown(content, expected):
    assert markup.markdown(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<html><head><title>A &amp; B</title></head><body>x</body></html>", ("A & B", "x")),
        ("<h2>First</h2><h1>Second</h1>rest", ("First", "Second\nrest")),
        ("<title>T</title><h1>Head</h1>x", ("T", "Head\nx")),
        ("<title> \n </title><h1>Head</h1>x", ("Head", "x")),
        ("<p>a<script>if (a < b) document.write('<p>no</p>')</script>b<style>p{}</style>c", ("", "abc")),
        ("<p>a <b>bo</b>ld</p>  \n  <p>next&nbsp;one", ("", "a bold\nnext\xa0one")),
        ("<ul><li>one<li>two</ul><table><tr><td>a<td>b<tr><td>c</table>", ("", "one\ntwo\na b\nc")),
        ("<svg><title>icon</title><text>no</text></svg>yes", ("", "yes")),
        ("<svg>no<p>a browser ends it here</p>", ("", "a browser ends it here")),
        ("<head><meta charset=utf-8><p>the head was not closed", ("", "the head was not closed")),
        ("<body><template><p>no</p></template><iframe>no</iframe><noscript>yes</noscript>", ("", "yes")),
        ("a<!-- no <p> --><![CDATA[no]]>b<?php no ?>c", ("", "abc")),
        ("&#xD800;&#0;&bogus;&lt;p&gt;", ("", "\ufffd\ufffd&bogus;<p>")),
        ("", ("", "")),
        ("<select><option>red<option>green</select><button>buy</button><button>try</button>", ("", "red\ngreen\nbuy try")),
        ("<dl><dt>a<dd>b</dl><table><tr><th>c</th><td>d</td></tr></table>e", ("", "a\nb\nc d\ne")),
        ("<p hidden>no<p>yes", ("", "yes")),
        ("<div hidden><div>no</div>no</div>yes", ("", "yes")),
        ("<ul><li hidden>no<li>one</ul><ul><li hidden>no</ul>yes", ("", "one\nyes")),
        ("<table><tr><td hidden>no<td>one<tr hidden><td>no</table>yes", ("", "one\nyes")),
        ("<p>a<span style='color: red; DISPLAY:none'>no</span><span style='display: inline'>b</span>", ("", "ab")),
        ("<p hidden='until-found'>yes<dialog>no</dialog><dialog open>open</dialog>", ("", "yes\nopen")),
        ("<h1 hidden>no</h1><h1>Head</h1>x<br hidden>y<img hidden>z", ("Head", "x\nyz")),
        ("<nav><a>Home</a></nav><header><h1>Head</h1><p>Ada</header><p>text<footer>Imprint</footer>", ("Head", "Ada\ntext")),
        ("<header>Shop</header><main><header>Ada</header>text<footer>Note</footer></main>", ("", "Ada\ntext\nNote")),
        ("<div role=navigation>Home</div><div role=main>text</div><div role=contentinfo>Imprint</div>", ("", "text")),
        ("<title>Map</title><nav><a>Home</a></nav><footer>Imprint</footer>", ("Map", "Home\nImprint")),
        ("<body style='visibility: hidden'><p>a script shows it</body>", ("", "a script shows it")),
        ("<textarea><b>&amp;</textarea>c", ("", "<b>&c")),
        ("<html xmlns='http://www.w3.org/1999/xhtml'><title/><script src='x' />a<textarea/><b>b</b>", ("", "ab")),
        ("<noscript>a <b>b</b></noscript>c", ("", "c")),
        ("<noscript>a <b>b</b></noscript>", ("", "a b")),
        ("<title>Page<body><p>one", ("Page<body><p>one", "")),
    ],
)
def test_html(content, expected):
    assert markup.html(content) == expected


CZECH = "Most přes řeku bude v březnu po dlouhé opravě znovu otevřen pro všechna vozidla."


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<meta charset=utf-8>Größe".encode(), "Größe"),
        ("<meta charset='ISO-8859-1'>Größe – €".encode("cp1252"), "Größe – €"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">日本'.encode("shift_jis"), "日本"),
        ("\ufeff<meta charset=latin1>Größe".encode(), "Größe"),
        ("<meta charset=no-such>Größe".encode(), "Größe"),
        (b"<!--" + b"x" * 5000 + "--><meta charset=koi8-r>мост".encode("koi8-r"), "мост"),
        ("<p>Café “5 £”".encode("cp1252"), "Café “5 £”"),
        (f"<p>{CZECH}".encode("cp1250"), CZECH),
        ("<p>Мост через реку откроют в марте.".encode("cp1251"), "Мост через реку откроют в марте."),
        ("<p>Größe".encode("utf-16"), "Größe"),
        ("<p>Größe".encode("utf-16-be"), "Größe"),
        (b"<meta charset=utf-8>caf\xe9 a\0b", "caf\ufffd ab"),
        (b"<meta charset=iso-2022-kr>a", "\ufffd"),
    ],
)
def test_the_encoding_a_page_declares(content, expected):
    assert markup.html(markup.decoded(content)) == ("", expected)


LINKS = pytest.mark.skipif(not hasattr(os, "symlink") or sys.platform == "win32", reason="no links on this platform")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has file names that are no text")
def test_a_name_that_is_not_utf8(tmp_path):
    make(tmp_path, {"good.txt": "x"})
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_bytes(b"x")
    source = open_source(tmp_path, skip_bad=True)
    assert int(source.fingerprint, 16)
    assert [each.id for each in source.documents()] == ["good.txt"]
    with pytest.raises(InputError, match=r"bad\?\.txt: its name is not UTF-8"):
        list(open_source(tmp_path).documents())


@LINKS
def test_links_to_folders_do_not_lead_in_circles(tmp_path):
    make(tmp_path, {"sub/a.txt": "x"})
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "b.txt").symlink_to(tmp_path / "sub" / "a.txt")
    assert [each.id for each in open_source(tmp_path).documents()] == ["b.txt", "sub/a.txt"]


@LINKS
def test_links_out_of_the_folder_are_named_and_not_read(tmp_path):
    make(tmp_path, {"private/secret.txt": "the password", "docs/a.txt": "open", "docs/b/c.txt": "open, too"})
    (tmp_path / "docs" / "b" / "secret.txt").symlink_to("../../private/secret.txt")
    (tmp_path / "docs" / "hop.txt").symlink_to("b/secret.txt")
    (tmp_path / "docs" / "inside.txt").symlink_to("b/c.txt")
    (tmp_path / "way").symlink_to("docs")  # the folder itself may be a link: the user named it
    for folder in (tmp_path / "docs", tmp_path / "way"):
        source = open_source(folder)
        assert [each.id for each in source.documents()] == ["a.txt", "inside.txt", "b/c.txt"]
        assert "2 texts are links to files outside the folder and ignored (hop.txt, b/secret.txt)" in source.remarks[1]
        followed = open_source(folder, follow_links=True)
        assert [each.id for each in followed.documents()] == ["a.txt", "hop.txt", "inside.txt", "b/c.txt", "b/secret.txt"]
        assert source.fingerprint != followed.fingerprint
        assert source.size < followed.size
        assert len(followed.remarks) == 1
    with pytest.raises(UsageError, match=r"(?s)links to files outside this folder.*follow_links"):
        open_source(tmp_path / "docs", include=["*secret*"])
    with pytest.raises(UsageError, match="for links in a folder"):
        open_source(tmp_path / "private" / "secret.txt", follow_links=True)


def test_what_is_deleted_while_the_folder_is_read_is_left_out(tmp_path, monkeypatch):
    make(tmp_path, {f"d{a}/t{b}.txt": "some text" for a in (1, 2, 3) for b in (1, 2)})
    source, read = open_source(tmp_path), text_folder._document

    def deleting(path, id_, extractor):
        if id_ == "d1/t1.txt":
            shutil.rmtree(tmp_path / "d2")
        if id_ == "d3/t2.txt":
            path.unlink()  # after it was listed
        return read(path, id_, extractor)

    monkeypatch.setattr(text_folder, "_document", deleting)
    assert [each.id for each in source.documents()] == ["d1/t1.txt", "d1/t2.txt", "d3/t1.txt"]
    monkeypatch.setattr(lines, "hidden", lambda path: str(path).endswith("d1"))  # a folder whose files may not be opened
    with pytest.raises(InputError, match="d1 cannot be listed: Permission denied"):
        list(source.documents())
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="cannot be listed"):
        list(source.documents())


@pytest.mark.parametrize("line", ["# a{}b", "# {}", "{}# a", "# a{}#{}b"])
@pytest.mark.parametrize("run", [" ", "\t", "#", "# ", "=", "`", "~"])
def test_a_long_run_in_a_line_of_markdown_is_read_once(line, run):
    """Two hundred thousand characters: a pattern that goes back over them takes hours, and the test never ends."""
    content = line.replace("{}", run * 200_000)
    title, text = markup.markdown(content)
    assert content.endswith(text) or text == content.strip()
    assert title in content


def test_the_shared_pages_are_read_as_browsers_read_them(shared):
    if not (folder := shared / "cases" / "html").is_dir():
        pytest.skip("the cases stand beside the project and are not here")
    texts = {each.id: each.text for each in open_source(folder).documents()}
    words = "interface Flipboard alpha beta gamma delta one two left right term meaning inline italic syllable red green press"
    assert texts.pop("glue.html").split() == words.split(" ")
    assert texts == {
        "cn-gb2312.html": "镕基与喆",
        "jp-shift-jis.html": "日本語の髙橋さん①",
        "jp-windows31j.html": "日本語の髙橋さん①",
        "latin1-quotes.html": "“Smart” quotes – and €5",
        "none-1252.html": "Café “quotes”",
        "tr-8859-9.html": "Işık ağaç “tırnak”",
        "utf8-label.html": "naïve café",
    }


def test_restructured_text_asciidoc_and_files_of_any_type_that_patterns_name(tmp_path, capsys):
    def read(**options):
        return {each.id: (each.title, each.text) for each in open_source(folder, **options).documents()}

    guide = "=====\nGuide\n=====\n\nHow to begin.\n\nNext\n----\n\nMore.\n"
    programs = {"src/pump.py": "def pump():\n    return 'water'\n", "src/pump.c": "int pump(void);\n"}
    folder = make(tmp_path / "docs", {"guide.rst": guide, "notes.adoc": "= Notes\n\nWhat we noted.\n", **programs})
    assert read() == {"guide.rst": ("Guide", "How to begin.\n\nNext\n----\n\nMore."), "notes.adoc": ("Notes", "What we noted.")}
    assert markup.restructured("Only a text.\nTwo lines.") == ("", "Only a text.\nTwo lines.")
    assert read(include=["*.py"]) == {"src/pump.py": ("", "def pump():\n    return 'water'")}
    assert set(read(include=["src/*", "*.rst"])) == {"src/pump.py", "src/pump.c", "guide.rst"}
    assert len({open_source(folder, include=include).fingerprint for include in ((), ["*.py"], ["*.c"])}) == 3
    assert "not included and ignored (1 .rst, 1 .adoc, 1 .c)" in open_source(folder, include=["*.py"]).remarks[1]
    with pytest.raises(UsageError, match=r"No file in .* matches \*\.java"):
        open_source(folder, include=["*.java"])
    for source in (folder / "guide.rst", "opensearch:docs", "-"):
        with pytest.raises(UsageError, match=f"names files in a folder, and {source} is not a folder"):
            open_source(source, include=["*.rst"])
    assert run(["index", str(folder), "x", "--include", "*.java", "--url", "http://127.0.0.1:9"]) in {2, 5}


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
