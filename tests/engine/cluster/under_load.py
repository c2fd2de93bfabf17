"""Searches while builds, updates, promotions and rollbacks go on, and nodes of a cluster of three are killed and started again.

    python -m tests.engine.cluster.under_load --minutes 30 --seed 1
    python -m tests.engine.cluster.under_load --quick          one minute, to see whether the script works

Starts a cluster of its own: three embedded nodes, 1.8 GB of memory, all of whose addresses are named. Eight clients search. Before the load, every
generation is built and searched in peace; under load every answer must be that of the generation that is live at that time: the same
ids in the same order with the same scores. After every publication the generation is verified. A killed node counts as living again
when it is back and the cluster is green. If that takes more than 90 s, a primary that was promoted while nodes were dying holds up the
recoveries (OpenSearch issues 20177 and 21692). Then all nodes are restarted, as an operator would do, and that is counted.
"""

# A script's functions need no types.
# ruff: noqa: T201 - a command that prints what it saw
from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.engine.embedded import node
from termweave.errors import EngineError, TermweaveError
from termweave.indexer import verify
from termweave.indexer.generations import listing
from termweave.indexer.ledger import storage
from termweave.search.index import Index
from tests.engine.cluster.record import Record

#: The searched index, and one that is only updated in place: its answers during an update are of no single state.
NAME, OTHER = "load", "load-other"
#: Two corpora, and the first one with further documents: an update. Numbers of the entries of the demo corpus.
CORPORA = {"first": range(150), "second": range(75, 225), "updated": range(170)}
CLIENTS, NODES, QUERIES = 8, 3, 12
#: Seconds that a command and a wait for the cluster may take.
_PATIENCE = 240
#: Primaries stay where they are: where a node dies while a primary moves, OpenSearch 3.6.0 may leave one that refuses every write.
_CLUSTER = {"cluster.routing.rebalance.enable": "replicas"}
#: Seconds without all copies after which all nodes are restarted.
_STALLED = 90
#: Copies on all nodes: one living node holds everything. The nodes may fail during a build, so replicas stay on.
_INDEX = ("--replicas", "2", "--no-loading", "--patience", str(_PATIENCE))


class Cluster:
    """The nodes, which a thread kills and starts again."""

    def __init__(self, home: Path, record: Record) -> None:
        self._home, self._record = home, record
        self.state = node.start(nodes=NODES, heap=512, home=home, say=say, patience=600)

    def kill_at_random(self, chance: random.Random, ended: threading.Event) -> None:
        while not ended.wait(chance.uniform(5, 20)):
            self.kill(chance.sample(self.state.nodes, 2 if chance.random() < 0.25 else 1))
            ended.wait(chance.uniform(1, 15))
            due = time.monotonic() + _STALLED
            while not self.started():
                time.sleep(1)
                if time.monotonic() > due:
                    self.kill(self.state.nodes, stalled=True)
                    time.sleep(5)  # until they are dead, so that `started` sees it
                    due = time.monotonic() + _STALLED
            self._record.lives(NODES)

    def kill(self, victims, *, stalled: bool = False) -> None:
        self._record.lives(NODES - len(victims), [each.name for each in victims], stalled=stalled)
        for each in victims:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)

    def started(self) -> bool:
        """Start the nodes that do not run; whether all copies are in place then."""
        try:
            self.state = node.start(home=self._home, patience=600)
            server = engine.connect(settings.load(url=self.state.url))
            health = server.request("GET", "/_cluster/health", params={"wait_for_status": "green", "timeout": "5s"})
        except TermweaveError as error:
            say(f"(the nodes are not up: {error})")
            return False
        return bool(health["status"] == "green" and health["number_of_nodes"] == NODES)


class ClusterWriter:
    """Builds, updates, promotes and rolls back, one command after the other, each a process of its own."""

    def __init__(self, url: str, folder: Path, record: Record) -> None:
        self._url, self._folder, self._record = url, folder, record
        self.engine = engine.connect(settings.load(url=url, timeout=30))
        #: Generation -> the corpus that it was built of.
        self.generations: dict[str, str] = {}
        self.live = ""

    def command(self, *arguments: str) -> bool:
        """Run a command until it succeeds, as a user would; whether it did."""
        until, environment = time.monotonic() + _PATIENCE, {**os.environ, "OPENSEARCH_URL": self._url}
        while True:
            started = time.monotonic()
            command = [sys.executable, "-m", "termweave", *arguments]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return True
            self._record.failed("command", f"{' '.join(arguments[:3])}: {done.stderr.strip()}", started)
            if time.monotonic() > until:
                return False

    def act(self, kind: str, *arguments: str, makes: str = "") -> None:
        """Run a command that may move the alias, then see which generation is live, and verify it."""
        with self._record.moving({makes} if makes else set(self.generations.values())):
            if not self.command(*arguments):
                return
            self.live = self.patiently(lambda: generations.live(self.engine, NAME))
            if makes:
                self.generations[self.live] = makes
            self._record.label = self.generations[self.live]
        self._record.acts[kind] += 1
        self.check(NAME, self.live)

    def build(self, label: str) -> None:
        self.act("builds", "index", self.path(label), NAME, *_INDEX, "--fresh", makes=label)

    def update(self) -> None:
        """The update adds documents to a copy of the first corpus."""
        flags = ("--update", "--new", "--patience", str(_PATIENCE))
        self.act("updates", "index", self.path("updated"), NAME, *flags, makes="updated")

    def update_in_place(self, label: str) -> None:
        """Change the other index: new, changed and deleted documents."""
        flags = ("--update", "--delete-missing", "--yes", "--patience", str(_PATIENCE))
        if self.command("index", self.path(label), OTHER, *flags):
            self._record.acts["updates in place"] += 1
            self.check(OTHER, self.patiently(lambda: generations.live(self.engine, OTHER)))

    def act_at_random(self, chance: random.Random) -> None:
        drawn, others = chance.random(), [index for index in self.generations if index != self.live]
        if drawn < 0.15:
            self.update_in_place(chance.choice(["first", "second"]))
        elif drawn < 0.35 and self.generations[self.live] == "first":
            self.update()
        elif drawn < 0.55 and others:
            self.act("promotions", "promote", NAME, chance.choice(others))
        elif drawn < 0.7 and self.live != min(self.generations, default=self.live):
            self.act("rollbacks", "rollback", NAME)
        else:
            self.build(chance.choice(["first", "second"]))
        if len(self.generations) > 5 and self.command("prune", NAME, "--keep", "3", "--yes"):
            left = {each.index for each in self.patiently(lambda: listing.list_generations(self.engine, NAME))}
            self.generations = {index: label for index, label in self.generations.items() if index in left}

    def check(self, name: str, index: str) -> None:
        """Verify a generation: nothing lost, nothing twice, nothing altered."""

        def difference():
            with storage.existing(self.engine, index) as ledger:
                return verify(self.engine, index, ledger, deep=0.2)

        self._record.verified(name, self.patiently(difference))

    def patiently(self, call):
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return call()
            except EngineError as error:
                if time.monotonic() > until:
                    raise
                say(f"(repeated: {error})")
                time.sleep(0.5)

    def path(self, label: str) -> str:
        return str(self._folder / f"{label}.jsonl")


def write_corpora(folder: Path) -> list[str]:
    """Write the corpora; return the queries, which are titles."""
    entries = [each for each in corpora.open_source("demo").documents() if len(each.text) > 200][:225]
    for label, numbers in CORPORA.items():
        # What both corpora have differs in one word, so that an answer of the other generation is noticed. The update keeps the first one's:
        # documents that change would leave deleted ones behind, which count in BM25 until they are merged.
        word = "sword" if label == "second" else "fword"
        documents = [(entries[number], f"{word} {entries[number].text[:400]}") for number in numbers]
        lines = [json.dumps({"_id": each.id, "title": each.title, "text": text}) for each, text in documents]
        (folder / f"{label}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [f"{entries[number].title} {entries[number].text[:60]}" for number in range(80, 80 + QUERIES)]


def answer(index: Index, query: str) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in index.search(query, k=10)]


def in_peace(writer: ClusterWriter, queries: list[str], record: Record) -> None:
    """Build every generation and note its answers."""
    for label in CORPORA:
        if label == "updated":
            writer.act("promotions", "promote", NAME, next(index for index, of in writer.generations.items() if of == "first"))
            writer.update()
        else:
            writer.build(label)
        index = Index.open(writer.engine, NAME)
        record.expected[label] = {query: answer(index, query) for query in queries}
        record.peaceful(label, {query: answer(index, query) for query in queries})
    writer.command("index", writer.path("first"), OTHER, *_INDEX)
    record.acts.clear()


@contextmanager
def searching(url: str, queries: list[str], record: Record, seed: int):
    """Let clients search until the end; they share one `Index`, each sends two queries a second."""
    ended = threading.Event()
    index = Index.open(engine.connect(settings.load(url=url, timeout=20)), NAME)

    def client(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        while not ended.wait(chance.uniform(0.25, 0.75)):
            query, before, started = chance.choice(queries), record.allowed(), time.monotonic()
            try:
                record.answer(query, answer(index, query), before, started)
            except TermweaveError as error:
                record.failed("search", str(error), started)

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def say(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


def load(record: Record, minutes: float, seed: int, folder: Path) -> None:
    home = folder / "node"
    for each in (folder, home):
        each.mkdir(exist_ok=True)
        each.chmod(0o711)  # for root: the server's unprivileged user must come through
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    chance, ended = random.Random(seed), threading.Event()
    cluster = Cluster(home, record)
    try:
        url = ",".join(each.url for each in cluster.state.nodes)
        writer = ClusterWriter(url, folder, record)
        queries = write_corpora(folder)
        writer.engine.request("PUT", "/_cluster/settings", body={"persistent": _CLUSTER})
        in_peace(writer, queries, record)
        record.lives(NODES)
        killer = threading.Thread(target=cluster.kill_at_random, args=(random.Random(seed + 1), ended), daemon=True)
        with searching(url, queries, record, seed):
            killer.start()
            until = time.monotonic() + 60 * minutes
            while time.monotonic() < until:
                writer.act_at_random(chance)
            if not killer.is_alive():
                raise TermweaveError("The thread that kills nodes ended early.", "Look at the traceback above.")
            ended.set()
            killer.join(1200)
        for name in (NAME, OTHER):
            writer.check(name, generations.live(writer.engine, name))
    finally:
        ended.set()
        node.stop(home)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1, help="decides which nodes are killed when, and what is built")
    parser.add_argument("--quick", action="store_true", help="one minute")
    options = parser.parse_args()
    record = Record(say)
    try:
        with tempfile.TemporaryDirectory(prefix="termweave-cluster-") as scratch:
            load(record, 1 if options.quick else options.minutes, options.seed, Path(scratch))
    finally:  # what was seen before an error counts, too
        print(f"seed {options.seed}, {CLIENTS} clients, {NODES} nodes")
        print(record.report())
    sys.exit(1 if record.broken else 0)


if __name__ == "__main__":
    main()
