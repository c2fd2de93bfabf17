"""A cluster of three on Elasticsearch, named by all its addresses: the end of the node that a command talks to costs a retry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from termweave.engine.embedded import startup
from tests.cluster.test_faults import Work
from tests.engine.elasticsearch import server

pytestmark = [pytest.mark.nightly, pytest.mark.slow]


class Cluster:
    """Three nodes."""

    def __init__(self):
        ports = [tuple(pair) for pair in zip(*[islice(startup.free_ports(), 6)] * 2, strict=True)]
        names, seeds = ["node-1", "node-2", "node-3"], [f"127.0.0.1:{transport}" for _, transport in ports]

        def start(name, pair):
            settings = {"node.name": name, "discovery.seed_hosts": seeds, "cluster.initial_master_nodes": names}
            return server.start("9.2.0", ports=pair, cluster="\n".join(f"{key}: {value}" for key, value in settings.items()))

        with ThreadPoolExecutor(3) as threads:  # each waits for the others
            self.nodes = list(threads.map(start, names, ports))
        self.url = ",".join(node.url for node in self.nodes)


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("elasticsearch", reason="the extra 'elasticsearch' is not installed")
    made = Cluster()
    yield made
    for node in made.nodes:
        node.close()


def test_a_build_outlasts_the_node_that_it_talks_to(cluster, tmp_path):
    work = Work(cluster, tmp_path, "several")
    try:
        seen = work.index("--analyzer", "standard", "--replicas", 1, "--no-loading", prelude=work.held(3))
        seen.until("HELD")
        cluster.nodes[0].kill()
        seen.go_on()
        said = seen.end()
        work.clean()
    finally:
        work.stop()
    assert seen.longest_silence() < 15, said
    assert "answers again" not in said
