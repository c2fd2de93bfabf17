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
from termweave.catalog import audit, generations
from termweave.cli import run
from termweave.engine import connect
from termweave.indexer import UpdateMode, build, update
from termweave.settings import load
from tests.indexer.builds import LEXICAL
from tests.indexer.busy_proxy import BusyProxy

pytestmark = pytest.mark.engine
SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schemas" / "audit.1.json").read_text())


def documents(*names):
    return [{"_id": name, "text": f"A sentence about {name}."} for name in names]


def lines(engine, name):
    return [(each.act, each.before, each.after) for each in reversed(audit.read(engine, name, 100))]


@pytest.fixture
def command(opensearch_engine, capsys):
    def call(*arguments):
        assert run([*arguments, "--url", opensearch_engine.url]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return call


def test_every_act_leaves_a_line(opensearch_engine, name, corpus, command):
    first = build(opensearch_engine, corpus(documents("a", "b")), name, LEXICAL).index
    second = build(opensearch_engine, corpus(documents("a", "b", "c")), name, LEXICAL).index
    command("rollback", name)
    command("promote", name, second)
    update(opensearch_engine, corpus(documents("a", "b", "c", "d", "e")), name, LEXICAL)
    command("delete", name, "--id", "d", "--yes")
    third = update(opensearch_engine, corpus(documents("a", "z")), name, LEXICAL, mode=UpdateMode(new=True)).index
    command("prune", name, "--keep", "1", "--yes")
    command("delete", name, "--yes")
    assert lines(opensearch_engine, name) == [
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
    newest = audit.read(opensearch_engine, name, 5)
    assert newest[0].deleted == [third]
    assert sorted(newest[1].deleted) == sorted([first, second])
    assert (newest[3].documents, newest[4].documents) == (1, 2)


def test_a_line_says_who_when_and_from_where(opensearch_engine, name, corpus, command):
    with connect(load(url=opensearch_engine.url, user="jürgen", password="secret")) as engine:
        index = build(engine, corpus(documents("a")), name, LEXICAL).index
    (line,) = audit.read(opensearch_engine, name, 1)
    assert (line.user, line.os_user, line.host) == ("jürgen", getpass.getuser(), socket.gethostname())
    assert line.termweave == __version__
    assert abs(datetime.fromisoformat(line.at) - datetime.now(UTC)) < timedelta(minutes=1)
    told = json.loads(command("audit", name, "--json"))
    jsonschema.validate(told, SCHEMA)
    assert [each["after"] for each in told["lines"]] == [index]
    shown = command("audit", name)
    for part in ("jürgen", socket.gethostname(), f"publish: nothing -> {index}", line.at[:10]):
        assert part in shown
    assert name in command("audit", "-n", "50")


def test_a_name_without_lines(command, name):
    assert command("audit", name) == f"The audit trail has no line about {name}.\n"


def test_a_refused_line_warns_once_and_the_act_stands(opensearch_engine, name, corpus, caplog):
    """A role without the permission can publish all the same: the line is written after the act."""
    with BusyProxy(opensearch_engine.url, status=403, always=audit.INDEX) as proxy:
        engine = connect(load(url=proxy.url))
        with caplog.at_level(logging.WARNING):
            first = build(engine, corpus(documents("a")), name, LEXICAL).index
            second = build(engine, corpus(documents("a", "b")), name, LEXICAL).index
    said = [each.getMessage() for each in caplog.records if "audit" in each.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(
        f"Warning: 'publish' of {name!r} is done, but the audit trail (termweave-audit) has no line about it: "
    )
    assert generations.live(opensearch_engine, name) == second != first
    assert lines(opensearch_engine, name) == []


def test_a_line_that_another_program_wrote_is_shown_as_text(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(documents("a")), name, LEXICAL)  # the index exists
    strange = {"name": name, "act": 5, "deleted": "x", "documents": "many", "other": 1, "at": "2020-01-01"}
    opensearch_engine.request("POST", f"/{audit.INDEX}/_doc", params={"refresh": True}, body=strange)
    line = audit.read(opensearch_engine, name, 2)[1]
    assert (line.act, line.deleted, line.documents, line.host) == ("5", [], 0, "")
