"""Trees score and explain as the libraries that made them do."""

import json
import re

import numpy as np
import pytest

from termweave.rerank import decision_trees

lightgbm = pytest.importorskip("lightgbm")


@pytest.fixture(scope="module")
def data():
    """Rows with missing values, grades of two features, and groups of 50."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(1000, 6))
    rows[draw.random(rows.shape) < 0.1] = np.nan
    grades = (np.nan_to_num(rows[:, 0]) + np.nan_to_num(rows[:, 1]) ** 2 + draw.normal(size=len(rows)) > 1).astype(int)
    return rows, grades


def trained(rows, grades, **parameters):
    settings = {"objective": "lambdarank", "num_leaves": 8, "min_data_in_leaf": 5, "verbose": -1, **parameters}
    return lightgbm.train(settings, lightgbm.Dataset(rows, grades, group=[50] * (len(rows) // 50)), num_boost_round=20)


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
    parameters = {"objective": "multiclass", "num_class": 3, "verbose": -1}
    several = lightgbm.train(parameters, lightgbm.Dataset(rows, three), num_boost_round=2).model_to_string()
    with pytest.raises(ValueError, match="several classes"):
        decision_trees.read(several)
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


TREE = {
    "left_children": [1, -1, -1],
    "right_children": [2, -1, -1],
    "split_indices": [0, 0, 0],
    "split_conditions": [0.5, 2.0, 1.0],
    "default_left": [0, 0, 0],
    "sum_hessian": [2.0, 1.0, 1.0],
}


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
