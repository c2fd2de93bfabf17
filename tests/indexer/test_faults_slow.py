"""The larger matrix: many instants, servers killed and started again, a disk that fills, clocks that jump. KILLS=30 is the whole."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from termweave.engine import connect
from termweave.engine.embedded import node
from termweave.indexer import BuildOptions, build
from termweave.settings import load

from .conftest import HOLD, Bench, killed_at, own_node, two_generations, until

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]

#: Builds that are killed, each in another part of its steps.
KILLS = int(os.environ.get("KILLS", "4"))


def test_killed_in_each_part_of_a_build(bench):
    chance = random.Random(KILLS)
    steps = two_generations(bench, 1200)
    with bench.searching("first second"):
        for number in range(KILLS):
            bench.write(1200, ("second", "first")[number % 2])
            killed_at(bench, 1 + int(steps * (number + chance.random()) / KILLS), chance.uniform(0, 0.05))
            if chance.random() < 0.3:  # the second one may be killed as well
                killed_at(bench, chance.randint(1, steps), chance.uniform(0, 0.05))
            bench.run()
            bench.whole()


@pytest.fixture(scope="module")
def cluster():
    """Three nodes."""
    with own_node(nodes=3) as state:
        yield state


def test_a_generation_has_its_replicas_before_it_is_published(cluster, corpus):
    source = corpus([{"_id": f"d{number}", "text": f"A text about number {number}."} for number in range(500)])
    seen = []
    with connect(load(url=cluster.url)) as engine:

        def gate(index):  # called between verification and publication
            health = engine.request("GET", f"/_cluster/health/{index}")
            seen.append((health["status"], health["active_shards"]))

        build(engine, source, "whole", BuildOptions(weights="none", dense="none", replicas=1, shards=3), gate=gate)
        wait_for(lambda: engine.request("GET", "/_cluster/health/termweave-leases")["active_shards"] == 3)  # one on each node
    assert seen == [("green", 6)]


def test_one_node_of_three_is_killed_and_the_build_goes_on(cluster, tmp_path):
    bench = Bench(tmp_path, ",".join(node.url for node in cluster.nodes), "three")
    options = ("--replicas", "1", "--no-loading", "--shards", "3")
    two_generations(bench, 1200, arguments=options)
    victim = cluster.nodes[2]
    with bench.searching("first second", may_be_away=True):
        child = bench.start(*options, prelude=HOLD, stdin=subprocess.PIPE)
        until(child, "HELD")
        with connect(load(url=bench.url)) as engine:  # what has no second copy yet dies with its node
            wait_for(lambda: engine.request("GET", f"/_cluster/health/{bench.name}-*")["status"] == "green")
        os.kill(victim.pid, signal.SIGKILL)
        said, _ = child.communicate("\n", timeout=300)
        assert child.returncode == 0, said
        assert "answers again" not in said  # the two others answered all along
    bench.whole()


@pytest.fixture(scope="module")
def mortal():
    """A server to be killed, that looks at its disk often."""
    with own_node("cluster.info.update.interval: 10s\n") as state:
        yield state


def test_the_server_is_killed_in_the_middle_and_started_again(mortal, tmp_path):
    bench = Bench(tmp_path, mortal.url, "mortal")
    two_generations(bench, 1200)
    with bench.searching("first second", may_be_away=True):
        child = bench.start("--patience", "300", prelude=HOLD, stdin=subprocess.PIPE)
        until(child, "HELD")
        (process,) = node.status(Path(mortal.folder)).nodes
        os.kill(process.pid, signal.SIGKILL)
        child.stdin.write("\n")
        child.stdin.flush()
        time.sleep(1.0)  # it knocks at a closed door
        assert node.start(home=Path(mortal.folder), heap=512).url == bench.url
        said, _ = child.communicate(timeout=400)
        assert child.returncode == 0, said
    bench.whole()


def test_a_disk_beyond_its_watermark(mortal, tmp_path):
    bench = Bench(tmp_path, mortal.url, "watermark")
    two_generations(bench, 1200)
    marks = "cluster.routing.allocation.disk.watermark"
    full = {f"{marks}.low": "900tb", f"{marks}.high": "800tb", f"{marks}.flood_stage": "700tb"}
    with connect(load(url=bench.url)) as engine, bench.searching("first second"):
        child = bench.start(prelude=HOLD, stdin=subprocess.PIPE)
        until(child, "HELD")
        settings = {f"{marks}.low": None, f"{marks}.high": None, f"{marks}.flood_stage": None}
        try:
            engine.request("PUT", "/_cluster/settings", body={"transient": full})
            (unfinished,) = list(engine.request("GET", f"/{bench.name}-*.write-*/_alias"))
            wait_for(lambda: _blocked(engine, unfinished))
            child.stdin.write("\n")
            child.stdin.flush()
            time.sleep(3.0)  # it meets the block
            assert child.poll() is None or child.returncode == 1
        finally:
            engine.request("PUT", "/_cluster/settings", body={"transient": settings})
        wait_for(lambda: not _blocked(engine, unfinished))
        wait_for(lambda: "create-index" not in str(engine.request("GET", "/_cluster/state/blocks")))
        said, _ = child.communicate(timeout=300)
        assert "Traceback" not in said
        bench.run()
    bench.whole()


def wait_for(condition, patience=120):
    until = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.5)


def _blocked(engine, index):
    found = engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]
    return found.get("index.blocks.read_only_allow_delete") == "true"


JUMPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>
static _Atomic long calls;
int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    if (clock == CLOCK_REALTIME) at->tv_sec += (calls++ / 20 % 3 - 1) * 86400L;
    return result;
}
"""


def test_a_clock_that_jumps_by_days(bench, tmp_path):
    """The system's clock goes a day back and forth all the time; what measures time must not notice."""
    from termweave.indexer.generations import listing

    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler to make a clock that jumps")
    (tmp_path / "jumps.c").write_text(JUMPS)
    library = tmp_path / "jumps.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "jumps.c", "-ldl"], check=True)
    bench.environment["LD_PRELOAD"] = str(library)
    steps = two_generations(bench, 1200)
    with bench.searching("first second"):
        killed_at(bench, steps // 2, 0.01)
        bench.run()
    newer = bench.whole()
    bench.environment.pop("LD_PRELOAD")
    with connect(load(url=bench.url)) as engine:
        assert listing.list_generations(engine, bench.name)[0].index == newer
