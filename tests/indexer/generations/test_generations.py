"""Generations on a real server: listed, promoted, rolled back, pruned, deleted, also documents by their ids; the audit trail says who did it."""

import getpass
import json
import logging
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from termweave import __version__
from termweave.catalog import audit, lineage
from termweave.engine import connect
from termweave.errors import UsageError
from termweave.indexer import build, up_to_date
from termweave.indexer.generations import deletion, listing, publication
from termweave.indexer.generations.deletion import find, remove_documents
from termweave.indexer.ledger import storage
from termweave.indexer.options import Window
from termweave.settings import load
from tests.indexer.builds import LEXICAL
from tests.indexer.conftest import stopping
from tests.indexer.proxy import BusyProxy


@pytest.fixture
def three(desk):
    """Three generations of 1, 2 and 3 documents; the newest is live."""
    return [desk.build({str(number): f"word{number}" for number in range(count)}).index for count in (1, 2, 3)]


def test_listed_newest_first_with_what_is_in_them(desk, three):
    newest = [(three.index(each.index), each.documents, each.live) for each in desk.generations]
    assert newest == [(2, 3, True), (1, 2, False), (0, 1, False)]
    assert all(each.complete and each.bytes > 0 for each in desk.generations)
    desk.name += "-other"  # a name that begins alike is another one
    desk.build(1)
    assert len(desk.generations) == 1
    desk.name = desk.name.removesuffix("-other")
    assert len(desk.generations) == 3
    with pytest.raises(UsageError, match="no index named"):
        listing.list_generations(desk.engine, "nothing-of-the-kind")
    with pytest.raises(UsageError, match=f"'{three[0]}' is one generation of '{desk.name}'. Give the name it was built under"):
        listing.list_generations(desk.engine, three[0])


def test_promote_and_rollback_move_the_name(desk, three):
    index = desk.open()
    assert publication.promote(desk.engine, desk.name, three[0]) == three[2]
    assert desk.count == len(index.search("word0 word1 word2", mode="lexical")) == 1
    with pytest.raises(UsageError, match="no older generation"):
        publication.previous(desk.engine, desk.name)
    publication.promote(desk.engine, desk.name, three[2])
    desk.run("rollback")
    assert desk.live == three[1]
    assert [listing.state_of(each) for each in desk.generations][:2] == ["rolled back", "live"]
    new = desk.build({"new": "new"}).index
    assert [each.index for each in deletion.prunable(desk.engine, desk.name, keep=2)] == [three[2], three[0]]
    desk.run("rollback")
    assert desk.live == three[1]  # not what was rolled back from
    publication.promote(desk.engine, desk.name, three[2])  # by hand: it counts as good again
    publication.promote(desk.engine, desk.name, new)
    assert publication.previous(desk.engine, desk.name) == three[2]


def test_a_closed_generation_is_not_published_and_can_be_deleted(desk, three):
    desk.engine.request("POST", f"/{three[1]}/_close")
    assert f"POST /{three[1]}/_open" in desk.run("rollback", status=2).err
    assert desk.live == three[2]
    desk.run("delete", "--yes")
    assert desk.live is None


def test_what_was_never_finished_is_not_promoted_and_goes_by_wish_while_nobody_builds(desk, three):
    meta = desk.engine.request("GET", f"/{three[0]}/_mapping")[three[0]]["mappings"]["_meta"]
    meta["termweave"]["complete"] = False
    desk.engine.request("PUT", f"/{three[0]}/_mapping", body={"_meta": meta})
    for index, said in ((three[0], "never finished"), ("something-else", "has no generation")):
        with pytest.raises(UsageError, match=said):
            publication.promote(desk.engine, desk.name, index)
    storage.forget(desk.engine, three[0])
    assert deletion.prunable(desk.engine, desk.name, keep=2) == []
    with storage.lease(desk.engine, desk.name):
        for verb in (["prune", "--unfinished"], ["delete"]):
            assert f"Another build of '{desk.name}' is running on this host" in desk.run(*verb, "--yes", status=1).err
    desk.run("prune", "--unfinished", "--yes")
    assert [each.index for each in desk.generations] == [three[2], three[1]]


def test_prune_keeps_the_live_the_newest_and_what_became_live_while_it_asked(desk, three):
    asked = deletion.prunable(desk.engine, desk.name, keep=1)
    publication.promote(desk.engine, desk.name, three[0])
    assert [each.index for each in deletion.prunable(desk.engine, desk.name, keep=1)] == [three[1]]
    assert deletion.prune(desk.engine, desk.name, asked) == [three[1]]
    assert {each.index for each in desk.generations} == {three[0], three[2]}
    assert not list(storage.folder(desk.engine).glob(f"{three[1]}*"))
    assert desk.count == 1


#: What every generation says of itself, beside its name and when it was made.
WHOLE = {"termweave": "1.0", "source": {"name": "here"}, "fingerprint": "", "signals": {}}
UNREADABLE = (
    ({}, "('_meta.termweave' in its mapping) is damaged. If the index is live, roll back"),
    ({**WHOLE, "source": {}}, "is damaged"),
    ({**WHOLE, "passages": {"size": 20}}, "is damaged"),
    ({**WHOLE, "statistics": {"documents": 2}, "fields": None}, "is damaged"),
    ({"schema": 999, "termweave": "99.0"}, "was built by termweave 99.0 in a format that this version cannot read."),
)


def test_one_that_cannot_be_read_is_named_and_blocks_nothing(desk, three):
    created = {each.index: each.created for each in desk.generations}
    for said, why in UNREADABLE:
        for index in (three[0], three[2]):
            meta = {"name": desk.name, "created": created[index], **said}
            desk.engine.request("PUT", f"/{index}/_mapping", body={"_meta": {"termweave": meta}})
        listed, warned = desk.run("generations")
        unreadable = [line.split()[1:3] for line in listed.splitlines() if "unreadable" in line]
        assert unreadable == [["live,", "unreadable"], ["unreadable", created[three[0]][:10]]]
        assert why in warned
        assert f"'{three[0]}'" in warned
        assert f"'{three[1]}'" not in warned
        assert why in desk.run("promote", three[0], status=2).err
        assert deletion.prunable(desk.engine, desk.name, 1, unfinished=True) == []
    desk.run("rollback")
    assert desk.count == 2
    desk.run("delete", "--yes")
    assert not desk.engine.request("HEAD", f"/{three[2]}")


CUT = replace(LEXICAL, passages=Window(12, 8))


def texts(**sentences):
    return {name: "This is a sentence of it. " * count for name, count in sentences.items()}


def remove(desk, *ids):
    return remove_documents(desk.engine, desk.name, find(desk.engine, desk.name, ids))


def agrees(desk, count):
    """Index, ledger and lineage say the same number of documents and passages."""
    difference, stored = desk.check(), desk.open().lineage
    return difference.ok and (stored.documents, stored.passages["count"]) == (count, difference.counted)


def test_what_an_update_made_of_them_meanwhile_is_deleted_and_what_it_added_is_kept(desk):
    desk.build(texts(a=5, b=3, c=2), CUT)
    before = find(desk.engine, desk.name, ["a", "new"])
    desk.update(texts(a=12, b=3, c=2, new=2), CUT)
    done = remove_documents(desk.engine, desk.name, before)
    assert (done.documents, done.absent) == (["a"], ["new"])
    assert len(done.passages) > len(before.passages)
    assert agrees(desk, 3)
    again = remove_documents(desk.engine, desk.name, before)  # what is gone already is not counted again
    assert (again.documents, again.absent) == ([], ["new", "a"])
    assert agrees(desk, 3)


def test_only_where_something_may_have_been_deleted_is_the_generation_another_one(desk):
    source = desk.source(texts(a=5, b=3))
    index = desk.build(source, CUT).index
    done = remove(desk, "nobody")
    assert (done.documents, done.absent) == ([], ["nobody"])
    assert up_to_date(desk.engine, source, desk.name, CUT)
    assert desk.open().lineage.updated == ""
    with pytest.raises(UsageError, match="is one generation of"):  # the lock of that name would not keep an update away
        find(desk.engine, index, ["a"])
    with stopping(deletion, "close_writer"), pytest.raises(KeyboardInterrupt):
        remove(desk, "a")
    assert up_to_date(desk.engine, source, desk.name, CUT) is None
    remove(desk, "a")
    assert up_to_date(desk.engine, source, desk.name, CUT) is None
    assert desk.check().ok
    lineage.store_lineage(desk.engine, index, replace(lineage.read_lineage(desk.engine, index), fingerprint=lineage.CHANGING))
    remove(desk, "b")
    assert lineage.read_lineage(desk.engine, index).fingerprint == lineage.CHANGING  # an update that was stopped is remembered


def trail(desk):
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
    assert trail(desk) == [
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


def test_a_line_says_who_when_and_from_where(desk, name):
    with connect(load(url=desk.engine.url, user="jürgen", password="secret")) as engine:
        index = build(engine, desk.source(1), name, LEXICAL).index
    (line,) = audit.read(desk.engine, name, 1)
    assert (line.user, line.os_user, line.host) == ("jürgen", getpass.getuser(), socket.gethostname())
    assert line.termweave == __version__
    assert abs(datetime.fromisoformat(line.at) - datetime.now(UTC)) < timedelta(minutes=1)
    told = json.loads(desk.run("audit", "--json").out)
    schema = Path(__file__).parents[3] / "docs" / "schemas" / "audit.1.json"
    jsonschema.validate(told, json.loads(schema.read_text()))
    assert [each["after"] for each in told["lines"]] == [index]
    shown = desk.run("audit").out
    for part in ("jürgen", socket.gethostname(), f"publish: nothing -> {index}", line.at[:10]):
        assert part in shown


def test_a_refused_line_warns_once_and_the_act_stands(desk, name, caplog):
    """A role without the permission can publish all the same: the line is written after the act."""
    with BusyProxy(desk.engine.url, status=403, always=audit.INDEX) as proxy, caplog.at_level(logging.WARNING):
        engine = connect(load(url=proxy.url))
        first, second = (build(engine, desk.source(count), name, LEXICAL).index for count in (1, 2))
    (said,) = [each.getMessage() for each in caplog.records if "audit" in each.getMessage()]
    assert said.startswith(f"Warning: 'publish' of {name!r} is done, but the audit trail (termweave-audit) has no line about it")
    assert desk.live == second != first
    assert trail(desk) == []
