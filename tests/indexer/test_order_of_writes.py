"""What a build and an update ask of the server, and write into the ledger, in this order; and that a kill between two of these does no harm.

RECORD_ORDERS=1 pytest tests/indexer/test_order_of_writes.py -n 0     record anew, after a change that is meant
"""

import os
import re
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from termweave.catalog.generations import live
from termweave.catalog.lineage import CHANGING
from termweave.engine.client.connection import Engine
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.pipeline.pipeline import Pipeline
from tests.indexer.builds import clean, numbered, sources
from tests.indexer.conftest import stopping

#: Beside the requests of each case stand the entries of the ledger that decide what the next command does.
FILE = Path(__file__).parents[1] / "fixtures" / "orders_of_writes.txt"
WEIGHTS = BuildOptions(dense="none")
#: Commands that are killed in each case, each at another step.
KILLS = int(os.environ.get("KILLS", "2"))
#: Requests that ask what the server can do, which a connection remembers.
ABILITIES = re.compile(r"GET /|GET /_cat/plugins|GET /_cluster/.*|POST /_index_template/_simulate|POST /termweave-probe-.*")
COPY = UpdateMode(delete_missing=True, new=True, allow_deletions=1)
IN_PLACE = UpdateMode(delete_missing=True)
BEFORE = numbered(20)
AFTER = [{**BEFORE[0], "text": "changed entirely"}, *BEFORE[1:19], {"_id": "new", "text": "new"}]


class Recording:
    """The steps of a command in words: requests, and what is stored under a key of a ledger."""

    def __init__(self, name):
        self.lines, self._name, self._generations = [], name, {}

    def request(self, method, path, body):
        thread = threading.current_thread()
        if thread.name == "termweave-lease":  # renewals come by the clock
            return
        said = f"{method} {path.partition('?')[0]}"
        if path == "/_aliases":
            steps = [(verb, values) for action in body["actions"] for verb, values in action.items()]
            said += " " + ", ".join(f"{verb} {values['alias']} of {values['index']}" for verb, values in steps)
        elif method == "PUT" and path.endswith("/_mapping"):
            said += f" {self._lineage(body['_meta']['termweave'])}"
        self._say(said)

    def put(self, key, value):
        if key == "state":
            self._say(f"ledger: {value}")
        elif key == "lineage":
            self._say(f"ledger: lineage {self._lineage(value)}")

    @staticmethod
    def _lineage(meta):
        prints = {"": "no fingerprint", CHANGING: "changing"}.get(meta["fingerprint"], "fingerprint")
        missed = ", missed" if meta.get("missed") else ""
        return f"{'complete' if meta.get('complete', True) else 'incomplete'}, {prints}, {meta['documents']} documents{missed}"

    def _say(self, said):
        for generation in re.findall(rf"{self._name}-\d{{14}}-\w{{8}}", said):
            self._generations.setdefault(generation, f"GENERATION{len(self._generations)}")
        for generation, short in self._generations.items():
            said = said.replace(generation, short)
        said = re.sub(r"\.write-\d+", ".write", said.replace(self._name, "NAME"))
        said = re.sub(r"/_tasks/\S+", "/_tasks/TASK", said)
        if self.lines[-1:] != [said] and not ABILITIES.fullmatch(said):  # a task is asked for until it has ended
            self.lines.append(said)


@contextmanager
def recorded(name):
    recording, request, put = Recording(name), Engine.request, Ledger.put

    def noted(self, method, path, **options):
        recording.request(method, path, options.get("body"))
        return request(self, method, path, **options)

    def noted_put(self, key, value):
        recording.put(key, value)
        put(self, key, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "request", noted)
        patch.setattr(Ledger, "put", noted_put)
        yield recording.lines


def no(_):
    return "nDCG@10 is 0.1."


def rebuilt(engine, source, name, gate=None):
    assert build(engine, source, name, WEIGHTS, gate=gate).missed == (no(name) if gate else "")


def updated(engine, source, name, mode=IN_PLACE, gate=None):
    assert update(engine, source, name, WEIGHTS, mode, gate=gate).missed == (no(name) if gate else "")


def stopped(engine, source, name):
    with stopping(Pipeline, "run"), pytest.raises(KeyboardInterrupt):
        rebuilt(engine, source, name)


#: Case -> what is done before, as pairs of command and documents; the command.
FIRST, STOPPED = (rebuilt, BEFORE), (stopped, AFTER)
CASES = {
    "first build": ([], rebuilt),
    "build": ([FIRST], rebuilt),
    "resumed first build": ([STOPPED], rebuilt),
    "resumed build": ([FIRST, STOPPED], rebuilt),
    "build that misses its gate": ([FIRST], partial(rebuilt, gate=no)),
    "resumed build that missed its gate": ([FIRST, (partial(rebuilt, gate=no), AFTER)], rebuilt),
    "update in place": ([FIRST], updated),
    "update by copy": ([FIRST], partial(updated, mode=COPY)),
    "update by copy that misses its gate": ([FIRST], partial(updated, mode=COPY, gate=no)),
}


@pytest.fixture(scope="module")
def recordings():
    cases = re.split(r"^# (.+)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:] if FILE.exists() else []
    every = dict(zip(cases[::2], cases[1::2], strict=True))
    yield every
    if os.environ.get("RECORD_ORDERS"):
        FILE.write_text("".join(f"# {case}\n{every[case]}" for case in CASES if case in every), encoding="utf-8")


@pytest.fixture
def server(opensearch_engine):
    """The server, with what its first build and its first line of the audit trail create."""
    for index in ("termweave-leases", "termweave-audit"):
        if not opensearch_engine.request("HEAD", f"/{index}"):
            opensearch_engine.request("PUT", f"/{index}", body={"settings": {"index.hidden": True}})
    return opensearch_engine


class Killed(BaseException):
    """The process is killed: nothing after it is carried out."""


@contextmanager
def killed(step):
    """Kill the command at this step; later requests fail, too, and the ledger stays as it is."""
    steps, request, write = [0], Engine.request, Ledger._write

    def counted(call):
        def counting(self, *arguments, **options):
            steps[0] += threading.current_thread().name != "termweave-lease"
            if 0 < step <= steps[0]:
                raise Killed
            return call(self, *arguments, **options)

        return counting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "request", counted(request))
        patch.setattr(Ledger, "_write", counted(write))
        yield steps


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_order_is_that_of_the_recording_and_killed_at_a_step_a_command_ends_alike(server, name, corpus, recordings, case):
    earlier, command = CASES[case]

    def prepare(called):
        for step, documents in earlier:
            step(server, corpus(documents), called)

    prepare(f"{name}-whole")
    with recorded(f"{name}-whole") as lines, killed(0) as steps:
        command(server, corpus(AFTER), f"{name}-whole")
    if os.environ.get("RECORD_ORDERS"):
        recordings[case] = "".join(f"{line}\n" for line in lines)
    assert lines == recordings[case].splitlines()
    if "misses" in case:
        return
    expected = sources(server, live(server, f"{name}-whole"))
    assert len(expected) == 20
    for number in range(KILLS):
        kill = f"{name}-{number}"
        prepare(kill)
        before = live(server, kill)
        source = corpus(AFTER)
        with killed(1 + round(steps[0] * (number + 0.5) / KILLS)), pytest.raises(Killed):
            command(server, source, kill)
        assert before is None or live(server, kill) is not None  # somebody searches it all the time
        command(server, source, kill)
        clean(server, kill, source)
        assert sources(server, live(server, kill)) == expected
