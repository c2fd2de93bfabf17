"""A cluster of three containers (docker/three-nodes.yml) whose nodes are killed, paused, cut off and restarted."""

import json
import os
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from termweave.engine import connect
from termweave.settings import load
from tests.programs import require_docker

_ROOT = Path(__file__).parents[2]
#: Sends what a node's network namespace does with packets to other nodes: command, flags, address ... (rtnetlink(7)).
_ROUTES = """
import socket, struct, sys
kind = {"add": 24, "del": 25}[sys.argv[1]]
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
    for address in sys.argv[2:]:
        # RTM_NEWROUTE or RTM_DELROUTE of one host: table main, protocol boot, scope universe, type blackhole
        body = struct.pack("BBBBBBBBI", socket.AF_INET, 32, 0, 0, 254, 3, 0, 6, 0)
        body += struct.pack("HH4s", 8, 1, socket.inet_aton(address))
        netlink.send(struct.pack("IHHII", 16 + len(body), kind, 0x1 | 0x4 | (0x400 if kind == 24 else 0), 1, 0) + body)
        (error,) = struct.unpack_from("i", netlink.recv(4096), 16)
        assert error == 0, error
"""

#: What tells why a cluster is not whole.
_CAUSES = ("/_cat/nodes?format=json", "/_cat/shards?format=json&h=index,shard,prirep,state,node", "/_cluster/allocation/explain")


class Cluster:
    """Three nodes, numbered from 1, and their addresses in the network of the containers."""

    def __init__(self):
        self._project = f"termweave-cluster-{os.getpid()}"
        self.urls = {number: f"http://10.231.77.1{number}:9200" for number in (1, 2, 3)}

    @property
    def url(self):
        """All addresses, as --url takes them."""
        return ",".join(self.urls.values())

    def docker(self, *arguments):
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def compose(self, *arguments):
        files = ("-f", str(_ROOT / "docker" / "three-nodes.yml"), "-f", str(Path(__file__).with_name("addresses.yml")))
        return self.docker("compose", "-p", self._project, *files, *arguments)

    def __enter__(self):
        os.environ["OPENSEARCH_PORT"] = "0"
        self.compose("up", "--wait", *(f"opensearch-{number}" for number in self.urls))
        return self

    def __exit__(self, *_):
        self.compose("down", "--volumes", "--timeout", "1")

    def container(self, number):
        return f"{self._project}-opensearch-{number}-1"

    def get(self, path, number=None, method="GET"):
        """The answer of a node, or of the first one that answers; None if there is none."""
        for url in [self.urls[number]] if number else self.urls.values():
            with suppress(OSError, ValueError), urlopen(Request(f"{url}{path}", method=method), timeout=5) as answer:
                return json.load(answer)
        return None

    def manager(self):
        """The number of the cluster manager."""
        return int(self.get("/_cat/cluster_manager?format=json")[0]["node"][-1])

    def whole(self):
        """Wait until three nodes have all shards."""
        end, path = time.monotonic() + 300, "/_cluster/health?wait_for_status=green&wait_for_nodes=3&timeout=4s"
        while not (health := self.get(path)) or health["timed_out"]:
            assert time.monotonic() < end, json.dumps([self.get(path) for path in _CAUSES], indent=1)
            if time.monotonic() > end - 200:  # a shard that failed five times waits for an operator
                self.get("/_cluster/reroute?retry_failed=true&metric=none", method="POST")
            time.sleep(1)

    def network(self, action, number):
        """Disconnect or connect a node."""
        more = ("--ip", f"10.231.77.1{number}", "--alias", f"opensearch-{number}") if action == "connect" else ()
        self.docker("network", action, *more, f"{self._project}_default", self.container(number))

    def routes(self, action, number):
        """Cut a node off from the others, and from nobody else ("add"), or undo that ("del")."""
        others = [f"10.231.77.1{other}" for other in self.urls if other != number]
        network = f"container:{self.container(number)}"
        run = ("run", "--rm", "--network", network, "--cap-add", "NET_ADMIN", "python:3.12-slim", "python3", "-c", _ROUTES)
        self.docker(*run, action, *others)


@pytest.fixture(scope="session")
def cluster():
    """The cluster; skipped without a Docker engine, unless one is required."""
    require_docker()
    with Cluster() as running:
        yield running


@pytest.fixture
def name(cluster):
    """An index name of one's own; whatever was made under it is removed afterwards."""
    prefix = f"faults-{uuid.uuid4().hex[:10]}"
    yield prefix
    with connect(load(url=cluster.url)) as engine:
        engine.request("DELETE", f"/{prefix}*", params={"expand_wildcards": "all"})
