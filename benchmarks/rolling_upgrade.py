"""A rolling upgrade of the server: three nodes of OpenSearch 3.5.0 become 3.6.0, one after the other, while clients search.

    python benchmarks/rolling_upgrade.py

The cluster, the clients and what they check are those of cluster_under_load.py. The indices are built on the old version. After each
node the cluster is green again before the next one is stopped; when two nodes are new, a generation is built and published. In the
end every node runs the new version, and all generations are verified. The archives of 3.5.0 come from Maven Central (200 MB).
"""

# A script's functions need no types.
# ruff: noqa: ANN201
from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from unittest import mock

from cluster_record import Record
from cluster_under_load import NAME, NODES, OTHER, Cluster, ClusterWriter, in_peace, say, searching, write_corpora
from entry_point import enter
from load_balancer import LoadBalancer

from termweave.engine.embedded import artifacts, node, process
from termweave.engine.embedded.artifacts import Artifact
from termweave.indexer.generations import generations

#: There is no neural-search plugin of this version on Maven Central. Only --server-fusion needs it.
OLD = "3.5.0"
OLD_ARTIFACTS = (
    Artifact(
        "org.opensearch.distribution.integ-test-zip",
        "opensearch",
        OLD,
        "b676ad392c95a94d8d2bd8785b8b922c7811536daf6a9ec0c7277a34bd8a17a9",
    ),
    Artifact(
        "org.opensearch.plugin",
        "opensearch-knn",
        f"{OLD}.0",
        "99fdf3ac9ef95974e276298b83a58532bf21ba13bd5fd96a4b59465b7e613309",
        plugin="opensearch-knn",
    ),
)


def old_version():
    """Let nodes start with the old version."""
    return mock.patch.multiple(artifacts, VERSION=OLD, ARTIFACTS=OLD_ARTIFACTS)


def versions(writer: ClusterWriter) -> list[str]:
    answer = writer.engine.request("GET", "/_nodes/_all/name")
    return sorted(each["version"] for each in answer["nodes"].values())


def upgrade(cluster: Cluster, writer: ClusterWriter, record: Record) -> None:
    """Restart each node with the new version."""
    for number, old in enumerate(cluster.state.nodes, 1):
        if number == NODES:
            writer.build("second")  # its copies stay on the new nodes: an old node cannot read what a new one writes
            settled = {"wait_for_no_initializing_shards": True, "wait_for_no_relocating_shards": True, "timeout": "60s"}
            writer.patiently(partial(writer.engine.request, "GET", "/_cluster/health", params=settled, timeout=90))
        record.lives(NODES - 1, [old.name])
        process.end([(process.Layout(Path(cluster.state.folder), old.name), old)])
        while not cluster.started():
            time.sleep(1)
        record.lives(NODES, [])
        say(f"{old.name} is upgraded: {', '.join(versions(writer))}")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    record = Record(say)
    with tempfile.TemporaryDirectory(prefix="termweave-upgrade-") as scratch:
        folder, home = Path(scratch), Path(scratch) / "node"
        for each in (folder, home):
            each.mkdir(exist_ok=True)
            each.chmod(0o711)  # for root: the server's unprivileged user must come through
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        try:
            with old_version():
                cluster = Cluster(home, record)
            with LoadBalancer([each.port for each in cluster.state.nodes]) as balancer:
                writer = ClusterWriter(balancer.url, folder, record)
                before = versions(writer)
                queries = write_corpora(folder)
                in_peace(writer, queries, record)
                record.begin(NODES)
                with searching(balancer.url, queries, record, rate=2, seed=1):
                    upgrade(cluster, writer, record)
                    for label in ("first", "second"):
                        writer.update_in_place(label)
                record.end()
                after = versions(writer)
                for index in (*writer.made, generations.live(writer.engine, OTHER)):
                    writer.check(NAME if index in writer.made else OTHER, index)
        finally:
            node.stop(home)
    print(f"before: {', '.join(before)}; after: {', '.join(after)}")
    print(record.report())
    sys.exit(1 if record.broken or len({*after}) != 1 or after[0] == OLD else 0)


if __name__ == "__main__":
    enter(main)
