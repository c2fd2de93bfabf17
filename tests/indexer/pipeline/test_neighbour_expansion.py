"""Words of the nearest documents: by the formula, stored, found, resumed and updated."""

from __future__ import annotations

import re
import signal
import subprocess

import numpy as np
import pytest

from termweave import corpora
from termweave.cli import run
from termweave.encoders import load
from termweave.errors import UsageError
from termweave.indexer import BuildOptions, UpdateMode, build, update
from termweave.indexer.generations.generations import live
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.resume import UnfinishedBuild
from termweave.indexer.pipeline import encoding as pipeline_encoding
from termweave.indexer.pipeline import neighbour_expansion
from termweave.indexer.preparation import corpus_pass, estimate
from termweave.indexer.preparation.passages import Window
from termweave.records import Document, Encoding
from termweave.search import Index
from termweave.search.catalog import statistics_store
from termweave.signals.impacts import scale
from tests.indexer.builds import check, three, weights
from tests.indexer.conftest import Bench, until

THREE = BuildOptions(neighbours=3)


@pytest.fixture(scope="module")
def documents():
    """Sixty passages of the demo corpus, and some that nothing can be said of."""
    found = [each for each in corpora.open_source("demo").documents() if each.content][:60]
    lines = [{"_id": each.id, "title": each.title, "text": each.text} for each in found]
    return [
        *lines,
        {"_id": "empty", "text": ""},
        {"_id": "stop", "text": "of the and"},
        {"_id": "twin", "text": lines[0]["text"]},
    ]


def kept(engine, name):
    """Files of encodings of the generations of a name."""
    return sorted(storage.folder(engine).glob(f"{name}-*.encodings"))


def stored(engine, name):
    """Document -> its impacts, as integers."""
    engine.request("POST", f"/{name}/_refresh")
    hits = engine.request("POST", f"/{name}/_search", body={"size": 1000, "_source": ["weights"]})["hits"]["hits"]
    return {hit["_id"]: hit["_source"].get("weights", {}) for hit in hits}


class TestJoined:
    def test_the_larger_of_ones_own_and_the_mean_of_the_neighbours(self):
        near = [(1.0, weights(bank=9.0, river=2.0)), (0.5, weights(bank=2.0, money=8.0))]
        found = neighbour_expansion.joined(weights(bank=4.0, loan=1.0), near, least=0.1)
        assert found.as_dict() == {"bank": 5.0, "money": 2.0, "river": 1.0, "loan": 1.0}
        assert found.terms[:2] == ("bank", "loan")
        assert found.weights.dtype == np.float32

    def test_light_words_of_neighbours_are_left_out_and_own_ones_never(self):
        found = neighbour_expansion.joined(weights(own=0.01), [(1.0, weights(light=0.4, heavy=0.6, own=0.005))], least=0.5)
        assert found.as_dict() == pytest.approx({"heavy": 0.6, "own": 0.01})

    def test_who_points_away_says_nothing_but_counts(self):
        near = [(-0.5, weights(far=9.0)), (1.0, weights(close=2.0))]
        assert neighbour_expansion.joined(weights(own=1.0), near, least=0.1).as_dict() == {"own": 1.0, "close": 1.0}

    @pytest.mark.parametrize(("own", "near"), [(weights(), [(1.0, weights(word=1.0))]), (weights(own=1.0), [])])
    def test_without_words_or_neighbours_nothing_is_added(self, own, near):
        assert neighbour_expansion.joined(own, near, least=0.0) is own


class TestCorpus:
    def test_neighbours_are_other_documents_with_a_text(self):
        documents, encodings = three()
        near = np.float32([0.8, 0.6])
        tags = Document("tags", "", metadata={"expansion": "a tag"}, line=5)  # in the index it has no vector
        documents += [Document("blank", " ", line=3), Document("near", "a text", line=4), tags]
        encodings += [
            Encoding(" ", weights(), near),
            Encoding("a text", weights(w4=1.0), near),
            Encoding("a tag", weights(tag=1.0), near),
        ]
        corpus = neighbour_expansion.Corpus()
        corpus.add(documents[:3], encodings[:3])
        corpus.add(documents[3:], encodings[3:])
        corpus.close()
        found = [set(each.weights.terms) for each in corpus.expanded(documents, 3)]
        assert found == [{"w0", "w4"}, {"w1", "w4"}, {"w2", "w4"}, set(), {"w4", "w0", "w1", "w2"}, {"tag", "w4", "w0", "w1"}]


@pytest.mark.parametrize(("columns", "count"), [(3, 5), (79, 5), (95, 5), (96, 5), (1000, 1), (1601, 100), (70001, 7)])
def test_the_largest_are_among_the_promising(columns, count):
    rows = np.random.default_rng(columns).normal(size=(20, columns)).astype(np.float32)
    rows[:, : columns // 2] = np.round(rows[:, : columns // 2])  # many are equal
    found = neighbour_expansion._promising(rows, count)
    assert all(len(set(each)) == len(each) for each in found.tolist())
    held = np.sort(np.take_along_axis(rows, found, axis=1), axis=1)[:, -count:]
    assert np.array_equal(held, np.sort(rows, axis=1)[:, -count:])


@pytest.mark.engine
class TestBuild:
    def test_what_is_stored_is_the_formula(self, opensearch_engine, name, documents, corpus, monkeypatch):
        monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 16)
        monkeypatch.setattr(neighbour_expansion, "_ROWS", 5)
        monkeypatch.setattr(neighbour_expansion, "_COLUMNS", 7)  # many columns, the last ones not full
        source = corpus(documents)
        build(opensearch_engine, source, name, THREE)
        assert check(opensearch_engine, name).ok
        index = Index.open(opensearch_engine, name)
        signal = next(each for each in index._now.layout.signals if each.name == "weights")  # its scale
        statistics = statistics_store.load(opensearch_engine, index.generation, index.lineage)
        encodings = load().encode([each.content for each in source.documents()], kind="document", statistics=statistics)
        least = 0.04 * scale([each.weights.weights for each in encodings])
        held = stored(opensearch_engine, name)
        added = 0
        for one, (line, encoded) in enumerate(zip(documents, encodings, strict=True)):
            cosines = [
                float(encoded.vector @ other.vector) if other.text and place != one else -9
                for place, other in enumerate(encodings)
            ]
            nearest = sorted(range(len(cosines)), key=lambda place: -cosines[place])[:3]
            own = encoded.weights.as_dict()
            wanted = dict(own)
            for term in {term for place in nearest for term in encodings[place].weights.terms} if own else ():
                said = sum(max(0.0, cosines[place]) * encodings[place].weights.as_dict().get(term, 0.0) for place in nearest) / 3
                if said >= least:
                    wanted[term] = max(wanted.get(term, 0.0), said)
            levels = {
                term.replace(".", "%2E"): min(255, max(1, round(weight * 255 / signal.w_max))) for term, weight in wanted.items()
            }
            assert held[line["_id"]].keys() == levels.keys()
            for term, level in levels.items():
                assert held[line["_id"]][term] == pytest.approx(level, abs=1)  # at .5 the last digit decides
            added += len(wanted) - len(own)
        assert added > 300
        assert held["empty"] == held["stop"] == {}

    def test_a_document_is_found_by_a_word_of_its_neighbour_and_the_explanation_says_so(self, opensearch_engine, name, corpus):
        lines = [
            {"_id": "guitar", "text": "How to tune the strings of an acoustic guitar."},
            {"_id": "ukulele", "text": "How to tune the strings of a ukulele."},
            {"_id": "other", "text": "Interest rates of the central bank."},
        ]
        build(opensearch_engine, corpus(lines), name, BuildOptions(neighbours=1))
        index = Index.open(opensearch_engine, name)
        assert index.lineage.neighbours == 1
        hits = index.search("acoustic", mode="weights", explain=True)
        assert [hit.id for hit in hits[:2]] == ["guitar", "ukulele"]  # the bank has a nearest one, too, and it is far
        assert all(hit.score < hits[1].score / 2 for hit in hits[2:])
        for hit in hits:
            assert sum(part["share"] for part in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-5)
        assert index.search("acoustic", mode="lexical")[0].id == "guitar"
        assert len(index.search("acoustic", mode="lexical")) == 1

    def test_passages_of_one_document_are_no_neighbours(self, opensearch_engine, name, corpus):
        text = " ".join(f"The acoustic guitar number {number} has six strings and a body of wood." for number in range(12))
        lines = [{"_id": "long", "text": text}, {"_id": "short", "text": "An acoustic guitar with a loudspeaker."}]
        options = BuildOptions(neighbours=1, passages=Window(30, 30))
        source = corpus(lines)
        built = build(opensearch_engine, source, name, options)
        assert built.passages > 4
        held = stored(opensearch_engine, name)
        passages = [impacts for identity, impacts in held.items() if identity.startswith("long#")]
        assert all("loudspeak" in impacts for impacts in passages)
        assert not any("11" in impacts for impacts in passages[:2])  # of another passage of the same document

    def test_documents_left_out_lend_no_words_and_repeated_ones_count_once(self, opensearch_engine, name, corpus):
        lines = [
            {"_id": "guitar", "text": "How to tune the strings of an acoustic guitar."},
            {"_id": "ukulele", "text": "How to tune the strings of a ukulele."},
            {"_id": "bank", "text": "Interest rates of the central bank."},
        ]
        again = [lines[0], {"_id": "ukulele", "text": "How to tune the strings of a velociraptor's ukulele."}]
        told = []
        for which, documents in (("one", lines), ("all", [*lines, *again])):
            source = corpus(documents, skip_bad=True)
            options = BuildOptions(neighbours=2, skip_bad=True)
            build(opensearch_engine, source, f"{name}-{which}", options, lambda *each: told.append(each))
        assert stored(opensearch_engine, f"{name}-all") == stored(opensearch_engine, f"{name}-one")
        assert [each[1:3] for each in told if each[0] == neighbour_expansion.ENCODING] == [(0, 3), (3, 3)] * 2

    def test_more_neighbours_than_documents(self, opensearch_engine, name, corpus):
        source = corpus([{"_id": "only", "text": "An acoustic guitar."}])
        build(opensearch_engine, source, name, BuildOptions(neighbours=5))
        assert set(stored(opensearch_engine, name)["only"]) == {"acoust", "guitar"}

    def test_encodings_are_removed_when_all_is_sent(self, opensearch_engine, name, documents, corpus):
        build(opensearch_engine, corpus(documents), name, THREE)
        assert kept(opensearch_engine, name) == []

    @pytest.mark.parametrize("given", [{"dense": "none"}, {"weights": "none"}, {"signals": ("lexical",)}])
    def test_it_takes_weights_and_vectors(self, opensearch_engine, name, documents, corpus, given):
        with pytest.raises(UsageError, match="needs term weights and vectors"):
            build(opensearch_engine, corpus(documents), name, BuildOptions(neighbours=3, **given))

    @pytest.mark.parametrize("count", [-1, 101])
    def test_fewer_than_none_and_more_than_a_hundred_are_no_number(self, count):
        with pytest.raises(UsageError, match=f"neighbours must be a whole number from 0 to 100, not {count}"):
            BuildOptions(neighbours=count)

    def test_the_plan_says_what_it_takes(self, opensearch_engine, documents, corpus):
        source = corpus(documents)
        (said,) = (
            each for each in estimate.estimate_build(source, opensearch_engine.capabilities, THREE).warnings if "--neigh" in each
        )
        assert "needs 172 kB of memory and as much disk space" in said


@pytest.mark.engine
class TestResume:
    @pytest.mark.parametrize("damage", [False, True])
    def test_what_was_encoded_is_not_encoded_again(self, opensearch_engine, name, documents, corpus, monkeypatch, damage):
        monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 16)
        source = corpus(documents)
        build(opensearch_engine, source, f"{name}-whole", THREE)
        encoded = []
        alone = pipeline_encoding.of_documents

        def counted(encoder, statistics):
            encode = alone(encoder, statistics)

            def one(block):
                if not stopped and len(encoded) == 2:
                    raise KeyboardInterrupt
                encoded.append(len(block))
                return encode(block)

            return one

        monkeypatch.setattr(pipeline_encoding, "of_documents", counted)
        stopped = False
        with pytest.raises(KeyboardInterrupt):
            build(opensearch_engine, source, name, THREE)
        files = kept(opensearch_engine, name)
        assert len(files) == len(encoded) == 2
        if damage:
            files[1].write_bytes(files[1].read_bytes()[:1000])
        with pytest.raises(UnfinishedBuild, match="neighbours was 3 and is 2"):
            build(opensearch_engine, source, name, BuildOptions(neighbours=2))
        stopped = True
        before = len(encoded)
        note = build(opensearch_engine, source, name, THREE).notes[0]
        assert re.fullmatch(r"Resumed \S+: no document was sent before; the finished encodings are used again\.", note)
        assert len(encoded) - before == (3 if damage else 2)
        assert check(opensearch_engine, name).ok
        assert stored(opensearch_engine, name) == stored(opensearch_engine, f"{name}-whole")

    def test_killed_and_interrupted_while_it_encodes(self, opensearch_engine, name, tmp_path):
        bench = Neighbours(tmp_path, opensearch_engine.url, name).write(150)
        child = bench.start(prelude=HELD, stdin=subprocess.PIPE)
        until(child, "HELD")
        child.kill()
        child.communicate(timeout=60)
        child = bench.start(prelude=HELD, stdin=subprocess.PIPE)
        until(child, "HELD")
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=60)
        assert child.returncode == 130, said
        assert "Stopped. Encoded 32 of 150 documents. Run the same command to continue from there." in said
        assert "verified and live" in bench.run()
        index = bench.whole()
        left = {path.name for path in (tmp_path / "state" / "termweave" / "ledgers").rglob("*") if path.is_file()}
        assert left == {"place", f"{name}.lease", f"{index}.sqlite"}


#: Waits on standard input when half of the second block is written.
HELD = """
from pathlib import Path
write = Path.write_bytes
def held(path, content):
    if ".000001." in path.name:
        write(path, content[: len(content) // 2])
        print("HELD", flush=True)
        sys.stdin.readline()
    write(path, content)
Path.write_bytes = held
"""


class Neighbours(Bench):
    def _verb(self):
        return ["index", str(self.corpus), self.name, "--neighbours", "2"]


LINES = [
    {"_id": "guitar", "text": "How to tune the strings of an acoustic guitar."},
    {"_id": "bank", "text": "Interest rates of the central bank."},
]
NEW = {"_id": "ukulele", "text": "How to tune the strings of a ukulele."}


@pytest.mark.engine
class TestUpdate:
    @pytest.mark.parametrize("new", [False, True])
    def test_what_is_new_is_given_words_of_what_is_there(self, opensearch_engine, name, corpus, new):
        build(opensearch_engine, corpus(LINES), name, BuildOptions(neighbours=1))
        before = stored(opensearch_engine, live(opensearch_engine, name))
        update(opensearch_engine, corpus([*LINES, NEW]), name, BuildOptions(), mode=UpdateMode(new=new))
        assert check(opensearch_engine, name).ok
        held = stored(opensearch_engine, live(opensearch_engine, name))
        assert {"acoust", "guitar", "ukulel"} <= held["ukulele"].keys()
        assert held["guitar"] == before["guitar"]  # as it was: only what is sent is given words
        assert Index.open(opensearch_engine, name).lineage.neighbours == 1
        changed = {**LINES[0], "text": "How to tune an electric guitar."}
        update(opensearch_engine, corpus([changed, LINES[1], NEW]), name, BuildOptions())
        held = stored(opensearch_engine, live(opensearch_engine, name))
        assert {"electr", "ukulel"} <= held["guitar"].keys()
        assert check(opensearch_engine, name).ok

    def test_as_term_frequencies(self, opensearch_engine, name, corpus):
        options = BuildOptions(signals=("term_frequency", "dense"), neighbours=1)
        build(opensearch_engine, corpus(LINES), name, options)
        update(opensearch_engine, corpus([*LINES, NEW]), name, BuildOptions())
        assert check(opensearch_engine, name).ok
        index = Index.open(opensearch_engine, name)
        assert {hit.id for hit in index.search("acoustic", mode="term_frequency")[:2]} == {"guitar", "ukulele"}

    @pytest.mark.parametrize("signal", ["weights", "term_frequency"])
    def test_what_others_wrote_does_not_end_an_update(self, opensearch_engine, name, corpus, signal):
        build(opensearch_engine, corpus(LINES), name, BuildOptions(signals=(signal, "dense"), neighbours=3))
        index = live(opensearch_engine, name)
        whole = opensearch_engine.request("GET", f"/{index}/_doc/guitar")["_source"]
        opensearch_engine.request("PUT", f"/{index}/_settings", body={"index.blocks.write": False})
        written = {"weights": [{"theirs": "255"}], "term_frequency": ["theirs", None, 5, "theirs|100"]}
        body = {"vector": whole["vector"], signal: written[signal]}
        opensearch_engine.request("PUT", f"/{index}/_doc/foreign", params={"refresh": True}, body=body)
        update(opensearch_engine, corpus([*LINES, NEW]), name, BuildOptions(), mode=UpdateMode(delete_missing=True))
        assert check(opensearch_engine, name).ok
        held = opensearch_engine.request("GET", f"/{index}/_doc/ukulele")["_source"]
        assert "theirs" in str(held[signal])

    def test_term_frequencies_beside_weights_change_nothing(self, opensearch_engine, name, corpus):
        found = []
        for signals in (("weights", "dense"), ("weights", "term_frequency", "dense")):
            build(opensearch_engine, corpus(LINES), name, BuildOptions(signals=signals, neighbours=1))
            update(opensearch_engine, corpus([*LINES, NEW]), name, BuildOptions())
            found.append(stored(opensearch_engine, live(opensearch_engine, name))["ukulele"])
        assert found[0] == found[1]

    def test_an_update_keeps_their_number(self, opensearch_engine, name, corpus, capsys):
        source = corpus(LINES)
        build(opensearch_engine, source, name, BuildOptions(neighbours=1))
        command = ["index", str(source.path), name, "--update", "--url", opensearch_engine.url]
        assert run([*command, "--neighbours", "2"]) == 2
        assert "An update cannot change --neighbours: the live generation was built with 1, not 2" in capsys.readouterr().err
        assert run([*command, "--neighbours", "1"]) == 0
