"""Where questions come from: judgements, clicks, the corpus alone."""

import json
import random

import pytest

from termweave.errors import InputError, UsageError
from termweave.records import Document
from termweave.training import run
from termweave.training.data import dataset, pseudo_queries
from termweave.training.methods import base
from tests.beir_folder import beir_folder

TEXT = "Granada fell in winter. " + " ".join(f"word{place}" for place in range(60)) + "."


def settings(reading=None, **given):
    return base.get("fectek").settings({"dev": 5, **given}, reading)


@pytest.fixture
def folder(tmp_path):
    documents = {f"d{n}": {"title": f"title number{n}", "text": TEXT.replace("word", f"w{n}x")} for n in range(40)}
    rows = [(f"q{n}", f"d{n % 40}", n % 3) for n in range(60)]
    return beir_folder(tmp_path / "set", documents, {f"q{n}": f"question {n}" for n in range(60)}, train=rows)


def answers_of(examples):
    """Question -> the documents that answer it, of the training and the held-out questions."""
    pairs = (examples.train, examples.dev)
    return {asked: known for each in pairs for asked, known in zip(each.questions, each.relevant, strict=True)}


def test_judgements(folder):
    found = dataset.read(str(folder), settings())
    assert found.origin == "qrels"
    asked = answers_of(found)
    assert len(asked) == 40  # a third has grade 0
    assert not set(found.train.questions) & set(found.dev.questions)
    for question, relevant in asked.items():
        assert [found.ids[place] for place in relevant] == [f"d{int(question.split()[1]) % 40}"]
    assert all(question == f"question {name[1:]}" for name, question in found.queries.items())
    assert set(found.queries.values()) == asked.keys()
    (folder / "qrels" / "dev.tsv").write_text("q0\td7\t1\nq1\td8\t1\n")
    with_dev = dataset.read(str(folder), settings())
    assert (with_dev.dev.questions, len(with_dev.train)) == (["question 0", "question 1"], 40)


def test_judged_documents_that_the_corpus_lacks_are_counted(folder):
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    (folder / "corpus.jsonl").write_text("\n".join(lines[:39]))
    assert dataset.read(str(folder), settings()).remark == ""  # d39 is judged with grade 0 alone
    (folder / "corpus.jsonl").write_text("\n".join(lines[2:]))
    found = dataset.read(str(folder), settings())
    assert found.remark == "the corpus lacks 2 of the 33 relevant documents of 'train'"
    (folder / "corpus.jsonl").write_text('{"_id": "other", "text": "An old dump."}\n')
    with pytest.raises(InputError, match=r"too few\. The corpus lacks 33 of the 33 relevant documents of 'train'\."):
        dataset.read(str(folder), settings())


@pytest.mark.parametrize(
    ("judged", "spec"),
    [
        ("", "ir:termweave-judged"),
        ("/train", "ir:termweave-judged"),
        ("/train", "ir:termweave-judged/train"),
        ("/test", "ir:termweave-judged:test"),
    ],
)
def test_judgements_of_ir_datasets(folder, register, judged, spec):
    """A collection's own, or those of NAME/train."""
    lines = [json.loads(line) for name in ("corpus", "queries") for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    texts, asked = ("".join(f"{line['_id']}\t{line['text']}\n" for line in part) for part in (lines[:40], lines[40:]))
    grades = "".join(f"q{number} 0 d{number % 40} {number % 3}\n" for number in range(60))
    if judged:
        register("termweave-judged", docs=texts)
    register(f"termweave-judged{judged}", docs=texts, queries=asked, qrels=grades)
    found = dataset.read(spec, settings())
    assert (found.origin, len(found.train) + len(found.dev), len(found.ids)) == ("qrels", 40, 40)
    assert found.texts[min(found.train.relevant[0])] == lines[int(found.train.questions[0].split()[1]) % 40]["text"]


def test_a_test_split_is_trained_on_where_it_is_named_and_nowhere_else(folder):
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "test.tsv")
    assert dataset.read(str(folder), settings()).origin == "corpus"
    assert dataset.read(f"{folder}:test", settings()).origin == "qrels"
    with pytest.raises(UsageError, match=r"has no split 'train'\. Its splits are: test"):
        dataset.read(str(folder), settings(pairs="qrels"))


def test_what_cannot_be_a_path_is_no_data_set(tmp_path):
    for spec in ("nul\0byte", f"{'x' * 5000}:train"):
        with pytest.raises(UsageError, match="There is no"):
            run.train(base.get("fectek"), spec, settings(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_clicks_are_drawn_by_their_logarithm(folder, tmp_path):
    log = tmp_path / "clicks.tsv"
    clicks = [f"asked {n}\td{n}\t{99 if n == 3 else 1}" for n in range(30)]
    log.write_text("\n".join(["query\tdocument\tcount", *clicks, "asked 3\td4\t1", "gone\tnowhere\t5"]))
    found = dataset.read(str(folder), settings(clicks=str(log), seed=1))
    assert found.origin == "clicks"
    assert answers_of(found)["asked 3"] == {3, 4}
    assert found.train.shares.sum() == pytest.approx(1.0)
    share = dict(zip(found.train.questions, found.train.shares, strict=True))
    assert share["asked 3"] / min(share.values()) == pytest.approx(6.6582, abs=1e-3)  # log 101 / log 2


def test_a_log_as_logs_are(folder, tmp_path):
    """Lines that repeat or are no clicks, unknown documents, counts of nothing; blanks are no difference."""
    log, place = tmp_path / "clicks.tsv", {f"d{n}": n for n in range(40)}
    more = ["3\td3\t4\r", "  3\u200b\td3\t2.0", "3\td5\t0", "3\td6\t-2", "3\tgone\t9"]
    log.write_text("\n".join([*(f"asked {n}\td{n}" for n in range(20)), *(f"asked {row}" for row in more), "\td7\t9", "{broken"]))
    found = dataset.clicks_of(log, place)
    assert found.counts["asked 3"] == {3: 7.0}
    assert (len(found.counts), found.unknown, found.empty) == (20, 1, 3)
    assert found.remark == dataset.read(str(folder), settings(clicks=str(log))).remark
    assert "1 line about a document that the corpus lacks and 3 lines without a query or without a click left out" in found.remark
    assert "1 line of clicks.tsv left out: not a click, such as line 27 ('{broken')." in found.remark
    log.write_text("\n".join([*["asked\td1\t1e308"] * 3, "other\td2\t1"]))  # counts of any size are shares
    shares = dataset.clicks_of(log, place).pairs().shares
    assert shares.sum() == pytest.approx(1)
    assert shares[0] > shares[1] > 0


def test_the_corpus_alone(folder):
    found = dataset.read(str(folder / "corpus.jsonl"), settings(views="title,sentence"))
    assert found.origin == "corpus"
    assert len(found.train) + len(found.dev) == 80
    for question, relevant in zip(found.train.questions, found.train.relevant, strict=True):
        (place,) = relevant
        assert question not in found.texts[place]
        number = found.ids[place].partition("#")[0][1:]
        assert f"w{number}x" in found.texts[place]
    assert len(found.corpus) == 40  # statistics are those of whole documents


def test_views_of_a_document_are_no_wrong_answers_to_each_others_questions(tmp_path):
    """A title and a first sentence each leave a text that holds the other; sections are apart."""
    section = "## Heading {0} of {1}\n\n" + "alpha{0} beta{1} gamma delta epsilon zeta eta theta iota."
    texts = ["\n\n".join([TEXT.replace("word", f"w{n}x"), *(section.format(each, n) for each in range(3))]) for n in range(12)]
    lines = [{"_id": f"d{n}", "title": f"title number{n}", "text": text} for n, text in enumerate(texts)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = dataset.read(str(tmp_path / "corpus.jsonl"), settings(views="title,sentence,heading"))
    assert sorted(found.ids) == sorted(f"d{n}#{view}" for n in range(12) for view in range(5))
    for pairs in (found.train, found.dev):
        for question, (place,), spared in zip(pairs.questions, pairs.relevant, pairs.spared, strict=True):
            document, _, view = found.ids[place].partition("#")
            others = set("01234") - {view} if view in "01" else set("01")  # 2, 3 and 4 are the sections
            assert {found.ids[each] for each in spared} == {f"{document}#{each}" for each in others}
            verbatim = {each for each, text in enumerate(found.texts) if f"{question} " in f"{' '.join(text.split())} "}
            assert view == "0" or verbatim & spared
            assert place not in verbatim


def test_terms_that_were_added_are_trained_on(folder):
    lines = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    added = [{**line, "expansion": [f"added{number}"]} for number, line in enumerate(lines)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, added)))
    for spec in (str(folder), str(folder / "corpus.jsonl")):
        found = dataset.read(spec, settings(views="title"))
        assert {text.split()[-1] for text in found.texts} == {f"added{number}" for number in range(40)}
        assert {text.split()[-1] for text in found.corpus} == {f"added{number}" for number in range(40)}


def test_every_view():
    alpha, beta, gamma = (f"{word} " * 12 for word in ("alpha", "beta", "gamma"))
    text = f"# Keys\n\n{alpha}\n\nUnderlined\n===\n{beta}\n\nShort line\n\n{gamma}"
    document, views = Document("a", text, "A fine title"), pseudo_queries.VIEWS
    made = {view: list(pseudo_queries.questions_of(document, (view,), random.Random(0))) for view in views}
    assert made["title"][0][0] == "A fine title"
    assert [question for question, _ in made["heading"]] == ["Short line"]  # one word is no question
    assert made["heading"][0][1].split() == ["gamma"] * 12
    question, rest = made["span"][0]
    assert 2 <= len(question.split()) <= 12
    assert sorted([*question.split(), *rest.split()]) == sorted(document.text.split())
    chinese = Document("b", "北京是中国的首都。" + "这座城市有三千多年的历史和很多名胜古迹。" * 3)
    assert next(iter(pseudo_queries.questions_of(chinese, ("sentence",), random.Random(0))))[0] == "北京是中国的首都。"
    assert list(pseudo_queries.questions_of(Document("c", ""), views, random.Random(0))) == []


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"pairs": "clicks"}, UsageError, "needs a click log"),
        ({"clicks": "/no/such/log"}, UsageError, "cannot be opened"),
        ({"clicks": "{nothing}"}, InputError, "0 lines name an unknown document, 2 have no query or a count"),
        ({"pairs": "corpus", "views": "heading"}, InputError, "too few"),
    ],
)
def test_mistakes(folder, tmp_path, given, error, said):
    (tmp_path / "nothing.tsv").write_text("asked\td3\t0\nasked\td4\t-2\n")
    values = {name: value.format(nothing=tmp_path / "nothing.tsv") for name, value in given.items()}
    with pytest.raises(error, match=said):
        dataset.read(str(folder), settings(**values))


def test_an_id_stands_for_one_document_and_a_broken_line_is_named_or_left_out(folder):
    corpus = folder / "corpus.jsonl"
    lines = corpus.read_text().splitlines()
    corpus.write_text("\n".join([*lines, lines[3]]))
    found = dataset.read(str(folder), settings())
    assert len(found.ids) == 40
    assert found.remark == "1 document left out, because an earlier document has the same id"
    corpus.write_text("\n".join([*lines, json.dumps({"_id": "d3", "text": "Something else altogether."})]))
    with pytest.raises(InputError, match=r"two documents 'd3' that say different things \(line 4 and line 41\)"):
        dataset.read(str(folder), settings())
    skipped = dataset.read(str(folder), settings({"skip_bad": True}))
    assert skipped.texts[skipped.ids.index("d3")].startswith("title number3")
    corpus.write_text("\n".join([*lines, '{"_id": "d99", "text": ']))
    with pytest.raises(InputError, match="line 41") as refused:
        dataset.read(str(folder), settings())
    assert "--skip-bad" in refused.value.hint
    assert dataset.read(str(folder), settings({"skip_bad": True})).remark == "1 entry that cannot be read left out"


def test_a_table_of_other_columns_is_read_as_the_settings_name_them(tmp_path):
    rows = [f"A-{n}.3/4;Screw number{n};made of steel number{n};for wood and walls" for n in range(40)]
    (tmp_path / "products.csv").write_text("\n".join(["sku;name;about;use", *rows]))
    (tmp_path / "log.tsv").write_text("".join(f"steel screw {n}\tA-{n}.3/4\t2\n" for n in range(40)))
    columns = {"id_field": "sku", "title_field": "name", "text_fields": ("about", "use")}
    found = dataset.read(str(tmp_path / "products.csv"), settings(columns, clicks=str(tmp_path / "log.tsv")))
    assert found.texts[found.ids.index("A-3.3/4")] == "Screw number3. made of steel number3\nfor wood and walls"
    assert "id = 'sku'; title = 'name'; text = 'about' + 'use'" in found.remark
