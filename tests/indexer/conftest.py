"""What the tests of faults share: a corpus, a build as a process that can be killed, and somebody who searches all the time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from termweave.engine import connect
from termweave.errors import EngineError
from termweave.indexer import ledgers, verify
from termweave.indexer.generations import live
from termweave.search import lineage
from termweave.settings import load
from termweave.signals import DocumentLayout

#: Blocks of 100 documents and batches of 64 KB: many small steps to be killed between, on a corpus that is indexed in seconds.
PRELUDE = """
import sys
from termweave.indexer import pace, survey
survey._BLOCK_DOCUMENTS = 100
pace.SMALLEST, pace.FIRST = 16 * 1024, 64 * 1024
pace.LARGEST = 64 * 1024
"""


class Bench:
    """One corpus of numbered documents, a server, and `termweave index` as a process of its own."""

    def __init__(self, folder, url, name, places):
        self.url, self.name, self.folder = url, name, folder
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TERMWEAVE_")},
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", ""),
            "PYTHONWARNINGS": "ignore",
        }
        if not self.environment["XDG_CACHE_HOME"]:
            del self.environment["XDG_CACHE_HOME"]
        self.corpus = folder / "corpus.jsonl"
        self.count = 0

    def write(self, count, word="first"):
        """A corpus of so many documents; `word` stands in each, so that a search tells generations apart."""
        filler = "the quick brown fox jumps over the lazy dog " * 10
        with self.corpus.open("w", encoding="utf-8") as file:
            for number in range(count):
                file.write(json.dumps({"_id": f"d{number}", "title": f"{word} {number}", "text": filler}) + "\n")
        self.count = count
        return self

    def start(self, *arguments, url=None, prelude="", **options):
        """The verb as a process; stderr and stdout in one pipe."""
        program = f"{PRELUDE}{prelude}\nfrom termweave.cli import main\nsys.argv[1:] = {[*self._verb(), *arguments]!r}\nmain()\n"
        return subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**self.environment, "OPENSEARCH_URL": url or self.url},
            **options,
        )

    def run(self, *arguments, status=0, **options):
        """Run it to its end; returns what it said."""
        process = self.start(*arguments, **options)
        said, _ = process.communicate(timeout=300)
        assert "Traceback" not in said, said
        if status is not None:
            assert process.returncode == status, said
        return said

    def _verb(self):
        return ["index", str(self.corpus), self.name, "--weights", "none", "--dense", "none"]

    def whole(self):
        """The promise: everything there, nothing twice, as it was sent, as the ledger and the source say."""
        with connect(load(url=self.url)) as engine:
            index = live(engine, self.name)
            layout = DocumentLayout.from_meta(lineage.read(engine, index).signals)
            path = ledgers.folder(engine).relative_to(ledgers.places.state())
            with ledgers.Ledger(self.folder / "state" / "termweave" / path / f"{index}.sqlite") as ledger:
                found = verify(engine, index, ledger, layout, deep=0.2)
            assert (found.ok, found.counted) == (True, self.count), found
            assert engine.request("GET", f"/{self.name}/_count")["count"] == self.count
            return index

    @contextmanager
    def searching(self, word, *, may_be_away=False):
        """Somebody searches the live name all the time and must always find all documents of the generation that is live.

        Args:
            word: In every document of the live generation.
            may_be_away: The server is killed meanwhile: no answer is allowed, a wrong one is not.
        """
        engine = connect(load(url=self.url, timeout=20))
        ended = threading.Event()
        wrong, answers = [], [0]
        expected = engine.request("POST", f"/{self.name}/_count", body=_having(word))["count"]
        assert expected > 0

        def search():
            while not ended.wait(0.05):
                try:
                    found = engine.request("POST", f"/{self.name}/_count", body=_having(word), retry=False)
                except EngineError as error:
                    if not may_be_away:
                        wrong.append(str(error))
                    continue
                answers[0] += 1
                # A generation that waits for its shards answers in part, and says so.
                if found["_shards"]["failed"] == 0 == found["_shards"]["total"] - found["_shards"]["successful"] and found["count"] != expected:
                    wrong.append(found)

        thread = threading.Thread(target=search, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(30)
            engine.close()
        assert wrong == []
        assert answers[0] > 0


def _having(word):
    return {"query": {"match": {"title": word}}}


@pytest.fixture
def bench(opensearch_engine, name, tmp_path, own_places):
    """A bench on the tests' server."""
    return Bench(tmp_path, opensearch_engine.url, name, own_places)
