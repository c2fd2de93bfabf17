"""ir_datasets, with collections of our own in its registry: its readers are real, no collection of its catalogue is fetched."""

import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from termweave.corpora import open_dataset, open_source
from termweave.errors import InputError, UsageError

ir_datasets = pytest.importorskip("ir_datasets", reason="the extra 'ir' is not installed")


class Paper(NamedTuple):
    doc_id: str
    title: str
    abstract: str
    authors: tuple

    def default_text(self):
        return f"{self.title} {self.abstract}"


class Papers(ir_datasets.formats.BaseDocs):
    def __init__(self, papers):
        self.papers = papers

    def docs_iter(self):
        if isinstance(self.papers, Exception):
            raise self.papers
        return iter(self.papers)

    def docs_cls(self):
        return Paper


class Stances(ir_datasets.formats.BaseQrels):
    def qrels_iter(self):
        return iter([SimpleNamespace(query_id="q1", doc_id="d1", stance="pro")])

    def qrels_defs(self):
        return {}


DOCS = "d1\tone text\nd2\tanother, \u00e9\n"
QUERIES = "q1\tfirst\nq2\tsecond\nq3\tunjudged\n"


def test_fields_of_a_collection_of_its_own_kind(register):
    register("termweave-papers", docs=Papers([Paper("p", "Title", "The abstract.", ("A", "B"))]))
    (found,) = open_source("ir:termweave-papers").documents()
    assert (found.title, found.text) == ("Title", "The abstract.")
    assert found.metadata == {"abstract": "The abstract.", "authors": ["A", "B"]}
    (found,) = open_source("ir:termweave-papers", title_field="doc_id", id_field="title", text_fields=["abstract"]).documents()
    assert (found.id, found.title, found.text, dict(found.metadata)) == ("Title", "p", "The abstract.", {"authors": ["A", "B"]})


def test_half_a_surrogate_pair_is_named_or_left_out(register):
    register("termweave-bad", docs=Papers([Paper("p", "", "good", ()), Paper("q", "", "bad \ud800", ())]))
    with pytest.raises(InputError, match=r"ir:termweave-bad, record 2: a value is not valid JSON: .*surrogates"):
        list(open_source("ir:termweave-bad").documents())
    source = open_source("ir:termweave-bad", skip_bad=True)
    assert int(source.fingerprint, 16)
    assert [each.id for each in source.documents()] == ["p"]
    assert source.skipped.count == 1


def test_a_data_set_has_judgements_itself_or_below_it(register):
    docs = register("termweave-set", docs=DOCS)
    register("termweave-set/test", docs=docs, queries=QUERIES, qrels="q2 0 d1 2\nq1 0 d2 0\nq9 0 d1 1\n")
    register("termweave-set/trec-dl-2019", docs=docs, queries=QUERIES, qrels="q3 0 d1 1\n")
    for spec in ("ir:termweave-set", "ir:termweave-set:test", "ir:termweave-set/test"):
        dataset = open_dataset(spec)
        assert [(each.id, each.text) for each in dataset.queries()] == [("q1", "first"), ("q2", "second")]
        assert dataset.qrels() == {"q1": {"d2": 0}, "q2": {"d1": 2}}
        assert [each.id for each in dataset.documents()] == ["d1", "d2"]
        assert dataset.relevant_from == 1
        assert dataset.notes[0].startswith("1 judgement of termweave-set/test left out: on 1 query")
    assert open_dataset("ir:termweave-set").splits() == ["test", "trec-dl-2019"]
    assert open_dataset("ir:termweave-set:trec-dl-2019").relevant_from == 2
    with pytest.raises(UsageError, match=r"has no split 'dev'\. Its splits are: test, trec-dl-2019"):
        open_dataset("ir:termweave-set:dev")


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda: open_source("ir:no-such"), r"ir_datasets has no collection 'no-such'.*catalogue"),
        (lambda: open_dataset("ir:termweave-corpus"), r"has no split 'test'. It is a corpus, not a data set"),
        (lambda: open_source("ir:termweave-queries"), "ir:termweave-queries has no documents"),
        (lambda: open_dataset("ir:termweave-stances").qrels(), "judgements of termweave-stances are not grades"),
        (lambda: [*open_source("ir:termweave-away").documents()], "ir_datasets cannot read the docs of ir:termweave-away: no network"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_cannot_be_read_is_said(register, read, sentence):
    register("termweave-corpus", docs=DOCS)
    register("termweave-queries", queries=QUERIES)
    register("termweave-stances", docs=DOCS, queries=QUERIES, qrels=Stances())
    register("termweave-away", docs=Papers(ConnectionError("no network")))
    with pytest.raises((UsageError, InputError), match=sentence):
        read()


def test_without_ir_datasets_the_command_that_brings_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(UsageError, match=r"ir_datasets, which is not installed\. Run `pip install '.*\[ir\]'`"):
        open_source("ir:vaswani")
