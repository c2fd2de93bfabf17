"""The entry points for Python programs: `connect` to a server, and `index` documents that a program holds."""

from termweave.python.connection import Connection, Index, connect, index

__all__ = ["Connection", "Index", "connect", "index"]
