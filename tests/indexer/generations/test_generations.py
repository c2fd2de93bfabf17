"""Generations on a real server: listed, promoted, rolled back, pruned, deleted; the name always means exactly one."""

from __future__ import annotations

import pytest

from termweave.errors import UsageError
from termweave.indexer.generations import deletion, listing, publication
from termweave.indexer.ledger import storage
from termweave.search import Index

pytestmark = pytest.mark.engine


@pytest.fixture
def three(desk):
    """Three generations of 1, 2 and 3 documents; the newest is live."""
    return [desk.build({str(number): f"word{number}" for number in range(count)}).index for count in (1, 2, 3)]


def documents(desk):
    return desk.engine.request("GET", f"/{desk.name}/_count")["count"]


def test_listed_newest_first_with_what_is_in_them(desk, three):
    newest = desk.generations
    assert [(each.index, each.documents, each.live) for each in newest] == [
        (three[2], 3, True),
        (three[1], 2, False),
        (three[0], 1, False),
    ]
    assert all(each.complete and each.bytes > 0 for each in newest)
    desk.name += "-other"  # a name that begins alike is another one
    desk.build(1)
    assert len(desk.generations) == 1
    desk.name = desk.name.removesuffix("-other")
    assert len(desk.generations) == 3


def test_promote_and_rollback_move_the_name(desk, three):
    index = Index.open(desk.engine, desk.name)
    assert publication.promote(desk.engine, desk.name, three[0]) == three[2]
    assert documents(desk) == 1
    assert len(index.search("word0 word1 word2", mode="lexical")) == 1
    publication.promote(desk.engine, desk.name, three[2])
    assert publication.previous(desk.engine, desk.name) == three[1]
    publication.promote(desk.engine, desk.name, three[1])
    assert documents(desk) == 2
    publication.promote(desk.engine, desk.name, three[0])
    with pytest.raises(UsageError, match="no older generation"):
        publication.previous(desk.engine, desk.name)


def test_rollback_does_not_return_to_what_was_rolled_back_from(desk, three):
    desk.run("rollback")
    assert desk.live == three[1]
    assert [listing.state_of(each) for each in desk.generations][:2] == ["rolled back", "live"]
    new = desk.build({"new": "new"}).index
    assert [each.index for each in deletion.prunable(desk.engine, desk.name, keep=2)] == [three[2], three[0]]
    desk.run("rollback")
    assert desk.live == three[1]
    publication.promote(desk.engine, desk.name, three[2])  # by hand: it counts as good again
    publication.promote(desk.engine, desk.name, new)
    assert publication.previous(desk.engine, desk.name) == three[2]


def test_a_closed_generation_is_not_published_and_can_be_deleted(desk, three, capsys):
    desk.engine.request("POST", f"/{three[1]}/_close")
    desk.run("rollback", status=2)
    assert f"POST /{three[1]}/_open" in capsys.readouterr().err
    assert desk.live == three[2]
    desk.run("delete", "--yes")
    assert desk.live is None


def unfinished(desk, index):
    """Say of a generation that it was never finished."""
    meta = desk.engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"]
    meta["termweave"]["complete"] = False
    desk.engine.request("PUT", f"/{index}/_mapping", body={"_meta": meta})


def test_what_was_never_finished_is_not_promoted_and_goes_by_wish_while_nobody_builds(desk, three, capsys):
    unfinished(desk, three[0])
    for index, said in ((three[0], "never finished"), ("something-else", "has no generation")):
        with pytest.raises(UsageError, match=said):
            publication.promote(desk.engine, desk.name, index)
    storage.forget(desk.engine, three[0])
    assert deletion.prunable(desk.engine, desk.name, keep=2) == []
    with storage.lease(desk.engine, desk.name):
        desk.run("prune", "--unfinished", "--yes", status=1)
    assert "is running" in capsys.readouterr().err
    desk.run("prune", "--unfinished", "--yes")
    assert [each.index for each in desk.generations] == [three[2], three[1]]


def test_prune_keeps_the_live_the_newest_and_what_became_live_while_it_asked(desk, three):
    asked = deletion.prunable(desk.engine, desk.name, keep=1)
    publication.promote(desk.engine, desk.name, three[0])
    assert [each.index for each in deletion.prunable(desk.engine, desk.name, keep=1)] == [three[1]]
    assert deletion.prune(desk.engine, desk.name, asked) == [three[1]]
    assert {each.index for each in desk.generations} == {three[0], three[2]}
    assert not list(storage.folder(desk.engine).glob(f"{three[1]}*"))
    assert documents(desk) == 1


def test_a_name_that_is_unknown_or_that_of_one_generation_is_said(desk, three):
    with pytest.raises(UsageError, match="no index named"):
        listing.list_generations(desk.engine, "nothing-of-the-kind")
    with pytest.raises(UsageError, match=f"'{three[0]}' is one generation of '{desk.name}'. Give the name it was built under"):
        listing.list_generations(desk.engine, three[0])


@pytest.mark.parametrize("verb", [["rollback"], ["delete", "--yes"]])
def test_what_termweave_did_not_make_is_said_to_be_there(desk, capsys, verb):
    desk.engine.request("PUT", f"/{desk.name}")
    desk.run(*verb, status=2)
    said = capsys.readouterr().err
    assert f"The index '{desk.name}' was not built by termweave, nor enriched.\nAdd signals to it with 'termweave enrich" in said
    assert desk.engine.request("HEAD", f"/{desk.name}")


#: What every generation says of itself, beside its name and when it was made.
WHOLE = {"termweave": "1.0", "source": {"name": "here"}, "fingerprint": "", "signals": {}}
UNREADABLE = (
    ({}, "('_meta.termweave' in its mapping) is damaged. If the index is live, roll back"),
    ({**WHOLE, "source": {}}, "is damaged"),
    ({**WHOLE, "signals": ["lexical"]}, "is damaged"),
    ({**WHOLE, "passages": {"size": 20}}, "is damaged"),
    ({**WHOLE, "statistics": {"documents": 2}}, "is damaged"),
    ({**WHOLE, "fields": None}, "is damaged"),
    ({"schema": 999, "termweave": "99.0"}, "was built by termweave 99.0 in a format that this version cannot read."),
)


def test_one_that_cannot_be_read_is_named_and_blocks_nothing(desk, three, capsys):
    created = {each.index: each.created for each in desk.generations}
    for said, why in UNREADABLE:
        for index in (three[0], three[2]):
            meta = {"name": desk.name, "created": created[index], **said}
            desk.engine.request("PUT", f"/{index}/_mapping", body={"_meta": {"termweave": meta}})
        desk.run("generations")
        listed, warned = capsys.readouterr()
        assert [line.split()[1:3] for line in listed.splitlines() if "unreadable" in line] == [
            ["live,", "unreadable"],
            ["unreadable", created[three[0]][:10]],
        ]
        assert why in warned
        assert f"'{three[0]}'" in warned
        assert f"'{three[1]}'" not in warned
        desk.run("promote", three[0], status=2)
        assert why in capsys.readouterr().err
        assert deletion.prunable(desk.engine, desk.name, 1, unfinished=True) == []
    desk.run("rollback")
    assert documents(desk) == 2
    desk.run("delete", "--yes")
    assert not desk.engine.request("HEAD", f"/{three[2]}")
