"""Documents as they come, on a real OpenSearch: what arrives whatever it holds, what is refused, what is said of it."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from termweave.encoders.text_encoder import TextEncoder
from termweave.errors import InputError, ModelError, RefusedDocuments
from termweave.indexer import BuildOptions
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import dead_letters
from termweave.records import TermWeights
from tests.indexer.builds import LEXICAL, numbered

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
def test_strange_documents_all_arrive_and_verify_deep(desk, options):
    source = desk.source(STRANGE)
    built = desk.build(source, options)
    assert any(note.startswith("1 document without any text") for note in built.notes)
    if options != LEXICAL:
        assert "1 word of more than 200 characters left out of the term weights." in built.notes
    assert built.documents == desk.clean(source) == len(STRANGE)
    (hit, *_) = desk.open().search("metadata", k=3, where=[{"term": {"metadata.year": "2020"}}], mode="lexical")
    assert (hit.id, hit.fields["metadata"]["tags"], len(hit.fields["metadata"]["abstract"])) == ("meta", ["a", "b"], 100_000)


def refused(desk):
    """The dead letters of the last build, and their file."""
    (file,) = storage.folder(desk.engine).glob(f"{desk.name}*.refused.jsonl")
    return [orjson.loads(line) for line in file.read_bytes().splitlines()], str(file)


def test_broken_json_and_one_id_with_two_contents_are_named_by_line_or_skipped_by_wish(desk):
    twice = [{"_id": "a", "text": "first"}, {"_id": "b", "text": "x"}, {"_id": "b", "text": "x"}, {"_id": "a", "text": "second"}]
    broken = [*twice[:3], b'{"_id": "broken', twice[3]]
    for documents, said in ((broken, "line 4"), (twice, "line 4 has the id 'a' of line 1, with"), ([b""], "no documents")):
        with pytest.raises(InputError, match=said):
            desk.build(documents)
        assert desk.live is None
        assert not list(storage.folder(desk.engine).glob(f"{desk.name}*.sqlite*"))
    built = desk.build(desk.source(broken, skip_bad=True), replace(LEXICAL, skip_bad=True))
    assert any("line 4" in note for note in built.notes)
    assert "1 document left out, with the id and content of an earlier document." in built.notes
    assert desk.open().search("first", mode="lexical")[0].id == "a"
    assert built.documents == desk.clean() == 2


@pytest.mark.usefixtures("long_ids")
def test_a_document_that_the_engine_refuses_is_named_and_nothing_is_published(desk):
    with pytest.raises(RefusedDocuments, match=r"line 6.*immense") as raised:
        desk.build([*numbered(5), {"_id": "y" * 40_000, "text": "an id that no field can hold"}])
    assert desk.live is None
    ((letter,), file) = refused(desk)
    assert file in raised.value.hint
    assert letter["line"] == 6
    assert desk.build(3).documents == 3  # a mended source begins anew


def test_a_run_of_which_everything_is_refused_ends_early_and_goes_on_by_wish(desk, small_steps, monkeypatch):
    monkeypatch.setattr(dead_letters, "_HOPELESS", 200)
    source = desk.source([{**each, "year": "long ago"} for each in numbered(1000)])
    wrong = replace(LEXICAL, mapping={"properties": {"year": {"type": "integer"}}})
    stopped = r"of the first \d+ documents, so the build was stopped: 'd\d+' \(line \d+\): failed to parse"
    with pytest.raises(RefusedDocuments, match=stopped):
        desk.build(source, wrong)
    assert 200 <= len(refused(desk)[0]) < 1000
    with pytest.raises(RefusedDocuments, match="refused 1,000 of 1,000"):  # an index of nothing is never meant
        desk.build(source, replace(wrong, allow_refused=1.0))
    assert desk.live is None
    assert desk.build([{**each, "year": 1999} for each in numbered(1000)], wrong).documents == desk.clean() == 1000


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
def test_weights_that_all_quantise_to_zero_still_find_the_document(desk, monkeypatch, everywhere):
    altered(monkeypatch, scaled(1e-30))
    documents = numbered(10)[7:8] if everywhere else numbered(10)
    assert desk.build(documents, BuildOptions(dense="none")).documents == desk.clean() == len(documents)
    assert desk.open().search("number7", mode="weights")[0].id == "d7"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (scaled(np.nan), "a term weight that is NaN or infinity"),
        (lambda each: replace(each, vector=each.vector[:100]), "gave 100 numbers for document 'd7'"),
        (lambda each: replace(each, vector=each.vector * np.float32(np.nan)), "with NaN or infinity for document 'd7'"),
    ],
)
def test_what_a_broken_model_gives_is_said_and_nothing_is_published(desk, monkeypatch, change, said):
    altered(monkeypatch, change)
    with pytest.raises(ModelError, match=said):
        desk.build(10, BuildOptions())
    assert desk.live is None


def test_a_document_of_a_hundred_thousand_terms_is_taken_or_refused_with_advice(desk, monkeypatch):
    """Seen on 3.6.0: words as many as one likes, weighted features some 60,000."""
    terms = tuple(f"{number:x}" for number in range(100_000))
    desk.build([*numbered(7), {"_id": "d7", "text": f"number7 {' '.join(terms)}"}])
    assert desk.clean() == 8
    assert desk.open().search("1869f", mode="lexical")[0].id == "d7"
    weights = TermWeights(terms, np.ones(len(terms), np.float32))
    altered(monkeypatch, lambda encoding: replace(encoding, weights=weights))
    with pytest.raises(RefusedDocuments, match=r"1 of 8 documents: 'd7' \(line 8\): too many tokens"):
        desk.build([*numbered(7), {"_id": "d7", "text": "number7"}], BuildOptions(dense="none"))
    assert "--passage-size" in refused(desk)[0][0]["advice"]
