"""Faults that a build must survive, on a real server: killed, cut off, turned away, interrupted, out of disk, twice at once.

Every test ends with the promise: run again, `verify` finds nothing, the count is the source's, and whoever searched meanwhile
always found exactly one whole generation. The larger matrix is in test_faults_slow.py.
"""

from __future__ import annotations

import signal
import subprocess

import orjson
import pytest

from .conftest import HOLD, Bench, own_node, two_generations, until
from .proxy import Proxy

pytestmark = pytest.mark.engine


@pytest.mark.nightly
def test_a_line_that_drops_delays_and_cuts(bench):
    two_generations(bench, 1200)
    with Proxy(int(bench.url.rpartition(":")[2]), seed=5, refuse=0.1, cut=0.1, lose=0.02, delay=0.02) as proxy:
        with bench.searching("first second"):
            for _ in range(20):
                if "verified and live" in bench.run("--patience", "20", url=proxy.url, status=None):
                    break
            else:
                pytest.fail("twenty runs were not enough")
        assert proxy.faults > 3
    bench.whole()


def test_ctrl_c_once_finishes_what_is_under_way_and_twice_stops_at_once(bench):
    two_generations(bench, 1200)
    with bench.searching("first second"):
        process = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        process.send_signal(signal.SIGINT)
        until(process, "Ctrl-C again stops at once")
        assert process.poll() is None  # it waits for the batch
        said, _ = process.communicate("\n")
        assert process.returncode == 130, said
        assert "to continue from there" in said
        process = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        process.send_signal(signal.SIGINT)
        until(process, "Ctrl-C again stops at once")
        process.send_signal(signal.SIGINT)
        process.wait(60)  # nobody lets the batch go
        said, _ = process.communicate()
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert "Resumed" in bench.run()
    bench.whole()


def test_sigterm_ends_as_ctrl_c_does(bench):
    bench.write(1200, "first")
    process = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
    until(process, "HELD")
    process.send_signal(signal.SIGTERM)
    until(process, "A second SIGTERM stops at once")
    said, _ = process.communicate("\n")
    assert process.returncode == 143, said
    assert "to continue from there" in said
    assert "Resumed" in bench.run()
    bench.whole()


def test_two_processes_on_one_name_here_and_on_another_host(bench, tmp_path):
    two_generations(bench, 600)
    elsewhere = Bench(tmp_path / "elsewhere", bench.url, bench.name)
    elsewhere.corpus, elsewhere.count = bench.corpus, bench.count
    with bench.searching("first second"):
        process = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        assert f"is running on this host (process {process.pid}" in bench.run(status=1)
        told = elsewhere.run(status=1)
        assert f"(process {process.pid}, since" in told
        assert "is running on " in told
        said, _ = process.communicate("\n")
        assert process.returncode == 0, said
    bench.whole()
    elsewhere.run()  # the lease was given back
    elsewhere.whole()


#: Fills the disk when the first documents are acknowledged.
FULL = """
from termweave.indexer.ledger.ledger import Ledger
acknowledge = Ledger.acknowledge
def filled(self, digests):
    if not (filler := self.path.parent / "filler").exists():
        try:
            with filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass
    acknowledge(self, digests)
Ledger.acknowledge = filled
"""


@pytest.mark.nightly
def test_a_full_disk_under_the_ledger(bench, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(state)], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine lets us mount no small disk (needs root)")
    try:
        two_generations(bench, 1200)
        with bench.searching("first second"):
            said = bench.run(prelude=FULL, status=1)
            assert "ledger" in said
            assert "full" in said
            assert "it resumes" in said
            for filler in state.rglob("filler"):
                filler.unlink()
            assert "Resumed" in bench.run()
        bench.whole()
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


def test_a_block_on_the_index_is_said_and_the_build_goes_on_when_it_is_gone(bench, opensearch_engine):
    two_generations(bench, 1200)
    with bench.searching("first second"):
        process = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
        until(process, "HELD")
        (unfinished,) = list(opensearch_engine.request("GET", f"/{bench.name}-*.write-*/_alias"))
        opensearch_engine.request("PUT", f"/{unfinished}/_settings", body={"index.blocks.read_only": True})
        said, _ = process.communicate("\n")
        assert process.returncode == 1, said
        assert "Somebody set index.blocks.read_only on it" in said
        assert "disk" not in said
        assert "it resumes" in said
        opensearch_engine.request("PUT", f"/{unfinished}/_settings", body={"index.blocks.read_only": None})
        assert "Resumed" in bench.run()
    bench.whole()


#: The server gives up on a shard after a second, not twenty; and who waits here says so.
IMPATIENT = """
from termweave.indexer.pipeline import throttle, bulk_sender
bulk_sender._PARAMETERS["timeout"] = "1s"
trouble = throttle.Throttle.failed
def said(self, *arguments, **options):
    print("TROUBLE", flush=True)
    return trouble(self, *arguments, **options)
throttle.Throttle.failed = said
"""


def test_an_index_without_its_shard_is_waited_for_and_then_said(bench, opensearch_engine, tmp_path):
    """Red: the settings let no node have the shard, which is how a full or misconfigured cluster looks."""
    two_generations(bench, 1200)
    settings = tmp_path / "settings.json"
    homeless = {"index.routing.allocation.require._name": "nowhere"}
    settings.write_bytes(orjson.dumps(homeless))
    with bench.searching("first second"):
        said = bench.run("--settings", str(settings), "--patience", "2", prelude=IMPATIENT, status=1)
        (unfinished,) = list(opensearch_engine.request("GET", f"/{bench.name}-*.write-*/_alias"))
        assert f"cannot write to {unfinished}: " in said
        assert "primary shard is not active" in said
        assert "it resumes" in said
        process = bench.start("--settings", str(settings), prelude=IMPATIENT)
        until(process, "TROUBLE")
        opensearch_engine.request("PUT", f"/{unfinished}/_settings", body=dict.fromkeys(homeless))
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert "Resumed" in said
    assert bench.whole() == unfinished


@pytest.fixture(scope="module")
def narrow_node():
    """A server that takes requests of 256 KB and holds 160 KB of documents at a time."""
    limits = "http.max_content_length: 256kb\nindexing_pressure.memory.limit: 160kb\n"
    with own_node(limits) as state:
        yield state


@pytest.mark.nightly
def test_a_server_that_turns_away_what_is_too_much_or_too_large(narrow_node, tmp_path):
    """429 from the indexing pressure, 413 from http.max_content_length, and documents that neither ever takes."""
    bench = Bench(tmp_path, narrow_node.url, "narrow")
    large = "throttle.FIRST = throttle.LARGEST = 4 * 1024 * 1024\n"  # as without the prelude: the server's limits are met
    two_generations(bench, 2000, prelude=large)
    with bench.searching("first second"):
        bench.run("--workers", "4", prelude=large)
    bench.whole()
    with bench.corpus.open("ab") as file:
        file.write(orjson.dumps({"_id": "giant", "title": "second", "text": "word " * 60_000}) + b"\n")
        file.write(orjson.dumps({"_id": "large", "title": "second", "text": "word " * 40_000}) + b"\n")
    said = bench.run(status=1, prelude=large)
    assert "'giant' (line 2001): one document of 300" in said
    assert "'large' (line 2002): one document of 200" in said
    (letters,) = (tmp_path / "state").rglob("*.refused.jsonl")
    found = [orjson.loads(letter) for letter in letters.read_bytes().splitlines()]
    assert [(letter["id"], letter["line"]) for letter in found] == [("giant", 2001), ("large", 2002)]
    assert "raise http.max_content_length" in found[0]["advice"]
    assert "raise indexing_pressure.memory.limit" in found[1]["advice"]
    said = bench.run("--allow-refused", "0.1%", prelude=large)
    assert "refused 2 of 2,002 documents" in said
    bench.whole()  # all but these two
