"""What SOURCE and DATASET may be, standard input, pipes and the demo corpus included; documents that a program holds, in every form."""

import datetime as dt
import gc
import gzip
import io
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest

from termweave import plugins
from termweave.corpora import demo, open_dataset, open_documents, open_source
from termweave.corpora.formats import compression
from termweave.corpora.judgements import read_queries
from termweave.corpora.readers.beir import DemoCorpus
from termweave.corpora.readers.jsonl import JsonLines
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.records import Document
from tests.corpora.files import make

LINES = b'{"_id": "a", "text": "one"}\n{"_id": "b", "text": "two"}\n'


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("nowhere", "no file or folder 'nowhere'"),
        ("x" * 5000, "no file or folder"),
        ("nul\0byte", "no file or folder"),
        ("", "no file or folder ''.*A (source|data set) is "),
    ],
)
def test_what_is_not_there_is_said(spec, reason):
    for opens in (open_source, open_dataset):
        with pytest.raises(UsageError, match=reason) as caught:
            opens(spec)
        hint = "A source is one of: .*JSON lines" if opens is open_source else "A data set is a BEIR folder"
        assert re.match(hint, caught.value.hint)
        assert ("`book:NAME`" in caught.value.hint, "`ubi:FOLDER`" in caught.value.hint) == (opens is open_dataset,) * 2


def test_unknown_formats_and_folders(tmp_path):
    make(tmp_path, {"notes.md": "# Tea\n\nLet the water cool.\n", "tool.py": "import os\n"})
    (tmp_path / "empty").mkdir()
    alone = f"{tmp_path} --include"
    for opens, name, sentence, advice in (
        (open_source, "empty", r"without corpus\.jsonl and without text files \(\.txt.*\.rst", "--include '*.py'"),
        (open_source, "notes.md", r"notes\.md is a text", f"Name its folder; to read this file alone: {alone} 'notes.md'."),
        (open_source, "tool.py", "is not known", f"If it is a text, read it alone with: {alone} 'tool.py'."),
        (open_dataset, "tool.py", "is not known", "The columns of a table are separated by "),
    ):
        with pytest.raises(UsageError, match=sentence) as caught:
            opens(tmp_path / name)
        assert caught.value.hint.startswith(advice)
    for name in ("notes.md", "tool.py"):
        assert [each.id for each in open_source(tmp_path, include=[name]).documents()] == [name]


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_folder_that_may_not_be_read_is_said_to_be_that(mode):
    with pytest.raises(UsageError, match="no file or folder"):
        open_source("nowhere")  # readers are imported before this user is another one
    folder = Path(tempfile.mkdtemp(prefix="termweave-"))  # pytest's own folders are closed to others
    (folder / "locked" / "below").mkdir(parents=True)
    folder.chmod(0o755)
    user = os.geteuid()
    try:
        if user == 0:
            os.chown(folder / "locked", 65534, -1)
            os.seteuid(65534)
        (folder / "locked").chmod(mode)
        with pytest.raises(UsageError, match=r"This user may not read .*locked"):
            open_source(folder / "locked")
    finally:
        (folder / "locked").chmod(0o700)
        os.seteuid(user)
        shutil.rmtree(folder)


def test_splits_that_are_not_there(tmp_path):
    make(tmp_path, {"qrels/dev.tsv": "q\td\t1\n", **dict.fromkeys(("corpus.jsonl", "queries.jsonl", "a:b"), LINES)})
    corpus = tmp_path / "corpus.jsonl"
    assert open_source(tmp_path / "a:b").name == "a:b"  # a colon in a path is no split
    for opens, spec, sentence in (
        (open_dataset, f"{tmp_path}:", "has no split ''.*Its splits are: dev"),
        (open_dataset, "demo:", "has no split ''.*Its splits are: test, train"),
        (open_dataset, str(corpus), "corpus without queries"),
        (open_source, f"{corpus}:train", r"no splits: .* without 'train'"),
    ):
        with pytest.raises(UsageError, match=sentence):
            opens(spec)


def test_standard_input_is_read_twice(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES)))
    source = open_source("-")
    assert source.name == "stdin"
    assert [each.id for each in source.documents()] == [each.id for each in source.documents()] == ["a", "b"]
    assert list(tmp_path.glob("*/*"))
    del source
    gc.collect()
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (gzip.compress(LINES * 9, mtime=0)[:-12], "^Standard input is compressed, and damaged or cut short"),
        (LINES.decode().encode("utf-16"), "^Standard input is UTF-16"),
        (LINES + b"{", "^(stdin|standard input), line 3"),
    ],
)
def test_errors_in_standard_input_name_it(monkeypatch, given, says):
    for read in (lambda: list(open_source("-").documents()), lambda: read_queries("-")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises(InputError, match=says):
            read()
        gc.collect()
        assert not compression.copies


def test_what_standard_input_cannot_be(monkeypatch, tmp_path):
    with pytest.raises(UsageError, match="A data set cannot be standard input"):
        open_dataset("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="terminal or closed"):
        open_source("-")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x89PNG")))
    with pytest.raises(UsageError, match="format of stdin is not known"):
        open_source("-")
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this platform")
def test_a_pipe_is_read_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        threads.submit(pipe.write_bytes, LINES)
        source = open_source(pipe)
    assert source.name == "pipe"
    assert len(list(source.documents())) == len(list(source.documents())) == 2


def test_demo_is_a_name_and_demo_a_folder_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(make(tmp_path, {"demo/corpus.jsonl": LINES}))
    assert isinstance(open_source("demo"), DemoCorpus)
    assert open_source("./demo").name == "demo"
    assert len(list(open_source("./demo").documents())) == 2


def test_every_documented_name_is_a_document_and_every_question_has_an_answer():
    documents = {each.id: each for each in open_source("demo").documents()}
    assert len(documents) == 7505
    assert dict(documents["pathlib.PurePath.suffix"].metadata) == {"module": "pathlib", "kind": "property"}
    title = "collections Ordered Dict move to end: collections.OrderedDict.move_to_end(key, last=True)"
    assert documents["collections.OrderedDict.move_to_end"].title == title
    train, test = open_dataset("demo:train"), open_dataset("demo")
    assert (test.name, test.split, test.splits()) == ("demo", "test", ["test", "train"])
    assert not train.qrels().keys() & test.qrels().keys()
    qrels = train.qrels() | test.qrels()
    questions = train.queries() + test.queries()
    assert {each.id for each in questions} == qrels.keys()
    assert all(2 in judged.values() and set(judged.values()) <= {1, 2} for judged in qrels.values())
    assert {name for judged in qrels.values() for name in judged} <= documents.keys()
    assert len({" ".join(each.text.lower().split()) for each in questions}) == len(questions) >= 150
    assert len(resources.files(demo).joinpath("queries.jsonl").read_text(encoding="utf-8").splitlines()) == len(questions)


def test_a_reader_that_does_not_import_stands_in_nobodys_way(tmp_path, monkeypatch):
    load = plugins.load

    def broken(group, name):
        if name == "another":
            raise UsageError("The reader 'another' cannot be loaded: no module.")
        return load(group, name)

    monkeypatch.setattr(plugins, "names", lambda _: ("another", "beir", "jsonl"))
    monkeypatch.setattr(plugins, "load", broken)
    assert open_source(make(tmp_path, {"corpus.jsonl": LINES}) / "corpus.jsonl").name == "corpus.jsonl"
    with pytest.raises(UsageError, match="'another' cannot be loaded"):
        open_source("nowhere")


class Raising(JsonLines):
    """A reader of another package, with faults in it."""

    @classmethod
    def recognises(cls, spec):
        raise KeyError(spec)

    def entries(self, progress):
        yield next(super().entries(progress))
        raise KeyError("doc")


def test_a_reader_of_another_package_that_raises_or_breaks_off_is_named(tmp_path, monkeypatch):
    point = EntryPoint("another", f"{__name__}:Raising", "termweave.readers")
    monkeypatch.setattr(plugins, "installed", lambda: EntryPoints([point]))
    monkeypatch.setattr(plugins, "names", lambda _: ("another",))
    with pytest.raises(TermweaveError, match=f"The reader 'another' of another package, {point.value}, ended with KeyError"):
        open_source(tmp_path)
    (tmp_path / "corpus.jsonl").write_bytes(LINES)
    documents = Raising(tmp_path / "corpus.jsonl").documents()
    next(documents)
    with pytest.raises(TermweaveError, match=f"The reader of JSON lines of another package, {point.value}, ended with KeyError"):
        next(documents)


def test_what_is_neither_a_path_nor_a_name_is_said_to_be_none():
    for spec in (None, [{"_id": "a", "text": "b"}], b"demo"):
        for open_, what in ((open_source, "source"), (open_dataset, "data set")):
            with pytest.raises(UsageError, match=f"A {what} must be a path or a name, not {type(spec).__name__}"):
                open_(spec)
    with pytest.raises(UsageError, match="text_fields is a list of names, not the text 'body'"):
        open_source("demo", text_fields="body")


ROWS = [
    {"id": "a", "title": "One", "text": "first text", "year": 1999, "price": 1.5},
    {"id": "b", "title": "", "text": "second text", "year": 2001, "price": None},
]
RECORDS = [Document(row["id"], row["text"], row["title"], {name: row[name] for name in ("year", "price")}) for row in ROWS]


def contents(source):
    return [(document.id, document.title, document.text, dict(document.metadata)) for document in source.documents()]


FORMS = {
    "list": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "records": lambda: RECORDS,
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(ROWS),
    "polars": lambda: pytest.importorskip("polars").DataFrame(ROWS),
    "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pylist(ROWS),
    "datasets": lambda: pytest.importorskip("datasets").Dataset.from_list(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_documents_twice_from_a_temporary_file(form):
    source = open_documents(FORMS[form]())
    for _ in range(2):  # a build reads its source twice
        assert contents(source) == [(each.id, each.title, each.text, each.metadata) for each in RECORDS]
    assert source.fingerprint == open_documents(FORMS[form]()).fingerprint
    path = source.path
    assert path.is_file()
    del source
    assert not path.exists()


def test_values_that_json_does_not_have_become_what_a_table_s_values_become():
    pandas = pytest.importorskip("pandas")
    empty = {"missing": pandas.NA, "never": pandas.NaT, "nan": float("nan")}
    row = {"day": dt.date(2020, 1, 2), **empty, "array": np.arange(2), "nested": {"deep": (np.float32(0.5),)}}
    metadata = {"day": "2020-01-02", **dict.fromkeys(empty), "array": [0, 1], "nested": {"deep": [0.5]}}
    assert contents(open_documents([{"id": np.int64(7), "text": "x", **row}])) == [("7", "", "x", metadata)]


@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        ("corpus.jsonl", "open_source reads files"),
        ({"id": "a", "text": "x"}, "Put it into a list"),
        (7, "not int"),
        (["a text"], "Item 1 of documents has the type str"),
    ],
)
def test_what_is_no_collection_of_documents_is_refused(documents, sentence):
    with pytest.raises(UsageError) as refused:
        open_documents(documents)
    assert sentence in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"id": "b"}, "notes, item 2: neither a title nor a text"),
        ({"id": "b", "tags": [{"deep": object()}]}, "Item 2 of notes cannot be written as JSON: a value of the type object has no text"),
        ({"id": "b", "text": b"\xff"}, "Item 2 of notes"),
    ],
)  # fmt: skip
def test_a_bad_document_is_named_by_its_number(bad, sentence):
    good = {"id": "a", "text": "x"}
    with pytest.raises(InputError, match=sentence):
        contents(open_documents([good, bad], name="notes"))
    assert [id_ for id_, *_ in contents(open_documents([good, {"id": "b"}], skip_bad=True))] == ["a"]
