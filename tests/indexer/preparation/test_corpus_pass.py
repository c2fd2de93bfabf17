"""Documents as they come, on a real OpenSearch: what arrives whatever it holds, what is refused, what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
import pytest

from termweave.catalog.generations import live
from termweave.encoders.text_encoder import TextEncoder
from termweave.errors import InputError, ModelError, RefusedDocuments
from termweave.indexer import BuildOptions, build, verify_against_source
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import bulk_sender, dead_letters
from termweave.records import TermWeights
from termweave.search import Index
from tests.indexer.builds import LEXICAL, check, numbered

pytestmark = pytest.mark.engine

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


@pytest.mark.parametrize("options", [LEXICAL, BuildOptions()], ids=["lexical", "all signals"])
def test_strange_documents_all_arrive_and_verify_deep(opensearch_engine, name, corpus, options):
    source = corpus(STRANGE)
    built = build(opensearch_engine, source, name, options)
    assert built.documents == len(STRANGE)
    assert any(note.startswith("1 document without any text") for note in built.notes)
    if options != LEXICAL:
        assert "1 word of more than 200 characters left out of the term weights." in built.notes
    found = check(opensearch_engine, name)
    assert (found.ok, found.counted, found.altered) == (True, len(STRANGE), [])
    assert verify_against_source(opensearch_engine, built.index, source).ok
    index = Index.open(opensearch_engine, name)
    (hit, *_) = index.search("metadata", k=3, where=[{"term": {"metadata.year": "2020"}}], mode="lexical")
    assert (hit.id, hit.fields["metadata"]["tags"], len(hit.fields["metadata"]["abstract"])) == ("meta", ["a", "b"], 100_000)


def test_broken_json_and_one_id_with_two_contents_are_named_by_line_or_skipped_by_wish(opensearch_engine, name, corpus):
    twice = [{"_id": "a", "text": "first"}, {"_id": "b", "text": "x"}, {"_id": "b", "text": "x"}, {"_id": "a", "text": "second"}]
    broken = [*twice[:3], b'{"_id": "broken', twice[3]]
    for documents, said in (
        (broken, "line 4"), (twice, "line 4 has the id 'a' of line 1, with other content"), ([b""], "no documents"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            build(opensearch_engine, corpus(documents), name, LEXICAL)
        assert live(opensearch_engine, name) is None
        assert not list(storage.folder(opensearch_engine).glob(f"{name}*.sqlite*"))
    built = build(opensearch_engine, corpus(broken, skip_bad=True), name, replace(LEXICAL, skip_bad=True))
    assert built.documents == 2
    assert any("line 4" in note for note in built.notes)
    assert "1 document left out, with the id and content of an earlier document." in built.notes
    assert Index.open(opensearch_engine, name).search("first", mode="lexical")[0].id == "a"
    assert check(opensearch_engine, name).ok


@pytest.mark.usefixtures("long_ids")
def test_a_document_that_the_engine_refuses_is_named_and_nothing_is_published(opensearch_engine, name, corpus):
    documents = [*numbered(5), {"_id": "y" * 40_000, "text": "an id that no field can hold"}]
    with pytest.raises(RefusedDocuments, match=r"line 6.*immense") as raised:
        build(opensearch_engine, corpus(documents), name, LEXICAL)
    assert live(opensearch_engine, name) is None
    (file,) = storage.folder(opensearch_engine).glob(f"{name}*.refused.jsonl")
    assert str(file) in raised.value.hint
    assert orjson.loads(file.read_bytes())["line"] == 6
    assert build(opensearch_engine, corpus(numbered(3)), name, LEXICAL).documents == 3  # a mended source begins anew


def test_a_run_of_which_everything_is_refused_ends_early_and_goes_on_by_wish(opensearch_engine, name, corpus, monkeypatch):
    for limit in ("FIRST", "SMALLEST", "LARGEST"):
        monkeypatch.setattr(bulk_sender, limit, 16 * 1024)
    monkeypatch.setattr(dead_letters, "_HOPELESS", 200)
    source = corpus([{**each, "year": "long ago"} for each in numbered(3000)])
    wrong = replace(LEXICAL, mapping={"properties": {"year": {"type": "integer"}}})
    stopped = r"of the first \d+ documents, so the build was stopped: 'd\d+' \(line \d+\): failed to parse"
    with pytest.raises(RefusedDocuments, match=stopped):
        build(opensearch_engine, source, name, wrong)
    (file,) = storage.folder(opensearch_engine).glob(f"{name}*.refused.jsonl")
    assert 200 <= len(file.read_bytes().splitlines()) < 3000
    with pytest.raises(RefusedDocuments, match="refused 3,000 of 3,000"):  # an index of nothing is never meant
        build(opensearch_engine, source, name, replace(wrong, allow_refused=1.0))
    assert live(opensearch_engine, name) is None
    mended = build(opensearch_engine, corpus([{**each, "year": 1999} for each in numbered(3000)]), name, wrong)
    assert (mended.documents, check(opensearch_engine, name).ok) == (3000, True)


def altered(monkeypatch, change):
    """Let the models say something else of the document d7."""
    encode = TextEncoder.encode

    def meddled(self, texts, **options):
        found = encode(self, texts, **options)
        return [change(each) if "number7" in each.text else each for each in found]

    monkeypatch.setattr(TextEncoder, "encode", meddled)


def scaled(by):
    return lambda each: replace(each, weights=replace(each.weights, weights=each.weights.weights * np.float32(by)))


@pytest.mark.parametrize("everywhere", [False, True])
def test_weights_that_all_quantise_to_zero_still_find_the_document(opensearch_engine, name, corpus, monkeypatch, everywhere):
    altered(monkeypatch, scaled(1e-30))
    documents = numbered(10)[7:8] if everywhere else numbered(10)
    built = build(opensearch_engine, corpus(documents), name, BuildOptions(dense="none"))
    assert built.documents == len(documents)
    assert check(opensearch_engine, name).ok
    assert Index.open(opensearch_engine, name).search("number7", mode="weights")[0].id == "d7"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (scaled(np.nan), "a term weight that is not a number"),
        (lambda each: replace(each, vector=each.vector[:100]), "gave 100 numbers for document 'd7'"),
        (lambda each: replace(each, vector=each.vector * np.float32(np.nan)), "NaN for document 'd7'"),
    ],
)
def test_what_a_broken_model_gives_is_said_and_nothing_is_published(opensearch_engine, name, corpus, monkeypatch, change, said):
    altered(monkeypatch, change)
    with pytest.raises(ModelError, match=said):
        build(opensearch_engine, corpus(numbered(10)), name, BuildOptions())
    assert live(opensearch_engine, name) is None


def test_a_document_of_a_hundred_thousand_terms_is_taken_or_refused_with_advice(opensearch_engine, name, corpus, monkeypatch):
    """Seen on 3.6.0: words as many as one likes, weighted features some 60,000."""
    terms = tuple(f"{number:x}" for number in range(100_000))
    source = corpus([*numbered(7), {"_id": "d7", "text": f"number7 {' '.join(terms)}"}])
    built = build(opensearch_engine, source, name, LEXICAL)
    assert (built.documents, check(opensearch_engine, name).ok) == (8, True)
    assert Index.open(opensearch_engine, name).search("1869f", mode="lexical")[0].id == "d7"
    weights = TermWeights(terms, np.ones(len(terms), np.float32))
    altered(monkeypatch, lambda encoding: replace(encoding, weights=weights))
    with pytest.raises(RefusedDocuments, match=r"1 of 8 documents: 'd7' \(line 8\): too many tokens"):
        build(opensearch_engine, corpus([*numbered(7), {"_id": "d7", "text": "number7"}]), name, BuildOptions(dense="none"))
    (file,) = storage.folder(opensearch_engine).glob(f"{name}*.refused.jsonl")
    assert "--passage-size" in orjson.loads(file.read_bytes())["advice"]
