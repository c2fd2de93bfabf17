"""Plans: what they count and warn of, that they write nothing, and what they do about a corpus that the models cannot read."""

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import orjson
import pytest

from termweave import corpora, plugins
from termweave.catalog import generations, statistics_store
from termweave.contracts.signal import Pruning
from termweave.indexer import BuildOptions, build
from termweave.indexer.build_plan import plan
from termweave.indexer.options import Window
from termweave.indexer.preparation import corpus_pass, estimate
from termweave.records import Capabilities
from termweave.search import Index
from termweave.support import paths
from tests.corpora.languages import CORPORA, QUERIES
from tests.indexer.builds import LEXICAL, command, numbered


def test_what_would_go_wrong_is_said_before(opensearch_engine, corpus):
    french = "Le chat mange la souris dans la maison que nous avons louée pour nos vacances " * 4
    foreign = ("重庆是中国西南部的一个直辖市。" * 5, "Москва является столицей России", french)
    documents = [
        *numbered(6),
        {"_id": "d1", "text": "other content"},
        b'{"_id": "broken',
        {"_id": "dots", "text": "see os.path for that"},
        {"_id": "long", "text": "the words of a long text " * 200},
        *({"_id": str(len(text)), "text": text} for text in foreign),
        {"_id": "none", "text": ""},
    ]
    source = corpus(documents, skip_bad=True)  # as a plan opens it
    found = estimate.estimate_build(source, opensearch_engine.capabilities, BuildOptions())
    assert (found.documents, found.passages, found.exact) == (12, 12, True)
    said = "\n".join(found.warnings)
    for part in (
        "'d1' (line 7; line 2 is kept). Without --skip-bad the build stops with an error", "8% of the documents are longer than the 256 word-pieces",
        "knows the language of corpus.jsonl only in part", "1 document without any text", "line 8",
    ):  # fmt: skip
        assert part in said, part
    assert found.encode_seconds > 0
    plain = estimate.estimate_build(corpus(numbered(6)), opensearch_engine.capabilities, LEXICAL, ["one two three", "four"])
    assert plain.warnings == ()
    assert (plain.clauses.mean, plain.clauses.most, plain.clauses.of) == (2.0, 3, "queries")


def test_a_part_of_a_large_source_is_extrapolated(opensearch_engine, corpus, monkeypatch):
    monkeypatch.setattr(estimate, "_READ", 15_000)
    found = estimate.estimate_build(corpus(numbered(30_000)), opensearch_engine.capabilities, LEXICAL)
    assert not found.exact
    assert found.documents == pytest.approx(30_000, rel=0.2)


@pytest.mark.parametrize("options", [LEXICAL, replace(LEXICAL, passages=Window(160, 120))], ids=["whole", "passages"])
def test_a_plan_writes_nothing_and_counts_and_weighs_what_is_built(opensearch_engine, name, shared, own_places, options):
    source, before = corpora.open_source(shared / "data" / "cranfield"), set((own_places / "state").rglob("*"))
    found = estimate.estimate_build(source, opensearch_engine.capabilities, options)  # it has no server to write to
    assert set((own_places / "state").rglob("*")) == before
    built = build(opensearch_engine, source, name, options)
    assert (found.documents, found.passages) == (built.documents, built.passages)
    shards = opensearch_engine.request("GET", f"/{built.index}/_segments")["indices"][built.index]["shards"]
    weighed = sum(segment["size_in_bytes"] for copies in shards.values() for segment in copies[0]["segments"].values())
    assert found.index_bytes == pytest.approx(weighed, rel=0.35)


def test_statistics_that_have_drifted_are_said_before_an_update(opensearch_engine, name, corpus, shared, shell, monkeypatch):
    """Titles of real collections: the same one and another one against what is live."""
    titles = {}
    for each in ("cranfield", "nfcorpus"):
        documents = islice(corpora.open_source(shared / "data" / each).documents(), 700)
        titles[each] = [{"_id": document.id, "text": document.title} for document in documents]
    options = BuildOptions(weights="bm25-german", dense="none", signals=("weights",))  # statistics without a graph
    built = build(opensearch_engine, corpus(titles["cranfield"]), name, options)
    live = corpus_pass.live_statistics(opensearch_engine, generations.find_live(opensearch_engine, name))

    def said(documents, options=options):
        found = estimate.estimate_build(corpus(documents), opensearch_engine.capabilities, options, live=live)
        return [warning for warning in found.warnings if "drifted" in warning]

    assert said(titles["cranfield"]) == []
    (whole,) = said(titles["nfcorpus"])
    assert built.index in whole
    assert said(titles["nfcorpus"], replace(options, passages=Window(20, 15))) == []  # an update keeps the passages
    monkeypatch.setattr(estimate, "_READ", 400)
    assert "its first 400 documents" in said(titles["nfcorpus"])[0]
    assert said(titles["cranfield"]) == []
    path = corpus(titles["nfcorpus"]).path
    for remark in ("drifted", "The statistics of the live generation are not compared"):
        assert remark in shell(*command(path, name, "--plan", "--weights", "bm25-german")).err
        opensearch_engine.request("DELETE", f"/{statistics_store.companion(built.index)}", params={"ignore_unavailable": True})
        (paths.cache() / "statistics" / f"{live[1].hash}.bin").unlink(missing_ok=True)


ROOT = Path(__file__).parents[3]
SERVER = Capabilities("3.6.0", knn=True, neural_sparse=True)
CHINESE = ["重庆是中国西南部的一个直辖市。", "上海是中国东部的一个城市。", "研究生命起源的科学家。"]
JAPANESE = ["猫がマットの上に座っている。", "東京は日本の首都です。", "研究者が生命の起源を調べる。"]
ENGLISH = ["The cat sat on the mat.", "A dog barked at the cat.", "Photosynthesis happens in the chloroplasts of plant cells."]
ALL = {"lexical", "weights", "dense"}


@pytest.fixture
def source(corpus):
    return lambda texts: corpus([{"_id": str(place), "text": text} for place, text in enumerate(texts)])


@pytest.fixture
def planned(source):
    """A function that plans a build of texts with these options."""
    return lambda texts, server=SERVER, **options: plan(source(texts), server, BuildOptions(**options))


@pytest.fixture
def chinese(monkeypatch):
    """The package of the Chinese model, as if it were installed."""
    registered = plugins.modules
    monkeypatch.syspath_prepend(ROOT / "models" / "chinese")
    packages = {"chinese": "termweave_model_chinese"}
    monkeypatch.setattr(plugins, "modules", lambda group: packages if group == "models" else registered(group))


def test_chinese_under_the_english_model_is_lexical_with_cjk_and_says_so(planned):
    found = planned(CHINESE)
    assert (found.signals, found.analyzer, found.encoder.models) == (("lexical",), "cjk", {})
    (warning,) = found.warnings
    assert "does not know the language of corpus.jsonl (100% of the words are in a script (CJK)" in warning
    assert re.search(r"The model 'chinese' knows this language: pip install \S+", warning)
    assert planned(CHINESE, analyzer="smartcn").analyzer == "smartcn"


def test_chinese_text_gets_the_chinese_model_by_itself(planned, chinese):
    found = planned(CHINESE)
    assert (set(found.signals), found.analyzer, found.warnings) == (ALL, "cjk", ())
    assert {model.name for model in found.models.values()} == {"bge-small-zh-anchored"}
    assert planned(CHINESE, signals=("lexical", "weights")).models.keys() == {"weights"}
    for texts, options in ((CHINESE, {"model": "fast"}), (JAPANESE, {}), (ENGLISH, {})):
        found = planned(texts, **options)
        assert "bge-small-zh-anchored" not in {model.name for model in found.models.values()}


@pytest.mark.parametrize(
    ("options", "server", "signals"),
    [
        ({"weights": "shipped"}, SERVER, {"lexical", "weights"}),
        ({"dense": "shipped"}, SERVER, {"lexical", "dense"}),
        ({"signals": ("lexical", "weights", "dense")}, SERVER, ALL),
        ({"dense": "none"}, SERVER, {"lexical"}),  # what is not there is no signal that somebody asked for
        ({}, replace(SERVER, knn=False), {"lexical"}),
    ],
)
def test_what_was_asked_for_is_built_with_a_warning(planned, options, server, signals):
    found = planned(CHINESE, server, **options)
    assert (set(found.signals), found.encoder.models.keys()) == (signals, signals - {"lexical"})
    assert "does not know the language" in found.warnings[0]


@pytest.mark.parametrize("options", [{"weights": "none", "dense": "none"}, {"signals": ("lexical",)}])
def test_the_analyzer_is_that_of_the_language_without_models_too(planned, options):
    for language, texts in {**CORPORA, "english": ENGLISH, "cjk": CHINESE}.items():
        found = planned(texts, **options)
        assert (found.signals, found.analyzer, found.warnings) == (("lexical",), language, ())
    assert planned(CORPORA["german"], **options, analyzer="standard").analyzer == "standard"


def test_english_is_as_ever_and_no_model_runs_for_nothing(planned):
    found = planned(ENGLISH)
    assert (set(found.signals), found.analyzer, found.warnings) == (ALL, "english", ())
    assert planned(ENGLISH, signals=("lexical", "dense")).encoder.models.keys() == {"dense"}
    mixed = planned([*ENGLISH, CHINESE[0]])
    assert set(mixed.signals) == ALL
    assert "only in part" in mixed.warnings[0]
    prunings = (Pruning(), Pruning(share=0.3), Pruning(below=0.3))
    assert len({planned(ENGLISH, prune=pruning).fingerprint for pruning in prunings}) == 3  # each is another index


@pytest.mark.parametrize("language", CORPORA)
def test_seven_languages_get_bm25_with_their_own_words_in_both_signals(planned, language):
    found = planned(CORPORA[language])
    assert (set(found.signals), found.analyzer) == ({"lexical", "weights"}, language)
    assert {output: model.name for output, model in found.encoder.models.items()} == {"weights": f"bm25-{language}"}
    assert f"term weights are BM25's, with the stemmer and stop words of {language.capitalize()}" in found.warnings[0]
    assert planned(CORPORA[language], weights="shipped").encoder.models["weights"].name == "minilm-l6-anchored"
    same = planned(CORPORA[language], weights=f"bm25-{language}", dense="none")
    assert (same.fingerprint, same.warnings) == (found.fingerprint, ())


def test_another_language_is_indexed_searched_and_updated(desk, source):
    texts = CORPORA["russian"]
    assert set(desk.build(source(texts[:3]), BuildOptions()).signals) == {"lexical", "weights"}
    assert desk.update(source(texts), BuildOptions()).counts.new == 1
    index = desk.open()
    for query, best in QUERIES["russian"].items():
        assert {index.search(query, mode=mode)[0].id for mode in ("lexical", "weights", "hybrid")} == {str(best)}, query
    desk.clean(source(texts))


def test_pruned_impacts_are_not_stored_and_the_mean_is_said(desk, source):
    for pruning, mean in ((Pruning(share=0.6), "2.0"), (Pruning(), "3.7")):
        built = desk.build(source(ENGLISH), BuildOptions(signals=("weights",), prune=pruning))
        assert f"weights: {mean} impacts a document on average." in built.notes
    assert {hit.id for hit in desk.open().search("cat dog mat", mode="weights")} == {"0", "1"}


def test_german_compounds_are_found_by_the_parts_that_the_page_on_terms_lists(opensearch_engine, name, source):
    (listed,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "terms.md").read_text(encoding="utf-8"), re.DOTALL)
    texts = ["Eine alte Mühle für Kaffee steht im Laden.", "Neue Kaffeemühlen mit Papierfilter.", "Der Laden hat zu."]
    found = {}
    for analyzer, settings in (("german", {}), ("parts", orjson.loads(listed))):
        index = f"{name}-{analyzer}"
        build(opensearch_engine, source(texts), index, BuildOptions(signals=("lexical",), analyzer=analyzer, settings=settings))
        opened = Index.open(opensearch_engine, index)
        found[analyzer] = {query: {hit.id for hit in opened.search(query)} for query in ("Kaffeemühlen", "Mühle", "Filter")}
    assert found["german"] == {"Kaffeemühlen": {"1"}, "Mühle": {"0"}, "Filter": set()}
    assert found["parts"] == {"Kaffeemühlen": {"0", "1"}, "Mühle": {"0", "1"}, "Filter": {"1"}}


def test_a_build_says_how_many_documents_are_longer_than_the_model_reads(desk, source):
    texts = [*ENGLISH, "The words of a long text. " * 200]
    (warning,) = desk.build(source(texts), BuildOptions(dense="none")).warnings
    assert warning.startswith("25% of the documents are longer than the 256 word-pieces that the model reads")
    for whole in ({"weights": "bm25-german"}, {"passages": Window(100, 80)}):  # BM25 weighs the whole text
        assert desk.build(source(texts), BuildOptions(dense="none", **whole)).warnings == ()
