"""What the tests of faults share: a corpus, a build as a process that can be killed, and somebody who searches all the time."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from termweave import corpora
from termweave.catalog.generations import live
from termweave.cli import run
from termweave.engine import connect
from termweave.engine.embedded import node, process
from termweave.errors import EngineError
from termweave.indexer import LARGE_DELETION, UpdateMode, build, update, verify
from termweave.indexer.generations.listing import list_generations
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import bulk_sender
from termweave.indexer.preparation import corpus_pass
from termweave.search import Index
from termweave.settings import load

from .builds import LEXICAL, check, clean, command, numbered

#: Blocks of 100 documents and batches of 64 KB: many small steps to be killed between, on a corpus that is indexed in seconds.
PRELUDE = """
import sys
from termweave.indexer.pipeline import bulk_sender
from termweave.indexer.preparation import corpus_pass
corpus_pass._BLOCK_DOCUMENTS = 100
bulk_sender.SMALLEST, bulk_sender.FIRST = 16 * 1024, 64 * 1024
bulk_sender.LARGEST = 64 * 1024
"""


#: Waits on standard input before the batch of that number.
HOLD = """
import threading
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.pipeline.bulk_sender import BulkSender
batches, acknowledged = 0, threading.Event()
once, enter = BulkSender._request, Ledger.acknowledge
def acknowledge(self, *documents):
    enter(self, *documents)
    acknowledged.set()
def held(self, batch):
    global batches
    batches += 1
    if batches == 5:
        acknowledged.wait(60)  # the ledger has some of the batches before
        print("HELD", flush=True)
        sys.stdin.readline()
    return once(self, batch)
BulkSender._request, Ledger.acknowledge = held, acknowledge
"""


class Bench:
    """One corpus of numbered documents, a server, and `termweave index` as a process of its own."""

    def __init__(self, folder, url, name):
        folder.mkdir(exist_ok=True)
        self.url, self.name, self.folder = url, name, folder
        plain = {key: value for key, value in os.environ.items() if not key.startswith("TERMWEAVE_")}
        self.environment = plain | {"XDG_STATE_HOME": str(folder / "state"), "PYTHONWARNINGS": "ignore"}
        self.corpus, self.count = folder / "corpus.jsonl", 0

    def write(self, count, word="first"):
        """A corpus of so many documents; `word` stands in each, so that a search tells generations apart."""
        text = "the quick brown fox jumps over the lazy dog " * 10
        write_lines(self.corpus, [{"_id": f"d{number}", "title": f"{word} {number}", "text": text} for number in range(count)])
        self.count = count
        return self

    def start(self, *arguments, verb="index", url=None, prelude="", **options):
        """The verb as a process; stderr and stdout in one pipe."""
        words = [verb, self.name] if verb == "verify" else command(self.corpus, self.name, *arguments)
        words += ["--url", url or self.url]
        program = f"{PRELUDE}{prelude}\nfrom termweave.cli import main\nsys.argv[1:] = {words!r}\nmain()\n"
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": self.environment}
        return subprocess.Popen([sys.executable, "-c", program], **options)

    def run(self, *arguments, status=0, **options):
        """Run it to its end; returns what it said."""
        return ended(self.start(*arguments, **options), status)

    def held(self, *arguments, prelude="", **options):
        """The verb as a process that waits, in the middle of sending, for `ended`."""
        process = self.start(*arguments, prelude=prelude + HOLD, stdin=subprocess.PIPE, **options)
        until(process, "HELD")
        return process

    def unfinished(self, engine):
        """The generation that is being written."""
        (index,) = engine.request("GET", f"/{self.name}-*.write-*/_alias")
        return index

    def whole(self):
        """The promise: everything there, nothing twice, as it was sent, as the ledger and the source say."""
        with connect(load(url=self.url)) as engine:
            index = live(engine, self.name)
            path = storage.folder(engine).relative_to(storage.paths.state())
            with storage.Ledger(self.folder / "state" / "termweave" / path / f"{index}.sqlite") as ledger:
                found = verify(engine, index, ledger, deep=0.2)
            assert (found.ok, found.counted) == (True, self.count), found
            assert engine.request("GET", f"/{self.name}/_count")["count"] == self.count
            return index

    @contextmanager
    def searching(self, word):
        """Somebody searches the live name all the time and always finds all documents of the live generation, in which the word is."""
        engine, ended, found = connect(load(url=self.url, timeout=20)), threading.Event(), []

        def count(**options):
            answer = engine.request("POST", f"/{self.name}/_count", body={"query": {"match": {"title": word}}}, **options)
            # A generation that waits for its shards answers in part, and says so.
            return answer["count"] if answer["_shards"]["successful"] == answer["_shards"]["total"] else expected

        def search():
            while not ended.wait(0.05):
                try:
                    found.append(count(retry=False))
                except EngineError as error:
                    found.append(str(error))

        expected = 0
        expected = count()
        thread = threading.Thread(target=search, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(30)
            engine.close()
        assert expected > 0
        assert set(found) == {expected}


@pytest.fixture
def long_ids(monkeypatch):
    """Let ids through that are so long that the server refuses their documents; readers refuse them first."""
    monkeypatch.setattr("termweave.corpora.formats.fields.LONGEST_ID", 100_000)


def write_lines(path, documents):
    """Documents as JSON lines; bytes are lines as they are."""
    path.write_bytes(b"\n".join(each if isinstance(each, bytes) else orjson.dumps(each) for each in documents) + b"\n")
    return path


@pytest.fixture
def corpus(tmp_path):
    """Write documents as JSON lines and open them."""

    def write(documents, *, skip_bad=False, name="corpus.jsonl"):
        return corpora.open_source(write_lines(tmp_path / name, documents), skip_bad=skip_bad)

    return write


@pytest.fixture
def shell(opensearch_engine, capsys):
    """A function that runs a command against the tests' server and returns its output."""

    def call(*words, status=0):
        capsys.readouterr()
        assert run([*map(str, words), "--url", opensearch_engine.url]) == status, capsys.readouterr().err
        return capsys.readouterr()

    return call


@pytest.fixture
def index(shell, name, tmp_path):
    """A function that runs `termweave index` over documents and returns its output."""

    def call(documents, *arguments, status=0):
        return shell(*command(write_lines(tmp_path / "corpus.jsonl", documents), name, *arguments), status=status)

    return call


class Desk:
    """A name on the tests' server: builds and updates without models, unless their options say otherwise.

    Documents are their number, a list, id -> text, or a source.
    """

    def __init__(self, engine, name, corpus, shell):
        self.engine, self.name, self._corpus, self._shell = engine, name, corpus, shell

    def source(self, documents, **options):
        if isinstance(documents, int):
            documents = numbered(documents)
        if isinstance(documents, dict):
            documents = [{"_id": key, "text": text} for key, text in documents.items()]
        return self._corpus(documents, **options) if isinstance(documents, list) else documents

    def build(self, documents, options=LEXICAL, **more):
        return build(self.engine, self.source(documents), self.name, options, **more)

    def update(self, documents, options=LEXICAL, *, new=False, delete=False, **more):
        """With `delete` as much may be deleted as is missing."""
        mode = UpdateMode(new=new, delete_missing=delete, allow_deletions=1.0 if delete else LARGE_DELETION)
        return update(self.engine, self.source(documents), self.name, options, mode, **more)

    def open(self):
        return Index.open(self.engine, self.name)

    @property
    def live(self):
        return live(self.engine, self.name)

    @property
    def count(self):
        """Of the documents that a search of the name sees."""
        return self.engine.request("GET", f"/{self.name}/_count")["count"]

    @property
    def generations(self):
        """Newest first."""
        return list_generations(self.engine, self.name)

    def check(self, *, deep=True):
        return check(self.engine, self.name, deep=deep)

    def clean(self, source=None):
        return clean(self.engine, self.name, source)

    def request(self, method, path, body=None):
        """Of the live generation; searches see what it did."""
        params = {"refresh": True} if method in {"PUT", "POST", "DELETE"} and "/_doc" in path else None
        return self.engine.request(method, f"/{self.live}{path}", params=params, body=body)

    def run(self, verb, *arguments, status=0):
        """The verb of this name; returns its output."""
        return self._shell(verb, self.name, *arguments, status=status)


@pytest.fixture
def desk(opensearch_engine, name, corpus, shell):
    return Desk(opensearch_engine, name, corpus, shell)


@contextmanager
def before(owner, attribute, call):
    """Whoever calls this meanwhile calls `call` first, with the same arguments."""
    once = getattr(owner, attribute)

    def both(*arguments, **options):
        call(*arguments)
        return once(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, attribute, both)
        yield


@contextmanager
def stopping(owner, attribute, *, after=False):
    """Whoever calls this meanwhile is stopped as by Ctrl-C, before or after the call."""
    once = getattr(owner, attribute)

    def stop(*arguments, **options):
        if after:
            once(*arguments, **options)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, attribute, stop)
        yield


@pytest.fixture
def small_steps(monkeypatch):
    """Blocks of 50 documents and batches of 4 KB."""
    monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 50)
    for size in ("SMALLEST", "FIRST", "LARGEST"):
        monkeypatch.setattr(bulk_sender, size, 4096)


@pytest.fixture
def bench(opensearch_engine, name, tmp_path, own_places):
    """A bench on the tests' server."""
    return Bench(tmp_path, opensearch_engine.url, name)


def two_generations(bench, count, **options):
    """Make the first one live, and write the source of the second."""
    bench.write(count, "first").run(**options)
    bench.whole()
    bench.write(count, "second")


def ended(process, status=0, *, release=True):
    """What a process says until its end; None as status: whatever it is. One that is `held` goes on, unless it is to end as it is."""
    if not release:
        process.wait(60)
    said, _ = process.communicate("\n" if release and process.stdin else None, timeout=400)
    assert "Traceback" not in said, said
    assert status is None or process.returncode == status, said
    return said


def until(process, word):
    """Read what a process says until a word; returns all of it. One that says nothing for minutes is ended."""
    said = ""
    late = threading.Timer(180, process.kill)
    late.start()
    try:
        for line in process.stdout:
            said += line
            if word in line:
                return said
        raise AssertionError(said)
    finally:
        late.cancel()


@contextmanager
def own_node(settings):
    """A server of one's own, to be limited, killed and started again; `state.folder` is its home's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "SETTINGS", process.SETTINGS + settings)
        home = Path(tempfile.mkdtemp(prefix="termweave-faults-"))
        home.chmod(0o711)  # for root: the server's unprivileged user must come through
        try:
            yield node.start(home=home, heap=512)
        finally:
            node.wipe(home)
            shutil.rmtree(home, ignore_errors=True)
