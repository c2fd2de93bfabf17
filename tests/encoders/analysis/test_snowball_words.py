"""Stemmer and stop words of seven languages: inflected words meet, in term weights that are BM25's."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from termweave import encoders
from termweave.encoders.analysis.analyses import OF_LANGUAGE
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.model_lookup import language_model, resolve, resolve_local
from termweave.encoders.term_weighting import BM25
from termweave.errors import ModelError
from termweave.statistics import StatisticsCounter
from tests.corpora.languages import CORPORA, QUERIES
from tests.encoders.exact_scores import dot

#: Words -> terms; "" for a stop word. They also pin the version of Snowball: other stems need another id of the analysis.
TERMS = {
    "german": {"Bücher": "buch", "Büchern": "buch", "Häuser": "haus", "für": "", "und": "", "Straße": "strass", "läuft": "lauft"},
    "french": {"nationales": "national", "chevaux": "cheval", "les": "", "était": "", "créée": "cre", "café": "caf"},
    "spanish": {"corrieron": "corr", "niños": "nin", "canción": "cancion", "canciones": "cancion", "está": "", "más": ""},
    "portuguese": {"cidades": "cidad", "cidade": "cidad", "ações": "aco", "não": "", "também": ""},
    "italian": {"città": "citt", "pompe": "pomp", "pompa": "pomp", "perché": "", "della": ""},
    "dutch": {"pompen": "pomp", "pomp": "pomp", "huizen": "huis", "het": "", "een": ""},
    "russian": {"книгами": "книг", "книга": "книг", "ёлки": "елк", "елка": "елк", "не": "", "и": ""},
}


@pytest.mark.parametrize("language", TERMS)
def test_stems_and_stop_words(language):
    analysis = OF_LANGUAGE[language](Tokenizer.from_file(str(resolve("shipped") / TOKENIZER)))
    words = list(TERMS[language])
    terms = [analysis.words([word])[0].terms for word in words]
    assert {word: "".join(term) for word, term in zip(words, terms, strict=True)} == TERMS[language]
    assert analysis.terms(["Café"]) == analysis.terms(["Cafe\u0301"])


@pytest.mark.parametrize("language", CORPORA)
def test_inflected_words_are_found_by_bm25_alone(language):
    encoder = encoders.load(weights=language_model(language), dense="none")
    texts = CORPORA[language]
    counter = StatisticsCounter(encoder.analysis)
    for terms in encoder.analyse(texts):
        counter.add(terms)
    statistics = counter.result()
    documents = [each.weights for each in encoder.encode(texts, kind="document", statistics=statistics)]
    for query, best in QUERIES[language].items():
        (asked,) = encoder.encode([query], kind="query", statistics=statistics)
        scores = [dot(asked.weights, document) for document in documents]
        assert int(np.argmax(scores)) == best, query
        assert sorted(scores)[-2] < max(scores)
    terms = encoder.analyse([texts[0]])[0]
    idf = BM25().idf(documents[0].terms, statistics)
    counts = np.array([terms.count(term) for term in documents[0].terms], dtype=np.float64)
    expected = BM25().impacts(idf, counts, len(terms), statistics)
    assert np.allclose(documents[0].weights, expected)
    assert encoder.lengths(texts) == [0] * len(texts)
    assert {coverage.analyzer for coverage in encoder.familiarity(texts).values()} == {language}


def test_the_folders_are_found_by_name_here_and_from_an_index():
    for language in CORPORA:
        folder = read_folder(resolve(f"bm25-{language}"))
        assert resolve_local(f"bm25-{language}") == folder.path
        assert folder.manifest.analysis == OF_LANGUAGE[language].id
    assert len({read_folder(resolve(f"bm25-{language}")).manifest.hash for language in CORPORA}) == len(CORPORA)
    assert language_model("klingon") is None
    with pytest.raises(ModelError, match="has no graph to export"):
        encoders.kinds.kind_of(folder.manifest)(folder).load_torch()
