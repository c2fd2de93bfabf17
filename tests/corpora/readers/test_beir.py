"""BEIR folders: corpora, queries and judgements."""

import gzip
import re

import pytest

from termweave.corpora import open_dataset, open_source
from termweave.corpora.formats import compression
from termweave.errors import InputError, UsageError
from tests.corpora.files import make

CORPUS = '{"_id": "d1", "title": "", "text": "one"}\n{"_id": "d2", "text": "two"}\n{"_id": "d 3", "text": "three"}\n'
QUERIES = '{"_id": "q2", "text": "second"}\n{"_id": "q1", "text": "first"}\n{"_id": "q3", "text": "unjudged"}\n'
TEST = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td 3\t1\n"
#: Ending of packed files -> what packs them.
PACKINGS = {"": bytes, ".gz": gzip.compress, ".zst": compression.zstd_module().compress}


def whole(folder, *, ending="", **more):
    files = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": TEST, **more}
    return make(folder, {f"{name}{ending}": PACKINGS[ending](content.encode()) for name, content in files.items()})


def test_a_corpus_that_is_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = whole(tmp_path / "set")
    (folder / "corpus.jsonl").rename(folder / "whole.jsonl")
    (folder / "corpus.jsonl").symlink_to("whole.jsonl")
    assert [each.id for each in open_source(folder).documents()] == ["d1", "d2", "d 3"]
    (folder / "whole.jsonl").rename(tmp_path / "private.jsonl")
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl").symlink_to("../private.jsonl")
    with pytest.raises(UsageError, match=r"corpus\.jsonl is a link to a file outside its folder: .*private\.jsonl.*follow_links"):
        open_source(folder)
    assert [each.id for each in open_source(folder, follow_links=True).documents()] == ["d1", "d2", "d 3"]


@pytest.mark.parametrize("ending", PACKINGS)
def test_a_data_set(tmp_path, ending):
    dataset = open_dataset(whole(tmp_path / "set", ending=ending))
    assert (dataset.name, dataset.split, dataset.splits(), dataset.relevant_from) == ("set", "test", ["test"], 1)
    assert [each.id for each in dataset.documents()] == ["d1", "d2", "d 3"]
    assert dataset.total == 3
    assert [(each.id, each.text) for each in dataset.queries()] == [("q2", "second"), ("q1", "first")]
    assert dataset.qrels() == {"q1": {"d1": 2, "d2": 0}, "q2": {"d 3": 1}}
    assert dataset.notes == []


@pytest.mark.parametrize(
    "table",
    [
        "q1\td1\t2\nq2\td2\t1\n",
        "q1\t0\td1\t2\r\nq2\t0\td2\t1\r\n",
        "q1 0 d1 2\nq2 Q0 d2 1\n",
        "query\tdocument\tgrade (0-3)\nq1\td1\t2\nq2\td2\t1\n",
        "query,docid,rating\nq1,d1,2\nq2,d2,1\n",
        'query,docid,rating\r\nfirst,d1,2.0\r\n"second",d2,1\r\n',  # Quepid writes the words of queries
        'docid,qid,query,title,rating,note\nd1,q1,x,"a, b",2,\nd2,q2,y,c,1,n\nd3,q2,y,c,,n\n',
        "q1,d1,2\nq2,d2,1\n",
    ],
)
def test_the_columns_judgements_may_have(tmp_path, table):
    assert open_dataset(whole(tmp_path, **{"qrels/test.tsv": table})).qrels() == {"q1": {"d1": 2}, "q2": {"d2": 1}}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (QUERIES + '{"_id": "q4"}', r"queries\.jsonl, line 4: a query without text"),
        (QUERIES + '{"text": "x"}', r"queries\.jsonl, line 4: a query without id"),
        (QUERIES + '{"_id": "q1", "text": "other"}', r"queries\.jsonl, line 4: the query 'q1' is in the file twice"),
        (TEST + "q1\td2\n", "line 5: 2 columns where the first judgement has 3"),
        (TEST + "q1\td2\thigh\n", "line 5: the grade 'high' is not a number"),
        ("q1\td1\tnan\nq2\td2\tnan\n", "line 2: the grade 'nan'"),
        (TEST + "q1\td1\t1624290000\n", "line 5: the grade '1624290000' is larger than 1,000,000"),
        ("q1 d1 1\nq2 d 2 1\n", "line 2: 4 columns where the first judgement has 3"),
        (TEST + "q1\td1\t1\n", "line 5: the document 'd1' is judged twice for the query 'q1', with different grades"),
    ],
)
def test_bad_queries_and_judgements_are_named(tmp_path, content, reason):
    name = "queries.jsonl" if content.startswith(QUERIES) else "qrels/test.tsv"
    with pytest.raises(InputError, match=reason) as raised:
        open_dataset(whole(tmp_path, **{name: content})).qrels()
    assert "skip" not in raised.value.hint


@pytest.mark.parametrize(
    ("table", "qrels", "said"),
    [
        ("q1\td1\t0.7\nq1\td2\t1.0\nq2\td2\t0\n", {"q1": {"d1": 70, "d2": 100}, "q2": {"d2": 0}}, "0.7 as 70"),
        ("query,docid,rating\nq1,d1,2.5\nq2,d2,1\n", {"q1": {"d1": 250}, "q2": {"d2": 100}}, "2.5 as 250"),
    ],
)
def test_grades_with_fractions_count_in_hundredths_and_that_is_said(tmp_path, table, qrels, said):
    dataset = open_dataset(whole(tmp_path / "trec-dl-2019", **{"qrels/test.tsv": table}))
    assert (dataset.qrels(), dataset.relevant_from) == (qrels, 1)
    assert f"have fractions and count in hundredths, {said}" in dataset.notes[0]


@pytest.mark.parametrize(
    ("table", "note"),
    [
        (TEST + "q9\td1\t1\nq9\td2\t1\nq8\td2\t1\n", r"3 judgements of .* left out: on 2 queries that"),
        ("query,docid,rating\nq1,d1,2\nq1,d2,0\nq2,d 3,1\nq2,d1,\n", r"1 line of "),  # no grade: not judged
    ],
)
def test_judgements_that_count_nothing_are_left_out_and_counted(tmp_path, table, note):
    dataset = open_dataset(whole(tmp_path, **{"qrels/test.tsv": table}))
    assert dataset.qrels() == {"q1": {"d1": 2, "d2": 0}, "q2": {"d 3": 1}}
    (said,) = dataset.notes
    assert re.match(note, said)


def test_splits_what_a_folder_without_them_is_and_from_which_grade_on_a_document_is_relevant(tmp_path):
    folder = whole(tmp_path / "set", **{"qrels/train.tsv": "q3\td1\t1\n", "qrels/notes.txt": "nothing"})
    assert open_dataset(folder).splits() == ["test", "train"]
    assert [each.id for each in open_dataset(f"{folder}:train").queries()] == ["q3"]
    with pytest.raises(UsageError, match=r"has no split 'dev'\. Its splits are: test, train"):
        open_dataset(f"{folder}:dev")
    alone = make(tmp_path / "alone", {"corpus.jsonl": CORPUS})
    assert len(list(open_source(alone).documents())) == 3
    assert open_source(alone).fingerprint == open_source(tmp_path / "alone" / "corpus.jsonl").fingerprint
    with pytest.raises(UsageError, match=r"contains no queries\.jsonl"):
        open_dataset(alone)
    with pytest.raises(UsageError, match=r"has no split 'test'\. Put judgements"):
        open_dataset(make(alone, {"queries.jsonl": QUERIES}))
    for name, split, grade in (("trec-dl-2019", "test", 2), ("x", "dl20", 2), ("handle", "test", 1)):
        folder = whole(tmp_path / name, **{f"qrels/{split}.tsv": TEST})
        assert open_dataset(f"{folder}:{split}").relevant_from == grade
