"""The equations of every method: worked numbers, golden cases, borders, and independent slow versions; the samplers against their definitions."""

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from termweave.encoders.term_weighting import Form
from termweave.statistics import CorpusStatistics
from termweave.training.data.pairs import Pairs
from termweave.training.data.sampler import AnsweredQuestions, BatchSampler
from termweave.training.dense.list_targets import program_labels
from termweave.training.dense.term_label_weights import type_weights
from termweave.training.methods import base as methods
from termweave.training.methods import bert_scorer, coder, dtr, fectek, le_bs, sir
from termweave.training.ranker.first_stage import CandidateLists
from termweave.training.ranker.model import RankerInputs
from termweave.training.term_weights.batch import BatchSide
from termweave.training.term_weights.model import TermWeightInputs, prepare
from termweave.training.trainer.trainer import Fit
from tests.training.conftest import read_by

# -- CODER, DTR and LE-BS

GOLDEN = Path(__file__).parents[4] / "shared" / "golden"
NEEDS_GOLDEN = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden cases stand beside the project and are not here")


def test_the_worked_example_of_coder_holds():
    target = coder.target(coder.CoderParameters(boost=1.5, keep_labels=2), [0], 3, np.array([3.0, 1.0, 2.0], np.float32))
    assert target.round(3).tolist() == [0.731, 0.0, 0.269]


def test_uniform_smoothing_is_eq_2_and_hard_labels_share_the_probability():
    assert coder.uniform_labels(4, [1, 3]).tolist() == [0.0, 0.5, 0.0, 0.5]
    np.testing.assert_allclose(coder.uniform_labels(5, [0], 0.1), [0.9, 0.025, 0.025, 0.025, 0.025])
    np.testing.assert_allclose(coder.uniform_labels(4, [0, 2], 0.2), [0.4, 0.1, 0.4, 0.1])
    assert coder.uniform_labels(2, [0, 1], 0.5).tolist() == [0.5, 0.5]


@NEEDS_GOLDEN
@pytest.mark.parametrize(("boost", "keep"), [(1.222, 4), (1.525, 32)])
@pytest.mark.parametrize("normalize", ["max-min", "std", None])
@pytest.mark.parametrize("name", [file.stem for file in sorted(GOLDEN.glob("labels/*.npz"))])
def test_both_label_paths_agree_with_the_golden_cases(name, normalize, boost, keep):
    with np.load(GOLDEN / "labels" / f"{name}.npz") as file:
        data = dict(file)
    key = f"{normalize.replace('-', '') if normalize else 'none'}_b{boost}_n{keep}"
    for path, golden, tolerance in (("algorithm", "alg1", 1e-6), ("program", "coder", 1e-3)):
        smoothing = coder.CoderParameters(boost=boost, keep_labels=keep, normalisation=normalize, label_path=path)
        target = coder.target(smoothing, data["gt"].tolist(), len(data["scores"]), data["scores"])
        np.testing.assert_allclose(target, data[f"{golden}_{key}"], atol=tolerance)


def test_a_program_without_a_score_left_falls_back_on_the_judgements():
    assert program_labels(np.array([0.01, 0.05], np.float32), [1]).tolist() == [0.0, 1.0]


def test_filled_up_lists_count_as_short_ones():
    scores, targets = torch.randn(1, 4, dtype=torch.float64), torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    present = torch.tensor([[True, True, True, False]])
    found = coder.list_loss(scores, targets, 0.0, present)
    assert found.item() == pytest.approx(coder.list_loss(scores[:, :3], targets[:, :3]).item())


def test_the_gradients_are_right_also_of_the_temperature():
    targets = torch.tensor([[0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    present = torch.tensor([[True, True, True, True], [True, True, True, False]])
    scores = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    log_temperature = torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, t: coder.list_loss(s, targets, t, present), (scores, log_temperature))


def terms(data, scale, top=0):
    """Each term of Eq. 4.3, alone."""
    given = [torch.from_numpy(data[name]) for name in ("Q", "T", "q_label", "t_label")]
    weights = {"qt": (1, 0, 0, 0), "qq": (0, 1, 0, 0), "tt": (0, 0, 1, 0), "tq": (0, 0, 0, 1)}
    return {name: float(dtr.batch_loss(*given, weights=weight, scale=scale, top=top)[name]) for name, weight in weights.items()}


WORKED = {"Q": np.array([[1.0, 0], [0.6, 0.8], [0, 1]]), "T": np.eye(2), "q_label": np.array([0, 0, 1]), "t_label": np.arange(2)}


def test_the_worked_example_of_dtr_holds():
    found = terms(WORKED, 1.0)
    assert found == pytest.approx({"qt": 0.474887, "qq": 0.618622, "tt": 0.313262, "tq": 0.578864}, abs=1e-6)
    given = [torch.from_numpy(WORKED[name]) for name in ("Q", "T", "q_label", "t_label")]
    assert float(sum(dtr.batch_loss(*given, scale=1.0).values())) == pytest.approx(0.940829, abs=1e-6)


@NEEDS_GOLDEN
@pytest.mark.parametrize("scale", [1, 20])
@pytest.mark.parametrize("case", ["00", "02", "05"])
def test_agrees_with_the_golden_cases(case, scale):
    with np.load(next(GOLDEN.glob(f"template_loss/{case}_*.npz"))) as file:
        data = dict(file)
    found = terms(data, float(scale))
    for name in ("qt", "qq", "tt", "tq"):
        assert found[name] == pytest.approx(float(data[f"eq44_s{scale}_{name.upper()}_mean_over_all_anchors"]), rel=1e-10), name
    best = terms(data, float(scale), top=4)
    for name in ("qt", "tt"):  # one positive an anchor: the author's class weighs anchors as Eq. 4.4 does
        assert found[name] == pytest.approx(float(data[f"author_s{scale}_{name.upper()}"]), rel=1e-10)
        assert best[name] == pytest.approx(float(data[f"author_s{scale}_{name.upper()}_top4"]), rel=1e-6)
    if len(set(Counter(data["q_label"].tolist()).values())) > 1:  # uneven: the author weighs pairs, the thesis anchors
        assert found["qq"] != pytest.approx(float(data[f"author_s{scale}_QQ"]), rel=1e-6)


def test_one_template_in_the_batch_costs_nothing_and_moves_nothing():
    queries = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    loss = sum(dtr.batch_loss(queries, torch.randn(1, 4, dtype=torch.float64), torch.zeros(3), torch.zeros(1)).values())
    loss.backward()
    assert loss.item() == 0.0
    assert bool((queries.grad == 0).all())


TEMPLATE_OF = np.repeat(np.arange(10), [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]) + 100


def test_algorithm_4_1_draws_templates_uniformly_and_queries_among_theirs():
    generator = np.random.default_rng(0)
    templates, queries = Counter(), Counter()
    for _ in range(4000):
        drawn = dtr.semi_independent(TEMPLATE_OF, 3, generator)
        assert len(drawn.queries) == len(set(drawn.templates.tolist())) == 3
        assert set(TEMPLATE_OF[drawn.queries]) <= set(drawn.templates.tolist())  # each query has its template in the batch
        np.testing.assert_array_equal(drawn.query_labels, TEMPLATE_OF[drawn.queries])
        templates.update(drawn.templates.tolist())
        queries.update(drawn.query_labels.tolist())
    assert all(count == pytest.approx(1200, abs=120) for count in templates.values())  # 4000 * 3 / 10
    assert queries[109] > 10 * queries[100]  # positives follow the data


def test_algorithm_4_1_repeats_queries_only_where_there_are_too_few():
    drawn = dtr.semi_independent(TEMPLATE_OF, 200, np.random.default_rng(0))
    assert sorted(drawn.templates.tolist()) == sorted(set(TEMPLATE_OF.tolist()))
    assert len(drawn.queries) == 200
    enough = dtr.semi_independent(TEMPLATE_OF, 10, np.random.default_rng(0))
    assert len(set(enough.queries.tolist())) == 10


def test_random_negatives_belong_to_one_query():
    drawn = dtr.random_negatives(TEMPLATE_OF, 4, np.random.default_rng(3), negatives=2)
    assert len(drawn.templates) == 4 + 8
    known = [frozenset({template}) for template in TEMPLATE_OF.tolist()]
    left_out, _ = dtr.exclusions(drawn, known)
    negatives = ~left_out & (drawn.query_labels[:, None] != drawn.templates[None, :])
    assert negatives.sum(axis=1).tolist() == [2, 2, 2, 2]


def test_a_second_right_template_is_no_negative():
    known = [frozenset({0, 2}), frozenset({1}), frozenset({2})]
    drawn = dtr.LabelledBatch(np.array([0, 1, 2]), np.array([0, 1, 2]), np.array([0, 1, 2]))
    left_out, related = dtr.exclusions(drawn, known)
    assert left_out.tolist() == [[True, False, True], [False, True, False], [False, False, True]]
    assert related.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    vectors, labels = torch.eye(3, dtype=torch.float64), torch.arange(3)
    masks = torch.from_numpy(left_out), torch.from_numpy(related)
    loss = dtr.batch_loss(vectors, vectors, labels, labels, weights=(1, 0, 0, 0), scale=1.0, left_out=masks)["qt"]
    one, two = math.log(1 + math.exp(-1)), math.log(1 + 2 * math.exp(-1))
    assert float(loss) == pytest.approx((one + two + two) / 3)


def test_the_worked_example_of_le_bs_holds():
    x, y = {"a": 0.5, "b": 0.2, "z": 0.4}, {"a": 0.6, "b": -0.1, "c": 0.3}
    assert le_bs.label_distribution(y, x) == le_bs.label_distribution(x, y) == pytest.approx(0.291313, abs=1e-6)
    for without_shared_significant_term in ({"b": 1.0}, {"a": -1.0}):
        assert le_bs.label_distribution({"a": 1.0}, without_shared_significant_term) == 0.0
    # A term has its largest weight.
    assert type_weights(["a", "b", "a"], [0.2, -1.0, 0.7]) == {"a": 0.7, "b": -1.0}


def test_distilled_labels_lie_between_0_and_1():
    np.testing.assert_allclose(le_bs.distilled(np.array([1.0, 0.0, -1.0, 1.0000001], np.float32)), [1.0, 0.5, 0.0, 1.0])


@pytest.mark.parametrize("farthest", [1.0, 0.5])
def test_a_student_like_its_teacher_has_no_loss(farthest):
    cosines = np.linspace(1 - 2 * farthest, 1, 9, dtype=np.float32)  # no pair is farther than `farthest`
    distances = torch.from_numpy((1 - cosines.astype(np.float64)) / 2)
    d = torch.from_numpy(le_bs.distilled(cosines, farthest))
    assert le_bs.label_loss(distances, d, torch.zeros(9), 1.0, farthest).item() == pytest.approx(0, abs=1e-10)


def test_a_zero_vector_is_half_way_from_everything():
    assert le_bs.distance(torch.zeros(1, 4), torch.ones(1, 4)).tolist() == [0.5]


def test_farthest_is_the_distance_that_a_label_of_0_asks_for():
    f, label = torch.tensor([0.0, 0.5, 0.75], dtype=torch.float64), torch.tensor([1.0, 0, 0], dtype=torch.float64)
    assert le_bs.label_loss(f, label, label, 0.0, farthest=0.5).item() == pytest.approx(0.25**2)
    soft = torch.tensor([0.8, 0.1, 0.0], dtype=torch.float64)
    expected = sum((float(f[i]) + 0.5 * (float(soft[i]) - 1)) ** 2 for i in range(3))
    assert le_bs.label_loss(f, soft, label, 1.0, farthest=0.5).item() == pytest.approx(expected, abs=1e-12)


RELEVANT = [frozenset({0}), frozenset({1, 2}), frozenset({3})]
KNOWN = [frozenset({0, 9}), frozenset({1, 2}), frozenset({3})]
HARD = [np.array([4, 5]), np.array([6]), np.array([], dtype=np.int64)]


def pairs_of(known, negatives, seed, **given):
    inputs = SimpleNamespace(pairs=SimpleNamespace(relevant=RELEVANT, known=known), negatives=negatives, documents=range(20))
    settings = le_bs.LeBs().settings(given)
    drawn = le_bs.draw_pairs(inputs, settings, np.array([0, 1, 2]), np.random.default_rng(seed))
    return drawn, dict(zip(drawn.pairs(), drawn.labels.tolist(), strict=True))


def test_each_query_gets_one_answer_and_its_negatives():
    answers = set()
    for seed in range(200):
        drawn, pairs = pairs_of(KNOWN, HARD, seed, drawn=1, random_negatives=2)
        assert len(drawn.documents) == len(set(drawn.documents.tolist()))
        for query in range(3):
            own = {document: label for (x, document), label in pairs.items() if x == query}
            right = [document for document, label in own.items() if label == 1.0]
            assert len(right) == 1  # a random draw never answers the query
            assert set(right) <= RELEVANT[query]
            assert not {document for document, label in own.items() if label == 0.0} & KNOWN[query]
            assert len(own) == (3 if query == 2 else 4)  # query 2 has no hard negative
        answers |= {document for (x, document), label in pairs.items() if x == 1 and label == 1.0}
        assert any((0, hard) in pairs for hard in (4, 5))
    assert answers == {1, 2}


def test_in_batch_pairs_are_all_pairs_but_those_that_say_nothing():
    given = {"drawn": 0, "random_negatives": 0, "in_batch": True}
    drawn, pairs = pairs_of(KNOWN, [], 0, **given)
    assert len(drawn.documents) == 3
    assert len(pairs) == 9
    assert [pairs[x, y] for x in range(3) for y in drawn.documents.tolist()] == np.eye(3).ravel().tolist()
    spared = [frozenset({0, 3}), *KNOWN[1:]]
    assert (0, 3) not in pairs_of(spared, [], 0, **given)[1]  # no right answer, and no wrong one


# -- SIR: Eq. 1 against a slow transcription, the bounds of Eq. 7, the selection, the fits. V3 and V4: test_whole_objectives


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def slow_loss(probabilities):
    """Eq. 1, one document at a time."""
    return -math.log(probabilities[0]) - sum(math.log(1 - each) for each in probabilities[1:])


def fast_levels(scores, sizes):
    present = torch.ones_like(scores, dtype=torch.bool)
    levels, kept, there, current = [sir.log_probabilities(scores, present)], [], [present], scores
    for size in sizes:
        kept.append(sir.survivors(current, there[-1], size))
        there.append(there[-1].gather(1, kept[-1]))
        current = current.gather(1, kept[-1])
        levels.append(sir.log_probabilities(current, there[-1]))
    return levels, kept, there


SCORES = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 24)) * 2)


@pytest.mark.parametrize(("size", "cap", "floor", "uniform"), [(88, 0.0303, 4.4718, 5.4716), (8, 0.2797, 2.0341, 3.0142)])
def test_the_literal_product_bounds_the_probability_of_the_right_document(size, cap, floor, uniform):
    present = torch.ones(1, size, dtype=torch.bool)
    certain, equal = torch.zeros(1, size, dtype=torch.float64), torch.zeros(1, size, dtype=torch.float64)
    certain[0, 0] = 200.0
    (best,) = sir.conditional([sir.log_probabilities(certain, present)], [], [present])
    assert float(best[0, 0].exp()) == pytest.approx(cap, abs=5e-5)
    assert float(sir.block_loss(best, present)) == pytest.approx(floor, abs=5e-5)
    (even,) = sir.conditional([sir.log_probabilities(equal, present)], [], [present])
    assert float(sir.block_loss(even, present)) == pytest.approx(uniform, abs=5e-5)


def test_the_gradient_of_the_chain_is_right():
    scores = SCORES[:, :9].clone().requires_grad_(requires_grad=True)

    def total(values):
        levels, kept, there = fast_levels(values, [5, 3])
        parts = zip(sir.conditional(levels, kept, there), there, strict=True)
        return sum(sir.block_loss(level, present) for level, present in parts)

    assert torch.autograd.gradcheck(total, (scores,))
    total(scores).backward()
    assert scores.grad[:, 1:].abs().min() > 0  # a document that was left out at level 1 still gets the gradient of P_1


def test_an_absent_document_has_no_part_in_anything():
    padded = torch.cat([SCORES, torch.full((3, 4), 50.0)], dim=1)
    present = torch.cat([torch.ones(3, 24, dtype=torch.bool), torch.zeros(3, 4, dtype=torch.bool)], dim=1)
    whole = torch.ones_like(SCORES, dtype=torch.bool)
    losses = [float(sir.block_loss(sir.log_probabilities(*given), given[1])) for given in ((padded, present), (SCORES, whole))]
    assert losses[0] == pytest.approx(losses[1])
    assert sir.survivors(padded, present, 12).tolist() == sir.survivors(SCORES, whole, 12).tolist()


@pytest.mark.parametrize("gap", [15.0, 500.0])
def test_a_wrong_document_that_is_certain_costs_what_equation_1_says(gap):
    """P of the wrong one is 1 in float32. Eq. 1 is then gap + (gap - log 2), and pulls on it and pushes the right one."""
    scores = torch.tensor([[0.0, gap, 0.0]], requires_grad=True)
    loss = sir.block_loss(sir.log_probabilities(scores, torch.ones(1, 3, dtype=torch.bool)), torch.ones(1, 3, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(2 * gap - math.log(2), rel=1e-5)
    assert scores.grad.tolist()[0] == pytest.approx([-1.5, 2.0, -0.5], abs=1e-3)


def objective(scores, **settings):
    """A fit whose model gives known scores, also of the documents at places of the first block."""
    settings = sir.Sir().settings({"blocks": "24,12,5", "candidates": 30, "anchor": False, **settings})
    return SimpleNamespace(settings=settings, device="cpu", scores=scores)


class Scored(sir.Sir):
    """The method on known scores."""

    def score(self, fit, batch, places=None):  # noqa: ARG002 - the contract names the arguments
        return fit.scores if places is None else fit.scores.gather(1, places)


def blocks(size=24, seed=1):
    keys = np.random.default_rng(seed).random((3, size)).astype(np.float32)
    return SimpleNamespace(drawn=SimpleNamespace(documents=np.arange(3 * size).reshape(3, size), keys=keys))


def test_one_block_has_equation_1_or_the_contrastive_loss():
    shares = [softmax(row) for row in SCORES.tolist()]
    for variant in ("static", "v2"):
        found = Scored().loss(objective(SCORES, variant=variant), blocks())
        assert float(found["block"]) == pytest.approx(np.mean([slow_loss(one) for one in shares]), abs=1e-6)
    contrast = Scored().loss(objective(SCORES, variant="lcl"), blocks())
    assert float(contrast["block"]) == pytest.approx(np.mean([-math.log(one[0]) for one in shares]), abs=1e-6)


def test_the_random_selector_keeps_the_right_document_and_draws_anew():
    worst = SCORES.clone()
    worst[:, 0] = -50.0  # the right document is the worst by far
    drawn, present, fit = [], torch.ones_like(worst, dtype=torch.bool), objective(worst, variant="v3", selector="random")
    for seed in (1, 2):
        levels, kept, _ = Scored()._levels(fit, blocks(seed=seed), present)
        assert [each.shape[1] for each in levels] == [24, 12, 5]
        assert all((each[:, 0] == 0).all() for each in kept)
        drawn.append(kept[0].tolist())
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"variant": "static"}, [5]),
        ({"variant": "v1"}, [5]),
        ({"variant": "v1", "selector": "top"}, [24, 12, 5]),
        ({"variant": "v3"}, [24]),
        ({"variant": "v4", "reuse": False}, [24, 12, 5]),
    ],
    ids=str,
)
def test_what_a_step_scores(given, sizes):
    settings = sir.Sir().settings({"blocks": "24,12,5", "candidates": 30, "batch": 3, "anchor": False, **given})
    assert list(settings.trained_blocks()) == sizes
    assert settings.scored() == 3 * sum(sizes)


class _Model:
    """A model that counts how often it starts anew, and ranks a document by its number."""

    def __init__(self):
        self.restarts = 0

    def state_dict(self):
        return {"weight": torch.ones(1)}

    def load_state_dict(self, _state):
        self.restarts += 1

    def rank(self, _reader, _question, texts, _features):
        return np.array([float(text) for text in texts])


@pytest.mark.parametrize(
    ("given", "fits", "restarts", "left"),
    [
        ({"variant": "v1"}, [5], 1, [30]),
        ({"variant": "v1", "selector": "top"}, [24, 12, 5], 3, [30, 11, 4]),
        ({"variant": "v2"}, [24, 12, 5], 0, [30, 30, 30]),
        ({"variant": "v2", "selector": "top"}, [24, 12, 5], 0, [30, 11, 4]),
        ({"variant": "v3"}, [0], 0, [30]),
    ],
    ids=str,
)
def test_compressors_are_trained_one_after_the_other_on_what_the_one_before_selected(given, fits, restarts, left, monkeypatch):
    lists = CandidateLists(np.tile(np.arange(30), (2, 1)), np.zeros((2, 30, 1), np.float32))
    pairs, negatives = Pairs(["q", "r"], [frozenset()] * 2), [np.random.default_rng(0).permutation(30), np.arange(30)]
    inputs = RankerInputs(1.0, pairs, negatives, lists, list(map(str, range(30))), None)
    monkeypatch.setattr(sir, "_SAY_EVERY", -1.0)
    settings = sir.Sir().settings({"blocks": "24,12,5", "candidates": 30, "anchor": False, **given})
    asked, said = [], []

    def fit(name="", inputs=None, blocks=(0,)):
        columns = (inputs or trainer.inputs)[0].negatives[0].tolist()
        asked.append((blocks[-1], columns))

    trainer = SimpleNamespace(settings=settings, inputs=[inputs], model=_Model(), fit=fit, say=said.append)
    sir.Sir().fits(trainer)
    selections = [f"selecting the best {count}: 1 of 2 questions" for count in left[1:] if count < 30]
    assert [line.partition(",")[0] for line in said] == selections
    assert [size for size, _ in asked] == fits
    assert [len(columns) for _, columns in asked] == left
    assert trainer.model.restarts == restarts
    for _, columns in asked[1:]:
        assert len(columns) == 30 or set(columns) == set(range(30 - len(columns), 30))  # Eq. 4: the best ones


# -- FecTek and BERT-Scorer


def test_tfidf_targets_are_those_of_the_worked_numbers(base):
    document = "granada granada " + " ".join(["morino"] * 18)
    analysis, tokenizer, _, bm25 = read_by(base, [document])
    frequencies = {analysis.terms(["granada"])[0][0]: 9, analysis.terms(["morino"])[0][0]: 1000}
    table = CorpusStatistics(analysis.id, 1000, 20.0, frequencies)
    common = (analysis, tokenizer, table, bm25)
    given = prepare([document], *common, "document", 64).anchors[0]
    asked = prepare(["granada vexada morino"], *common, "query", 64).anchors[0]
    found = bert_scorer.tfidf(asked, given, table)
    assert found == pytest.approx([0.460517, 0.0, 18 / 20 * math.log(1000 / 1001)], abs=1e-6)
    both = prepare(["granada", "granada vexada"], *common, "query", 64).anchors
    assert bert_scorer.recall(given, both) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("target", ["tfidf", "recall"])
def test_a_batch_without_a_term_teaches_nothing(model, base, target):
    """Stop words and punctuation: the mean error of no piece is not NaN."""
    texts = ["the of and", "... !!!"]
    _, _, statistics, _ = common = read_by(base, texts)
    both = [prepare(texts, *common, kind, 64) for kind in ("document", "query")]
    pairs = Pairs(texts, [frozenset({0}), frozenset({1})])
    method = methods.get("bert-scorer")
    settings = method.settings({"top_layers": -1, "target": target, "batch": 2})
    inputs = [TermWeightInputs(1.0, pairs, *both, [], statistics)]
    loss = Fit(method, model, inputs, settings)(BatchSampler(method, inputs, settings).draw(0))["loss"]
    loss.backward()
    assert float(loss.detach()) == 0


def test_text_loss():
    scores = torch.tensor([[1.0, 2.0, 0.5, -1.0], [0.0, 3.0, 1.5, 2.5]])
    batch = AnsweredQuestions(np.array([0, 1]), np.array([4, 5, 6, 7]), np.array([0, 1, 0, 1]))
    relevant = [frozenset({4, 5}), frozenset({5})]

    def slow(rows):
        return -np.mean([math.log(math.exp(row[0]) / sum(map(math.exp, row))) for row in rows])

    every = fectek.text_loss(scores, fectek.left_out(relevant, batch, in_batch=True))
    assert float(every) == pytest.approx(slow([[1.0, 0.5, -1.0], [3.0, 0.0, 1.5, 2.5]]), abs=1e-6)  # 5 answers question 0 as well
    own = fectek.text_loss(scores, fectek.left_out(relevant, batch, in_batch=False))
    assert float(own) == pytest.approx(slow([[1.0, 0.5], [3.0, 2.5]]), abs=1e-6)


def test_term_loss_and_its_labels(texts):
    documents, questions = texts(Form())
    asked = BatchSide(questions, np.arange(3), {}, "query", everything=True)
    given = BatchSide(documents, np.arange(5), {}, "document", everything=True)
    own, wanted, rows = fectek.of_relevant(torch.randn(len(given.row)), given, asked)
    assert len(own) == (given.row < 3).sum()
    chances = 1 / (1 + np.exp(-own.numpy().astype(np.float64)))
    errors = -(wanted * np.log(chances) + (1 - wanted) * np.log(1 - chances))
    slow = np.mean([errors[rows == row].mean() for row in (0, 2)])
    some = rows != 1  # a text without a term
    assert float(fectek.term_loss(own[some], wanted[some], rows[some])) == pytest.approx(slow, abs=1e-5)
    assert float(fectek.term_loss(own[:0], np.zeros(0), np.zeros(0))) == 0


def test_distillation():
    scores = torch.tensor([[1.0, 0.0, 9.0], [5.0, 5.0, 5.0], [0.0, 2.0, 1.0]])
    wanted = torch.tensor([[2.0, 1.0, -math.inf], [1.0, -math.inf, -math.inf], [0.0, 2.0, 1.0]])
    teacher, student = np.exp([2.0, 1.0]) / np.exp([2.0, 1.0]).sum(), np.exp([1.0, 0.0]) / np.exp([1.0, 0.0]).sum()
    first = float((teacher * np.log(teacher / student)).sum())
    assert float(fectek.distillation(scores, wanted)) == pytest.approx(first / 2, abs=1e-6)  # one unscored, one equal
    assert float(fectek.distillation(scores, torch.full((3, 3), -math.inf))) == 0.0


def test_the_preset_of_the_paper():
    settings = methods.get("fectek").settings({"preset": "paper"})
    names = ("anchor", "hidden", "shared", "fcm", "tkgm", "in_batch", "drawn", "scale", "learn_scale", "top_layers", "terms")
    assert [getattr(settings, name) for name in names] == ["none", 0, True, True, True, False, 15, 1.0, False, -1, "piece"]
    assert settings.schedule == "linear"
    assert settings.max_length == settings.training_length == 192
    again = methods.get("fectek").settings({"preset": "paper", "drawn": "3"})
    assert methods.get("fectek").changed(again) == {"preset": "paper", "drawn": 3}


@pytest.mark.parametrize(
    ("given", "lengths"),
    [
        ({}, (256, 128)),
        ({"fcm": "true"}, (256, 256)),
        ({"fcm": True, "max_length": 64}, (64, 64)),
        ({"fcm": "yes", "training_length": 96}, (96, 96)),
    ],
)
def test_the_gate_reads_as_much_in_training_as_in_use(given, lengths):
    settings = methods.get("fectek").settings(given)
    assert (settings.max_length, settings.training_length) == lengths
