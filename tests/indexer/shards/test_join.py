"""Several hosts send the shards of one build: one lock, one ledger, one verified generation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from termweave import corpora
from termweave.cli import run
from termweave.engine import EngineResponseError
from termweave.errors import EngineError, UsageError, VerificationFailed
from termweave.indexer import BuildOptions, build, builder
from termweave.indexer.ledger import build_lock, shard_claims
from termweave.indexer.ledger.shard_claims import Claims, SentShard, SharedBuild
from termweave.indexer.shards import sharing
from tests.indexer.builds import check

from .conftest import texts

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"

#: A host that joins and is killed in the middle of its first shard.
DIES = """
import os, signal, sys
from termweave.indexer.ledger import build_lock, shard_claims
build_lock.BEAT, build_lock.EXPIRY = 0.5, 2.0
from termweave.indexer.ledger.shard_claims import Claims
Claims.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from termweave.cli import main
main()
"""


@pytest.fixture
def first_joined(monkeypatch):
    """Something happens while the builder has taken its first shard and has sent nothing yet."""

    def arrange(happens):
        once, begun = builder.send_rest, []

        def send_rest(*arguments):
            if not begun:
                begun.append(True)
                happens()
            return once(*arguments)

        monkeypatch.setattr(builder, "send_rest", send_rest)

    return arrange


def other_host(folder, name, url, tmp_path, *, program=None):
    """`termweave index FOLDER NAME --join` as a process with a state folder of its own."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "other"), "PYTHONWARNINGS": "ignore"}
    begin = [sys.executable, "-c", program] if program else [sys.executable, "-m", "termweave"]
    arguments = ["index", str(folder), name, "--join", "--url", url, "--json", "--quiet"]
    return subprocess.run([*begin, *arguments], capture_output=True, text=True, env=environment, timeout=200, check=False)


def test_another_host_sends_what_the_builder_has_not_taken(
    opensearch_engine, name, write, encode, in_process, tmp_path, first_joined
):
    encode(write(texts(96)), tmp_path / "shards", "--shards", "4")
    done = []
    first_joined(lambda: done.append(other_host(tmp_path / "shards", name, opensearch_engine.url, tmp_path)))
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert done[0].returncode == 0, done[0].stderr
    said = json.loads(done[0].stdout)
    jsonschema.validate(said, json.loads((SCHEMAS / "join.1.json").read_text()))
    assert (said["generation"], said["shards"], said["texts"]) == (built.index, 3, 72)
    assert built.documents == 96
    assert check(opensearch_engine, name).ok
    opensearch_engine.request("POST", f"/{build_lock.INDEX}/_refresh")
    left = opensearch_engine.request(
        "POST", f"/{build_lock.INDEX}/_search", params={"ignore_unavailable": True}, body={"size": 1000}
    )
    assert [hit["_id"] for hit in left["hits"]["hits"] if hit["_id"].startswith(f"{name}/")] == []


def test_the_shard_of_a_host_that_dies_is_taken_over(
    opensearch_engine, name, write, encode, in_process, tmp_path, first_joined, monkeypatch
):
    monkeypatch.setattr(build_lock, "BEAT", 0.5)
    monkeypatch.setattr(build_lock, "EXPIRY", 2.0)
    encode(write(texts(96)), tmp_path / "shards", "--shards", "4")
    done = []
    first_joined(lambda: done.append(other_host(tmp_path / "shards", name, opensearch_engine.url, tmp_path, program=DIES)))
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert done[0].returncode == -9, done[0].stderr
    assert built.documents == 96
    assert check(opensearch_engine, name).ok


def test_a_builder_that_dies_finds_what_the_others_sent(
    opensearch_engine, name, write, encode, in_process, tmp_path, monkeypatch
):
    encode(write(texts(96)), tmp_path / "shards", "--shards", "4")
    once = builder.send_rest

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(builder, "send_rest", stopped)
    with pytest.raises(KeyboardInterrupt):
        build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    joined = sharing.join(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert (joined.shards, joined.texts) == (4, 96)

    def not_again(*_):
        raise AssertionError("a shard that another host has sent is sent again")

    monkeypatch.setattr(builder, "send_rest", not_again)
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert (built.documents, built.index) == (96, joined.index)
    monkeypatch.setattr(builder, "send_rest", once)
    assert check(opensearch_engine, name).ok


def test_a_report_that_was_left_behind_keeps_nothing_from_being_sent(
    opensearch_engine, name, write, encode, in_process, tmp_path, monkeypatch, first_joined
):
    """The server loses documents that builder and helper have sent, and the reports of both could not be removed."""
    encode(write(texts(96)), tmp_path / "shards", "--shards", "4")
    monkeypatch.setattr(Claims, "close", lambda *_: None)
    first_joined(lambda: sharing.join(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions()))
    finish, lost = builder._finish_and_verify, []

    def loses(engine, target, options):
        if not lost:
            lost.extend(("d3", "d9", "d50"))
            for identity in lost:
                engine.request("DELETE", f"/{target.index}/_doc/{identity}")
        return finish(engine, target, options)

    monkeypatch.setattr(builder, "_finish_and_verify", loses)
    with pytest.raises(VerificationFailed, match="3 missing"):
        build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    built = build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert (built.documents, built.sent) == (96, 3)
    assert check(opensearch_engine, name).ok


def test_a_build_that_has_ended_is_not_joined(opensearch_engine, name, write, encode, in_process, tmp_path, monkeypatch):
    encode(write(texts(30)), tmp_path / "shards", "--shards", "2")
    folder = corpora.open_source(tmp_path / "shards")

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:  # everything is sent, and the announcement is left behind
        dying.setattr(Claims, "close", lambda *_: None)
        dying.setattr(builder, "_finish_and_verify", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(opensearch_engine, folder, name, BuildOptions())
    claims = Claims(opensearch_engine, name)
    announced = claims.announced()
    assert announced
    built = build(opensearch_engine, folder, name, BuildOptions())
    assert claims.announced() is None
    claims.announce(announced)
    with pytest.raises(UsageError, match="has ended"):
        sharing.join(opensearch_engine, folder, name, BuildOptions())
    assert built.index == announced.index
    claims.announce(replace(announced, index=f"{name}-20260101000000-00000000"))
    with pytest.raises(UsageError, match="has ended"):
        sharing.join(opensearch_engine, folder, name, BuildOptions())


def test_a_host_whose_claim_was_taken_over_stops(opensearch_engine, name, write, encode, in_process, tmp_path, monkeypatch):
    encode(write(texts(96)), tmp_path / "shards", "--shards", "4")
    folder = corpora.open_source(tmp_path / "shards")

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(builder, "send_rest", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(opensearch_engine, folder, name, BuildOptions())
    claims = Claims(opensearch_engine, name)
    shared = claims.announced()
    taken = build_lock.Lease.check

    def asleep(lease):  # nothing is renewed while a host sleeps; meanwhile another one takes the shard
        lease._lost = True
        taken(lease)

    with monkeypatch.context() as slow:
        slow.setattr(build_lock.Lease, "check", asleep)
        with pytest.raises(EngineError, match="Another host has taken over shard 0"):
            sharing.join(opensearch_engine, folder, name, BuildOptions())
    assert claims.finished(shared, range(4)) == {}
    monkeypatch.setattr(build_lock, "EXPIRY", 0.2)  # the claim that was lost is not given back
    assert build(opensearch_engine, folder, name, BuildOptions()).documents == 96
    assert check(opensearch_engine, name).ok


def test_what_cannot_be_joined_is_refused(opensearch_engine, name, write, encode, in_process, tmp_path, capsys, first_joined):
    path = write(texts(30))
    encode(path, tmp_path / "shards", "--shards", "2")
    encode(write(texts(31), "more.jsonl"), tmp_path / "others", "--shards", "2")
    url = ("--url", opensearch_engine.url)
    assert run(["index", str(tmp_path / "shards"), name, "--join", *url]) == 2
    assert f"No build of '{name}' can be joined" in capsys.readouterr().err
    assert run(["index", str(path), name, "--join", *url]) == 2
    assert "is no folder of shards" in capsys.readouterr().err
    assert run(["index", str(tmp_path / "shards"), name, "--join", "--prune", "0.1", *url]) == 2
    assert "--join helps a build that has its options already" in capsys.readouterr().err
    done = []
    first_joined(lambda: done.append(other_host(tmp_path / "others", name, opensearch_engine.url, tmp_path)))
    build(opensearch_engine, corpora.open_source(tmp_path / "shards"), name, BuildOptions())
    assert done[0].returncode == 2
    assert "is built of another folder: its corpus is" in done[0].stderr


def test_what_another_program_wrote_is_no_build_and_no_report(opensearch_engine, name):
    claims = Claims(opensearch_engine, name)
    shared = SharedBuild(f"{name}-20260101000000-00000000", "f", 2)
    assert claims.announce(shared)
    assert claims.announced() == shared
    claims.finish(shared, 0, SentShard([("a", 1)], [("b", "no")]))
    for key, body in (("build", {"index": 5}), (f"sent/{shared.index}/1", {"packed": "no"})):
        opensearch_engine.request("PUT", claims._path(key), body=body)
    assert claims.announced() is None
    assert claims.finished(shared, [0, 1]) == {0: SentShard([("a", 1)], [("b", "no")])}
    claims.close(shared)
    assert claims.finished(shared, [0, 1]) == {}


def test_a_builder_that_was_taken_over_leaves_the_announcement_of_the_other(opensearch_engine, name):
    first, second = (SharedBuild(f"{name}-2026010100000{number}-00000000", "f", 2) for number in (0, 1))
    claims = Claims(opensearch_engine, name)
    claims.announce(first)
    claims.announce(second)
    claims.close(first)
    assert claims.announced() == second
    claims.close(second)
    assert claims.announced() is None


def test_a_build_that_does_not_send_yet_is_named(opensearch_engine, name, write, encode, in_process, tmp_path, capsys):
    encode(write(texts(9)), tmp_path / "shards", "--shards", "2")
    with build_lock.held(opensearch_engine, name, "elsewhere"):
        assert run(["index", str(tmp_path / "shards"), name, "--join", "--url", opensearch_engine.url]) == 2
    assert "sends no shards that other hosts could take" in capsys.readouterr().err


def test_a_user_who_may_not_claim_shards_does_not_send_them(opensearch_engine, name, monkeypatch):
    once = opensearch_engine.request

    def request(method, path, *arguments, **options):
        if method == "PUT" and build_lock.INDEX in path:
            raise EngineResponseError(403, "security_exception", "no permissions")
        return once(method, path, *arguments, **options)

    monkeypatch.setattr(opensearch_engine, "request", request)
    shared = SharedBuild(f"{name}-20260101000000-00000000", "f", 2)
    with pytest.raises(UsageError, match="may not write to termweave-leases"), Claims(opensearch_engine, name).held(shared, 0):
        pytest.fail("the shard is not held")


def test_a_large_report_lies_in_several_documents(opensearch_engine, name, monkeypatch):
    monkeypatch.setattr(shard_claims, "_MOST", 64)
    claims = Claims(opensearch_engine, name)
    shared = SharedBuild(f"{name}-20260101000000-00000000", "f", 1)
    sent = SentShard([(f"d{place}", 7919 * place) for place in range(60)])
    assert len(sent.packed()) > 3
    claims.finish(shared, 0, sent)
    assert claims.finished(shared, [0]) == {0: sent}
    second = claims._path(claims._sent(shared, 0, 2))
    kept = opensearch_engine.request("GET", second)["_source"]
    opensearch_engine.request("DELETE", second)
    assert claims.finished(shared, [0]) == {}  # and the shard is sent again
    opensearch_engine.request("PUT", second, body=kept)
    assert claims.finished(shared, [0]) == {0: sent}
    claims.empty(shared, 0)
    assert claims.finished(shared, [0]) == {0: SentShard()}
    with pytest.raises(EngineResponseError) as raised:
        opensearch_engine.request("GET", second)
    assert raised.value.status == 404


def test_a_shard_that_another_process_sends_is_not_claimed_twice(opensearch_engine, name):
    first, second = (Claims(opensearch_engine, name) for _ in range(2))
    shared = SharedBuild(f"{name}-20260101000000-00000000", "f", 2)
    with first.held(shared, 0) as ours:
        with second.held(shared, 0) as theirs:
            assert (ours is None, theirs) == (False, None)
        with second.held(shared, 1) as theirs:
            assert theirs
    with second.held(shared, 0) as theirs:
        assert theirs
