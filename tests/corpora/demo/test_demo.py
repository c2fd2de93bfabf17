"""The demo corpus: what is in it, and that its judgements can be met."""

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
    assert len(documents) == 7505
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


def test_every_judged_entry_is_there(dataset, documents):
    assert {name for judged in dataset.qrels().values() for name in judged} <= set(documents)


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
