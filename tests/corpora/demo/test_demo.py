"""The demo corpus: what is in it, and that its judgements can be met."""

from collections import Counter
from importlib import resources

import pytest

from termweave.corpora import demo, open_dataset, open_source


@pytest.fixture(scope="module")
def documents():
    return {each.id: each for each in open_source("demo").documents()}


@pytest.fixture(scope="module", params=["train", "test"])
def dataset(request):
    return open_dataset(f"demo:{request.param}")


def test_every_documented_name_is_a_document(documents):
    assert len(documents) == 7505
    assert open_source("demo").name == "demo"
    assert dict(documents["pathlib.PurePath.suffix"].metadata) == {"module": "pathlib", "kind": "property"}
    words, _, heading = documents["collections.OrderedDict.move_to_end"].title.partition(": ")
    assert (words, heading) == ("collections Ordered Dict move to end", "collections.OrderedDict.move_to_end(key, last=True)")


def test_every_question_has_an_answer(dataset, documents):
    qrels = dataset.qrels()
    assert {each.id for each in dataset.queries()} == set(qrels)
    assert all(2 in judged.values() for judged in qrels.values())
    assert {grade for judged in qrels.values() for grade in judged.values()} == {1, 2}
    assert {name for judged in qrels.values() for name in judged} <= documents.keys()


def test_questions_are_many_unlike_from_all_over_the_library_and_in_one_split_each(documents):
    train, test = open_dataset("demo:train"), open_dataset("demo")
    assert (test.name, test.split, test.splits()) == ("demo", "test", ["test", "train"])
    assert not set(train.qrels()) & set(test.qrels())
    texts = Counter(" ".join(each.text.lower().split()) for each in train.queries() + test.queries())
    assert max(texts.values()) == 1
    assert len(texts) >= 150
    assert len(train.queries()) * 2 == pytest.approx(len(test.queries()), abs=3)
    shipped = resources.files(demo).joinpath("queries.jsonl").read_text(encoding="utf-8")
    assert len(shipped.splitlines()) == len(texts)
    answers = {name for qrels in (train.qrels(), test.qrels()) for judged in qrels.values() for name in judged}
    assert len({documents[name].metadata["module"].partition(".")[0] for name in answers}) > 100
