"""Decomposed letters, soft hyphens, zero-width characters and presentation forms in documents, queries, filters, synonyms and pins."""

from unicodedata import normalize

import pytest

import termweave as tw
from termweave import corpora
from termweave.catalog.layout import source_digest
from termweave.corpora import IndexReading
from termweave.indexer import BuildOptions
from termweave.indexer.enrichment import enrichment
from termweave.settings import load
from tests.search.conftest import index_of

SIZE = "Gro\u0308\u00dfe"
BRIDGE = "Der Mu\u0308ller fa\u0308hrt u\u0308ber den Fluss."
PLAN = "Das Ge\u00adsamt\u00adkonzept und der Re\u00adgen\u200bmantel, o\ufb03ce \uff21\uff22\uff23\uff11."
DOCUMENTS = [
    {"id": "Bru\u0308cke.txt", "title": "Die Bru\u0308cke", "text": BRIDGE, SIZE: "Jose\u0301"},
    {"id": "zaun", "title": "Der Zaun", "text": "Die M\u00fcllerin f\u00e4hrt vorbei.", SIZE: "Jos\u00e9"},
    {"id": "p3", "title": "Plan", "text": PLAN},
]


@pytest.fixture(scope="module")
def index(opensearch_engine):
    with index_of(opensearch_engine, DOCUMENTS, signals=("lexical", "weights"), dense="none") as opened:
        yield opened


def ids(index, query, **options):
    return [hit.id for hit in index.search(query, **options)]


@pytest.mark.parametrize("mode", ["lexical", "weights"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_words_are_found_in_each_form_and_marked_in_the_shown_text(index, mode, form):
    for query, found, marked in (
        ("Br\u00fccke", "Bru\u0308cke.txt", "Br\u00fccke"),
        ("Gesamtkonzept", "p3", "Gesamtkonzept"),
        ("Ge\u00adsamtkonzept", "p3", "Gesamtkonzept"),
        ("Regenmantel\u200b", "p3", "Regenmantel"),
        ("office", "p3", "office"),
        ("ABC1", "p3", "ABC1"),
        ("\uff21\uff22\uff23\uff11", "p3", "ABC1"),
    ):
        (hit,) = index.search(normalize(form, query), mode=mode, highlight=True)
        shown = [each.text[start:end] for each in hit.highlights for start, end in each.matches]
        assert (hit.id, shown[0]) == (found, marked)


def test_filters_facets_and_operators(index):
    both, words = {"Bru\u0308cke.txt", "zaun"}, "Br\u00fccke Zaun Konzept f\u00e4hrt"
    for where in (
        "Gr\u00f6\u00dfe=Jos\u00e9", "Gro\u0308\u00dfe=Jose\u0301", "Gr\u00f6\u00dfe=Jose\u0301*", "Gr\u00f6\u00dfe IN (Jose\u0301, x)",
        "exists(Gr\u00f6\u00dfe)", "Gr\u00f6\u00dfe>=Jose\u0301", 'Gr\u00f6\u00dfe="Jo\u00ads\u00e9"', "NOT Gr\u00f6\u00dfe!=Jose\u0301",
    ):  # fmt: skip
        assert set(ids(index, words, where=where)) == both, where
    (facet,) = index.answer(words, facets=["Gr\u00f6\u00dfe"]).facets["Gr\u00f6\u00dfe"]
    assert (facet.value, facet.count) == ("Jos\u00e9", 2)
    assert set(ids(index, words, where=facet.filter)) == both
    (remark,) = index.search(words, where="Gr\u00f6\u00dfe=Jos\u00e8").remarks
    assert "No document has 'Jos\u00e8' in" in remark
    for query in ('"die Br\u00fccke" Zaun', "f\u00e4hrt -Zaun -konzept"):
        for form in ("NFC", "NFD"):
            assert ids(index, normalize(form, query), rewrite="operators", mode="lexical") == ["Bru\u0308cke.txt"]


def test_synonyms_pins_and_ids_in_another_form(index, tmp_path):
    (tmp_path / "synonyms.txt").write_text("Bru\u0308cke, U\u0308berfu\u0308hrung\n", encoding="utf-8")
    (tmp_path / "pins.csv").write_text(
        "query,document,action\nU\u0308bersicht,Br\u00fccke.txt,pin\nf\u00e4hrt,Br\u00fccke.txt,hide\n", encoding="utf-8"
    )
    pins = f"pins@{tmp_path / 'pins.csv'}"
    assert ids(index, "\u00dcberf\u00fchrung", rewrite=f"synonyms@{tmp_path / 'synonyms.txt'}") == ["Bru\u0308cke.txt"]
    assert ids(index, "\u00fcbersicht", rewrite=pins) == ["Bru\u0308cke.txt"]
    assert ids(index, "fa\u0308hrt", rewrite=pins) == ["zaun"]
    assert ids(index, "Zaun", pin=["Br\u00fccke.txt"]) == ["Bru\u0308cke.txt", "zaun"]
    assert ids(index, "", like=["Br\u00fccke.txt"], mode="lexical") == ["zaun"]


def test_an_update_sends_nothing_of_a_corpus_that_differs_in_its_forms_alone(opensearch_engine, name):
    connection = tw.connect(opensearch_engine.url)
    texts = [{"id": str(number), "title": each["title"], "text": each["text"]} for number, each in enumerate(DOCUMENTS)]
    composed = [{key: normalize("NFC", value) for key, value in each.items()} for each in texts]
    tw.index(texts, name, connection=connection, signals=("lexical",))
    counts = tw.index(composed, name, connection=connection, update=True).counts
    assert (counts.new, counts.changed, counts.unchanged) == (0, 0, 3)
    plain = [{"id": "a", "text": "Gr\u00f6\u00dfe m\u00b2 \u2013 \u201cso\u201d"}]
    (read,) = corpora.open_documents(plain).documents()
    assert source_digest(read) == source_digest(tw.Document("a", plain[0]["text"]))


def test_an_update_of_an_older_index_sends_what_has_another_form_now(opensearch_engine, name, monkeypatch):
    connection = tw.connect(opensearch_engine.url)
    with monkeypatch.context() as before:
        before.setattr(tw.Document, "normal", property(lambda document: document))  # as earlier versions read
        tw.index(DOCUMENTS, name, connection=connection, signals=("lexical",))
    assert ids(connection.index(name), "Gesamtkonzept") == []
    counts = tw.index(DOCUMENTS, name, connection=connection, update=True).counts
    assert (counts.new, counts.changed, counts.unchanged) == (0, 2, 1)
    assert ids(connection.index(name), "Gesamtkonzept") == ["p3"]


def test_what_an_application_stores_is_found_as_it_stores_it(opensearch_engine, name):
    mappings = {"properties": {"title": {"type": "text"}, "text": {"type": "text"}, "brand": {"type": "keyword"}}}
    opensearch_engine.request("PUT", f"/{name}-shop", body={"mappings": mappings})
    brands = ["Jose\u0301", "Jos\u00e9", "o\ufb03ce"]
    for document, brand in zip(DOCUMENTS, brands, strict=True):
        body = {"title": document["title"], "text": document["text"], "brand": brand}
        opensearch_engine.request("PUT", f"/{name}-shop/_doc/{brands.index(brand)}", body=body, params={"refresh": True})
    reading = IndexReading(settings=lambda _: load(url=opensearch_engine.url), hidden=True)
    source = corpora.open_source(f"opensearch:{name}-shop", text_fields=("text",), index=reading)
    enrichment.enrich(opensearch_engine, source, BuildOptions(signals=("weights",)))
    index = tw.connect(opensearch_engine.url).index(f"{name}-shop")
    assert ids(index, "Br\u00fccke") == ["0"]
    assert ids(index, "Regenmantel") == ["2"]
    words = "Br\u00fccke Zaun Gesamtkonzept"
    assert set(ids(index, words, where="brand=Jos\u00e9")) == set(ids(index, words, where="brand=Jose\u0301*")) == {"0", "1"}
    assert ids(index, words, where="brand=o\ufb03ce") == ["2"]
    assert ids(index, 'Zaun "die Br\u00fccke"', rewrite="operators") == ["0"]
    assert set(ids(index, f"{words} -m\u00fcller", rewrite="operators")) == {"1", "2"}
