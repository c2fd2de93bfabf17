"""Boosted decision trees: read them from the files of LightGBM and XGBoost, score rows, and say how much each feature adds to a score.

Neither library is needed. A file may come from anybody: sizes are checked before the work, and content that is no tree is refused.

All rows walk down all trees together, a level at a time. 100 rows and 100 trees of 15 leaves take about a millisecond.

The contribution of a feature follows the path of a row: each condition on the feature adds the difference between the expected values
below and above the condition (Saabas 2014). The contributions and the values at the roots sum to the score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
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
_CATEGORY, _LEFT, _NAN, _MISSING = 1, 2, 8, 12


@dataclass(frozen=True)
class DecisionTree:
    """One decision tree, as arrays with an entry for each node. Node 0 is the root; a leaf has -1 as both children.

    Attributes:
        left: The child of each node for rows where the node's condition holds.
        right: The child of each node for rows where the condition does not hold.
        feature: Index of the feature that a node compares with its threshold.
        threshold: The t in a node's condition ``value <= t``.
        missing_left: Whether the condition counts as true for a value that is missing (NaN).
        value: Of a leaf its value; of an inner node the expected value of the rows that reach it.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    value: NDArray[np.float64]


@dataclass(frozen=True)
class DecisionTrees:
    """Decision trees whose values are summed to a score.

    Attributes:
        features: Names of the features, in the order of a row's columns.
        trees: The trees.
        base: A number that is added to every score.
        single: Whether values are compared in float32, as XGBoost does.
    """

    features: tuple[str, ...]
    trees: tuple[DecisionTree, ...]
    base: float = 0.0
    single: bool = False

    def with_names(self, names: Sequence[str]) -> DecisionTrees:
        """Return the same trees with other names of the features.

        Raises:
            ValueError: The number of names is not the number of features, or a name is not a text.
        """
        if len(names) != len(self.features) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"its description does not name its {len(self.features)} features")
        return replace(self, features=tuple(names))

    @property
    def used(self) -> frozenset[str]:
        """Names of the features that at least one tree compares."""
        return frozenset(self.features[at] for tree in self.trees for at in tree.feature[tree.left >= 0].tolist())

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of each row, float64 ``(n,)``.

        Args:
            rows: The features, ``(n, len(features))``; NaN where a value is missing.
        """
        walk = self.walk
        compared = self._compared(rows)
        missing = np.isnan(compared)
        # Twice the columns: a missing value is below every threshold in the first half, and below none in the second.
        values = np.concatenate([np.where(missing, -np.inf, compared), compared], axis=1)
        row = np.arange(len(rows)) * values.shape[1]
        flat = values.ravel()
        node = np.repeat(walk.roots[:, None], len(rows), axis=1)
        for _ in range(walk.depth):
            holds = flat.take(row + walk.column.take(node)) <= walk.threshold.take(node)
            node = walk.children.take(2 * node + holds)
        total: NDArray[np.float64] = walk.value.take(node).sum(axis=0)
        return total + self.base

    def contributions(self, row: NDArray[np.float64]) -> tuple[float, dict[str, float]]:
        """The expected score of any row, and by feature the number that this row's value adds to it; together they sum to the row's score."""
        start, added = self.base, dict[str, float]()
        values = self._compared(row[None])[0]
        for tree in self.trees:
            node = 0
            start += float(tree.value[0])
            while (left := int(tree.left[node])) >= 0:
                value = values[tree.feature[node]]
                holds = tree.missing_left[node] if np.isnan(value) else value <= tree.threshold[node]
                below = left if holds else int(tree.right[node])
                name = self.features[tree.feature[node]]
                added[name] = added.get(name, 0.0) + float(tree.value[below] - tree.value[node])
                node = below
        return start, added

    def _compared(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return rows.astype(np.float32).astype(np.float64) if self.single else rows

    @cached_property
    def walk(self) -> Walk:
        """The nodes of all trees one after the other, in shared arrays; a leaf is its own child."""
        roots = np.cumsum([0, *(len(tree.left) for tree in self.trees)])[:-1]
        column, threshold, children, value, deepest = [], [], [], [], 0
        for root, tree in zip(roots.tolist(), self.trees, strict=True):
            leaf = tree.left < 0
            nodes = np.arange(len(tree.left))
            sides = [np.where(leaf, nodes, side) + root for side in (tree.right, tree.left)]
            children.append(np.stack(sides, axis=1).ravel())
            column.append(np.where(leaf, 0, tree.feature + np.where(tree.missing_left, 0, len(self.features))))
            threshold.append(tree.threshold)
            value.append(tree.value)
            depth = [0] * len(tree.left)
            for node, first, second in zip(nodes.tolist(), tree.left.tolist(), tree.right.tolist(), strict=True):
                if first >= 0:  # a child comes behind its parent
                    depth[first] = depth[second] = depth[node] + 1
            deepest = max(deepest, *depth)
        return Walk(roots, deepest, *map(np.concatenate, (column, threshold, children, value)))


@dataclass(frozen=True)
class Walk:
    """The nodes of all trees in shared arrays, for the walk of many rows down all trees at once.

    Attributes:
        roots: Index of each tree's root.
        depth: Number of conditions on the longest path.
        column: Column of the values that a node compares. There are twice as many columns as features: in the first half a missing value goes left,
            in the second half right.
        threshold: The t in a node's condition ``value <= t``.
        children: The children of node i: at 2i for rows where the condition does not hold, at 2i + 1 for rows where it holds.
        value: Value of each node.
    """

    roots: NDArray[np.int64]
    depth: int
    column: NDArray[np.int64]
    threshold: NDArray[np.float64]
    children: NDArray[np.int64]
    value: NDArray[np.float64]


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
    if (depth := trees.walk.depth) * max(len(trees.trees), _STEPS // _DEEPEST) > _STEPS:
        raise _Refusal(f"its {len(trees.trees):,} trees are up to {depth:,} conditions deep, too slow for a search")
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
    left, right = ([*(count - 1 - at if at < 0 else at for at in side), *[-1] * len(values)] for side in (left, right))
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
    names = ("left_children", "right_children", "split_indices", "default_left")
    left, right, feature, default = (_whole(tree[name]) for name in names)
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
