"""Damaged input of every kind ends in documents that can be stored, in entries left out, or in a sentence.

The inputs are well-formed files whose bytes are cut, repeated, nested, swapped and overwritten. `demo` has no input: it is shipped.
"""

import gzip
import importlib.util
import io
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from termweave.catalog.layout import source_digest
from termweave.corpora import open_dataset, open_source
from termweave.corpora.formats.compression import zstd_module
from termweave.corpora.formats.fields import MAX_DEPTH
from termweave.errors import InputError, TermweaveError
from tests.corpora.files import make

_LINES = (
    b'{"_id": "a", "title": "One", "text": "first", "metadata": {"year": 1999, "tags": ["x", "y"]}}\n'
    b'{"_id": "b", "text": "caf\\u00e9 \\ud83d\\ude00", "price": 1.5e3, "none": null}\n'
)
_QUERIES = b'{"_id": "q1", "text": "first"}\n{"_id": "q2", "text": "second"}\n'
_QRELS = b"q\td\ts\nq1\ta\t1\nq2\tb\t0\n"
_PAGE = (
    b"<!DOCTYPE html><html><head><meta charset='utf-8'><title>A &amp; B</title></head><body><h1 class=x>Head</h1>"
    b"<p>one<!-- no --><script>if (a < b) {}</script>&#65;<svg><path/></svg><table><tr><td>c</table></body></html>"
)
#: File name -> content, for each reader. If the name has a slash, the folder is opened.
SEEDS: dict[str, dict[str, bytes]] = {
    "jsonl": {"corpus.jsonl": _LINES},
    "packed": {"corpus.jsonl.gz": gzip.compress(_LINES, mtime=0)},
    "csv": {"table.csv": b'id,title,text,year\n1,One,"first, ""quoted""\nline",1999\n2,Two,second,2000\n'},
    "tsv": {"table.tsv": b"id\ttext\n1\tfirst\n2\tsecond\n"},
    "html": {"site/page.html": _PAGE},
    "markdown": {"site/page.md": b"# Title #\n\n```sh\n# code\n```\nbody\n"},
    "rst": {"site/page.rst": b"=====\nTitle\n=====\n\nbody ``code``\n\nSection\n-------\n.. note:: text\n"},
    "asciidoc": {"site/page.adoc": b"= Title\nAuthor <a@b.example>\n:toc:\n\n== Section\n----\ncode\n----\n"},
    "text": {"site/page.txt": b"First line\n\nfirst, caf\xc3\xa9\n"},
    "beir": {"beir/corpus.jsonl": _LINES, "beir/queries.jsonl": _QUERIES, "beir/qrels/test.tsv": _QRELS},
}


def _parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"id": ["a", "b"], "title": ["One", None], "text": ["first", "café"], "year": [1999, None], "tags": [["x"], []]}
    content = io.BytesIO()
    parquet.write_table(pa.table(columns), content)
    return content.getvalue()


SEEDS["zstandard"] = {"corpus.jsonl.zst": zstd_module().compress(_LINES)}
if importlib.util.find_spec("pyarrow"):
    SEEDS["parquet"] = {"table.parquet": _parquet()}
if importlib.util.find_spec("ir_datasets"):
    SEEDS["ir"] = {"ir/docs.tsv": b"a\tfirst\nb\tsecond\n", "ir/queries.tsv": b"q1\tfirst\nq2\tsecond\n"}
    SEEDS["ir"]["ir/qrels"] = b"q1 0 a 1\nq2 0 b 0\n"
_PIECES = (
    *(b"\0", b"\n", b"\r", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\t", b"<", b">", b"&#", b"<!--", b"<![CDATA[", b"</"),
    *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\\ud800", b"NaN", b"1e999", b"-0", b"9" * 40, b"9" * 5000, b"null"),
    *(b'{"a":' * 300, b"[" * 300, b'{"_id":"d","text":"t","m":' + b"[" * 900 + b"]" * 900 + b"}\n", b'{"_id":' + b"[" * 900 + b"]" * 900),
    *(b"1970-01-01", b"\xe2\x80\xae", b"\x1b[31m", b'"metadata":', b"sep=^\n", b"<title>", b"<svg>"),
)  # fmt: skip


def mutated(content: bytes, dice: random.Random) -> bytes:
    """Return the content with one to four random changes."""
    data = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        begin = dice.randrange(len(data) + 1)
        end = min(len(data), begin + dice.randint(0, 30))
        change = dice.randrange(6)
        if change == 0:
            data[begin:begin] = dice.choice(_PIECES)
        elif change == 1:
            del data[begin:end]
        elif change == 2:
            data[begin:end] = data[begin:end] * dice.randint(2, 20)
        elif change == 3:
            data[begin:end] = dice.randbytes(end - begin)
        elif change == 4:
            del data[begin:]
        else:
            data[begin:end] = dice.choice(_PIECES)
    return bytes(data)


def ended(files: dict[str, bytes], folder: Path, *, skip_bad: bool) -> str:
    """Write the files, and read them as a corpus and, where there are queries, as a data set.

    Returns:
        "documents" where all was read, "skipped" where entries were left out, "refused" where the reader raised a sentence.
    """
    first = next(iter(files))
    spec: Path | str = make(folder, files) / first.partition("/")[0]
    if first.startswith("ir/"):
        spec = _registered(folder / "ir")
    try:
        source = open_source(spec, skip_bad=skip_bad)
        for document in source.documents():
            source_digest(document)  # encodes the whole document, as a build does
        if len(files) > 1:
            dataset = open_dataset(spec)
            dataset.queries(), dataset.qrels()
    except TermweaveError as error:
        if not error.message.strip().endswith("."):
            raise AssertionError(f"no sentence: {error.message!r}") from error
        return "refused"
    return "skipped" if source.skipped else "documents"


def _registered(folder: Path) -> str:
    """Put the files of a folder into the catalogue of ir_datasets, instead of those of the call before; returns their spec."""
    import ir_datasets

    formats = ir_datasets.formats
    docs, queries, qrels = (ir_datasets.util.LocalDownload(folder / name) for name in ("docs.tsv", "queries.tsv", "qrels"))
    parts = formats.TsvDocs(docs), formats.TsvQueries(queries), formats.TrecQrels(qrels, {})
    ir_datasets.registry._registered.pop("fuzzed", None)
    ir_datasets.registry.register("fuzzed", ir_datasets.Dataset(*parts))
    return "ir:fuzzed"


EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))  # for each reader


@pytest.mark.parametrize("kind", SEEDS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.integers(0, 2**32) | st.binary(max_size=200), skip_bad=st.booleans())
def test_a_damaged_file_and_one_of_any_bytes(tmp_path, kind, damage, skip_bad):
    victim, content = next(iter(SEEDS[kind])), damage
    if isinstance(damage, int):
        dice = random.Random(damage)
        victim = dice.choice(list(SEEDS[kind]))
        content = mutated(SEEDS[kind][victim], dice)
    assert ended({**SEEDS[kind], victim: content}, tmp_path / kind, skip_bad=skip_bad) in {"documents", "skipped", "refused"}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("where", ["m", "metadata", "id", "title"])
def test_an_entry_nested_900_deep_is_refused_by_its_line(tmp_path, opening, where):
    closing = "]" if opening == "[" else "}"
    deep = opening * 900 + "1" + closing * 900
    path = tmp_path / "corpus.jsonl"
    own = "" if where == "id" else '"id": "b", '
    path.write_text(f'{{"id": "a", "text": "x"}}\n{{{own}"{where}": {deep}, "text": "y"}}\n')
    with pytest.raises(InputError, match=r"line 2: .*nested"):
        list(open_source(path).documents())
    assert [each.id for each in open_source(path, skip_bad=True).documents()] == ["a"]


def test_metadata_of_the_allowed_depth_can_be_stored(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(f'{{"id": "a", "text": "x", "m": {"[" * MAX_DEPTH}1{"]" * MAX_DEPTH}}}')
    (document,) = open_source(path).documents()
    assert source_digest(document)
