"""The audit trail: one line in the cluster for each publication, promotion, rollback, update in place, enrichment, profile and deletion.

The lines are documents of the hidden index ``termweave-audit``. A line is written after the act, so there is none for an act that failed.
If the line cannot be written, the act stands: a log warning says what is missing, once for each connection.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from termweave import __version__
from termweave.catalog.lineage import create_hidden_index
from termweave.errors import EngineError
from termweave.support.messages import printable

if TYPE_CHECKING:
    from termweave.engine import Engine

INDEX = "termweave-audit"
_KEYWORD = {"type": "keyword"}
_MAPPING = {"dynamic": False, "properties": {"at": {"type": "date"}, "name": _KEYWORD, "act": _KEYWORD, "host": _KEYWORD}}
#: Seconds that one request about a line may take: it must not hold up the end of a build.
_TIMEOUT = 10.0
#: Clients of connections about which a warning was logged; the copies of an `Engine` share one.
_WARNED: WeakSet[Any] = WeakSet()

_OfGenerations = Literal["publish", "promote", "rollback", "update", "delete documents", "delete generations"]
Act = Literal[_OfGenerations, "profile", "enrich", "remove fields", "connect", "disconnect"]


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """One line of the audit trail.

    Attributes:
        at: Time of the act, UTC, ISO 8601, by the clock of the host.
        act: What was done.
        name: The alias.
        before: The generation that was live before, or the profile that was in force; "" for none.
        after: The generation that is live after, or the profile that is in force; "" for none.
        deleted: Generations that were deleted.
        documents: Documents that an update in place or an enrichment wrote and deleted, or that were deleted by their ids.
        user: User name of the connection; "" if it has none (client certificates, AWS signatures).
        os_user: User of the operating system.
        host: Name of the host.
        program: Name of the program: "termweave", or that of a script which imports it.
        process: Process id.
        termweave: Version of termweave.
    """

    at: str
    act: Act
    name: str
    before: str
    after: str
    deleted: Sequence[str]
    documents: int
    user: str
    os_user: str
    host: str
    program: str
    process: int
    termweave: str


def write(
    engine: Engine,
    act: Act,
    name: str,
    *,
    before: str | None = None,
    after: str | None = None,
    deleted: Sequence[str] = (),
    documents: int = 0,
) -> None:
    """Write an audit line about an act that was done. If the line cannot be written, only a warning is logged.

    Args:
        engine: The server.
        act: What was done.
        name: The alias.
        before: The generation that was live before, or the profile that was in force; None: there was none.
        after: The generation that is live after, or the profile that is in force; None: there is none.
        deleted: Generations that were deleted.
        documents: Number of documents that were sent or deleted.
    """
    line = AuditLine(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        act=act,
        name=name,
        before=before or "",
        after=after or "",
        deleted=list(deleted),
        documents=documents,
        user=engine.user,
        os_user=_os_user(),
        host=socket.gethostname(),
        program=Path(sys.argv[0] or "python").name,
        process=os.getpid(),
        termweave=__version__,
    )
    try:
        create_hidden_index(engine, INDEX, _MAPPING)
        engine.request("POST", f"/{INDEX}/_doc", params={"refresh": True}, body=asdict(line), timeout=_TIMEOUT)
    except EngineError as error:
        if engine.client not in _WARNED:
            _WARNED.add(engine.client)
            message = f"'{act}' of {name!r} is done, but the audit trail ({INDEX}) has no line about it: {error.message}"
            logging.getLogger(__name__).warning("Warning: %s", printable(message))


def read(engine: Engine, name: str | None, count: int) -> list[AuditLine]:
    """Return the newest audit lines, newest first.

    Args:
        engine: The server.
        name: The alias that the lines are about; None: lines about all aliases are returned.
        count: Largest number of lines to return.
    """
    query = {"match_all": {}} if name is None else {"term": {"name": name}}
    body = {"size": count, "sort": [{"at": {"order": "desc", "unmapped_type": "date"}}], "query": query}
    answer = engine.request("POST", f"/{INDEX}/_search", params={"ignore_unavailable": True}, body=body)
    return [_line(hit["_source"]) for hit in answer["hits"]["hits"]]


def _line(stored: dict[str, Any]) -> AuditLine:
    """Read a stored audit line. Any program may have written to the index, so a missing value, or one of another type, becomes text or 0."""
    texts = {field.name: str(stored.get(field.name, "")) for field in fields(AuditLine) if field.type in {"str", "Act"}}
    numbers = {name: value if isinstance(value := stored.get(name), int) else 0 for name in ("documents", "process")}
    deleted = stored.get("deleted")
    return AuditLine(**texts, **numbers, deleted=[str(each) for each in deleted] if isinstance(deleted, list) else [])  # type: ignore[arg-type]


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return str(os.getuid())
