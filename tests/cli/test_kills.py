"""`kill -9` after each write of `promote` and `tune`, and while a judge grades: nothing is lost, half done or different afterwards."""

import os
import signal
import subprocess
import sys

import pytest

from termweave.catalog.generations import live
from termweave.evaluation.book.store import BookGrade, BookQuery, JudgementBook
from termweave.search import Index, profiles
from tests.indexer.builds import check, numbered
from tests.ui.conftest import lexical, remove_book

from .conftest import beir

pytestmark = pytest.mark.nightly
#: `termweave`, killed when so many requests have been carried out that write.
KILLED = """
import os, signal, sys
from termweave.engine.client.connection import Engine
left, once = int(sys.argv.pop(1)), Engine.request

def request(self, method, path, **options):
    global left
    writes = method != "GET" and not path.endswith(("search", "_mget", "_refresh", "_validate/query", "_analyze"))
    if writes and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= writes
    return once(self, method, path, **options)

Engine.request = request
from termweave.cli import main
main()
"""
#: Grades one document after the other, and says which grades were taken.
GRADES = """
import sys
from termweave import engine, settings
from termweave.evaluation.book.store import BookGrade, JudgementBook
book = JudgementBook(engine.connect(settings.load()), sys.argv[1])
for number in range(10_000):
    book.set_grade(BookGrade("ann", "q1", f"d{number % 500}", number % 4))
    print(number, flush=True)
"""


@pytest.fixture
def killed(opensearch_engine):
    """A function that runs a command, killed after some writes; returns whether it came to its end."""

    def call(writes, *arguments):
        environment = {**os.environ, "TERMWEAVE_URL": opensearch_engine.url}
        line = [sys.executable, "-c", KILLED, str(writes), *arguments]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        return done.returncode == 0

    return call


def test_promote(opensearch_engine, name, tmp_path, killed, termweave):
    first, second = (lexical(opensearch_engine, name, tmp_path, *numbered(count)) for count in (20, 30))
    writes = 0
    while not killed(writes, "promote", name, first):
        assert live(opensearch_engine, name) in {first, second}
        for index in (first, second):  # it is promoted in the end, whatever was done before
            termweave("promote", name, index)
            assert live(opensearch_engine, name) == index
            assert check(opensearch_engine, name).ok
        writes += 1
    assert writes >= 2  # the alias and the audit trail
    assert live(opensearch_engine, name) == first


def test_tune(opensearch_engine, name, tmp_path, killed, termweave):
    things = ["kettle", "lamp", "chair", "towel", "bicycle", "umbrella", "sofa", "ladder", "mirror", "pillow"]
    documents = {f"d{n}": f"A {thing} is cleaned in {n + 3} steps with vinegar." for n, thing in enumerate(4 * things)}
    texts = {f"q{place}": f"how do I clean a {things[place % 10]} in {place} steps" for place in range(24)}
    folder = beir(tmp_path / "beir", documents, texts, {})
    termweave("index", str(folder), name)
    index = Index.open(opensearch_engine, name)
    default, words = index.run(texts, k=4).scores, index.run(texts, k=10, mode="weights").scores
    # What the default does not find among the best, so that there is something to tune.
    rows = "".join(f"{query}\t{document}\t1\n" for query in texts for document in words[query].keys() - default[query].keys())
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    termweave("tune", name, str(folder), "--profile", "whole", "--adopt")
    whole = profile(opensearch_engine, name, "whole")
    writes = 0
    while not killed(writes, "tune", name, str(folder), "--profile", f"killed-{writes}", "--adopt"):
        assert profile(opensearch_engine, name, f"killed-{writes}") in (None, whole)
        assert profile(opensearch_engine, name, "whole") == whole
        termweave("tune", name, str(folder), "--profile", f"killed-{writes}", "--adopt")
        assert profile(opensearch_engine, name, f"killed-{writes}") == whole
        writes += 1
    assert writes >= 1


def test_judge(opensearch_engine, name):
    book = JudgementBook(opensearch_engine, name)
    book.add([BookQuery("q1", "first", tuple(f"d{number}" for number in range(500)))])
    try:
        environment = {**os.environ, "TERMWEAVE_URL": opensearch_engine.url}
        line = [sys.executable, "-c", GRADES, name]
        with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True) as child:
            taken = [int(child.stdout.readline()) for _ in range(25)]
            child.kill()
            taken += map(int, child.stdout.read().split())
        stored = {each.document: each.grade for each in book.grades("ann")}
        for number in taken:
            assert stored[f"d{number}"] == number % 4
        assert len(stored) - len(taken) in {0, 1}  # one may have been stored that was not yet reported
        book.set_grade(BookGrade("ann", "q1", "d0", 3))
        assert next(each.grade for each in book.grades("ann") if each.document == "d0") == 3
    finally:
        remove_book(opensearch_engine, name)


def profile(engine, name, called):
    """The settings of a stored profile; None if there is none."""
    lineage = Index.open(engine, name).lineage
    if called not in lineage.profiles:
        return None
    found = profiles.find(lineage, called)
    return found.weights, found.fusion, found.reranking, found.ranker
