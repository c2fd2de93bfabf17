"""Generations on a real server: listed, promoted, rolled back, pruned, deleted; the name always means exactly one."""

from __future__ import annotations

import orjson
import pytest

from termweave import corpora
from termweave.catalog import generations
from termweave.catalog.profiles import Profile
from termweave.cli import run
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations import deletion, listing, publication
from termweave.indexer.ledger import storage
from termweave.python import Connection
from termweave.search import Index

pytestmark = pytest.mark.engine


@pytest.fixture
def three(opensearch_engine, name, tmp_path):
    """Three generations of 1, 2 and 3 documents; the newest is live."""
    made = []
    for count in (1, 2, 3):
        path = tmp_path / f"{count}.jsonl"
        path.write_bytes(b"\n".join(orjson.dumps({"_id": str(number), "text": f"word{number}"}) for number in range(count)))
        made.append(build(opensearch_engine, corpora.open_source(path), name, BuildOptions(weights="none", dense="none")).index)
    return made


def documents(engine, name):
    return engine.request("GET", f"/{name}/_count")["count"]


def test_listed_newest_first_with_what_is_in_them(opensearch_engine, name, three):
    found = listing.list_generations(opensearch_engine, name)
    assert [each.index for each in found] == three[::-1]
    assert [each.documents for each in found] == [3, 2, 1]
    assert [each.live for each in found] == [True, False, False]
    assert all(each.complete and each.bytes > 0 for each in found)


def test_more_generations_are_listed_than_an_address_holds(opensearch_engine, name):
    name = f"{name}-".ljust(200, "x")
    for number in range(20):
        made = {
            "mappings": {"_meta": {"termweave": {"name": name, "created": str(number)}}},
            "settings": {"number_of_replicas": 0},
        }
        opensearch_engine.request("PUT", f"/{name}-{number:023}", params={"wait_for_active_shards": 0}, body=made)
    listed = listing.list_generations(opensearch_engine, name)
    assert [int(each.created) for each in listed] == sorted(range(20), key=str, reverse=True)


def test_nested_objects_are_no_documents(opensearch_engine, name, tmp_path):
    path = tmp_path / "shop.jsonl"
    path.write_bytes(
        b"".join(orjson.dumps({"_id": each, "text": "a shop", "offers": [{"a": 1}, {"a": 2}]}) + b"\n" for each in "xyz")
    )
    nested = {"properties": {"offers": {"type": "nested", "properties": {"a": {"type": "integer"}}}}}
    build(opensearch_engine, corpora.open_source(path), name, BuildOptions(weights="none", dense="none", mapping=nested))
    assert [each.documents for each in listing.list_generations(opensearch_engine, name)] == [3]


def test_promote_and_rollback_move_the_name(opensearch_engine, name, three):
    index = Index.open(opensearch_engine, name)
    assert publication.promote(opensearch_engine, name, three[0]) == three[2]
    assert documents(opensearch_engine, name) == 1
    assert len(index.search("word0 word1 word2", mode="lexical")) == 1
    publication.promote(opensearch_engine, name, three[2])
    assert publication.previous(opensearch_engine, name) == three[1]
    publication.promote(opensearch_engine, name, three[1])
    assert documents(opensearch_engine, name) == 2
    publication.promote(opensearch_engine, name, three[0])
    with pytest.raises(UsageError, match="no older generation"):
        publication.previous(opensearch_engine, name)


def test_rollback_does_not_return_to_what_was_rolled_back_from(opensearch_engine, name, three, tmp_path, capsys):
    rollback = ["rollback", name, "--url", opensearch_engine.url]
    assert run(rollback) == 0
    assert generations.live(opensearch_engine, name) == three[1]
    assert [listing.state_of(each) for each in listing.list_generations(opensearch_engine, name)][:2] == [
        "rolled back",
        "live",
    ]
    path = tmp_path / "new.jsonl"
    path.write_text('{"text": "new"}\n')
    new = build(opensearch_engine, corpora.open_source(path), name, BuildOptions(weights="none", dense="none")).index
    assert [each.index for each in deletion.prunable(opensearch_engine, name, keep=2)] == [three[2], three[0]]
    assert run(rollback) == 0
    assert generations.live(opensearch_engine, name) == three[1]
    publication.promote(opensearch_engine, name, three[2])  # by hand: it counts as good again
    publication.promote(opensearch_engine, name, new)
    assert publication.previous(opensearch_engine, name) == three[2]


def test_another_profile_is_said(opensearch_engine, name, three, capsys, caplog):
    Index.open(opensearch_engine, name).adopt(Profile("tuned", {"lexical": 1.0}, "adaptive", None))
    url = ["--url", opensearch_engine.url]
    assert run(["rollback", name, *url]) == 0
    assert "The profile in use was tuned and is none: weights, rules, pinned and hidden" in capsys.readouterr().err
    assert run(["promote", name, three[0], *url]) == 0
    assert "profile" not in capsys.readouterr().err
    Index.open(opensearch_engine, name).adopt(Profile("tuned", {"lexical": 1.0}, "rrf", None))
    assert run(["promote", name, three[2], *url]) == 0
    assert "The profile in use was tuned and is another tuned" in capsys.readouterr().err
    Connection(opensearch_engine).rollback(name)
    assert "The profile in use was tuned and is none" in caplog.text


def test_a_closed_generation_is_called_so_and_neither_published_nor_copied(opensearch_engine, name, three, tmp_path, capsys):
    url = ["--url", opensearch_engine.url]
    opensearch_engine.request("POST", f"/{three[1]}/_close")
    assert run(["rollback", name, *url]) == 2
    assert f"POST /{three[1]}/_open" in capsys.readouterr().err
    assert generations.live(opensearch_engine, name) == three[2]
    assert run(["generations", name, *url]) == 0
    assert "closed" in capsys.readouterr().out
    opensearch_engine.request("POST", f"/{three[1]}/_open", params={"wait_for_active_shards": 1})
    assert run(["rollback", name, *url]) == 0
    opensearch_engine.request("POST", f"/{three[1]}/_close")
    update = ["index", str(tmp_path / "3.jsonl"), name, "--update", "--new", *url]
    assert run(update) == 2
    assert f"The index '{three[1]}' is closed." in capsys.readouterr().err
    opensearch_engine.request("POST", f"/{three[1]}/_open", params={"wait_for_active_shards": 1})
    assert run(update) == 0
    assert documents(opensearch_engine, name) == 3


def test_what_was_never_finished_is_not_promoted(opensearch_engine, name, three):
    found = opensearch_engine.request("GET", f"/{three[0]}/_mapping")[three[0]]["mappings"]["_meta"]
    found["termweave"]["complete"] = False
    opensearch_engine.request("PUT", f"/{three[0]}/_mapping", body={"_meta": found})
    with pytest.raises(UsageError, match="never finished"):
        publication.promote(opensearch_engine, name, three[0])
    with pytest.raises(UsageError, match="has no generation"):
        publication.promote(opensearch_engine, name, "something-else")


def test_prune_keeps_the_live_and_the_newest(opensearch_engine, name, three):
    publication.promote(opensearch_engine, name, three[0])
    (old,) = deletion.prunable(opensearch_engine, name, keep=1)
    assert old.index == three[1]
    assert deletion.prune(opensearch_engine, name, [old]) == [old.index]
    assert {each.index for each in listing.list_generations(opensearch_engine, name)} == {three[0], three[2]}
    assert not list(storage.folder(opensearch_engine).glob(f"{three[1]}*"))
    assert documents(opensearch_engine, name) == 1


def test_what_became_live_while_prune_asked_is_kept(opensearch_engine, name, three):
    old = deletion.prunable(opensearch_engine, name, keep=1)
    publication.promote(opensearch_engine, name, three[1])
    assert deletion.prune(opensearch_engine, name, old) == [three[0]]
    assert documents(opensearch_engine, name) == 2


def test_an_unfinished_one_without_a_ledger_goes_by_wish_while_nobody_builds(opensearch_engine, name, three, capsys):
    found = opensearch_engine.request("GET", f"/{three[0]}/_mapping")[three[0]]["mappings"]["_meta"]
    found["termweave"]["complete"] = False
    opensearch_engine.request("PUT", f"/{three[0]}/_mapping", body={"_meta": found})
    storage.forget(opensearch_engine, three[0])
    assert deletion.prunable(opensearch_engine, name, keep=2) == []
    prune = ["prune", name, "--unfinished", "--yes", "--url", opensearch_engine.url]
    with storage.lease(opensearch_engine, name):
        assert run(prune) == 1
    assert "is running" in capsys.readouterr().err
    assert run(prune) == 0
    assert [each.index for each in listing.list_generations(opensearch_engine, name)] == [three[2], three[1]]


def test_a_name_that_begins_alike_is_another_one(opensearch_engine, name, three, tmp_path):
    build(
        opensearch_engine, corpora.open_source(tmp_path / "1.jsonl"), f"{name}-other", BuildOptions(weights="none", dense="none")
    )
    assert len(listing.list_generations(opensearch_engine, name)) == 3
    assert len(listing.list_generations(opensearch_engine, f"{name}-other")) == 1


def test_an_unknown_name_is_said(opensearch_engine):
    with pytest.raises(UsageError, match="no index named"):
        listing.list_generations(opensearch_engine, "nothing-of-the-kind")


@pytest.mark.parametrize("verb", [["generations"], ["rollback"], ["delete", "--yes"], ["prune", "--yes"]])
def test_what_termweave_did_not_make_is_said_to_be_there(opensearch_engine, name, capsys, verb):
    opensearch_engine.request("PUT", f"/{name}")
    assert run([verb[0], name, *verb[1:], "--url", opensearch_engine.url]) == 2
    said = capsys.readouterr().err
    assert (
        f"The index '{name}' was not built by termweave, nor enriched.\nAdd signals to it with 'termweave enrich {name}', or build an index "
        "under another name with 'termweave index SOURCE NAME'" in said
    )
    assert opensearch_engine.request("HEAD", f"/{name}")


def test_one_generation_is_not_taken_for_a_name(opensearch_engine, name, three):
    with pytest.raises(UsageError, match=f"'{three[0]}' is one generation of '{name}'. Give the name it was built under"):
        listing.list_generations(opensearch_engine, three[0])


#: What every generation says of itself, beside its name and when it was made.
WHOLE = {"termweave": "1.0", "source": {"name": "here"}, "fingerprint": "", "signals": {}}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "('_meta.termweave' in its mapping) is damaged. If the index is live, roll back"),
        ({**WHOLE, "source": {}}, "is damaged"),
        ({**WHOLE, "signals": ["lexical"]}, "is damaged"),
        ({**WHOLE, "passages": {"size": 20}}, "is damaged"),
        ({**WHOLE, "statistics": {"documents": 2}}, "is damaged"),
        ({**WHOLE, "fields": None}, "is damaged"),
        ({"schema": 999, "termweave": "99.0"}, "was built by termweave 99.0 in a format that this version cannot read."),
    ],
)
def test_one_that_cannot_be_read_is_named_and_blocks_nothing(opensearch_engine, name, three, capsys, said, why):
    for index in (three[0], three[2]):
        created = opensearch_engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"]["termweave"]["created"]
        meta = {"name": name, "created": created, **said}
        opensearch_engine.request("PUT", f"/{index}/_mapping", body={"_meta": {"termweave": meta}})
    url = ["--url", opensearch_engine.url]
    assert run(["generations", name, *url]) == 0
    listed, warned = capsys.readouterr()
    assert [line.split()[1:3] for line in listed.splitlines() if "unreadable" in line] == [
        ["live,", "unreadable"],
        ["unreadable", created[:10]],
    ]
    assert why in warned
    assert f"'{three[0]}'" in warned
    assert f"'{three[1]}'" not in warned
    assert run(["promote", name, three[0], *url]) == 2
    assert why in capsys.readouterr().err
    assert deletion.prunable(opensearch_engine, name, 1, unfinished=True) == []
    assert run(["rollback", name, *url]) == 0
    assert documents(opensearch_engine, name) == 2
    assert run(["delete", name, "--yes", *url]) == 0
    assert not opensearch_engine.request("HEAD", f"/{three[2]}")
