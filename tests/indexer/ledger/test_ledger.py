"""The ledger: what is entered, acknowledged, refused, and what a bucket should hold."""

import json
import os
import stat
import threading
import time
from types import SimpleNamespace

import pytest

from termweave.catalog.layout import bucket_of
from termweave.errors import RefusedDocuments, TermweaveError, UsageError
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.ledger import Ledger
from termweave.indexer.pipeline import dead_letters
from termweave.records import Document
from termweave.support import paths


def entry(identity, line, content):
    return Document(identity, str(content), line=line)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "deep" / "ledger.sqlite") as opened:
        yield opened


def test_what_is_not_acknowledged_or_to_be_sent_again_is_pending(ledger):
    places = [(str(number), number) for number in range(1200)]
    assert ledger.enter([entry(*place, place) for place in places]) == {}
    ledger.acknowledge([(identity, 1) for identity, _ in places[1:]])
    assert ledger.pending([*places, ("else", 4)]) == {("0", 0)}
    ledger.mark_unsent(["7", "1100"])
    assert ledger.pending(places) == {("0", 0), ("7", 7), ("1100", 1100)}
    assert (ledger.total, ledger.acknowledged) == (1200, 1197)


def test_a_repeated_id_is_found_within_a_block_and_across(ledger):
    (same,) = ledger.enter([entry("a", 1, 10), entry("a", 2, 10)]).values()
    assert (same.line, same.first_line, same.same) == (2, 1, True)
    (other,) = ledger.enter([entry("b", 3, 20), entry("a", 4, 11)]).values()
    assert (other.line, other.first_line, other.same) == (4, 1, False)
    assert ledger.total == 2
    assert ledger.pending([("a", 1), ("a", 2)]) == {("a", 1)}  # the second of two is not the one that counts


def test_refused_documents_are_named_and_not_expected(ledger):
    ledger.enter([entry("a", 1, 10), entry("b", 2, 20)])
    ledger.acknowledge([("a", 100)])
    ledger.refuse([("b", "too strange")])
    assert ledger.refused() == [("b", 2, "too strange")]
    assert sum(bucket.count for bucket in ledger.buckets().values()) == 1
    ledger.acknowledge([("b", 200)])  # sent again and taken
    assert ledger.refused() == []
    assert ledger.buckets()[bucket_of("b")].encoding >= 200


def test_a_full_disk_is_a_sentence_and_takes_nothing_back(ledger):
    ledger.enter([entry(str(number), number, number) for number in range(1000)])
    ledger.acknowledge([(str(number), 1) for number in range(100)])
    (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite itself says then that the disk is full
    with pytest.raises(TermweaveError, match=r"cannot be written: database or disk is full.*resumes"):
        ledger.enter([entry("x" * 200 + str(number), number, number) for number in range(5000)])
    assert (ledger.total, ledger.acknowledged) == (1000, 100)
    ledger._db.execute("PRAGMA max_page_count = 1000000")
    ledger.acknowledge([(str(number), 1) for number in range(1000)])
    assert ledger.acknowledged == 1000


def test_dead_letters_say_where_why_and_what_to_do(ledger):
    ledger.enter([entry(str(number), number, number) for number in range(1, 2001)])
    ledger.refuse([("3", "Document contains at least one immense term"), ("9", "something new")])
    letters = [json.loads(line) for line in dead_letters.write(ledger).read_text().splitlines()]
    assert [(letter["id"], letter["line"]) for letter in letters] == [("3", 3), ("9", 9)]
    assert "32,766" in letters[0]["advice"]
    assert "remove it" in letters[1]["advice"]
    assert "refused 2 of 2,000" in dead_letters.check_share(ledger, "index", allowed=0.001)[0]
    with pytest.raises(RefusedDocuments, match=r"'3' \(line 3\)"):
        dead_letters.check_share(ledger, "index", allowed=0.0009)


def test_closing_waits_for_whoever_is_writing(tmp_path):
    """A second Ctrl-C closes the ledger while others still acknowledge: that once ended in a segmentation fault."""
    opened, ends = Ledger(tmp_path / "busy.sqlite"), []
    opened.enter([entry(str(number), number, number) for number in range(20_000)])

    def write():
        try:
            while True:
                opened.acknowledge([(str(number), 1) for number in range(20_000)])
        except TermweaveError as error:
            ends.append("closed" in str(error))

    writers = [threading.Thread(target=write) for _ in range(3)]
    for each in writers:
        each.start()
    time.sleep(0.2)
    opened.close()
    for each in writers:
        each.join(60)
    assert ends == [True] * 3


def test_what_a_server_says_leads_no_ledger_out_of_the_state_folder():
    odd = SimpleNamespace(url="http://127.0.0.1:9", request=lambda *_: {"cluster_uuid": "../../../elsewhere"})
    assert storage.folder(odd).resolve().parent == (paths.state() / "ledgers").resolve()
    with pytest.raises(UsageError, match="is not the name of an index"):
        storage.open_(odd, "../../elsewhere")


def test_a_ledger_can_be_read_by_its_owner_only(tmp_path):
    before = os.umask(0)
    try:
        with Ledger(tmp_path / "cluster" / "docs-1.sqlite") as ledger:
            ledger.put("name", "docs")
            modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in ledger.path.parent.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cluster").stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert ".sqlite-wal" in modes
