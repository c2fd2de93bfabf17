"""The demo corpus: what is in it, and that its judgements can be met."""

from importlib import resources

from termweave.corpora import demo, open_dataset, open_source


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
