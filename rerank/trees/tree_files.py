"""Read the boosted decision trees that LightGBM and XGBoost write, without these libraries.

A file may come from anybody: sizes are checked before the work, and content that is no tree is refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.rerank.trees.decision_trees import DecisionTree, DecisionTrees

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: Features, trees, and nodes of all trees: 2,000 trees of 256 leaves.
MOST_FEATURES, MOST_TREES, MOST_NODES = 10_000, 10_000, 1_100_000
#: Bytes of a file, and the lists and objects in it.
_MOST_BYTES, _MOST_LISTS = 200_000_000, 100 * MOST_TREES
#: Conditions on a path, and those times trees: a search takes so many steps for each document.
_DEEPEST, _STEPS = 1_000, 1_000_000
#: A value above this would swallow the others of a sum.
_LARGEST = 1e12
_CLASSES = "it tells several classes apart, and a ranker has one score"
_NEITHER = "it is a model of neither LightGBM nor XGBoost, or a damaged one"
_BROKEN = "the nodes of a tree do not fit together"
#: Bits of LightGBM's ``decision_type``: a category, the default goes left, and what counts as missing (0 nothing, 4 zeros, 8 NaN).
_CATEGORY, _LEFT, _MISSING = 1, 2, 12
_NAN = 8


def content_of(file: Path) -> str:
    """Read the text of a file of trees, which `read` then takes.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is too large, or not text in UTF-8.
    """
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None


def read(content: str) -> DecisionTrees:
    """Read trees that LightGBM (``Booster.save_model``) or XGBoost (``Booster.save_model("FILE.json")``) wrote.

    Raises:
        ValueError: The text is of neither library, is too large, or has trees that split by categories or hold something that is not a number.
    """
    if content.count("[") + content.count("{") > _MOST_LISTS:
        raise _Refusal(_NEITHER)
    try:
        with np.errstate(all="ignore"):
            trees = _xgboost(json.loads(content)) if content.lstrip().startswith("{") else _lightgbm(content)
    except (_Refusal, json.JSONDecodeError):
        raise
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _Refusal(_NEITHER) from error
    if not trees.trees:
        raise _Refusal("it has no trees")
    if trees.depth * max(len(trees.trees), _STEPS // _DEEPEST) > _STEPS:
        raise _Refusal(
            f"its {len(trees.trees):,} trees are up to {trees.depth:,} conditions deep, which takes too long in a search"
        )
    return trees


class _Refusal(ValueError):
    """The error of a model that is refused, with a reason for people; other errors name what Python could not do."""


def _checked(names: Sequence[Any], count: int, trees: Iterable[DecisionTree]) -> tuple[DecisionTree, ...]:
    """Check trees one by one as they are made, and return them.

    Raises:
        ValueError: There are too many features, trees or nodes, or the nodes of a tree do not fit together.
    """
    if len(names) > MOST_FEATURES:
        raise _Refusal(f"it has more than {MOST_FEATURES:,} features")
    if count > MOST_TREES:
        raise _Refusal(f"it has more than {MOST_TREES:,} trees")
    checked, nodes = [], 0
    for tree in trees:
        nodes += len(tree.left)
        _check_count(nodes)
        inner = tree.left >= 0
        children = np.concatenate([tree.left[inner], tree.right[inner]])
        if sorted(children.tolist()) != list(range(1, len(tree.left))) or (children <= np.tile(np.flatnonzero(inner), 2)).any():
            raise _Refusal(_BROKEN)  # a node is not there, or is reached twice
        if ((tree.feature[inner] < 0) | (tree.feature[inner] >= len(names))).any():
            raise _Refusal("a tree compares a feature that has no name")
        if not (np.abs(tree.value) <= _LARGEST).all() or np.isnan(tree.threshold[inner]).any():
            raise _Refusal(f"a tree holds something that is not a number, or is above {_LARGEST:g}")
        checked.append(tree)
    return tuple(checked)


def _check_count(nodes: int) -> None:
    if nodes > MOST_NODES:
        raise _Refusal(f"it has more than {MOST_NODES:,} nodes")


def _whole(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return whole numbers as an array; raise `TypeError` for anything else, because a number such as 0.7 cannot be the index of a node."""
    array = np.array(values)
    if array.dtype.kind not in "ib":
        raise TypeError
    return array.astype(np.int64)


def _lightgbm(content: str) -> DecisionTrees:
    head, *parts = re.split(r"^Tree=\d+$", content.partition("\nend of trees")[0], flags=re.MULTILINE)
    facts = _lines(head)
    names = facts["feature_names"].split()
    if {facts.get("num_class", "1"), facts.get("num_tree_per_iteration", "1")} != {"1"}:
        raise _Refusal(_CLASSES)
    return DecisionTrees(tuple(names), _checked(names, len(parts), (_lightgbm_tree(_lines(part)) for part in parts)))


def _lines(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.splitlines() if "=" in line)


def _lightgbm_tree(lines: Mapping[str, str]) -> DecisionTree:
    """Make a tree from the lines of LightGBM's file.

    LightGBM numbers inner nodes from 0 and leaves -1, -2 and so on; here the leaves follow the inner nodes.
    """
    if lines.get("is_linear", "0") != "0":
        raise _Refusal("its leaves are linear models")
    leaves = lines["leaf_value"].split()
    _check_count(2 * len(leaves))
    values = [float(each) for each in leaves]
    names = ("split_feature", "threshold", "decision_type", "left_child", "right_child", "internal_value")
    count = len(values) - 1
    columns = {name: lines.get(name, "").split() if count else [] for name in names}
    if any(len(column) != count for column in columns.values()):
        raise _Refusal(_BROKEN)
    kinds = [int(each) for each in columns["decision_type"]]
    if int(lines.get("num_cat", 0)) or any(kind & _CATEGORY for kind in kinds):
        raise _Refusal("its trees split by categories")
    if any(kind & _MISSING not in (0, _NAN) for kind in kinds):
        raise _Refusal("its trees take zeros for missing values (zero_as_missing)")
    left, right, features = ([int(each) for each in columns[name]] for name in ("left_child", "right_child", "split_feature"))
    thresholds = [float(each) for each in columns["threshold"]]
    # Without missing values in training a NaN counts as 0.
    missing = [bool(kind & _LEFT) if kind & _MISSING else limit >= 0.0 for kind, limit in zip(kinds, thresholds, strict=True)]
    # What a node expects lies between its leaves; beyond, contributions would not sum to the score in 64 bits.
    expected = [min(max(float(each), min(values)), max(values)) for each in columns["internal_value"]]
    left, right = (
        [*(count - 1 - child if child < 0 else child for child in side), *[-1] * len(values)] for side in (left, right)
    )
    none = [0] * len(values)
    return _tree(left, right, [*features, *none], [*thresholds, *none], [*map(int, missing), *none], [*expected, *values])


def _order(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """The nodes that can be reached from the root, parents before children; a leaf has -1 as both children."""
    order = [0]
    for node in order:
        if left[node] >= 0:
            order += [left[node], right[node]]
        if len(order) > len(left) or order[-1] < 0:
            raise _Refusal(_BROKEN)
    return order


def _tree(
    left: Sequence[int],
    right: Sequence[int],
    features: Sequence[int],
    thresholds: Sequence[float],
    missing: Sequence[int],
    values: Sequence[float],
) -> DecisionTree:
    """Make a tree from these nodes, numbered anew in the order that `_order` gives."""
    order = _order(left, right)
    place = {node: at for at, node in enumerate(order)}
    return DecisionTree(
        np.array([place[left[node]] if left[node] >= 0 else -1 for node in order], np.int64),
        np.array([place[right[node]] if left[node] >= 0 else -1 for node in order], np.int64),
        np.array(features, np.int64)[order],
        np.array(thresholds, np.float64)[order],
        np.array(missing, np.bool_)[order],
        np.array(values, np.float64)[order],
    )


def _xgboost(model: Mapping[str, Any]) -> DecisionTrees:
    learner = model["learner"]
    facts = learner["learner_model_param"]
    if int(facts.get("num_class", 0)) > 1 or int(facts.get("num_target", 1)) > 1:
        raise _Refusal(_CLASSES)
    booster = learner["gradient_booster"]["model"]
    # XGBoost's own rankers predict without what early stopping added to it.
    best = learner.get("attributes", {}).get("best_iteration")
    trees = booster["trees"]
    if best is not None:
        trees = trees[: max(0, (int(best) + 1) * int(booster["gbtree_model_param"]["num_parallel_tree"]))]
    names: Sequence[str] | range = learner.get("feature_names") or range(int(facts["num_feature"]))
    checked = _checked(names, len(trees), map(_xgboost_tree, trees))
    if isinstance(names, range):
        names = [f"f{number}" for number in names]
    base = float(str(facts["base_score"]).strip("[]").split(",")[0])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not abs(base) <= _LARGEST:
        raise TypeError
    return DecisionTrees(tuple(names), checked, base, single=True)


def _xgboost_tree(tree: Mapping[str, Any]) -> DecisionTree:
    """Make a tree from XGBoost's JSON; nodes that pruning cut off are left out.

    XGBoost's condition is ``value < threshold`` in float32, which becomes ``value <=`` the next smaller number.
    """
    if any(tree.get("split_type", [])):
        raise _Refusal("its trees split by categories")
    _check_count(len(tree["left_children"]))
    left, right, feature, default = (
        _whole(tree[name]) for name in ("left_children", "right_children", "split_indices", "default_left")
    )
    limits, weight = np.array(tree["split_conditions"], np.float32), np.array(tree["sum_hessian"], np.float64)
    if any(column.shape != left.shape for column in (right, feature, default, limits, weight)):
        raise _Refusal(_BROKEN)
    lefts, rights, value, hessians = left.tolist(), right.tolist(), limits.astype(np.float64).tolist(), weight.tolist()
    order = _order(lefts, rights)
    leaves = limits[order][left[order] < 0]
    lowest, highest = leaves.min(), leaves.max()
    for node in reversed(order):  # an inner node is worth the mean of its leaves
        first, second = lefts[node], rights[node]
        if first >= 0:
            total = hessians[first] + hessians[second]
            one, other = (hessians[first] / total, hessians[second] / total) if total > 0 else (0.5, 0.5)
            value[node] = min(max(one * value[first] + other * value[second], lowest), highest)
            hessians[node] = total
    thresholds = np.nextafter(limits, np.float32(-np.inf)).tolist()
    return _tree(lefts, rights, feature.tolist(), thresholds, default.tolist(), value)
