"""A load balancer before the nodes of an embedded cluster: one address that leads to the nodes which are up.

Where nodes may fail, users give several addresses, or that of a load balancer; this one checks the nodes every half
second, forwards a new connection to a node that belongs to the cluster, and closes the connections of a node that died.
"""

# A script's functions need no types.
from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHUNK = 65_536
#: Seconds between two checks of the nodes.
_CHECK = 0.5


class LoadBalancer:
    """Forwards TCP connections to the nodes in turn.

    Args:
        ports: HTTP ports of the nodes on this host. `ports` may be assigned anew.

    Attributes:
        url: The address of the load balancer.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self._up = list(ports)
        self._turn = itertools.count()
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        for work in (self._check, self._accept):
            threading.Thread(target=work, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.close()

    def _check(self):
        while not self._ended.wait(_CHECK):
            self._up = [port for port in self.ports if _in_cluster(port)] or self.ports

    def _accept(self):
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        up, first = self._up, next(self._turn)
        for number in range(len(up)):
            with suppress(OSError):
                server = socket.create_connection(("127.0.0.1", up[(first + number) % len(up)]), timeout=2)
                server.settimeout(None)
                threading.Thread(target=_pump, args=(client, server), daemon=True).start()
                _pump(server, client)
                return
        client.close()


def _pump(source, sink):
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    source.close()


def _in_cluster(port):
    """Whether a node answers and knows the cluster's manager; one that has just started does not, and turns requests away."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/_cluster/health?local=true")
        health = json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return bool(health.get("discovered_cluster_manager"))
