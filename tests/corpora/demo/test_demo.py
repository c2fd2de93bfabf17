"""The demo corpus: what is in it, that making it changes nothing, and that its judgements can be met."""

import os
import subprocess
import sys
from collections import Counter
from importlib import resources

import pytest

from termweave.corpora import demo, open_dataset, open_source
from termweave.errors import UsageError


@pytest.fixture(scope="module")
def documents():
    return {each.id: each for each in open_source("demo").documents()}


@pytest.fixture(scope="module", params=["train", "test"])
def dataset(request):
    return open_dataset(f"demo:{request.param}")


def test_there_are_some_thousands_and_every_id_is_there_once(documents):
    source = open_source("demo")
    assert 7_000 < source.total == len(documents) < 9_000
    assert [each.id for each in source.documents()] == sorted(documents)
    assert source.skipped.count == 0


@pytest.mark.parametrize(
    ("name", "kind", "module"),
    [
        ("str.join", "method", "builtins"),
        ("open", "function", "builtins"),
        ("threading.Timer", "class", "threading"),
        ("json", "module", "json"),
        ("json.JSONDecodeError", "exception", "json"),
        ("os.path.join", "function", "os.path"),
        ("datetime.date.today", "method", "datetime"),
        ("pathlib.PurePath.suffix", "property", "pathlib"),
        ("random.choice", "function", "random"),
        ("secrets.choice", "function", "secrets"),
        ("array.array", "class", "array"),
        ("typing.Optional", "special form", "typing"),
        ("socket.socket.connect", "method", "socket"),
    ],
)
def test_names_are_those_of_the_documentation(documents, name, kind, module):
    found = documents[name]
    assert dict(found.metadata) == {"module": module, "kind": kind}
    assert found.text
    assert name in found.title


def test_titles_hold_the_name_its_words_and_the_parameters(documents):
    words, _, heading = documents["collections.OrderedDict.move_to_end"].title.partition(": ")
    assert words == "collections Ordered Dict move to end"
    assert heading == "collections.OrderedDict.move_to_end(key, last=True)"
    assert documents["json"].title == "json"


def test_an_alias_is_named_where_the_thing_is(documents):
    assert "IOError" not in documents
    assert "IOError" in documents["OSError"].text
    assert "random.Random.choice" not in documents


def test_no_module_that_acts_when_imported_is_met(documents):
    modules = {each.metadata["module"].partition(".")[0] for each in documents.values()}
    assert not modules & {"antigravity", "this", "idlelib", "turtle", "turtledemo", "tkinter", "test", "readline", "__main__"}
    assert not any("0x" in each.title for each in documents.values())


def test_making_it_is_silent_and_the_same_everywhere():
    code = """
import signal, sys, threading, warnings
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
filters = list(warnings.filters)
import logging, pdb
logging.basicConfig()
pdb.set_trace = print  # what a process does to its library is no documentation
from termweave.corpora import open_source
print(open_source("demo").fingerprint)
assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
assert warnings.filters == filters
assert threading.active_count() == 1
assert not {"tkinter", "turtle", "curses", "this", "antigravity"} & set(sys.modules)
"""
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment, check=False, cwd="/"
        )
        assert (done.returncode, done.stderr) == (0, "")
        found.add(done.stdout.strip())
    assert found == {open_source("demo").fingerprint}


def test_progress_ends_at_the_size():
    source, seen = open_source("demo"), []
    for _ in source.documents(seen.append):
        pass
    assert seen[-1] == source.size


def test_every_judged_entry_is_there(dataset, documents):
    judged = [line.split("\t")[1] for line in resources.files(demo).joinpath(f"{dataset.split}.tsv").read_text().splitlines()[1:]]
    lacking = {name for name in judged if name not in documents}
    absent = {name for name in lacking if name.partition(".")[0] not in sys.modules and not _importable(name.partition(".")[0])}
    if not sys.platform.startswith("win"):
        assert lacking == absent, "judged names that this Python has no entry for"
    assert bool(dataset.notes) == bool(lacking)


def _importable(module):
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def test_every_question_has_an_answer(dataset):
    qrels = dataset.qrels()
    assert {each.id for each in dataset.queries()} == set(qrels)
    assert all(2 in judged.values() for judged in qrels.values())
    assert {grade for judged in qrels.values() for grade in judged.values()} == {1, 2}


def test_questions_are_many_unlike_and_in_one_split_each():
    train, test = open_dataset("demo:train"), open_dataset("demo")
    assert (test.name, test.split, test.splits()) == ("demo", "test", ["test", "train"])
    assert not set(train.qrels()) & set(test.qrels())
    texts = Counter(" ".join(each.text.lower().split()) for each in train.queries() + test.queries())
    assert max(texts.values()) == 1
    assert len(texts) >= 150
    assert len(train.queries()) * 2 == pytest.approx(len(test.queries()), abs=3)
    shipped = resources.files(demo).joinpath("queries.jsonl").read_text(encoding="utf-8")
    assert len(shipped.splitlines()) == len(texts)


def test_questions_are_asked_all_over_the_library(documents):
    answers = {
        name for split in ("train", "test") for judged in open_dataset(f"demo:{split}").qrels().values() for name in judged
    }
    assert len({documents[name].metadata["module"].partition(".")[0] for name in answers if name in documents}) > 100


def test_an_unknown_split_is_refused():
    with pytest.raises(UsageError, match="There are: test, train"):
        open_dataset("demo:dev")
