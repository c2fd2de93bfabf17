"""Updates on a real OpenSearch: only what differs is sent, whatever stopped before, and verification is clean afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import orjson
import pytest

from termweave import corpora
from termweave.catalog.generations import live
from termweave.cli import run
from termweave.errors import InputError, RefusedDocuments, UsageError, VerificationFailed
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.generations.listing import list_generations
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.diff import ChangeCounts
from termweave.indexer.options import Window
from termweave.indexer.pipeline.pipeline import Pipeline
from termweave.search import Index
from tests.indexer.builds import LEXICAL, clean, command

pytestmark = pytest.mark.engine
WINDOW = Window(20, 15)
EVERYTHING = UpdateMode(delete_missing=True, allow_deletions=1)


@pytest.fixture
def corpus(tmp_path):
    """Write documents as JSON lines and open them."""

    def write(documents):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(b"\n".join(orjson.dumps({"_id": key, "text": text}) for key, text in documents.items()) + b"\n")
        return corpora.open_source(path)

    return write


def numbered(count):
    return {f"d{number}": f"text about number{number}" for number in range(count)}


@pytest.mark.parametrize("new", [False, True], ids=["in place", "new generation"])
@pytest.mark.parametrize("options", [LEXICAL, BuildOptions()], ids=["lexical", "all signals"])
def test_only_what_differs_is_sent_and_only_on_demand_deleted(opensearch_engine, name, corpus, new, options):
    documents = numbered(20)
    built = build(opensearch_engine, corpus(documents), name, options)
    statistics = Index.open(opensearch_engine, name).lineage.statistics
    documents["d3"] = "changed entirely"
    documents["fresh"] = "a new document"
    del documents["d5"], documents["d6"]
    source = corpus(documents)
    first = update(opensearch_engine, source, name, options, mode=UpdateMode(new=new))
    assert first.counts == ChangeCounts(new=1, changed=1, unchanged=17, gone=2)
    assert (first.sent, first.deleted, first.documents) == (2, 0, 21)
    assert clean(opensearch_engine, name) == 21
    assert (first.index == built.index) is not new
    assert live(opensearch_engine, name) == first.index
    second = update(opensearch_engine, source, name, options, mode=UpdateMode(new=new, delete_missing=True))
    assert second.counts == ChangeCounts(new=0, changed=0, unchanged=19, gone=2)
    assert (second.sent, second.deleted, second.documents) == (0, 2, 19)
    assert clean(opensearch_engine, name, source) == 19
    index = Index.open(opensearch_engine, name)
    assert [hit.id for hit in index.search("changed entirely", mode="lexical")] == ["d3"]
    assert index.lineage.statistics == statistics
    assert index.lineage.source["fingerprint"] == source.fingerprint
    third = update(opensearch_engine, source, name, options, mode=UpdateMode(delete_missing=True))
    assert (third.sent, third.deleted, third.notes) == (0, 0, ())
    assert opensearch_engine.request("GET", f"/{built.index}/_count")["count"] == (20 if new else 19)


def test_what_cannot_be_read_is_not_taken_for_gone(opensearch_engine, name, tmp_path):
    """Nobody knows the id of a broken line: it may be that of the document that is missing."""
    path = tmp_path / "corpus.jsonl"
    lines = [f'{{"_id": "d{number}", "text": "text {number}"}}' for number in range(5)]
    skipping = replace(LEXICAL, skip_bad=True)

    def updated(*lines):
        path.write_text("\n".join(lines))
        return update(opensearch_engine, corpora.open_source(path, skip_bad=True), name, skipping, mode=EVERYTHING)

    path.write_text("\n".join(lines))
    build(opensearch_engine, corpora.open_source(path), name, LEXICAL)
    broken = updated(*lines[:3], lines[3][:-2], lines[4].replace("text 4", "changed"))
    assert (broken.counts, broken.deleted, broken.documents) == (ChangeCounts(new=0, changed=1, unchanged=3, gone=1), 0, 5)
    assert "Not deleted: 1 document that the source does not have, because 1 entry of it could not be read" in broken.warnings[0]
    assert clean(opensearch_engine, name) == 5
    assert updated(*lines, "{").warnings == ()  # nothing is missing
    assert updated(*lines[1:]).deleted == 1


def test_an_update_with_other_words_says_that_its_statistics_have_drifted(opensearch_engine, name, corpus):
    weights = BuildOptions(dense="none", signals=("weights",))
    build(opensearch_engine, corpus(numbered(20)), name, weights)
    assert update(opensearch_engine, corpus(numbered(21)), name, weights).warnings == ()
    other = corpus({f"other{number}": f"wings fly over rivers{number}" for number in range(20)})
    (warning,) = update(opensearch_engine, other, name, weights).warnings
    assert "A new build, without --update, counts again." in warning


def test_passages_come_and_go_with_their_documents(opensearch_engine, name, corpus):
    def long(parts):
        return " ".join(f"This is sentence number{part} of a text that grows." for part in range(parts))

    cut = BuildOptions(weights="none", dense="none", passages=WINDOW, shards=2)
    build(opensearch_engine, corpus({"grows": long(2), "shrinks": long(12), "stays": long(8), "gone": long(8)}), name, cut)
    source = corpus({"grows": long(9), "shrinks": "Short now.", "stays": long(8)})
    kept = update(opensearch_engine, source, name, LEXICAL)
    assert kept.counts == ChangeCounts(new=0, changed=2, unchanged=1, gone=1)
    assert clean(opensearch_engine, name) == 4
    assert (kept.deleted, kept.outdated > 1) == (0, True)  # what "shrinks" and the whole "grows" were
    update(opensearch_engine, source, name, LEXICAL, mode=EVERYTHING)
    assert clean(opensearch_engine, name, source) == 3


def test_without_its_ledger_the_stored_digests_are_compared(opensearch_engine, name, corpus):
    documents = numbered(30)
    built = build(opensearch_engine, corpus(documents), name, LEXICAL)
    storage.forget(opensearch_engine, built.index)
    documents["d7"] = "other"
    source = corpus(documents)
    updated = update(opensearch_engine, source, name, LEXICAL)
    assert (updated.counts.changed, updated.sent) == (1, 1)
    assert "no ledger" in updated.notes[0]
    assert "30 documents were taken as stored" in updated.notes[0]
    clean(opensearch_engine, name, source)


def test_what_somebody_else_did_to_the_index_is_mended(opensearch_engine, name, corpus):
    documents = numbered(30)
    built = build(opensearch_engine, corpus(documents), name, LEXICAL)
    opensearch_engine.request("DELETE", f"/{built.index}/_doc/d7")
    other = opensearch_engine.request("GET", f"/{built.index}/_doc/d8")["_source"]
    opensearch_engine.request("PUT", f"/{built.index}/_doc/d9", body={**other, "id": "d9"})
    source = corpus(documents)
    updated = update(opensearch_engine, source, name, LEXICAL)
    assert updated.counts == ChangeCounts(new=1, changed=1, unchanged=28, gone=0)
    assert "2 documents were not stored as this host's ledger said" in updated.notes[0]
    clean(opensearch_engine, name, source)


def alter(engine, index, identity, **fields):
    stored = engine.request("GET", f"/{index}/_doc/{identity}")["_source"]
    engine.request("PUT", f"/{index}/_doc/{fields.pop('_id', identity)}", body={**stored, **fields}, params={"refresh": True})
    return stored


@pytest.mark.parametrize("new", [False, True], ids=["in place", "new generation"])
def test_damage_is_never_taken_into_the_ledger(opensearch_engine, name, corpus, new):
    source = corpus(numbered(30))
    built = build(opensearch_engine, source, name, BuildOptions(dense="none"))
    stored = opensearch_engine.request("GET", f"/{built.index}/_doc/d8")["_source"]
    weights = {**stored["weights"], next(iter(stored["weights"])): 1}
    alter(opensearch_engine, built.index, "d8", weights=weights, encoding_digest=stored["encoding_digest"] + 1)
    alter(opensearch_engine, built.index, "d9", text="other", source_digest=4711)
    updated = update(opensearch_engine, source, name, BuildOptions(dense="none"), mode=UpdateMode(new=new))
    assert (updated.counts, updated.sent) == (ChangeCounts(new=0, changed=2, unchanged=28, gone=0), 2)
    clean(opensearch_engine, name, source)
    assert opensearch_engine.request("GET", f"/{updated.index}/_doc/d8")["_source"] == stored


def test_damage_of_a_document_that_the_source_lost_is_named_until_it_is_deleted(opensearch_engine, name, corpus):
    documents = numbered(30)
    built = build(opensearch_engine, corpus(documents), name, LEXICAL)
    alter(opensearch_engine, built.index, "d8", encoding_digest=7)
    del documents["d8"]
    source = corpus(documents)
    for _ in range(2):
        with pytest.raises(VerificationFailed, match=r"1 altered.*'d8'.*look first"):
            update(opensearch_engine, source, name, LEXICAL)
    update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(delete_missing=True))
    clean(opensearch_engine, name, source)


@pytest.mark.parametrize("claims", ["zzz", "d10", None], ids=["its own id", "another's id", "no bucket"])
@pytest.mark.parametrize("way", ["--delete-missing", "delete --id"])
def test_a_foreign_document_stays_extra_until_it_is_deleted(opensearch_engine, name, corpus, claims, way):
    source = corpus(numbered(30))
    built = build(opensearch_engine, source, name, LEXICAL)
    if claims:
        alter(opensearch_engine, built.index, "d10", id=claims, _id="zzz")
    else:
        opensearch_engine.request("PUT", f"/{built.index}/_doc/zzz", body={"text": "not ours"})
    for _ in range(2):
        with pytest.raises(VerificationFailed, match=r"1 extra, 0 altered.*'zzz'.*look first.*--id"):
            update(opensearch_engine, source, name, LEXICAL)
    with storage.existing(opensearch_engine, built.index) as ledger:
        assert ledger.total == 30
    if way == "delete --id":
        assert run(["delete", name, "--id", "zzz", "--yes", "--url", opensearch_engine.url]) == 0
        update(opensearch_engine, source, name, LEXICAL)
    else:
        assert update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(delete_missing=True)).deleted == 1
    assert clean(opensearch_engine, name, source) == 30


def test_documents_that_another_host_added_are_kept(opensearch_engine, name, corpus, monkeypatch, tmp_path):
    from termweave.support import paths

    documents = numbered(10)
    build(opensearch_engine, corpus(documents), name, LEXICAL)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(paths, "state", lambda: tmp_path / "elsewhere")
        update(opensearch_engine, corpus({**documents, "theirs": "added by another host"}), name, LEXICAL)
    updated = update(opensearch_engine, corpus(documents), name, LEXICAL)
    assert updated.counts == ChangeCounts(new=0, changed=0, unchanged=10, gone=1)
    assert clean(opensearch_engine, name) == 11


def test_what_verification_advises_mends_what_it_found(opensearch_engine, name, corpus, tmp_path, capsys):
    built = build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    again = command(tmp_path / "corpus.jsonl", name, opensearch_engine.url)
    looked = ["verify", name, "--deep", "--url", opensearch_engine.url]
    for fields, advised in (({"text": "other"}, "without --update"), ({"encoding_digest": 7}, "or index with --update")):
        alter(opensearch_engine, live(opensearch_engine, name), "d8", **fields)
        assert run(looked) == VerificationFailed.exit_status
        assert advised in capsys.readouterr().err
        assert run([*again, "--update"] if "or" in advised.split() else again) == 0
        assert run(looked) == 0
    assert live(opensearch_engine, name) != built.index


def test_what_another_host_changed_is_no_damage_to_be_mended(opensearch_engine, name, corpus, monkeypatch, tmp_path, capsys):
    from termweave.support import paths

    build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    looked = ["verify", name, "--url", opensearch_engine.url]
    assert run(["delete", name, "--id", "d7", "--yes", "--url", opensearch_engine.url]) == 0
    assert run(looked) == 0
    alter(opensearch_engine, live(opensearch_engine, name), "d8", encoding_digest=7)
    assert run(looked) == VerificationFailed.exit_status
    assert "or index with --update" in capsys.readouterr().err
    with monkeypatch.context() as there:
        there.setattr(paths, "state", lambda: tmp_path / "elsewhere")
        update(opensearch_engine, corpus({**numbered(10), "theirs": "added by another host"}), name, LEXICAL)
        assert run(looked) == 0
    assert run(looked) == VerificationFailed.exit_status
    said = capsys.readouterr().err
    assert "updated from another host" in said
    assert "Index again" not in said


CHILD = """
from pathlib import Path
from termweave import corpora, engine, settings
from termweave.support import paths
from termweave.indexer import BuildOptions, UpdateMode, update
from termweave.indexer.pipeline import throttle
throttle.SMALLEST = throttle.FIRST = throttle.LARGEST = 4096
paths.state = lambda: Path({state!r})
from termweave.indexer.preparation import corpus_pass
corpus_pass._BLOCK_DOCUMENTS = 50
def progress(stage, done, *_):
    print(stage, done, flush=True)
    import time; time.sleep(0.02)
server = engine.connect(settings.load(url={url!r}))
source = corpora.open_source({path!r})
update(server, source, {name!r}, BuildOptions(weights="none", dense="none"), mode=UpdateMode(delete_missing=True, new={new}), progress=progress)
"""


@pytest.mark.parametrize("new", [False, True], ids=["in place", "new generation"])
@pytest.mark.parametrize("stage", ["Reading", "Indexing"])
def test_killed_in_the_middle_an_update_goes_on(opensearch_engine, name, corpus, own_places, tmp_path, capsys, stage, new):
    documents = numbered(400)
    built = build(opensearch_engine, corpus(documents), name, LEXICAL)
    for number in range(200, 400):
        documents[f"d{number}"] += " changed"
    for number in range(30):
        del documents[f"d{number}"]
    source = corpus(documents)
    program = CHILD.format(
        state=str(own_places / "state"), url=opensearch_engine.url, path=str(tmp_path / "corpus.jsonl"), name=name, new=new
    )
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    for line in child.stdout:
        told, _, done = line.strip().partition(" ")
        if told == stage and int(done) >= 100:
            child.send_signal(signal.SIGKILL)
            break
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert live(opensearch_engine, name) == built.index
    if stage == "Indexing" and not new:
        assert run(["verify", name, "--url", opensearch_engine.url]) == VerificationFailed.exit_status
        assert "Repeat the update that was stopped." in capsys.readouterr().err
    elif not new:
        assert run(["verify", name, "--url", opensearch_engine.url]) == 0
        assert "stopped" not in capsys.readouterr().err  # nothing is changed before the source was read
    updated = update(opensearch_engine, source, name, LEXICAL, mode=UpdateMode(delete_missing=True, new=new))
    assert updated.documents == 370
    assert updated.sent <= 200
    assert clean(opensearch_engine, name, source) == 370
    assert len(list_generations(opensearch_engine, name)) == 1 + new  # no second copy was begun


@pytest.mark.usefixtures("long_ids")
def test_what_is_refused_is_said_and_tried_again(opensearch_engine, name, corpus):
    documents = numbered(5)
    build(opensearch_engine, corpus(documents), name, LEXICAL)
    with pytest.raises(RefusedDocuments, match="immense"):
        update(opensearch_engine, corpus({**documents, "y" * 40_000: "x"}), name, LEXICAL)
    assert update(opensearch_engine, corpus({**documents, "d9": "x"}), name, LEXICAL).counts.new == 1
    assert clean(opensearch_engine, name) == 6


def test_another_model_and_a_name_that_is_not_there_are_refused(opensearch_engine, name, corpus):
    source = corpus(numbered(3))
    with pytest.raises(UsageError, match="no index"):
        update(opensearch_engine, source, name, LEXICAL)
    build(opensearch_engine, source, name, BuildOptions(dense="none"))
    with pytest.raises(UsageError, match="cannot change weights"):
        update(opensearch_engine, source, name, LEXICAL, UpdateMode(options=("weights",)))
    assert update(opensearch_engine, source, name, LEXICAL).counts.changed == 0  # a setting: the stored model is there


def test_a_file_that_comes_or_goes_meanwhile_hides_no_other(opensearch_engine, name, tmp_path, monkeypatch):
    """A folder is read twice; its documents are told apart by their ids, not by their places."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for each in "bcd":
        (folder / f"{each}.txt").write_text(f"text of {each}")
    run = Pipeline.run

    def between(change):
        def changed(self, progress):
            change()
            return run(self, progress)

        monkeypatch.setattr(Pipeline, "run", changed)

    between(lambda: (folder / "a.txt").write_text("came meanwhile"))
    assert build(opensearch_engine, corpora.open_source(folder), name, LEXICAL).documents == 3
    for each in "cd":
        (folder / f"{each}.txt").write_text(f"changed text of {each}")
    between((folder / "b.txt").unlink)
    updated = update(opensearch_engine, corpora.open_source(folder), name, LEXICAL)
    assert (updated.counts.new, updated.counts.changed, updated.sent) == (1, 2, 3)
    clean(opensearch_engine, name)
    (folder / "e.txt").write_text("word " * 300)
    (folder / "e.txt#2").write_text("its id is that of a passage")
    source = corpora.open_source(folder, include=("*",))
    with pytest.raises(InputError, match=r"would both be stored as 'e\.txt#2'"):
        build(opensearch_engine, source, name, replace(LEXICAL, passages=Window(100, 50)))
