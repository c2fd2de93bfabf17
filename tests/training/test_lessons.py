"""Each loss and each equation against an independent, slow version."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders.analysis import Analysis
from termweave.encoders.anchor import BM25
from termweave.encoders.form import Form, place_tags
from termweave.encoders.models.anchored import ContextGate, HeadShape, JointModel
from termweave.encoders.models.store import load_backbone
from termweave.encoders.pieces import PieceTokenizer
from termweave.encoders.weighting import dot
from termweave.records import Capabilities, Encoding, TermWeights
from termweave.signals import Fitting
from termweave.signals.weights import Weights
from termweave.statistics import CorpusStatistics
from termweave.training import lessons, regression, targets
from termweave.training.lessons import Batch
from termweave.training.materials import Material, prepare
from termweave.training.pairs import Pairs, count
from termweave.training.scoring import stored, weigh
from termweave.training.sides import Side, vocabulary_of
from termweave.training.sparse import SparseIndex
from termweave.training.states import states
from termweave.training.teachers import Sum, Vectors, Written, minmax

FORMS = [
    Form("bm25"),
    Form("idf"),
    Form("none", "log"),
    Form("none", "linear", "sum"),
    Form("idf", "softplus", "max", "one"),
    Form("none", "log", "max", "idf"),
    Form(tf_power=0.5),
]


@pytest.fixture
def texts(toy, base):
    documents, questions, _ = toy
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    statistics = count([documents], analysis)
    asked = [f"{one} {two} about {one} xyzzy" for one, two in zip(questions[:6], questions[6:12], strict=True)]

    def prepared(form):
        common = (analysis, tokenizer, statistics, BM25())
        return prepare(documents[:12], *common, "document", 64, form), prepare(asked, *common, "query", 64, form)

    return prepared


def randomised(model):
    for name, parameter in model.heads.named_parameters():
        if "outer" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("shape", [HeadShape(1, 16), HeadShape(1, 0, 0, gate=1, shared=1)], ids=["deep", "linear-gated"])
def test_a_batch_scores_as_the_encoder_weighs(form, shape, texts, base, tmp_path):
    """Torch, vectorised, against numpy, text by text; cached states against whole passes."""
    model = randomised(JointModel(load_backbone(base), shape))
    documents, questions = texts(form)
    vocabulary = vocabulary_of(questions, np.arange(6))
    sides = [Side(questions, np.arange(6), vocabulary, "query"), Side(documents, np.arange(12), vocabulary, "document")]
    found = []
    with torch.no_grad():
        for side in sides:
            ids, mask, features = side.padded()
            lower, last = model.states(ids, mask, features)
            seen = side.live(torch.cat((lower, last), dim=-1), lessons.masked_mean(torch.cat((lower, last), dim=-1), mask))
            head = model.heads.of(side.kind)
            found.append(side.weights(head.outer(side.inner(head, seen)).squeeze(-1)))
    scores = (found[0] @ found[1].T).numpy()
    given, asked = weigh(model, documents, None, "document"), weigh(model, questions, None, "query")
    expected = np.array([[dot(query, document) for document in given] for query in asked])
    assert scores == pytest.approx(expected, abs=1e-3, rel=1e-4)
    kept = states(model, "toy", documents.pieces, home=tmp_path)
    pairs = [
        (weight, other.as_dict().get(term, 0.0))
        for one, other in zip(given, weigh(model, documents, kept, "document"), strict=True)
        for term, weight in one.as_dict().items()
    ]
    assert np.corrcoef(np.array(pairs).T)[0, 1] > 0.95  # the cache comes from the int8 graph


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_text_that_was_cut_weighs_as_the_encoder_weighs_it(form, everything, toy, base):
    """Occurrences, whole terms and dropped words beyond the model's sight, on both sides; some texts fit."""
    documents, questions, _ = toy
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    common = (analysis, tokenizer, count([documents], analysis), BM25())
    asked = [
        f"the {one} {two} about {one} the xyzzy {two} {one} the" for one, two in zip(questions[:6], questions[6:12], strict=True)
    ]
    generator = np.random.default_rng(0)
    for kind, given, length in (("document", [*documents[:8], *questions[:2]], 9), ("query", [*asked, "about"], 8)):
        prepared = prepare(given, *common, kind, length, form)
        assert {
            anchor.term_of_piece(each.words).max() + 1 < len(anchor.terms)
            for anchor, each in zip(prepared.anchors, prepared.pieces, strict=True)
        } == {True, False}
        places = np.arange(len(given))
        vocabulary = {term: column for column, term in enumerate(list(vocabulary_of(prepared, places))[::2])}
        logits = [generator.normal(size=len(each.ids)).astype(np.float32) for each in prepared.pieces]
        side = Side(prepared, places, vocabulary, kind, everything=everything)
        found = side.weights(torch.tensor([logits[row][place] for row, place in zip(side.row, side.place, strict=True)]))
        expected = np.zeros(side.shape)
        for row, (anchor, pieces, z) in enumerate(zip(prepared.anchors, prepared.pieces, logits, strict=True)):
            for term, weight in anchor.weights(z, pieces.words, kind).as_dict().items():
                if term in vocabulary:
                    expected[row, vocabulary[term]] = weight
        assert found.numpy() == pytest.approx(expected, abs=1e-5, rel=1e-5)


def test_the_gate_is_that_of_the_paper():
    gate = ContextGate(32)
    states_, mask = torch.randn(2, 5, 32), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    found = gate(lessons.masked_mean(states_, mask))
    for text, length in enumerate((5, 3)):
        mean = states_[text, :length].numpy().astype(np.float64).mean(axis=0)
        narrow = np.maximum(gate.narrow.weight.detach().numpy() @ mean + gate.narrow.bias.detach().numpy(), 0)
        wide = gate.wide.weight.detach().numpy() @ narrow + gate.wide.bias.detach().numpy()
        assert found[text].detach().numpy() == pytest.approx(1 / (1 + np.exp(-wide)), abs=1e-5)


def test_the_loss_of_the_worked_example():
    scores = 0.3 * torch.tensor([[3.0, 1.0]])
    batch = Batch(np.array([0]), np.array([0, 1]), np.array([0, 0]))
    loss = lessons.cross_entropy(scores, lessons.mask([frozenset({0})], batch, in_batch=True))
    assert float(loss) == pytest.approx(0.437, abs=1e-3)


def test_text_loss():
    scores = torch.tensor([[1.0, 2.0, 0.5, -1.0], [0.0, 3.0, 1.5, 2.5]])
    batch = Batch(np.array([0, 1]), np.array([4, 5, 6, 7]), np.array([0, 1, 0, 1]))
    relevant = [frozenset({4, 5}), frozenset({5})]

    def slow(rows):
        return -np.mean([math.log(math.exp(row[0]) / sum(map(math.exp, row))) for row in rows])

    every = lessons.cross_entropy(scores, lessons.mask(relevant, batch, in_batch=True))
    assert float(every) == pytest.approx(slow([[1.0, 0.5, -1.0], [3.0, 0.0, 1.5, 2.5]]), abs=1e-6)  # 5 answers question 0 as well
    own = lessons.cross_entropy(scores, lessons.mask(relevant, batch, in_batch=False))
    assert float(own) == pytest.approx(slow([[1.0, 0.5], [3.0, 2.5]]), abs=1e-6)


def test_sixteen_dead_weights_lose_log_sixteen():
    batch = Batch(np.array([0]), np.arange(16), np.zeros(16, dtype=np.int64))
    loss = lessons.cross_entropy(torch.zeros(1, 16), lessons.mask([frozenset({0})], batch, in_batch=False))
    assert float(loss) == pytest.approx(2.7726, abs=1e-4)  # ln 16


def test_term_loss_and_its_labels(texts):
    documents, questions = texts(Form())
    asked = Side(questions, np.arange(3), {}, "query", everything=True)
    given = Side(documents, np.arange(5), {}, "document", everything=True)
    labels = lessons.labels(asked, given)
    for row, term, label in zip(asked.row, asked.term, labels, strict=True):
        assert label == (questions.anchors[row].terms[term] in documents.anchors[row].terms)
    logits = torch.randn(len(given.row))
    own, wanted = lessons.of_relevant(logits, given, asked)
    assert len(own) == (given.row < 3).sum()
    chances = 1 / (1 + np.exp(-own.numpy().astype(np.float64)))
    slow = -np.mean(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances))
    assert float(lessons.term_loss(own, wanted)) == pytest.approx(slow, abs=1e-5)


def test_distillation():
    scores = torch.tensor([[1.0, 0.0, 9.0], [5.0, 5.0, 5.0], [0.0, 2.0, 1.0]])
    wanted = torch.tensor([[2.0, 1.0, -math.inf], [1.0, -math.inf, -math.inf], [0.0, 2.0, 1.0]])
    teacher, student = np.exp([2.0, 1.0]) / np.exp([2.0, 1.0]).sum(), np.exp([1.0, 0.0]) / np.exp([1.0, 0.0]).sum()
    first = float((teacher * np.log(teacher / student)).sum())
    assert float(lessons.distillation(scores, wanted)) == pytest.approx(first / 2, abs=1e-6)  # one unscored, one equal
    assert float(lessons.distillation(scores, torch.full((3, 3), -math.inf))) == 0.0


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
    assert Written([{4: 0.5}, {}]).scores(np.array([0, 1]), np.array([4, 5])).tolist() == [
        [0.5, -math.inf],
        [-math.inf, -math.inf],
    ]


def test_a_row_of_equal_scores_tells_nothing():
    rows = np.array([[2.0, 6.0, 3.0], [4.0, 4.0, 4.0]])
    assert minmax(rows).tolist() == [[0.0, 1.0, 0.25], [0.0, 0.0, 0.0]]
    assert [minmax(row).tolist() for row in rows] == minmax(rows).tolist()


def test_tfidf_targets_are_those_of_the_worked_numbers(base):
    analysis = Analysis(PieceTokenizer(base / "tokenizer.json").tokenizer)
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    document = "granada granada " + " ".join(["morino"] * 18)
    table = CorpusStatistics(
        analysis.id, 1000, 20.0, {analysis.terms(["granada"])[0][0]: 9, analysis.terms(["morino"])[0][0]: 1000}
    )
    common = (analysis, tokenizer, table, BM25())
    given = prepare([document], *common, "document", 64).anchors[0]
    asked = prepare(["granada vexada morino"], *common, "query", 64).anchors[0]
    found = targets.tfidf(asked, given, table)
    assert found == pytest.approx([0.460517, 0.0, 18 / 20 * math.log(1000 / 1001)], abs=1e-6)
    both = prepare(["granada", "granada vexada"], *common, "query", 64).anchors
    assert targets.recall(given, both) == pytest.approx([1.0, 0.0])


def test_a_words_target_is_shared_by_its_pieces(texts):
    documents, _ = texts(Form("none", "linear", "sum"))
    side = Side(documents, np.arange(4), {}, "document", everything=True)
    wanted = [np.arange(len(documents.anchors[row].terms)) + 1.0 for row in range(4)]
    found = regression.piece_targets(side, wanted)
    for row, text in enumerate(range(4)):
        words, terms = documents.pieces[text].words, documents.anchors[text].term_of_word
        slow = [wanted[row][terms[word]] / (words == word).sum() for word in words if word >= 0 and terms[word] >= 0]
        assert found[side.row == row] == pytest.approx(slow)


def test_place_tags():
    assert place_tags(np.array([-1, 0, 0, 1, 2, 2, 2, -1])).tolist() == [0, 1, 3, 4, 1, 2, 3, 0]


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_impacts_are_stored_as_an_index_stores_them(texts, model, bits):
    """No term is lost, and the scale is that of the signal."""
    documents, _ = texts(Form())
    before = [*weigh(randomised(model), documents, None, "document"), TermWeights((), np.zeros(0, dtype=np.float32))]
    signal = replace(Weights.fit(Fitting(Capabilities(""), [Encoding("", each) for each in before])), levels=2**bits - 1)
    for one, other in zip(before, stored(before, bits), strict=True):
        assert other.terms == one.terms
        assert other.weights.tolist() == signal.quantise(one.weights).tolist()
    assert stored(before, 0) == before
    assert stored([], bits) == []


@pytest.mark.parametrize("target", ["tfidf", "recall"])
def test_a_batch_without_a_term_teaches_nothing(model, base, target):
    """Stop words and punctuation: the mean error of no piece is not NaN."""
    texts = ["the of and", "... !!!"]
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    statistics = count([texts], analysis)
    both = [prepare(texts, analysis, tokenizer, statistics, BM25(), kind, 64) for kind in ("document", "query")]
    pairs = Pairs(texts, [frozenset({0}), frozenset({1})])
    settings = {"top_layers": -1, "target": target, "sides": "both", "target_scale": 1.0, "dropout": 0.0, "batch": 2, "seed": 0}
    lesson = regression.Regression(model, [Material(1.0, pairs, *both, None, None, [], statistics)], settings)
    loss = lesson(lesson.draw(0))["loss"]
    loss.backward()
    assert float(loss.detach()) == 0
