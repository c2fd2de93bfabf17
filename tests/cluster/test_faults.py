"""Every command outlasts what happens to the nodes of a cluster: no document lost or twice, no error, and the user hears what is waited for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

import orjson
import pytest

from termweave import corpora
from termweave.engine import connect
from termweave.indexer import BuildOptions, build
from termweave.settings import load
from tests.corpora.index.conftest import write
from tests.indexer.conftest import PRELUDE

pytestmark = [pytest.mark.engine, pytest.mark.slow]

#: Documents; with batches of 64 KB, which take a second each, a fault meets a build in its middle.
COUNT = 1500
#: Seconds: a container on a busy machine takes minutes to be back.
PATIENCE = "300"
#: Waits on standard input before the `_bulk` request of that number; from then on each takes so many seconds.
HELD = """
import time
from termweave.engine.client.connection import Engine
sent, once = 0, Engine.request
def paced(self, method, path, **options):
    global sent
    if path.endswith("/_bulk"):
        sent += 1
        if sent == {at}:
            print("HELD", flush=True)
            sys.stdin.readline()
        time.sleep({pace} if sent >= {at} else 0.0)
    return once(self, method, path, **options)
Engine.request = paced
"""
#: Two short trainings in place of all, so that `learn` soon builds.
BRIEF = """
from termweave.learning import training_rounds
from tests.learning.test_learn import DTR, FECTEK
training_rounds.candidates = lambda *_, **__: [FECTEK, DTR]
training_rounds._LONGEST = 2
training_rounds.loses_too_much = lambda _: False  # a short training may leave fp32 alone
"""


@dataclass
class Seen:
    """A command as a process, and what its user sees: seconds since its start and text of each line."""

    process: subprocess.Popen
    lines: list[tuple[float, str]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic() - self.started, line.rstrip()))

    def until(self, word, seconds=240):
        """Wait for a line with this word."""
        end = time.monotonic() + seconds
        while not any(word in line for _, line in self.lines):
            assert time.monotonic() < end, self.told()
            assert self._reader.is_alive() or self.process.poll() is None, self.told()
            time.sleep(0.1)

    def close(self, seconds):
        self.process.wait(seconds)
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self, seconds=600, statuses=(0,)):
        """Wait for its end; returns what was said."""
        self.close(seconds)
        said = self.told()
        assert self.process.returncode in statuses, said
        sys.stdout.write(f"{said}\n")  # pytest -s shows it
        assert "Traceback" not in said
        return said

    def told(self):
        """The remarks, and the result."""
        shown = []
        for at, line in self.lines:
            content = json.loads(line) if line.startswith('{"') else {"text": line}
            if not content.get("schema", "").startswith("termweave.progress"):
                shown.append(f"{at:6.1f} {content.get('text', line)}")
        return "\n".join(shown)

    def longest_silence(self):
        """The longest time without a line, in seconds; two of them at the start are Python's."""
        times = [2.0, *(at for at, _ in self.lines)]
        return max(after - before for before, after in pairwise(times))


class Work:
    """An index, its source, and commands on it."""

    def __init__(self, cluster, folder, name):
        self.cluster, self.folder, self.name = cluster, folder, name
        self.url = cluster.url
        self.replicas, self.pace = 1, 1.0
        self.corpus = folder / "corpus.jsonl"
        self.started = []
        self.write("first")

    def held(self, at):
        return HELD.format(at=at, pace=self.pace)

    def write(self, word, count=COUNT):
        filler = "the quick brown fox jumps over the lazy dog " * 10
        documents = [{"_id": f"d{number}", "title": f"{word} {number}", "text": filler} for number in range(count)]
        self.corpus.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in documents))

    def start(self, *arguments, prelude=""):
        arguments = [str(each) for each in arguments]
        program = f"{PRELUDE}{prelude}\nfrom termweave.cli import main\nsys.argv[1:] = {arguments!r}\nmain()\n"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TERMWEAVE_")}
        environment |= {"XDG_STATE_HOME": str(self.folder / "state"), "OPENSEARCH_URL": self.url, "PYTHONWARNINGS": "ignore"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        seen = Seen(subprocess.Popen([sys.executable, "-c", program], text=True, env=environment, **pipes))
        self.started.append(seen)
        return seen

    def run(self, *arguments):
        return self.start(*arguments).end()

    def index(self, *more, source=None, prelude=""):
        words = ("index", source or self.corpus, self.name, "--weights", "none", "--dense", "none", "--shards", "3")
        return self.start(*words, "--json-lines", "--patience", PATIENCE, *more, prelude=prelude)

    def shop(self):
        """An application's own index with the documents of the corpus."""
        with connect(load(url=self.url)) as engine:
            engine.request("PUT", f"/{self.name}", body={"settings": {"number_of_shards": 3, "number_of_replicas": 1}})
            write(engine, self.name, {each.pop("_id"): each for each in map(orjson.loads, self.corpus.read_bytes().splitlines())})

    def enrich(self, *more, prelude=""):
        fields = ("--title-field", "title", "--text-field", "text")
        model = ("--signals", "weights", "--weights", "bm25-german")  # which needs no graph
        return self.start("enrich", self.name, *fields, *model, "--json-lines", *more, prelude=prelude)

    def clean(self, *, count=COUNT):
        """Every document once, as it was sent and as the source says."""
        self.run("verify", self.name)
        self.run("verify", self.name, "--deep")
        self.run("verify", self.name, self.corpus)
        with connect(load(url=self.cluster.url)) as engine:
            assert engine.request("GET", f"/{self.name}/_count")["count"] == count


# Faults: what happens to a node. Each returns when the node, or what happened to it, is over.


def kill(cluster, number):
    cluster.docker("kill", cluster.container(number))
    time.sleep(15)
    cluster.docker("start", cluster.container(number))


def pause(cluster, number):
    cluster.docker("pause", cluster.container(number))
    time.sleep(40)
    cluster.docker("unpause", cluster.container(number))


def disconnect(cluster, number):
    cluster.network("disconnect", number)
    time.sleep(30)
    cluster.network("connect", number)


def partition(cluster, number):
    """The node still answers us, and reaches no other node."""
    cluster.routes("add", number)
    time.sleep(30)
    cluster.routes("del", number)


def restart(cluster, number):
    """A rolling restart; it begins with the node."""
    for each in (number, *({1, 2, 3} - {number})):
        cluster.docker("restart", "--time", "60", cluster.container(each))
        cluster.whole()


def full_copy(cluster, number):
    """A replica was not up when the command began, because its node was not."""
    cluster.docker("start", cluster.container(number))


# Commands: each lets a fault happen in its middle, and returns what its user saw. The result is checked when the cluster is whole.


def _through(seen, happens, seconds=240, statuses=(0,)):
    """Let a fault happen in the middle of a command; returns what its user saw."""
    seen.until("HELD", seconds)
    seen.process.stdin.write("\n")
    seen.process.stdin.flush()
    happens()
    seen.end(statuses=statuses)
    return seen


def index(work, happens):
    return _through(work.index("--replicas", work.replicas, "--no-loading", prelude=work.held(3)), happens), work.clean


def update(work, happens):
    work.index("--replicas", "1").end()
    work.write("second")
    return _through(work.index("--update", prelude=work.held(3)), happens), work.clean


def enrich(work, happens):
    work.shop()
    return _through(work.enrich(prelude=work.held(2)), happens), lambda: _enriched(work, COUNT)


def watch(work, happens):
    work.shop()
    seen = work.enrich("--watch", "1")
    seen.until("watched every 1 s")
    fault = threading.Thread(target=happens)
    fault.start()
    count = COUNT
    with connect(load(url=work.cluster.url)) as engine:
        while fault.is_alive():
            body = {"title": f"later {count}", "text": "written meanwhile"}
            engine.patient(120).request("PUT", f"/{work.name}/_doc/d{count}", params={"timeout": "20s"}, body=body, retry=True)
            count += 1
            time.sleep(1)
    work.cluster.whole()
    time.sleep(10)
    seen.process.send_signal(signal.SIGTERM)
    seen.end()
    return seen, lambda: _enriched(work, count)


def _enriched(work, count):
    """Every document has its fields: the same command finds nothing to write."""
    seen = work.enrich()
    seen.end()
    result = json.loads(seen.lines[-1][1])
    assert (result["documents"], result["written"]) == (count, 0), result


def learn(work, happens):
    pytest.importorskip("torch")
    from tests.learning.test_learn import FORMS, PAIRS

    texts = {word: f"Everything about the {other} in general." for word, other in zip(PAIRS, sorted(PAIRS.values()), strict=True)}
    queries = {f"{word}-{number}": form.format(word) for word in PAIRS for number, form in enumerate(FORMS)}
    questions = work.folder / "questions"
    (questions / "qrels").mkdir(parents=True)
    for file, entries in ((work.corpus, texts), (questions / "queries.jsonl", queries)):
        file.write_bytes(b"".join(orjson.dumps({"_id": key, "text": text}) + b"\n" for key, text in entries.items()))
    rows = "".join(f"{key}\t{key.rpartition('-')[0]}\t1\n" for key in queries)
    (questions / "corpus.jsonl").write_bytes(work.corpus.read_bytes())
    (questions / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    work.run("index", work.corpus, work.name, "--shards", "3", "--replicas", "1")
    seen = work.start("learn", work.name, questions, "--minutes", "60", prelude=BRIEF + work.held(1))
    return _through(seen, happens, 1200, (0, 3)), lambda: work.clean(count=len(PAIRS))  # 3: nothing was gained


def search(work, happens):
    work.index("--replicas", "1").end()
    words = ("search", work.name, "brown fox first 7", "-k", "2", "--json")
    expected = _ids(work.start(*words))
    fault = threading.Thread(target=happens)
    fault.start()
    searches = []
    try:
        while fault.is_alive():
            searches.append(seen := work.start(*words))
            if not _without_answer(work, seen):
                assert _ids(seen) == expected
    finally:
        fault.join()  # else it would meet the next test
    work.cluster.whole()
    searches.append(seen := work.start(*words))
    assert _ids(seen) == expected
    return max(searches, key=lambda seen: seen.lines[-1][0]), work.clean


def _without_answer(work, seen):
    """Whether a search ended because the only address that it knows does not answer. A search waits for its time-out, and not for ever."""
    if work.url != work.cluster.url and seen.process.wait(120) == 5:
        seen.close(10)
        assert "Error: No OpenSearch answers at" in seen.told()
        return True
    return False


def _ids(seen):
    seen.end()
    text = "\n".join(line for _, line in seen.lines)
    return [hit["id"] for hit in json.loads(text[text.index("{") :])["hits"]]


#: Fault, and the node that it happens to: the cluster manager, one that is not, or the only one whose address is given.
FAULTS = [
    *((fault, whom) for fault in (kill, pause, disconnect) for whom in ("manager", "other", "address")),
    (partition, "manager"),
    (partition, "other"),
    (restart, "other"),
    (full_copy, "other"),
]
#: The one cell that every run of CI has.
ONE = (kill, "other", index)
CELLS = [(*fault, command) for fault in FAULTS for command in (index, update, enrich, watch, learn, search)]


def _row(fault, whom, command):
    marks = () if (fault, whom, command) == ONE else pytest.mark.nightly
    return pytest.param(fault, whom, command, id=f"{fault.__name__}-{whom}-{command.__name__}", marks=marks)


@pytest.mark.parametrize(("fault", "whom", "command"), [_row(*cell) for cell in CELLS])
def test_a_command_outlasts_a_fault(cluster, tmp_path, name, fault, whom, command):
    cluster.whole()
    manager = cluster.manager()
    number = manager if whom == "manager" else 1 if whom == "address" else next(each for each in cluster.urls if each != manager)
    work = Work(cluster, tmp_path, name)
    if whom == "address":
        work.url = cluster.urls[number]
    if fault is full_copy:
        work.replicas = 2
        cluster.docker("kill", cluster.container(number))
    if fault is restart:
        work.pace = 10.0  # a node takes a minute
    try:
        seen, check = command(work, lambda: fault(cluster, number))
        cluster.whole()
        check()
    finally:
        for each in work.started:
            each.process.kill()  # does nothing where it has ended
            each.close(10)
    said = seen.told()
    assert command in {watch, learn} or seen.longest_silence() < 15, (seen.longest_silence(), said)
    if fault is full_copy and command is index:
        assert "is filled though not all of its replicas are up" in said
    if "Error: No OpenSearch answers" not in said:  # as `_without_answer` allows
        assert said.count(" Waiting for the server") == said.count("; the work goes on.")


@pytest.mark.nightly
def test_a_generation_has_its_replicas_before_it_is_published(cluster, tmp_path, name):
    work, seen = Work(cluster, tmp_path, name), []
    with connect(load(url=cluster.url)) as engine:

        def gate(index):  # called between verification and publication
            health = engine.request("GET", f"/_cluster/health/{index}")
            seen.append((health["status"], health["active_shards"]))

        options = BuildOptions(weights="none", dense="none", replicas=1, shards=3)
        build(engine, corpora.open_source(work.corpus), name, options, gate=gate)
        leases = {"wait_for_active_shards": 3, "timeout": "120s"}  # one on each node
        assert not engine.request("GET", "/_cluster/health/termweave-leases", params=leases, timeout=130)["timed_out"]
    assert seen == [("green", 6)]
