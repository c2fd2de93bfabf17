"""Searches while generations change and nodes are killed, one after the other: each answer is that of a generation that was live meanwhile."""

import math
import threading
import time
from contextlib import contextmanager
from itertools import combinations, cycle

import pytest

from termweave.catalog import generations
from termweave.engine import connect
from termweave.errors import TermweaveError
from termweave.search.index import Index
from termweave.settings import load
from tests.cluster.test_faults import COUNT, PATIENCE, Work, kill

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]
CLIENTS, QUERIES = 8, [f"{word} {number} brown fox" for word in ("first", "second") for number in range(6)]
#: Corpora: the word in their titles, and how many documents they have. An update adds documents to a copy of the first one.
CORPORA = {"first": ("first", COUNT), "updated": ("first", COUNT + 50), "second": ("second", COUNT)}


class Published:
    """Makes generations live, and notes what each answers and since when and until when it may have been live."""

    def __init__(self, work, engine):
        self.work, self.engine = work, engine
        self.corpora, self.times, self.expected = {}, [], {}  # index -> corpus; corpus, since, until; corpus -> query -> answer

    def act(self, *command, corpus=None):
        began = time.monotonic()
        self.work.run(*command)
        if self.times:
            self.times[-1][2] = time.monotonic()
        live = generations.live(self.engine, self.work.name)
        self.times.append([self.corpora.setdefault(live, corpus), began, math.inf])
        self.work.run("verify", self.work.name)

    def build(self, corpus):
        self.work.write(*CORPORA[corpus])
        how = ("--fresh", "--weights", "none", "--dense", "none", "--shards", "3", "--replicas", "2", "--no-loading")
        how = ("--update", "--new") if corpus == "updated" else how
        self.act("index", self.work.corpus, self.work.name, "--patience", PATIENCE, *how, corpus=corpus)

    def promote(self, corpus):
        self.act("promote", self.work.name, next(index for index, label in self.corpora.items() if label == corpus))

    def right(self, query, answer, sent, received):
        """Whether an answer is that of a generation that was live at some time between the two moments."""
        labels = [corpus for corpus, since, until in self.times if since <= received and sent <= until]
        return any(same(answer, self.expected[corpus][query]) for corpus in labels)


def same(one, other):
    return list(one) == list(other) and one == pytest.approx(other, rel=1e-5)


class Clients:
    """Threads that search all the time, and one that kills nodes."""

    def __init__(self, index):
        self.index, self.ended = index, threading.Event()
        self.answers, self.faults = [], []  # query, answer, when it was sent and when it was received; query and message

    def answer(self, query):
        return {hit.id: hit.score for hit in self.index.search(query, k=10)}

    def search(self, first):
        for query in cycle(QUERIES[first:] + QUERIES[:first]):
            if self.ended.wait(0.5):
                return
            sent = time.monotonic()
            try:
                self.answers.append((query, self.answer(query), sent, time.monotonic()))
            except TermweaveError as error:
                self.faults.append((query, str(error)))

    def kill(self, cluster):
        for number in cycle(cluster.urls):
            if self.ended.is_set():
                return
            kill(cluster, number)
            cluster.whole()

    @contextmanager
    def searching(self, cluster):
        threads = [threading.Thread(target=self.search, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=self.kill, args=(cluster,)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()


def test_no_answer_is_wrong_while_nodes_go_and_come(cluster, tmp_path, name):
    cluster.whole()
    with connect(load(url=cluster.url, timeout=20)) as engine:
        published = Published(Work(cluster, tmp_path, name), engine)
        for corpus in CORPORA:
            published.build(corpus)
            clients = Clients(Index.open(engine, name))
            published.expected[corpus] = {query: clients.answer(query) for query in QUERIES}
        for one, other in combinations(published.expected.values(), 2):  # or no wrong answer would be seen
            assert not all(same(one[query], other[query]) for query in QUERIES)
        with clients.searching(cluster):
            for _ in range(2):
                published.promote("first")
                published.build("updated")
                published.promote("second")
                published.build("first")
                published.act("rollback", name)
        cluster.whole()
        published.work.run("verify", name, "--deep")
    assert len(clients.answers) > 100
    assert not clients.faults
    assert not [each for each in clients.answers if not published.right(*each)]
