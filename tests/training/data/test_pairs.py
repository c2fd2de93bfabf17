"""Reading, drawing, counting, measuring, and teachers' scores."""

import math
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest

from termweave.contracts.signal import Fitting
from termweave.errors import InputError, UsageError
from termweave.evaluation import runs
from termweave.records import Capabilities, Encoding, Run, TermWeights
from termweave.signals.weights import Weights
from termweave.statistics import CorpusStatistics
from termweave.training.data.bm25_index import SparseIndex
from termweave.training.data.pairs import Collection, Pairs, most_frequent, sample
from termweave.training.data.sampler import BatchSampler
from termweave.training.data.teacher_scores import Sum, Vectors, Written, minmax, scored
from termweave.training.dev_measure import stored
from termweave.training.methods import base as methods
from termweave.training.ranker.first_stage import CandidateLists
from tests.beir_folder import beir_folder
from tests.encoders.exact_scores import dot


@pytest.fixture
def collection(tmp_path):
    texts = ["The cat sat on the mat.", "Dogs bark at cats.", "Plants grow in the sun.", "JSON is a text format."]
    documents, queries = dict(zip("abcd", texts, strict=True)), {"1": "cat on a mat", "2": "what is json"}
    return Collection(beir_folder(tmp_path / "tiny", documents, queries, test=[("1", "a"), ("1", "b", 0), ("2", "d")]))


def test_judged(collection):
    queries, qrels = collection.judged("test")
    assert {query.text: qrels[query.id] for query in queries} == {"cat on a mat": {"a": 1, "b": 0}, "what is json": {"d": 1}}
    with pytest.raises(UsageError, match="dev"):
        collection.judged("dev")


def test_a_sample_is_drawn_the_same_again():
    pairs = Pairs([f"q{number}" for number in range(50)], [frozenset({number, number + 50}) for number in range(50)])
    documents, part = sample(pairs, 20, 10, seed=1)
    assert (documents, part) == sample(pairs, 20, 10, seed=1)
    assert len(documents) == 20
    assert len(part) <= 10
    for question, relevant, known in zip(part.questions, part.relevant, part.known, strict=True):
        assert relevant
        assert relevant == known & set(documents)
        assert known == pairs.relevant[int(question[1:])]


def test_the_most_frequent_terms_are_kept():
    statistics = most_frequent(CorpusStatistics("x", 9, 2.0, {"b": 3, "a": 3, "c": 1}), 1)
    assert (statistics.document_frequency, statistics.documents) == ({"a": 3}, 9)


def test_impacts_are_stored_as_an_index_stores_them():
    """No term is lost, and the scale is that of the signal."""
    before = [TermWeights(("a", "b"), np.array([3.0, 0.001], np.float32)), TermWeights((), np.zeros(0, np.float32))]
    signal = Weights.fit(Fitting(Capabilities(""), [Encoding("", each) for each in before]))
    assert [each.weights.tolist() for each in stored(before)] == [signal.quantise(each.weights).tolist() for each in before]


def test_sparse_index_against_a_loop():
    generator = np.random.default_rng(0)

    def text():
        terms = tuple(f"t{place}" for place in np.flatnonzero(generator.random(30) < 0.2))
        return TermWeights(terms, generator.random(len(terms)).astype(np.float32))

    documents, query = [text() for _ in range(40)], text()
    expected = [dot(query, document) for document in documents]
    index = SparseIndex(documents)
    assert index.scores(query) == pytest.approx(expected)
    best, scores = index.search(query, 5)
    assert scores.tolist() == pytest.approx(sorted(expected, reverse=True)[:5])
    assert [expected[place] for place in best] == pytest.approx(scores.tolist())
    spared = frozenset(best[:2].tolist())
    assert index.search(query, 3, spared)[0].tolist() == best[2:].tolist()


def test_teachers():
    generator = np.random.default_rng(0)
    vectors = Vectors(generator.normal(size=(9, 4)).astype(np.float32), generator.normal(size=(3, 4)).astype(np.float32))
    weights = [TermWeights(("a", "b"), generator.random(2).astype(np.float32)) for _ in range(9)]
    asked = [TermWeights(("a",), np.array([2.0], dtype=np.float32)) for _ in range(3)]
    questions, documents = np.array([2, 0]), np.array([1, 8, 3])
    cosines = vectors.questions.astype(np.float64) @ vectors.documents.T.astype(np.float64)
    assert vectors.scores(questions, documents) == pytest.approx(cosines[questions][:, documents], abs=1e-5)
    words = np.array([[dot(query, document) for document in weights] for query in asked])
    for scaling, scale in (
        ("minmax", lambda row: (row - row.min()) / (row.max() - row.min())),
        ("zscore", lambda row: (row - row.mean()) / row.std()),
    ):
        expected = [scale(words[question]) + scale(cosines[question]) for question in questions]
        found = Sum(vectors, SparseIndex(weights), asked, scaling).scores(questions, documents)
        assert found == pytest.approx(np.array(expected)[:, documents], abs=1e-5)
    assert Written([{4: 0.5}, {}]).scores(np.array([0, 1]), np.array([4, 5])).tolist() == [[0.5, -np.inf], [-np.inf] * 2]


def test_a_row_of_equal_scores_tells_nothing():
    rows = np.array([[2.0, 6.0, 3.0], [4.0, 4.0, 4.0]])
    assert minmax(rows).tolist() == [[0.0, 1.0, 0.25], [0.0, 0.0, 0.0]]
    assert [minmax(row).tolist() for row in rows] == minmax(rows).tolist()


def test_a_run_that_evaluate_saved_is_read_as_it_was(tmp_path):
    """Ids with blanks and "%" are percent-encoded there."""
    saved = {"how to reset": {"guide/my file.md": 2.0, "100%": 1.0}, "=q": {"d1": 0.5}}
    runs.write(Run("hybrid", saved), tmp_path / "hybrid.trec")
    rows = [(query, document, score) for query, ranked in saved.items() for document, score in ranked.items()]
    assert list(scored(tmp_path / "hybrid.trec")) == rows
    table = tmp_path / "scores.tsv"
    table.write_text("\n".join(f"{query}\t{document}\t{score}" for query, document, score in rows) + "\n\n")
    assert list(scored(table)) == rows


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("q\td\t1\nq\td2\tmany\n", "line 2 is not a score: 'q"),
        ("q\td\tinf\n", "line 1 is not a score"),
        ("q\td\t1\nq Q0 d 1 0.5 x\n", "line 2 is not a score"),
        ("q Q0 d 1 0.5 x\nq d 1\n", "line 2: not a line of a run"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, sentence):
    (tmp_path / "scores").write_text(content)
    with pytest.raises(InputError, match=sentence):
        list(scored(tmp_path / "scores"))


# -- Epochs are passes: every question once in each, in batches that do not depend on what was drawn before

QUESTIONS, BATCH, EPOCHS = 11, 4, 5


def data(count=QUESTIONS, shares=None):
    """Questions that each have a document of their own, as each kind of model reads them."""
    lists = CandidateLists(np.arange(count)[:, None], np.zeros((count, 1, 1), np.float32))
    pairs = Pairs([str(n) for n in range(count)], [frozenset({n}) for n in range(count)], shares)
    more = {"share": 1.0, "negatives": [np.zeros(0, np.int64)] * count, "documents": range(count)}
    return SimpleNamespace(pairs=pairs, lists=lists, **more)


def sampler(name, *inputs, **given):
    """The sampler of a method with as many steps as its settings ask for."""
    settings = methods.get(name).settings({"batch": BATCH, "epochs": EPOCHS, "steps": 1, **given})
    settings = replace(settings, steps=settings.steps_of(len(inputs[0].pairs), 1 / len(inputs)))
    return BatchSampler(methods.get(name), inputs, settings)


def questions_of(batch):
    """The questions of a batch of any method."""
    drawn = batch.drawn if isinstance(batch.drawn, np.ndarray) else getattr(batch.drawn, "queries", None)
    return (batch.drawn.questions if drawn is None else drawn).tolist()


@pytest.mark.parametrize("name", ["fectek", "bert-scorer", "sir", "coder", "le-bs"])
def test_every_pass_has_every_question_once(name):
    drawn = sampler(name, data())
    per_pass = math.ceil(QUESTIONS / BATCH)
    assert len(drawn) == EPOCHS * per_pass
    batches = [questions_of(drawn[number]) for number in range(len(drawn))]
    passes = [[*chain.from_iterable(batches[first : first + per_pass])] for first in range(0, len(batches), per_pass)]
    assert all(sorted(each) == list(range(QUESTIONS)) for each in passes)
    assert len({tuple(each) for each in passes}) == EPOCHS  # each in another order
    again = sampler(name, data())  # as a resumed run, which begins in the middle of a pass
    assert [questions_of(again[number]) for number in range(7, len(again))] == batches[7:]


def test_random_documents_fill_a_block_of_nearly_the_whole_collection():
    drawn = sampler("sir", data(), variant="random", anchor=False, blocks="10", candidates=20)
    for number in range(len(drawn)):
        batch = drawn[number].drawn
        for question, block in zip(batch.questions.tolist(), batch.documents.tolist(), strict=True):
            assert block[0] == question
            assert len(set(block)) == 10
            assert min(block) >= 0


def test_each_data_set_has_passes_of_its_own():
    inputs = (data(), data(6))
    drawn = sampler("fectek", *inputs)
    batches = [drawn[number] for number in range(len(drawn))]
    for place, count in enumerate((QUESTIONS, 6)):
        own = [questions_of(each) for each in batches if each.inputs is inputs[place]]
        per_pass = math.ceil(count / BATCH)
        whole = [[*chain.from_iterable(own[first : first + per_pass])] for first in range(0, len(own) - per_pass + 1, per_pass)]
        assert len(whole) >= 2
        assert all(sorted(each) == list(range(count)) for each in whole)


def test_questions_of_a_click_log_are_drawn_by_their_shares_and_steps_draw_anew():
    shares = np.array([0.7, 0.3, *[0.0] * (QUESTIONS - 2)])
    drawn = sampler("fectek", data(shares=shares))
    assert all(sorted(questions_of(drawn[number])) == [0, 1] for number in range(len(drawn)))
    drawn = sampler("fectek", data(), epochs=-1, steps=9)
    seen = [question for number in range(9) for question in questions_of(drawn[number])]
    assert len(seen) == 9 * BATCH  # no batch is smaller
    assert np.ptp(np.bincount(seen, minlength=QUESTIONS)) > 1  # some more often than others
