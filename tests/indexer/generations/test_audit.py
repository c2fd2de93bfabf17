"""The audit trail: who moved an alias or deleted something, when, from where, and what."""

from __future__ import annotations

import getpass
import json
import logging
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from termweave import __version__
from termweave.catalog import audit
from termweave.engine import connect
from termweave.indexer import build
from termweave.settings import load
from tests.indexer.builds import LEXICAL
from tests.indexer.proxy import BusyProxy

pytestmark = pytest.mark.engine
SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "audit.1.json").read_text())


def lines(desk):
    return [(each.act, each.before, each.after) for each in reversed(audit.read(desk.engine, desk.name, 100))]


def test_every_act_leaves_a_line(desk):
    first, second = desk.build(2).index, desk.build(3).index
    desk.run("rollback")
    desk.run("promote", second)
    desk.update(5)
    desk.run("delete", "--id", "d3", "--yes")
    third = desk.update(1, new=True).index
    desk.run("prune", "--keep", "1", "--yes")
    desk.run("delete", "--yes")
    assert lines(desk) == [
        ("publish", "", first),
        ("publish", first, second),
        ("rollback", second, first),
        ("promote", first, second),
        ("update", second, second),
        ("delete documents", second, second),
        ("publish", second, third),
        ("delete generations", third, third),
        ("delete generations", third, ""),
    ]
    newest = audit.read(desk.engine, desk.name, 5)
    assert newest[0].deleted == [third]
    assert sorted(newest[1].deleted) == sorted([first, second])
    assert (newest[3].documents, newest[4].documents) == (1, 2)


def test_a_line_says_who_when_and_from_where(desk, name, capsys):
    with connect(load(url=desk.engine.url, user="jürgen", password="secret")) as engine:
        index = build(engine, desk.source(1), name, LEXICAL).index
    (line,) = audit.read(desk.engine, name, 1)
    assert (line.user, line.os_user, line.host) == ("jürgen", getpass.getuser(), socket.gethostname())
    assert line.termweave == __version__
    assert abs(datetime.fromisoformat(line.at) - datetime.now(UTC)) < timedelta(minutes=1)
    desk.run("audit", "--json")
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    assert [each["after"] for each in told["lines"]] == [index]
    desk.run("audit")
    shown = capsys.readouterr().out
    for part in ("jürgen", socket.gethostname(), f"publish: nothing -> {index}", line.at[:10]):
        assert part in shown


def test_a_refused_line_warns_once_and_the_act_stands(desk, name, caplog):
    """A role without the permission can publish all the same: the line is written after the act."""
    with BusyProxy(desk.engine.url, status=403, always=audit.INDEX) as proxy, caplog.at_level(logging.WARNING):
        engine = connect(load(url=proxy.url))
        first, second = (build(engine, desk.source(count), name, LEXICAL).index for count in (1, 2))
    (said,) = [each.getMessage() for each in caplog.records if "audit" in each.getMessage()]
    assert said.startswith(
        f"Warning: 'publish' of {name!r} is done, but the audit trail (termweave-audit) has no line about it: "
    )
    assert desk.live == second != first
    assert lines(desk) == []
