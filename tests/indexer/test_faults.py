"""Faults that builds and updates must survive, on a real server: killed, cut off, turned away, interrupted, twice at once.

Every test ends with the promise: run again, `verify` finds nothing, the count is the source's, and whoever searched meanwhile
always found exactly one whole generation. KILLS=30 is the whole matrix of instants. Nodes that are killed, paused and started again
are in tests/cluster, a disk that is full under the ledger in `ledger.test_ledger`.
"""

import gzip
import os
import random
import re
import signal
import threading
import time

import orjson
import pytest

from termweave import corpora
from termweave.catalog.generations import live
from termweave.engine import connect
from termweave.errors import VerificationFailed
from termweave.indexer import UpdateMode, build, update, verify_against_source
from termweave.indexer.generations import listing
from termweave.settings import load

from .builds import LEXICAL, clean, numbered
from .conftest import Bench, ended, own_node, two_generations, until
from .proxy import BusyProxy, Proxy

#: Builds that are killed by `test_killed_in_each_part_of_a_build`, each in another part of its steps.
KILLS = int(os.environ.get("KILLS", "4"))


@pytest.mark.parametrize("arguments", [(), ("--update", "--delete-missing"), ("--update", "--delete-missing", "--new")])
def test_killed_in_the_middle_it_goes_on_and_nothing_is_lost_or_twice(bench, opensearch_engine, arguments):
    two_generations(bench, 1200)
    before = live(opensearch_engine, bench.name)
    bench.write(1100, "second")
    process = bench.held(*arguments)
    process.kill()
    process.communicate()
    assert live(opensearch_engine, bench.name) == before  # half a generation is never live
    in_place = arguments and "--new" not in arguments
    if in_place:
        assert "Repeat the update that was stopped." in bench.run(verb="verify", status=VerificationFailed.exit_status)
    said = bench.run(*arguments, "--json")
    assert ("Resumed" in said) == (not arguments)
    assert int(re.search(r'"sent": ?(\d+)', said)[1]) < 1100
    assert (bench.whole() == before) == bool(in_place)
    assert len(listing.list_generations(opensearch_engine, bench.name)) == 2 - bool(in_place)  # no second copy was begun
    assert verify_against_source(opensearch_engine, bench.whole(), corpora.open_source(bench.corpus)).ok


@pytest.mark.nightly
def test_killed_in_each_part_of_a_build(bench):
    chance, began = random.Random(KILLS), time.monotonic()
    two_generations(bench, 1200)
    lasts = time.monotonic() - began
    with bench.searching("first second"):
        for number in range(KILLS):
            bench.write(1200, ("second", "first")[number % 2])
            for _ in range(chance.randint(1, 2)):  # the second one may be killed as well
                process = bench.start()
                threading.Timer(lasts * (number + chance.random()) / KILLS, process.kill).start()
                said, _ = process.communicate(timeout=300)
                assert process.returncode in {0, -signal.SIGKILL}, said
            bench.run()
            bench.whole()


@pytest.mark.nightly
def test_connections_that_are_cut_lose_nothing_and_repeat_nothing(bench):
    two_generations(bench, 600)
    with Proxy(int(bench.url.rpartition(":")[2]), cut=0.1, delay=0.02) as proxy:
        with bench.searching("first second"):
            runs = (bench.run("--patience", "20", url=proxy.url, status=None) for _ in range(20))
            assert any("verified and live" in said for said in runs)
        assert proxy.faults > 3
    bench.whole()


def test_a_build_says_soon_that_it_waits_and_when_it_goes_on(bench):
    """Nothing was said until the patience was over."""
    bench.write(1200)
    with Proxy(int(bench.url.rpartition(":")[2])) as proxy:
        process = bench.held("--patience", "90", url=proxy.url, prelude=SOON)
        proxy.away = True
        process.stdin.write("\n")
        process.stdin.flush()
        until(process, "Waiting for the server, up to 90 s; the work goes on by itself.")
        until(process, "Still waiting for the server after ")
        proxy.away = False
        said = ended(process)
    assert said.count("The server has answered after ") == 1
    assert "Waiting" not in said  # once for each time, whoever failed meanwhile
    bench.whole()


CTRL_C = "Ctrl-C again stops at once"


@pytest.mark.parametrize(
    ("signals", "status", "said"),
    [
        ([signal.SIGINT], 130, CTRL_C),
        ([signal.SIGINT] * 2, 130, CTRL_C),
        ([signal.SIGTERM], 143, "A second SIGTERM stops at once"),
    ],
    ids=["Ctrl-C", "Ctrl-C twice", "SIGTERM"],
)
def test_a_signal_finishes_what_is_under_way_and_a_second_one_stops_at_once(bench, signals, status, said):
    bench.write(1200)
    process = bench.held()
    process.send_signal(signals[0])
    until(process, said)
    assert process.poll() is None  # it waits for the batch
    for again in signals[1:]:  # nobody lets the batch go
        process.send_signal(again)
    told = ended(process, status, release=len(signals) == 1)
    assert len(signals) == 2 or "to continue from there" in told  # the second one may cut that off
    assert "Resumed" in bench.run()
    bench.whole()


def test_two_processes_on_one_name_here_and_on_another_host(bench, tmp_path):
    two_generations(bench, 600)
    elsewhere = Bench(tmp_path / "elsewhere", bench.url, bench.name)
    elsewhere.corpus, elsewhere.count = bench.corpus, bench.count
    with bench.searching("first second"):
        process = bench.held()
        assert f"is running on this host (process {process.pid}" in bench.run(status=1)
        told = elsewhere.run(status=1)
        assert f"(process {process.pid}, since" in told
        assert "is running on " in told
        ended(process)
    bench.whole()
    elsewhere.run()  # the lease was given back
    elsewhere.whole()


def test_a_block_on_the_index_is_said_and_the_build_goes_on_when_it_is_gone(bench, opensearch_engine):
    two_generations(bench, 1200)
    with bench.searching("first second"):
        process = bench.held()
        settings = f"/{bench.unfinished(opensearch_engine)}/_settings"
        opensearch_engine.request("PUT", settings, body={"index.blocks.read_only": True})
        said = ended(process, 1)
        assert "Somebody set index.blocks.read_only on the index" in said
        assert "disk" not in said
        assert "it resumes" in said
        opensearch_engine.request("PUT", settings, body={"index.blocks.read_only": None})
        assert "Resumed" in bench.run()
    bench.whole()


#: An outage is said after 0.2 s and again each second, and the server gives up on a shard after one second, not twenty.
SOON = """
from termweave.engine.client import retries
from termweave.indexer.pipeline import bulk_sender
retries._NOTICEABLE, retries._REMINDER = 0.2, 1.0
bulk_sender._PARAMETERS["timeout"] = "1s"
"""


def test_an_index_without_its_shard_is_an_outage_that_is_said_and_waited_for(bench, opensearch_engine, tmp_path):
    """The server answers `_bulk` with 200, and a 503 for each document: nothing was said for minutes, then that it answers again."""
    two_generations(bench, 300)
    settings = tmp_path / "settings.json"
    homeless = {"index.routing.allocation.require._name": "nowhere"}  # a full or misconfigured cluster looks like that
    settings.write_bytes(orjson.dumps(homeless))
    with bench.searching("first second"):
        said = bench.run("--settings", str(settings), "--patience", "1", prelude=SOON, status=1)
        index = bench.unfinished(opensearch_engine)
        assert f"cannot write to {index}: " in said
        assert "primary shard is not active" in said
        assert "it resumes" in said
        process = bench.start("--settings", str(settings), prelude=SOON)
        said = until(process, "Waiting for the server, up to ") + until(process, "Still waiting for the server after ")
        opensearch_engine.request("PUT", f"/{index}/_settings", body=dict.fromkeys(homeless))
        said += ended(process)
        assert "Resumed" in said
        assert said.count("The server has answered after ") == 1
    assert bench.whole() == index


@pytest.mark.parametrize("status", [429, pytest.param(503, marks=pytest.mark.nightly)])
def test_builds_succeed_though_a_fifth_of_all_requests_is_turned_away(opensearch_engine, name, corpus, status):
    """Seven of ten such builds failed: on a lease, a HEAD, a refresh, a settings change."""
    with BusyProxy(opensearch_engine.url, share=0.2, seed=status, status=status, surely="termweave-leases/_doc") as proxy:
        engine = connect(load(url=proxy.url))
        build(engine, corpus(numbered(10)), name, LEXICAL)
        for count, new in ((15, False), (20, True)):
            source = corpus(numbered(count))
            update(engine, source, name, LEXICAL, UpdateMode(new=new))
            assert clean(opensearch_engine, name, source) == count
        engine.close()
    assert len(proxy.turned_away) > 10
    assert {"GET", "POST", "PUT"} <= {method for method, _ in proxy.turned_away}
    assert any("termweave-leases/_doc" in path for _, path in proxy.turned_away)


@pytest.mark.engine
@pytest.mark.nightly
def test_a_server_that_turns_away_what_is_too_much_or_too_large(tmp_path):
    """429 from the indexing pressure, 413 from http.max_content_length, and documents that neither ever takes."""
    large = "bulk_sender.FIRST = bulk_sender.LARGEST = 4 * 1024 * 1024\n"  # as without the prelude: the server's limits are met
    with own_node("http.max_content_length: 256kb\nindexing_pressure.memory.limit: 160kb\n") as state:
        bench = Bench(tmp_path, state.url, "narrow").write(2000)
        with bench.corpus.open("ab") as file:
            for identity, words in (("giant", 60_000), ("large", 40_000)):
                file.write(orjson.dumps({"_id": identity, "title": "second", "text": "word " * words}) + b"\n")
        said = bench.run(status=1, prelude=large)
        assert "'giant' (line 2001): one document of 300" in said
        assert "'large' (line 2002): one document of 200" in said
        (file,) = (tmp_path / "state").rglob("*.refused.jsonl")
        advice = [orjson.loads(letter)["advice"] for letter in file.read_bytes().splitlines()]
        assert "raise http.max_content_length" in advice[0]
        assert "raise indexing_pressure.memory.limit" in advice[1]
        assert "refused 2 of 2,002 documents" in bench.run("--allow-refused", "0.1%", "--workers", "4", prelude=large)
        bench.whole()  # all but these two


def test_what_is_sent_is_gzip_on_demand_and_arrives_as_it_was(opensearch_engine, name, corpus):
    source = corpus([{**each, "text": "the quick brown fox jumps over the lazy dog " * 20} for each in numbered(200)])
    with BusyProxy(opensearch_engine.url) as proxy:
        engine = connect(load(url=proxy.url, compress=True))
        build(engine, source, name, LEXICAL)
        engine.close()
    assert clean(opensearch_engine, name, source) == 200
    seen = []
    for path, headers, body in proxy.contents:
        if "write" in path and path.partition("?")[0].endswith("/_bulk"):
            assert headers["content-encoding"] == "gzip"
            plain = gzip.decompress(body)
            assert len(body) < len(plain) / 5
            seen += [orjson.loads(line)["id"] for line in plain.splitlines()[1::2]]
    assert sorted(seen) == sorted(f"d{number}" for number in range(200))
