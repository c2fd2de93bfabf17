"""Feature rankers: each feature against its definition; trees score and explain as the libraries that made them do; damaged or hostile files."""

import json
import math
import re
from datetime import UTC, datetime

import numpy as np
import pytest

from termweave.encoders.manifest import Manifest, digest, write_manifest
from termweave.errors import TermweaveError, UsageError
from termweave.records import Encoding, TermWeights
from termweave.rerank import Rules, candidate_features, decision_trees, neighbourhood
from termweave.rerank.candidate_features import FeatureReader
from termweave.rerank.feature_ranker import KIND, RATES, TREES, open_feature_ranker
from termweave.rerank.rerankers import RerankRequest
from termweave.signals.fusion import Ranked

TYPES = {"votes": "long", "genre": "keyword", "released": "date", "new": "boolean", "a.b": "double"}
IDS = ("a", "b", "c", "d", "e")


@pytest.fixture
def request_of():
    """Five candidates of a query; `b` and `c` are missing in one list, and the window of the other ends before `e`."""
    draw = np.random.default_rng(1)
    vectors = draw.normal(size=(5, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = draw.normal(size=8).astype(np.float32)
    query /= np.linalg.norm(query)
    lists = {
        "weights": Ranked.from_scores([("a", 9.0), ("d", 3.0), ("e", 1.0)]),
        "dense": Ranked.from_scores([("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.5), ("e", 0.4)], window=4),
    }
    metadata = [
        {"votes": [3, 7], "genre": ["horror", "drama"], "released": ["2020-01-01T00:00:00.000Z"], "new": [True], "a.b": [0.5]},
        {"votes": [1]},
        {"genre": ["drama"], "released": ["2030-01-01"]},
        {},
        {"votes": [0]},
    ]
    terms = TermWeights(("parse", "json"), np.ones(2, np.float32))
    encoding = Encoding("parse json", terms, query)
    return RerankRequest(encoding, IDS, (1.0, 0.8, 0.6, 0.4, 0.2), vectors, None, None, lists, metadata)


def column(name, request, now=None):
    return FeatureReader((name,), TYPES, now=now).matrix(request)[:, 0]


def test_features_of_scores(request_of):
    nan = math.nan
    for name, expected in {
        "score": [1.0, 0.8, 0.6, 0.4, 0.2],
        "rank": [1, 2, 3, 4, 5],
        "terms": [2] * 5,
        "weights.score": [9, nan, nan, 3, 1],
        "weights.rank": [1, nan, nan, 2, 3],
        "weights.value": [1, 0, 0, 0.25, 0],
        "weights.best": [9] * 5,
        "dense.score": [0.9, 0.8, 0.7, 0.5, nan],  # the window ends there: a deeper page must not change a score
        "dense.value": [1, 0.75, 0.5, 0, 0],
        "dense.spread": [1] * 5,
    }.items():
        np.testing.assert_allclose(column(name, request_of), expected, err_msg=name)


def test_features_of_vectors(request_of):
    vectors, query = request_of.vectors, request_of.query.vector
    np.testing.assert_allclose(column("cosine", request_of), vectors @ query, atol=1e-6)
    context = neighbourhood(query, vectors, Rules(10, 3, 0.0, clamp=True))
    np.testing.assert_allclose(column("jaccard", request_of), context.jaccard, atol=1e-6)
    others = [[each for each in range(5) if each != row][:3] for row in range(5)]
    expected = [np.mean(vectors[several] @ vectors[row]) for row, several in enumerate(others)]
    np.testing.assert_allclose(column("neighbours", request_of), expected, atol=1e-6)


def test_features_of_metadata(request_of):
    now = datetime(2020, 1, 11, tzinfo=UTC)
    nan = math.nan
    for name, expected in {
        "metadata.votes": [7, 1, nan, nan, 0],
        "metadata.genre=drama": [1, 0, 1, 0, 0],
        "metadata.genre=horror": [1, 0, 0, 0, 0],
        "metadata.released.age": [10, nan, -3643, nan, nan],
        "metadata.new": [1, nan, nan, nan, nan],
        "metadata.a.b": [0.5, nan, nan, nan, nan],
    }.items():
        np.testing.assert_allclose(column(name, request_of, now), expected, err_msg=name)


def test_features_of_behaviour(request_of):
    rates = {"a": (2.0, 0.5), "d": (0.25, 3.0)}
    matrix = FeatureReader(("clicks", "conversions"), {}, rates=rates).matrix(request_of)
    np.testing.assert_allclose(matrix, [[2, 0.5], [1, 1], [1, 1], [0.25, 3], [1, 1]])
    assert candidate_features.needs(candidate_features.OF_BEHAVIOUR, {}) == frozenset()


def test_names_and_needs_belong_together():
    names = candidate_features.names(["weights", "dense"], TYPES, {"genre": ["drama"]})
    assert {"metadata.votes", "metadata.genre=drama", "metadata.released.age", "jaccard", "dense.spread"} <= set(names)
    expected = {"vectors", "signal.weights", "signal.dense", *(f"metadata.{name}" for name in TYPES)}
    assert candidate_features.needs(names, TYPES) == expected
    assert FeatureReader(("score", "cosine"), TYPES, frozenset({"score"})).needs == frozenset()


NOT_COMPUTED = [
    ("metadata.price", TYPES, r"no feature 'metadata\.price'"),
    ("lexical.score", TYPES, "trained with the signal 'lexical'"),
    ("metadata.genre", {"genre": "long"}, "trained with 'genre' as a long"),
    ("metadata.genre.age", {"genre": "date"}, "trained with 'genre' as a date"),
]


@pytest.mark.parametrize(("feature", "types", "message"), NOT_COMPUTED)
def test_what_cannot_be_computed_is_said(request_of, feature, types, message):
    with pytest.raises(UsageError, match=message):
        FeatureReader((feature,), types).matrix(request_of)
    with pytest.raises(UsageError, match="no dense model"):
        column("cosine", RerankRequest(Encoding("x"), IDS, request_of.scores))


#: Trees of LightGBM: one leaf for each value of one condition.
CONTENT = """tree
num_class=1
feature_names=clicks

Tree=0
num_leaves=2
num_cat=0
split_feature=0
threshold=1
decision_type=2
left_child=-1
right_child=-2
leaf_value=0.5 1.5
internal_value=1

end of trees
"""
SETTINGS = {"features": ["clicks"], "types": {}, "mode": {"weights": {"lexical": 1.0}, "fusion": "rrf"}, "clicks_until": "1.0"}


def opened(folder, settings=SETTINGS, table='{"d": [1.0, 2.0]}', content=CONTENT):
    for name, text in ((TREES, content), (RATES, table)):
        if text is not None:
            (folder / name).write_text(text)
    files = {name: digest(folder / name) for name in (TREES, RATES) if (folder / name).is_file()}
    write_manifest(folder, Manifest("x", KIND, ("scores",), "0" * 16, 0, settings=settings, files=files))
    return open_feature_ranker(str(folder), "")


@pytest.mark.parametrize(
    "changed",
    [
        *({"settings": {**SETTINGS, name: value}} for name, value in (
            ("features", None), ("features", [1]), ("features", ["clicks"] * 2), ("types", ["a"]), ("clicks_until", []),
        )),
        *({"settings": {**SETTINGS, "mode": mode}} for mode in (
            [], {"weights": ["lexical"]}, {"weights": {"lexical": "1"}}, {"weights": {"lexical": -1}}, {"weights": {}},
            {"weights": {"lexical": 1}, "fusion": []}, {"weights": {"lexical": 1}, "fusion": "none"},
        )),
        *({"table": table} for table in ("", "[1]", '{"d": 1}', '{"d": [1]}', '{"d": [null, 1]}', "[" * 100_000)),
        {"content": None},
    ],
    ids=lambda changed: json.dumps(changed)[:60],
)  # fmt: skip
def test_a_damaged_folder_is_one_sentence(tmp_path, changed):
    with pytest.raises(TermweaveError, match=None if "settings" in changed else "cannot be read"):
        opened(tmp_path, **changed)


@pytest.fixture(scope="module")
def data():
    """Rows with missing values, grades of two features, and groups of 50."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(1000, 6))
    rows[draw.random(rows.shape) < 0.1] = np.nan
    grades = (np.nan_to_num(rows[:, 0]) + np.nan_to_num(rows[:, 1]) ** 2 + draw.normal(size=len(rows)) > 1).astype(int)
    return rows, grades


def trained(rows, grades, **parameters):
    lightgbm = pytest.importorskip("lightgbm")
    settings = {"objective": "lambdarank", "num_leaves": 8, "min_data_in_leaf": 5, "verbose": -1, **parameters}
    groups = {} if parameters else {"group": [50] * (len(rows) // 50)}
    return lightgbm.train(settings, lightgbm.Dataset(rows, grades, **groups), num_boost_round=20)


@pytest.fixture(scope="module")
def lightgbm_text(data):
    return trained(*data).model_to_string()


@pytest.mark.parametrize("missing", [True, False])
def test_scores_and_contributions_are_those_of_lightgbm(data, missing):
    rows, grades = data if missing else (np.nan_to_num(data[0]), data[1])
    model = trained(rows, grades)
    trees = decision_trees.read(model.model_to_string())
    asked = data[0]  # a model that was trained without missing values meets them, too
    np.testing.assert_allclose(trees.scores(asked), model.predict(asked), atol=1e-12)
    assert trees.used <= set(model.feature_name())
    for row in asked[:20]:
        base, added = trees.contributions(row)
        assert base + sum(added.values()) == pytest.approx(model.predict(row[None])[0])
        assert added.keys() <= trees.used


@pytest.fixture
def saved(tmp_path):
    """A function: our trees of a model of XGBoost."""
    return lambda model: (model.save_model(tmp_path / "m.json"), decision_trees.read((tmp_path / "m.json").read_text()))[1]


def test_scores_are_those_of_xgboost(data, saved):
    xgboost = pytest.importorskip("xgboost")
    rows, grades = data
    groups = np.repeat(np.arange(len(rows) // 50), 50)
    # XGBoost's own rankers leave out the trees after the best iteration.
    parameters = {"objective": "rank:ndcg", "learning_rate": 0.9, "num_parallel_tree": 2, "subsample": 0.5, "nthread": 1}
    ranker = xgboost.XGBRanker(n_estimators=60, early_stopping_rounds=5, **parameters)
    held_out = {"eval_set": [(rows[500:], grades[500:])], "eval_qid": [groups[500:]]}
    ranker.fit(rows[:500], grades[:500], qid=groups[:500], **held_out, verbose=0)
    trees = saved(ranker)
    assert len(trees.trees) == 2 * (ranker.best_iteration + 1) < 2 * ranker.get_booster().num_boosted_rounds()
    np.testing.assert_allclose(trees.scores(rows), ranker.predict(rows), atol=1e-5)
    matrix = xgboost.DMatrix(rows, grades, qid=groups, feature_names=list("abcdef"))
    model = xgboost.train({"objective": "rank:ndcg", "max_depth": 4, "nthread": 1}, matrix, num_boost_round=20)
    trees = saved(model)
    np.testing.assert_allclose(trees.scores(rows), model.predict(matrix), atol=1e-5)
    theirs = model.predict(xgboost.DMatrix(rows[:5], feature_names=list("abcdef")), pred_contribs=True, approx_contribs=True)
    for row, expected in zip(rows[:5], theirs, strict=True):
        base, added = trees.contributions(row)
        np.testing.assert_allclose([added.get(name, 0.0) for name in "abcdef"], expected[:-1], atol=1e-4)
        assert base == pytest.approx(float(expected[-1]), abs=1e-4)
    assert trees.features == tuple("abcdef")
    settings = {"objective": "reg:squarederror", "tree_method": "exact", "gamma": 3.0, "max_depth": 5, "nthread": 1}
    pruned = xgboost.train(settings, xgboost.DMatrix(rows, grades), num_boost_round=5)
    np.testing.assert_allclose(saved(pruned).scores(rows), pruned.predict(xgboost.DMatrix(rows)), atol=1e-5)


def test_models_of_several_classes_and_without_end_are_refused(data, lightgbm_text, tmp_path, monkeypatch):
    rows, grades = data
    three = grades + (np.nan_to_num(rows[:, 0]) > 1)
    with pytest.raises(ValueError, match="several classes"):
        decision_trees.read(trained(rows, three, objective="multiclass", num_class=3).model_to_string())
    with pytest.raises(ValueError, match="neither"):
        decision_trees.read('{"a": ' * 100_000)
    monkeypatch.setattr(decision_trees, "MOST_NODES", 50)
    with pytest.raises(ValueError, match="more than 50 nodes"):
        decision_trees.read(lightgbm_text)
    monkeypatch.setattr(decision_trees, "_MOST_BYTES", 10)  # looked at before a file is read
    for content, reason in ((b"tree" * 3, "more than 10 bytes"), (b"{L\xff", "not text in UTF-8")):  # XGBoost's binary format
        (tmp_path / "trees.txt").write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            decision_trees.content_of(tmp_path / "trees.txt")


def test_a_model_of_one_leaf_has_one_score(data):
    rows, _ = data
    model = trained(rows, np.zeros(len(rows), dtype=int))
    trees = decision_trees.read(model.model_to_string())
    assert trees.scores(rows[:3]).tolist() == model.predict(rows[:3]).tolist()
    assert trees.used == frozenset()
    by_hand = decision_trees.read(xgboost_file())  # a condition of XGBoost's is "below", of LightGBM's "at most"
    assert by_hand.scores(np.array([[0.4], [0.5], [np.nan]])).tolist() == [2.5, 1.5, 1.5]


TREE = {"left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [0, 0, 0]}
TREE |= {"split_conditions": [0.5, 2.0, 1.0], "default_left": [0, 0, 0], "sum_hessian": [2.0, 1.0, 1.0]}


def xgboost_file(*trees, learner=None, **facts):
    """What XGBoost saves, with these trees."""
    known = {"num_feature": "1", "base_score": "5E-1", **facts}
    booster = {"model": {"trees": trees or [TREE], "gbtree_model_param": {"num_parallel_tree": "1"}}}
    return json.dumps({"learner": {"learner_model_param": known, "gradient_booster": booster, **(learner or {})}})


def chain(length):
    """A tree in which every condition has a leaf and the next condition."""
    nodes = 2 * length + 1
    inner = [node % 2 == 0 and node < nodes - 1 for node in range(nodes)]
    left, right = ([node + step if is_inner else -1 for node, is_inner in enumerate(inner)] for step in (1, 2))
    return {name: [column[0]] * nodes for name, column in TREE.items()} | {"left_children": left, "right_children": right}


BROKEN, NEITHER, NO_NUMBER = "do not fit together", "neither LightGBM nor XGBoost", "not a number, or is above"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (xgboost_file(TREE | {"left_children": [1, 0, -1], "right_children": [2, 2, -1]}), BROKEN),
        (xgboost_file(TREE | {"right_children": [-3, -1, -1]}), BROKEN),
        (xgboost_file(TREE | {"left_children": [10**30, -1, -1]}), NEITHER),
        (xgboost_file(TREE | {"split_indices": [0.7, 0, 0]}), NEITHER),
        (xgboost_file(TREE | {"split_conditions": [0.5, 10**400, 1.0]}), NEITHER),
        (xgboost_file(TREE | {"split_conditions": [0.5, 1e30, 1.0]}), NO_NUMBER),
        (xgboost_file(TREE | {name: [] for name in TREE}), NEITHER),
        (xgboost_file(base_score="nan"), NEITHER),
        (xgboost_file(num_feature="1000000000"), "more than 10,000 features"),
        (xgboost_file(num_feature="-1"), "no name"),
        (xgboost_file(learner={"feature_names": [1]}), NEITHER),
        (xgboost_file(learner={"attributes": {"best_iteration": "-5"}}), "no trees"),
        (xgboost_file(*[TREE] * 10_001), "more than 10,000 trees"),
        (xgboost_file(chain(1_001)), "conditions deep"),
        (xgboost_file(chain(900), *[TREE] * 2_000), "2,001 trees are up to 900 conditions deep"),
        ('{"a": [' + "{}," * 1_000_000 + "1]}", NEITHER),
        ("[" * 1_000_000, NEITHER),
    ],
    ids=lambda value: value[-60:] if len(value) < 1_000 else f"{len(value)}",
)
def test_hostile_files_of_xgboost_are_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        decision_trees.read(content)


LIGHTGBM = [
    (r"(?s).*", "", "neither"),
    (r"(?s).*", "{", "Expecting"),
    (r"(?s)Tree=0.*", "", "no trees"),
    (r"left_child=", "left_child=9 ", BROKEN),
    (r"left_child=\S+", "left_child=0", BROKEN),
    (r"split_feature=\d+", "split_feature=77", "no name"),
    (r"leaf_value=\S+", "leaf_value=nan", NO_NUMBER),
    (r"internal_value=\S+ ", "internal_value=", BROKEN),  # the values of leaves would move
    (r"decision_type=\d+", "decision_type=3", "categories"),
    (r"decision_type=\d+", "decision_type=x", NEITHER),
    (r"threshold=\S+", "threshold=nan", NO_NUMBER),
    (r"feature_names=", "feature_names=" + "f " * 10_001, "more than 10,000 features"),
    (r"Tree=0\n", "Tree=0\nleaf_value=0\n" * 10_001 + "Tree=1\n", "more than 10,000 trees"),
]


def test_hostile_files_of_lightgbm_are_refused(data, lightgbm_text):
    for pattern, replacement, reason in LIGHTGBM:
        changed = re.sub(pattern, replacement, lightgbm_text, count=1)
        assert changed != lightgbm_text
        with pytest.raises(ValueError, match=reason):
            decision_trees.read(changed)
    far = decision_trees.read(re.sub(r"internal_value=\S+", "internal_value=1e300", lightgbm_text, count=1))
    base, added = far.contributions(data[0][0])
    assert base + sum(added.values()) == pytest.approx(far.scores(data[0][:1])[0])
