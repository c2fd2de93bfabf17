"""Questions are read from every form that people have, and split without leaks."""

import itertools
import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from termweave.corpora.index import ubi_indices
from termweave.errors import InputError, UsageError
from termweave.evaluation.book.store import INDEX, JudgementBook
from termweave.learning import questions
from termweave.learning.questions import HELD_OUT, TEST, TRAIN, JudgedQuestions, groups
from termweave.records import Query
from tests.beir_folder import beir_folder
from tests.indexer.conftest import write_lines

DOCUMENTS = {f"d{number}" for number in range(50)}


@pytest.fixture
def folder(tmp_path):
    """A BEIR folder with a split to train and one to test."""
    queries, rows = {f"q{n}": f"question about thing{n}" for n in range(80)}, [(f"q{n}", f"d{n % 50}") for n in range(80)]
    return beir_folder(tmp_path, {f"d{n}": f"text {n}" for n in range(50)}, queries, train=rows[:60], test=rows[60:])


def test_a_folder_gives_its_split_train_and_another_only_where_it_is_named(folder):
    assert len(questions.read(str(folder), DOCUMENTS).queries) == 60
    (folder / "qrels" / "train.tsv").unlink()
    with pytest.raises(UsageError, match="has no split 'train'") as refused:
        questions.read(str(folder), DOCUMENTS)
    assert f"{folder}:test" in refused.value.hint
    assert {query.id for query in questions.read(f"{folder}:test", DOCUMENTS).queries} == {f"q{n}" for n in range(60, 80)}


@pytest.fixture
def book(opensearch_engine, name, monkeypatch):
    """The book of an index, on a server whose log of user behaviour is that of this test alone."""
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    monkeypatch.setattr(ubi_indices, "QUERIES", f"{name}-queries")
    monkeypatch.setattr(ubi_indices, "EVENTS", f"{name}-events")
    yield JudgementBook(opensearch_engine, name)
    body = {"query": {"term": {"book": name}}}
    opensearch_engine.request("POST", f"/{INDEX}/_delete_by_query", params={"refresh": True}, body=body)


def test_a_book_is_read_whole_whether_it_is_named_or_not(opensearch_engine, name, book):
    asked = [Query(f"q{number}", f"question about thing{number}") for number in range(12)]
    book.import_qrels("file", asked, {query.id: {"d1": 1} for query in asked})
    named, own = questions.read(f"book:{name}", DOCUMENTS), questions.read_any(opensearch_engine, name, None, DOCUMENTS)
    assert len(named.queries) == len(asked)
    assert (named.name, named.hash) == (own.name, own.hash)


def test_questions_with_ids_that_judgements_cannot_hold_are_left_out_and_named(tmp_path):
    log, odd = tmp_path / "clicks.jsonl", ("d 1", "d\t2", "d\n3")
    write_lines(log, [{"query": f"open {each!r}", "document": each} for each in odd])
    read = questions.read(str(log), set(odd))
    assert [list(grades) for grades in read.qrels.values()] == [["d 1"]]  # a blank inside does no harm
    assert "2 questions left out: the id of the question or of a judged document holds a tab" in " ".join(read.notes)
    with pytest.raises(InputError, match=r"3 questions of .* has an answer in the index\. 2 questions left out: the id"):
        questions.read(str(log), set(odd[1:]))
    log = tmp_path / "clicks.tsv"
    log.write_text("query\tdocument\tcount\nhow to pay\td1\t3\nhow to pay\td2\t1\nwhere is it\td9\t0\nopen hours\tgone\t5\n")
    read = questions.read(str(log), DOCUMENTS)
    assert {query.text: read.qrels[query.id] for query in read.queries} == {"how to pay": {"d1": 1, "d2": 1}}
    assert "1 question left out: without text, or without an answer in the index" in " ".join(read.notes)


def test_a_book_without_a_good_grade_does_not_hide_the_log(opensearch_engine, name, book):
    book.import_qrels("file", [Query("q", "not answered")], {"q": {"d1": 0}})
    with pytest.raises(InputError, match=f"Not one of the 1 question of book:{name}:test has an answer"):
        questions.read_any(opensearch_engine, name, None, DOCUMENTS)
    search = {"query_id": "s", "user_query": "how to pay", "query_response_hit_ids": ["d1", "d2"]}
    click = {"query_id": "s", "action_name": "click", "event_attributes": {"object": {"object_id": "d2"}}}
    for log, record in (("queries", search), ("events", click)):
        opensearch_engine.request("PUT", f"/{name}-{log}/_doc/1", params={"refresh": True}, body=record)
    read = questions.read_any(opensearch_engine, name, None, DOCUMENTS)
    assert [query.text for query in read.queries] == ["how to pay"]


def judged(texts):
    queries = tuple(Query(f"q{number}", text) for number, text in enumerate(texts))
    return JudgedQuestions("some", queries, {query.id: {"d": 1} for query in queries})


def things(count):
    return [f"question about thing{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("count", "trained", "sizes"),
    [
        (questions.FEWEST - 1, 0, (0, 16, 23)),  # few questions choose and confirm, and do not train
        (30, 5, (0, 10, 15)),  # likewise where a model has learned from some of them
        (10_000, 0, (9_200, 300, 500)),  # most questions train
    ],
)
def test_sizes_of_the_parts(count, trained, sizes):
    texts = things(count)
    parts = questions.split(judged(texts), dict.fromkeys(texts[:trained], TRAIN)).parts
    assert tuple(len(parts[part]) for part in (TRAIN, HELD_OUT, TEST)) == sizes
    assert not {f"q{number}" for number in range(trained)} & {query for ids in parts.values() for query in ids}


def test_so_few_that_no_gain_could_be_proved_are_refused():
    with pytest.raises(InputError, match=f"learning needs at least {questions.FEWEST_TO_PROVE}"):
        questions.split(judged(things(questions.FEWEST_TO_PROVE - 1)))

    def split(confirm):
        parts = [TEST if number < confirm else HELD_OUT if number < 30 else TRAIN for number in range(60)]
        return questions.split(judged(things(60)), dict(zip(things(60), parts, strict=True)))

    assert len(split(6).parts[TEST]) == 6
    with pytest.raises(InputError, match=r"25 can choose a search \(2 needed\) and 5 can confirm it \(6 needed\)"):
        split(5)


@pytest.mark.parametrize(
    ("needed", "sizes", "more"), [(100, (120, 30, 50), 200), (40, (0, 16, 23), 121), (501, (120, 30, 50), 0)]
)
def test_a_gain_that_the_largest_test_part_cannot_show_needs_no_more_questions(needed, sizes, more):
    """From 40 questions on a quarter confirms."""
    assert questions.more_to_confirm(needed, dict(zip((TRAIN, HELD_OUT, TEST), sizes, strict=True))) == more


def test_contradictory_judgements_are_left_out_and_named(folder):
    texts = ["the same question", "the same question", *(f"other {n}" for n in range(2, 80))]
    write_lines(folder / "queries.jsonl", [{"_id": f"q{n}", "text": text} for n, text in enumerate(texts)])
    rows = "q0\td1\t1\nq1\td1\t0\nq1\td2\t1\n" + "".join(f"q{n}\td3\t1\n" for n in range(2, 60))
    (folder / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    read = questions.read(str(folder), DOCUMENTS)
    assert "1 question left out: judged several times, and differently." in read.notes
    assert {query.text for query in read.queries} == {f"other {n}" for n in range(2, 60)}


def test_no_near_duplicate_is_in_two_parts():
    texts = [f"{'please ' * (number % 2)}tell me about subject{number // 2} and its history" for number in range(400)]
    split = questions.split(judged(texts))
    part_of = {query: part for part, ids in split.parts.items() for query in ids}
    assert all(part_of[f"q{number}"] == part_of[f"q{number + 1}"] for number in range(0, 400, 2))
    assert split.near_duplicates == len(part_of) == 400


def test_the_split_is_the_same_every_time_and_another_with_other_questions():
    asked = judged(things(100))
    assert questions.split(asked).parts == questions.split(asked).parts
    assert asked.hash != judged(things(101)).hash
    turned = replace(asked, queries=asked.queries[::-1], qrels=dict(reversed(asked.qrels.items())))
    assert (turned.hash, questions.split(turned)) == (asked.hash, questions.split(asked))


def test_questions_keep_the_part_that_they_had(folder):
    """What models have learned from never confirms a later one, and what is alike to it does not either."""
    texts = [f"tell me about subject{number} and its history" for number in range(100)]
    first = questions.split(judged(texts))
    part_of = {texts[int(query[1:])]: part for part, ids in first.parts.items() for query in ids}
    more = [*texts, *(f"please {text}" for text in texts), *(f"thing{n}" for n in range(100))]
    asked = judged(more)
    later = questions.split(asked, part_of)
    now = {more[int(query[1:])]: part for part, ids in later.parts.items() for query in ids}
    assert {text: now[text] for text in texts} == part_of
    assert all(now[f"please {text}"] == part for text, part in part_of.items())
    assert set(now) == set(more)


def test_a_new_question_that_is_alike_to_several_parts_is_left_out():
    words = [f"word{number}" for number in range(20)]
    one, other, between = " ".join(words[:16]), " ".join(words[4:]), " ".join(words[2:18])
    asked = judged([one, other, between, *(f"thing{number} is what" for number in range(60))])
    split = questions.split(asked, {one: TRAIN, other: TEST})
    assert [part for query in ("q0", "q1", "q2") for part, ids in split.parts.items() if query in ids] == [TRAIN, TEST]


def test_joined_questions_have_the_judgements_of_the_first_and_ids_of_their_own():
    one, other = judged(["same question", "only here"]), judged(["another with the same id", "same question"])
    both = questions.joined((one, other))
    assert [query.text for query in both.queries] == ["same question", "only here", "another with the same id"]
    two = (Query("q0~1", "numbered"), Query("q0", "not numbered"))
    every = questions.joined((judged(["first"]), JudgedQuestions("some", two, {"q0~1": {"d": 1}, "q0": {"d": 2}})))
    assert {query.text: every.qrels[query.id]["d"] for query in every.queries} == {"first": 1, "numbered": 1, "not numbered": 2}


# -- Near duplicates


@pytest.mark.parametrize(
    ("one", "other"),
    [("naïve café opening hours", "Cafe naive, OPENING hours"), ("如何修改密码？", "如何修改密码"), ("???", "???")],
)
def test_spellings_of_a_question_are_one_group(one, other):
    others = [f"something else about subject{number} entirely" for number in range(20)]
    assert groups([one, *others, other])[-1] == 0


def test_questions_of_one_form_about_different_things_are_apart():
    """ "What are the symptoms of X" has five common words and one that matters."""
    assert groups([f"what are the symptoms of disease{number}" for number in range(200)]) == list(range(200))


def test_groups_are_those_of_comparing_all_pairs():
    """Prefix filtering leaves no pair out."""
    generator = random.Random(1)
    vocabulary = [f"w{number}" for number in range(40)]
    asked = [" ".join(generator.sample(vocabulary, generator.randint(1, 8))) for _ in range(300)]
    sets = [set(question.split()) for question in asked]
    frequency = Counter(word for words in sets for word in words)

    def weighed(words):
        return sum(math.log(1 + len(sets) / frequency[word]) for word in words)

    number = groups(asked)
    alike = [
        (one, other)
        for one, other in itertools.combinations(range(300), 2)
        if weighed(sets[one] & sets[other]) >= questions.ALIKE * weighed(sets[one] | sets[other]) + 1e-9
    ]
    assert len(alike) > 20
    assert all(number[one] == number[other] for one, other in alike)


def test_a_chain_of_near_duplicates_is_one_group_named_by_its_first():
    words = [f"word{number}" for number in range(30)]
    chain = [" ".join(words[start : start + 20]) for start in range(4)]
    assert groups(["unrelated question", *chain]) == [0, 1, 1, 1, 1]
