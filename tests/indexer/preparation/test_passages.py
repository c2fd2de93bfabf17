"""Passages: how texts are cut, and that searches, judgements and verification speak of documents all the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from termweave import corpora
from termweave.errors import InputError, RefusedDocuments, UsageError
from termweave.indexer import BuildOptions, build, verify, verify_against_source
from termweave.indexer.ledger import storage
from termweave.indexer.options import Window
from termweave.indexer.preparation.passages import WORD, sentences, spans, split
from termweave.records import Document
from termweave.rerank.rerankers import Reranker, RerankResult
from termweave.search import Index
from tests.indexer.builds import check
from tests.indexer.conftest import write_lines

LETTERS = st.text("ab .!?\n\"')(中文。，é\t1", max_size=300)
SMALL = Window(size=20, stride=12)
CUT = BuildOptions(weights="none", dense="none", passages=SMALL)
SUBJECTS = ("timer", "json", "thread", "socket", "queue")


def words(text):
    return len(WORD.findall(text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two! Three? Four… Five", ["One. ", "Two! ", "Three? ", "Four… ", "Five"]),
        ("Dr. Who met J. Smith at 3.5 p.m. yesterday, e.g. here.", None),
        ("See Fig. 3 and os.path. Then go.", ["See Fig. 3 and os.path. ", "Then go."]),
        ("“Stop!” he said. (It stopped.) Good", ["“Stop!” he said. ", "(It stopped.) ", "Good"]),
        ("今天下雨。他说：“走吧！”我们走了", ["今天下雨。", "他说：“走吧！”", "我们走了"]),
        ("a heading\n\nand text\nover lines", ["a heading\n\n", "and text\nover lines"]),
        ("हम गए। वे आए", ["हम गए। ", "वे आए"]),
        ("", [""]),
    ],
)
def test_sentences_end_where_a_reader_says_so(text, found):
    starts = sentences(text)
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    assert parts == (found or [text])


@given(LETTERS, st.integers(1, 12), st.data())
def test_passages_cover_every_character_and_fit(text, size, data):
    window = Window(size, data.draw(st.integers(1, size)))
    found = spans(text, window)
    covered = set()
    for start, end in found:
        covered |= set(range(start, end))
        assert words(text[start:end]) <= size or len(found) == 1
    assert all(text[place].isspace() for place in range(len(text)) if place not in covered)
    assert found == sorted(set(found))
    if words(text) <= size:
        assert found == [(0, len(text))]


def test_windows_overlap_and_the_last_is_no_tail():
    text = " ".join(f"Word{number}." for number in range(25))
    found = [text[start:end].split() for start, end in spans(text, Window(10, 7))]
    edges = [("Word0.", "Word9."), ("Word7.", "Word16."), ("Word14.", "Word23."), ("Word15.", "Word24.")]
    assert [(part[0], part[-1]) for part in found] == edges
    with pytest.raises(UsageError, match="begin every 11 words"):
        Window(10, 11)
    long = "word " * 100  # one sentence, longer than a window
    assert [words(long[start:end]) for start, end in spans(long, Window(40, 30))] == [40, 40, 40]


def test_every_passage_keeps_title_and_metadata():
    long = Document("b", "One two three four. " * 12, "Title", {"year": 1}, line=3)
    parts = split(long, SMALL)
    assert [part.id for part in parts] == [f"b#{number}" for number in range(1, len(parts) + 1)]
    for part in parts:
        assert (part.title, part.metadata, part.line, part.source_id) == ("Title", {"year": 1}, 3, "b")
        assert long.text[part.passage.start : part.passage.end] == part.text


def long_text(subject, parts=4):
    """Each passage says something of its own, which its number names."""
    return " ".join(
        f"The {subject} module in part number{part} explains {subject} details for marker{subject}{part} and nothing else. "
        f"Filler words follow here so that the sentence is long enough."
        for part in range(parts)
    )


@pytest.fixture
def folder(tmp_path):
    """Five long documents and a short one."""
    documents = [{"_id": each, "title": f"About {each}", "text": long_text(each), "kind": "long"} for each in SUBJECTS]
    documents.append({"_id": "short", "title": "", "text": "A short text about nothing.", "kind": "short"})
    return write_lines(tmp_path / "corpus.jsonl", documents)


class Reading(Reranker):
    """A ranker that notes what it reads."""

    name, candidates, needs = "reading", 30, frozenset({"texts"})

    def rerank(self, request):
        self.texts = request.texts
        return RerankResult([-float(len(text)) for text in request.texts])


def test_a_search_answers_with_documents_and_shows_the_best_passage(opensearch_engine, name, folder):
    built = build(opensearch_engine, corpora.open_source(folder), name, BuildOptions(passages=SMALL))
    assert (built.documents, built.passages) == (6, opensearch_engine.request("GET", f"/{name}/_count")["count"])
    assert built.passages > 20
    index = Index.open(opensearch_engine, name)
    assert index.lineage.statistics["documents"] == built.passages
    text = long_text("json")
    for mode in ("lexical", "weights", "hybrid", "dense"):
        hits = index.search("json details markerjson2", mode=mode, k=6, explain=True)
        assert len({hit.id for hit in hits}) == len(hits)
        assert hits[0].id == "json"
        best = hits[0].passage
        assert best.parent == "json"
        assert text[best.start : best.end] == hits[0].fields["text"]
        if mode != "dense":
            assert "markerjson2" in hits[0].fields["text"]
        for hit in hits:
            assert sum(part["share"] for part in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-5)
            for part in hit.explanation["parts"]:
                if part["terms"]:
                    assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)
    assert {hit.passage for hit in index.search("short text", k=6, mode="lexical") if hit.id == "short"} == {None}
    again = index.explain("json details markerjson2", "json", mode="weights")
    assert (again.rank, again.passage) == (1, index.search("json details markerjson2", mode="weights")[0].passage)
    assert index.explain("markerjson2", "timer", mode="lexical").rank == 0
    ranker = Reading()
    hits = index.search("json details markerjson2", mode="lexical", k=6, rerank=ranker)
    assert len({hit.id for hit in hits}) == len(hits) == len(ranker.texts)
    (best,) = [each for each in ranker.texts if "json" in each]  # it reads the best passage of a document
    assert "markerjson2" in best
    assert len(best) < len(text) / 2


def test_pages_of_a_search_in_passages_hold_every_document_once(opensearch_engine, name, corpus):
    # One document holds nearly all passages: the nearest ones are all of it.
    documents = [{"_id": "giant", "text": long_text("queue", 60)}]
    documents += [{"_id": f"d{each}", "text": f"The queue module {each}: details" + " more" * (each // 2)} for each in range(30)]
    build(opensearch_engine, corpus(documents), name, BuildOptions(passages=SMALL, shards=2))
    index = Index.open(opensearch_engine, name)
    for mode in ("dense", "lexical:1,weights:1,dense:1"):
        whole = index.search("queue details", mode=mode, k=31, candidates=8)
        assert len(whole) == 31
        starts = range(0, 31, 4)
        pages = [hit for start in starts for hit in index.search("queue details", mode=mode, k=4, start=start, candidates=8)]
        assert [(hit.id, hit.score) for hit in pages] == [(hit.id, pytest.approx(hit.score, abs=1e-5)) for hit in whole]
        reranked = index.search("queue details", mode=mode, k=31, rerank="rnn")
        assert {hit.id for hit in reranked} == {hit.id for hit in whole}


def test_passages_are_verified_one_by_one_and_counted_as_documents(opensearch_engine, name, folder):
    source = corpora.open_source(folder)
    built = build(opensearch_engine, source, name, CUT)
    with storage.existing(opensearch_engine, built.index) as ledger:
        assert (ledger.documents, ledger.total) == (6, built.passages)
        whole = verify(opensearch_engine, built.index, ledger, deep=True)
        assert (whole.ok, whole.documents, whole.counted) == (True, 6, built.passages)
        opensearch_engine.request("DELETE", f"/{built.index}/_doc/json%232")
        stored = opensearch_engine.request("GET", f"/{built.index}/_doc/timer%231")["_source"]
        opensearch_engine.request("PUT", f"/{built.index}/_doc/timer%231", body={**stored, "passage_start": 5})
        opensearch_engine.request("PUT", f"/{built.index}/_doc/timer%2399", body={**stored, "passage": 99})
        found = verify(opensearch_engine, built.index, ledger, deep=True)
    assert (found.missing, found.extra, found.altered) == (["json#2"], ["timer#99"], ["timer#1"])
    against = verify_against_source(opensearch_engine, built.index, source)
    assert (against.missing, against.extra) == (["json#2"], ["timer#99"])


def test_a_refused_document_counts_once_whatever_its_passages(opensearch_engine, name, corpus):
    documents = [{"_id": f"d{number}", "text": long_text("json", 1 + 8 * (number == 3)), "price": number} for number in range(10)]
    documents[3]["price"] = documents[7]["price"] = "cheap"
    options = replace(CUT, mapping={"properties": {"price": {"type": "double"}}}, allow_refused=0.1)
    with pytest.raises(RefusedDocuments, match=r"refused 2 of 10 documents: 'd3' \(line 4\): .*'d7' \(line 8\)") as raised:
        build(opensearch_engine, corpus(documents), name, options)
    assert raised.value.hint.endswith("--allow-refused 20%.")
    assert build(opensearch_engine, corpus(documents), name, replace(options, allow_refused=0.2)).documents == 8


@pytest.mark.parametrize("parts", [(0, 4), (4, 0), (4, 6)])
def test_two_documents_with_one_id_are_refused_or_the_first_is_kept_whole(opensearch_engine, name, corpus, parts):
    first, second = (long_text("a", each) or "short" for each in parts)
    documents = [{"_id": "a", "text": first}, {"_id": "a", "text": second}]
    with pytest.raises(InputError, match=r"line 2 has the id .* of line 1, with other content"):
        build(opensearch_engine, corpus(documents), name, CUT)
    built = build(opensearch_engine, corpus(documents, skip_bad=True), name, replace(CUT, skip_bad=True))
    assert (built.documents, built.passages) == (1, len(split(Document("a", first), SMALL)))
    assert check(opensearch_engine, name).ok
