"""Building on a real OpenSearch: what arrives, what is refused, what is found when something differs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import orjson
import pytest

from termweave import corpora
from termweave.errors import EngineError, InputError, RefusedDocuments, TermweaveError, UsageError, VerificationFailed
from termweave.indexer import Options, build, building, ledgers, verify, verify_against_source
from termweave.indexer.generations import live, publish
from termweave.search import Index
from termweave.signals import DocumentLayout

pytestmark = pytest.mark.engine

LEXICAL = Options(weights="none", dense="none")


@pytest.fixture
def corpus(tmp_path):
    """Write documents as JSON lines and open them."""

    def write(documents, *, skip_bad=False, name="corpus.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"\n".join(each if isinstance(each, bytes) else orjson.dumps(each) for each in documents) + b"\n")
        return corpora.open_source(path, skip_bad=skip_bad)

    return write


def numbered(count):
    return [{"_id": f"d{number}", "title": f"title {number}", "text": f"text about number{number}"} for number in range(count)]


def check(engine, name, *, deep=True):
    index = Index.open(engine, name, weights="none" if "weights" not in signals(engine, name) else None)
    with ledgers.existing(engine, index.generation) as ledger:
        return verify(engine, index.generation, ledger, index.layout, deep=deep)


def signals(engine, name):
    index = live(engine, name)
    return list(engine.request("GET", f"/{index}/_mapping")[index]["mappings"]["_meta"]["termweave"]["signals"])


STRANGE = [
    {"_id": "empty", "title": "", "text": ""},
    {"_id": "one", "text": "word"},
    {"_id": "title only", "title": "just a title", "text": ""},
    {"_id": "zh", "text": "重庆是中国西南部的一个直辖市。"},
    {"_id": "ar", "text": "القاهرة هي عاصمة جمهورية مصر العربية"},
    {"_id": "he", "title": "שלום", "text": "שלום עולם \u202e mixed \u202c direction"},
    {"_id": "emoji 🙂", "text": "🙂 👩‍👩‍👧 ok"},
    {"_id": "dots", "text": "os.path.join(a.b, '3.5') v1.2.3 ... e.g. 192.168.0.1"},
    {"_id": "punctuation", "text": "?!... --- ###"},
    {"_id": "long word", "text": "x" * 100_000},
    {"_id": "big", "text": "the quick brown fox jumps over the lazy dog. " * 23_000},
    {"_id": "i" * 600, "text": "an id of 600 bytes"},
    {"_id": "Case", "text": "upper"},
    {"_id": "case", "text": "lower"},
    {"_id": "e\u0301", "text": "decomposed"},
    {"_id": "\u00e9", "text": "composed"},
    {"_id": "meta", "text": "with metadata", "year": 2020, "tags": ["a", "b"],
    "nested": {"deep": {"er": None}}, "abstract": "long " * 20_000},
    {"_id": "zero\u0000byte", "text": "nul \u0000 inside"},
    {"_id": "newline\nid", "text": "line\nbreaks\tand tabs\r\n"},
    {"_id": "  spaces  ", "text": "around the id"},
    {"_id": "slash/and?query#hash", "text": "url characters"},
]  # fmt: skip


@pytest.mark.parametrize("options", [LEXICAL, Options()], ids=["lexical", "all signals"])
def test_strange_documents_all_arrive_and_verify_deep(opensearch_engine, name, corpus, options):
    source = corpus(STRANGE)
    built = build(opensearch_engine, source, name, options)
    assert built.documents == len(STRANGE)
    found = check(opensearch_engine, name)
    assert (found.ok, found.counted, found.altered) == (True, len(STRANGE), [])
    layout = DocumentLayout.from_meta(Index.open(opensearch_engine, name).lineage.signals)
    assert verify_against_source(opensearch_engine, built.index, source, layout).ok
    index = Index.open(opensearch_engine, name)
    (hit, *_) = index.search("metadata", k=3, where=[{"term": {"metadata.year": "2020"}}], mode="lexical")
    assert (hit.id, hit.fields["metadata"]["tags"], len(hit.fields["metadata"]["abstract"])) == ("meta", ["a", "b"], 100_000)


def test_broken_json_is_named_by_line_and_nothing_is_left_behind(opensearch_engine, name, corpus):
    documents = [*numbered(6), b'{"_id": "broken', *numbered(3)]
    with pytest.raises(InputError, match="line 7"):
        build(opensearch_engine, corpus(documents), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    assert not list(ledgers.folder(opensearch_engine).glob(f"{name}*.sqlite*"))
    built = build(
        opensearch_engine,
        corpus([*numbered(6), b'{"_id": "broken'], skip_bad=True),
        name,
        Options(weights="none", dense="none", skip_bad=True),
    )
    assert built.documents == 6
    assert any("line 7" in note for note in built.notes)


def test_one_id_with_two_contents_is_refused_or_skipped_by_wish(opensearch_engine, name, corpus):
    documents = [{"_id": "a", "text": "first"}, {"_id": "b", "text": "x"}, {"_id": "a", "text": "second"}]
    with pytest.raises(InputError, match="'a' stands on line 1 and, with other content, on line 3"):
        build(opensearch_engine, corpus(documents), name, LEXICAL)
    built = build(opensearch_engine, corpus(documents), name, Options(weights="none", dense="none", skip_bad=True))
    assert built.documents == 2
    assert Index.open(opensearch_engine, name).search("first", mode="lexical")[0].id == "a"
    assert check(opensearch_engine, name).ok


def test_the_same_document_twice_is_kept_once_and_said(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus([*numbered(3), *numbered(3)]), name, LEXICAL)
    assert built.documents == 3
    assert any("3 documents repeated" in note for note in built.notes)


def test_an_empty_corpus_is_an_error(opensearch_engine, name, corpus):
    with pytest.raises(InputError, match="no documents"):
        build(opensearch_engine, corpus([b""]), name, LEXICAL)


def test_a_document_that_the_engine_refuses_is_named_and_nothing_is_published(opensearch_engine, name, corpus):
    documents = [*numbered(5), {"_id": "y" * 40_000, "text": "an id that no field can hold"}]
    with pytest.raises(RefusedDocuments, match=r"line 6.*immense") as raised:
        build(opensearch_engine, corpus(documents), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    (file,) = ledgers.folder(opensearch_engine).glob(f"{name}*.refused.jsonl")
    assert str(file) in raised.value.hint
    assert orjson.loads(file.read_bytes())["line"] == 6


@pytest.mark.parametrize("bad", ["Upper", "-dash", "with space", "a/b", "", "x" * 300, "star*", "_under"])
def test_names_that_cannot_be_are_refused_before_anything_is_read(opensearch_engine, corpus, bad):
    with pytest.raises(UsageError, match="name of an index"):
        build(opensearch_engine, corpus(numbered(1)), bad, LEXICAL)


def test_a_concrete_index_is_never_touched(opensearch_engine, name, corpus):
    opensearch_engine.request("PUT", f"/{name}")
    with pytest.raises(UsageError, match="does not touch it"):
        build(opensearch_engine, corpus(numbered(1)), name, LEXICAL)


def test_a_second_build_replaces_the_first_in_one_step_and_keeps_it(opensearch_engine, name, corpus):
    first = build(opensearch_engine, corpus(numbered(5)), name, LEXICAL)
    index = Index.open(opensearch_engine, name)
    second = build(opensearch_engine, corpus(numbered(7)), name, LEXICAL)
    assert live(opensearch_engine, name) == second.index != first.index
    assert opensearch_engine.request("GET", f"/{first.index}/_count")["count"] == 5
    assert len(index.search("text", k=10, mode="lexical")) == 7  # an open index follows the alias
    assert index.generation == second.index


def test_an_alias_that_somebody_else_moved_is_left_alone(opensearch_engine, name, corpus):
    build(opensearch_engine, corpus(numbered(2)), name, LEXICAL)
    with pytest.raises(EngineError, match="somebody pointed"):
        publish(opensearch_engine, name, f"{name}-mine", expected=None)


def test_verification_names_what_is_missing_extra_and_altered(opensearch_engine, name, corpus):
    source = corpus(numbered(50))
    built = build(opensearch_engine, source, name, Options())
    assert check(opensearch_engine, name).ok
    change = opensearch_engine.request
    change("DELETE", f"/{built.index}/_doc/d7")
    stored = change("GET", f"/{built.index}/_doc/d8")["_source"]
    change("PUT", f"/{built.index}/_doc/stranger", body={**stored, "id": "stranger"})
    change("PUT", f"/{built.index}/_doc/d9", body={**stored, "id": "d9"})
    found = check(opensearch_engine, name, deep=False)
    assert (found.missing, found.extra, found.ok) == (["d7"], ["stranger"], False)
    assert set(found.altered) == {"d9"}
    layout = DocumentLayout.from_meta(Index.open(opensearch_engine, name).lineage.signals)
    against = verify_against_source(opensearch_engine, built.index, source, layout)
    assert (against.missing, against.extra, against.altered) == (["d7"], ["stranger"], ["d9"])


@pytest.mark.parametrize("flip", ["weight", "vector", "half", "text", "title"])
def test_one_flipped_value_in_one_document_is_found_by_reading_back(opensearch_engine, name, corpus, flip):
    built = build(opensearch_engine, corpus(numbered(20)), name, Options())
    stored = opensearch_engine.request("GET", f"/{built.index}/_doc/d8")["_source"]
    if flip == "weight":
        stored["weights"][next(iter(stored["weights"]))] += 1
    elif flip == "vector":
        stored["vector"][5] += 1e-6
    elif flip == "half":
        stored["vector_fp16"] = stored["vector_fp16"][:-4] + "AAA="
    else:
        stored[flip] += "!"
    opensearch_engine.request("PUT", f"/{built.index}/_doc/d8", body=stored)
    assert check(opensearch_engine, name, deep=False).ok  # the digests beside it are as they were
    assert check(opensearch_engine, name, deep=True).altered == ["d8"]


def test_a_build_that_finds_a_difference_is_not_published(opensearch_engine, name, corpus, monkeypatch):
    finish = building.generations.finish

    def meddle(engine, index, *rest):
        engine.request("DELETE", f"/{index}/_doc/d3")
        finish(engine, index, *rest)

    monkeypatch.setattr(building.generations, "finish", meddle)
    with pytest.raises(VerificationFailed, match="1 missing"):
        build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    monkeypatch.undo()
    built = build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)  # what is missing is sent again, and no more
    assert (built.documents, built.sent) == (10, 1)
    assert check(opensearch_engine, name).ok


def test_a_generation_that_was_whole_but_not_yet_published_is_published(opensearch_engine, name, corpus, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    source = corpus(numbered(10))
    monkeypatch.setattr(building.generations, "publish", dies)
    with pytest.raises(KeyboardInterrupt):
        build(opensearch_engine, source, name, LEXICAL)
    monkeypatch.undo()
    built = build(opensearch_engine, source, name, LEXICAL)
    assert (built.documents, built.sent) == (10, 0)
    assert live(opensearch_engine, name) == built.index


def test_a_build_that_died_surveying_leaves_nothing_behind(opensearch_engine, name, corpus):
    index = f"{name}-20200101000000-dead"
    with ledgers.open_(opensearch_engine, index) as ledger:
        ledger.put("name", name)
        ledger.put("state", "surveying")
    opensearch_engine.request("PUT", f"/{index}")
    opensearch_engine.request("PUT", f"/{index}.stats")
    build(opensearch_engine, corpus(numbered(2)), name, LEXICAL)
    left = list(opensearch_engine.request("GET", f"/{name}-*/_alias"))
    assert index not in left
    assert f"{index}.stats" not in left
    assert not (ledgers.folder(opensearch_engine) / f"{index}.sqlite").exists()


@pytest.mark.parametrize("loading", [True, False])
def test_settings_for_loading_are_restored_and_can_be_declined(opensearch_engine, name, corpus, monkeypatch, loading):
    seen = {}
    send = building.send_rest

    def look(engine, source, planned, current, progress):
        seen.update(settings(engine, current.index))
        return send(engine, source, planned, current, progress)

    monkeypatch.setattr(building, "send_rest", look)
    built = build(
        opensearch_engine, corpus(numbered(3)), name, Options(weights="none", dense="none", replicas=1, loading=loading)
    )
    wanted = {"index.number_of_replicas": "0", "index.refresh_interval": "-1"} if loading else {"index.number_of_replicas": "1"}
    assert {key: seen.get(key) for key in wanted} == wanted
    after = settings(opensearch_engine, built.index)
    assert after["index.number_of_replicas"] == "1"
    assert "index.refresh_interval" not in after


def settings(engine, index):
    return engine.request("GET", f"/{index}/_settings", params={"flat_settings": True})[index]["settings"]


def test_a_sample_is_read_back(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(300)), name, LEXICAL)
    layout = DocumentLayout.from_meta(Index.open(opensearch_engine, name, weights="none").lineage.signals)
    with ledgers.existing(opensearch_engine, built.index) as ledger:
        found = verify(opensearch_engine, built.index, ledger, layout, deep=0.1)
    assert found.ok
    assert 30 <= found.read <= 40


CHILD = """
import sys
from termweave import corpora, engine, places, settings
from termweave.indexer import Options, build, sending
from pathlib import Path
places.state = lambda: Path({state!r})
slow = sending.Sender.submit
def submit(self, batch):
    slow(self, batch)
    import time; time.sleep(0.05)
sending.Sender.submit = submit
import termweave.indexer.survey as survey
survey._BLOCK_DOCUMENTS = 50
def progress(stage, done, *_):
    print(stage, done, flush=True)
server = engine.connect(settings.load(url={url!r}))
build(server, corpora.open_source({path!r}), {name!r}, Options(weights="none", dense="none"), progress)
"""


@pytest.mark.parametrize("kill_at", [0, 300, 1400])
def test_killed_in_the_middle_it_goes_on_and_nothing_is_lost_or_twice(
    opensearch_engine, name, corpus, own_places, tmp_path, kill_at
):
    corpus(numbered(1500))
    path = str(tmp_path / "corpus.jsonl")
    program = CHILD.format(state=str(own_places / "state"), url=opensearch_engine.url, path=path, name=name)
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )
    for line in child.stdout:
        stage, _, done = line.strip().partition(" ")
        if stage == "Indexing" and int(done) >= kill_at:
            child.send_signal(signal.SIGKILL)
            break
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert live(opensearch_engine, name) is None  # half a generation is never live
    built = build(opensearch_engine, corpora.open_source(path), name, LEXICAL)
    assert built.documents == 1500
    assert built.sent <= 1500 - max(0, kill_at - 250)
    assert any("Resumed" in note for note in built.notes)
    assert check(opensearch_engine, name).ok
    assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 1500


def test_an_unfinished_generation_of_another_source_is_named_until_fresh(opensearch_engine, name, corpus, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "_settle", stop)
    with pytest.raises(KeyboardInterrupt):
        build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="A build of it is not finished"):
        Index.open(opensearch_engine, name)
    other = corpus(numbered(12), name="other.jsonl")
    with pytest.raises(UsageError, match="unfinished generation"):
        build(opensearch_engine, other, name, LEXICAL)
    fresh = build(opensearch_engine, other, name, Options(weights="none", dense="none", fresh=True))
    assert fresh.documents == 12
    assert len(opensearch_engine.request("GET", f"/{name}-*/_alias")) == 1  # the unfinished one is gone


def test_an_index_deleted_while_it_is_built_is_neither_made_again_nor_published(opensearch_engine, name, corpus, monkeypatch):
    send = building.send_rest

    def meddle(engine, source, planned, current, progress):
        engine.request("DELETE", f"/{current.index}")
        return send(engine, source, planned, current, progress)

    monkeypatch.setattr(building, "send_rest", meddle)
    with pytest.raises(EngineError, match="was deleted while it was being built"):
        build(opensearch_engine, corpus(numbered(10)), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    assert not [index for index in opensearch_engine.request("GET", f"/{name}-*/_alias") if not index.endswith(".stats")]
    monkeypatch.undo()
    assert build(opensearch_engine, corpus(numbered(10)), name, LEXICAL).documents == 10


def test_documents_without_text_are_counted_and_found_by_no_vector(opensearch_engine, name, corpus):
    documents = [*numbered(3), {"_id": "none", "text": ""}, {"_id": "blank", "title": " ", "text": "\n"}]
    built = build(opensearch_engine, corpus(documents), name, Options())
    assert any(note.startswith("2 documents without any text") for note in built.notes)
    index = Index.open(opensearch_engine, name)
    assert {hit.id for hit in index.search("title", mode="dense")} == {"d0", "d1", "d2"}
    assert index.search("  ") == []
    assert check(opensearch_engine, name).ok


def test_a_second_build_of_a_name_is_told_of_the_first(opensearch_engine, name, corpus):
    source = corpus(numbered(3))
    with (
        ledgers.lease(opensearch_engine, name),
        pytest.raises(TermweaveError, match=rf"Another build of '{name}' is running here \(process {os.getpid()}"),
    ):
        build(opensearch_engine, source, name, LEXICAL)
    assert build(opensearch_engine, source, name, LEXICAL).documents == 3


def test_a_generation_published_but_not_marked_so_is_never_thrown_away(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(4)), name, LEXICAL)
    with ledgers.existing(opensearch_engine, built.index) as ledger:
        ledger.put("state", "building")  # killed between the swap and the note of it
    other = build(
        opensearch_engine, corpus(numbered(5), name="other.jsonl"), name, Options(weights="none", dense="none", fresh=True)
    )
    assert opensearch_engine.request("GET", f"/{built.index}/_count")["count"] == 4
    assert live(opensearch_engine, name) == other.index


def test_two_builds_in_one_second_are_two_generations(opensearch_engine, name, corpus):
    source = corpus(numbered(2))
    made = {build(opensearch_engine, source, name, LEXICAL).index for _ in range(3)}
    assert len(made) == 3
    assert all((ledgers.folder(opensearch_engine) / f"{index}.sqlite").exists() for index in made)


def test_a_mended_source_begins_anew_after_a_refusal(opensearch_engine, name, corpus):
    with pytest.raises(RefusedDocuments):
        build(opensearch_engine, corpus([*numbered(2), {"_id": "y" * 40_000, "text": "x"}]), name, LEXICAL)
    assert build(opensearch_engine, corpus(numbered(3)), name, LEXICAL).documents == 3
    assert len([index for index in opensearch_engine.request("GET", f"/{name}-*/_alias") if not index.endswith(".stats")]) == 1


def test_an_alias_of_somebody_else_is_not_taken_over(opensearch_engine, name, corpus):
    opensearch_engine.request("PUT", f"/{name}-theirs", body={"aliases": {name: {}}})
    with pytest.raises(UsageError, match="was not made by termweave"):
        build(opensearch_engine, corpus(numbered(1)), name, LEXICAL)


def test_verification_reads_documents_that_are_not_ours(opensearch_engine, name, corpus):
    built = build(opensearch_engine, corpus(numbered(3)), name, LEXICAL)
    lines = b"".join(b'{"index":{"_id":"foreign-%d"}}\n{"text":"not ours"}\n' % number for number in range(1500))
    opensearch_engine.request("POST", f"/{built.index}/_bulk", params={"refresh": True}, body=lines)
    found = check(opensearch_engine, name)
    assert len(found.extra) == 1500
    assert found.missing == found.altered == []
