"""Boosted decision trees: read what LightGBM and XGBoost write, score rows, and say what each feature adds. It needs neither library.

All rows walk down all trees together, a level at a time. 100 rows and 100 trees of 15 leaves take about a millisecond.

The contributions follow the path of a row: each condition adds the difference between the expected values below and above it to its
feature (Saabas 2014). With the value at the roots they sum to the score.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

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


@dataclass(frozen=True)
class DecisionTree:
    """One tree. Node 0 is the root; a leaf has the children -1.

    Attributes:
        left: Child of each node where its condition holds.
        right: Child where it does not.
        feature: Index of the feature that a node compares.
        threshold: The condition is ``value <= threshold``.
        missing_left: Whether the condition holds for a value that is not a number.
        value: Value of a leaf; of an inner node the expected value of the rows that reach it.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    value: NDArray[np.float64]


@dataclass(frozen=True)
class DecisionTrees:
    """Trees whose values are summed.

    Attributes:
        features: Names of the features, in the order of the columns.
        trees: The trees.
        base: Added to every score.
        single: Whether values are compared in float32, as XGBoost does.
    """

    features: tuple[str, ...]
    trees: tuple[DecisionTree, ...]
    base: float = 0.0
    single: bool = False

    def named(self, names: Sequence[str]) -> DecisionTrees:
        """The same trees with other names of the features.

        Raises:
            ValueError: These are more or fewer, or no texts.
        """
        if not all(isinstance(name, str) for name in names):
            raise ValueError("its description names features that are no texts")
        if len(names) != len(self.features):
            raise ValueError(f"it has {len(self.features)} features, and its description names {len(names)}")
        return replace(self, features=tuple(names))

    @property
    def used(self) -> frozenset[str]:
        """The features that a tree compares."""
        return frozenset(self.features[at] for tree in self.trees for at in tree.feature[tree.left >= 0].tolist())

    def scores(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of each row.

        Args:
            rows: ``(n, len(features))``; NaN where a value is missing.
        """
        walk = self._walk
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
        """What a row would score if nothing were known of it, and what each feature that its paths ask for adds to that."""
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

    @property
    def depth(self) -> int:
        """Conditions on the longest path."""
        return self._walk.depth

    @cached_property
    def _walk(self) -> _Walk:
        """The nodes of all trees in one row; a leaf leads to itself."""
        roots = np.cumsum([0, *(len(tree.left) for tree in self.trees)])[:-1]
        column, threshold, children, value, deepest = [], [], [], [], 0
        for root, tree in zip(roots.tolist(), self.trees, strict=True):
            leaf = tree.left < 0
            own = np.arange(len(tree.left))
            sides = [np.where(leaf, own, side) + root for side in (tree.right, tree.left)]
            children.append(np.stack(sides, axis=1).ravel())
            column.append(np.where(leaf, 0, tree.feature + np.where(tree.missing_left, 0, len(self.features))))
            threshold.append(tree.threshold)
            value.append(tree.value)
            depth = [0] * len(tree.left)
            for node, first, second in zip(own.tolist(), tree.left.tolist(), tree.right.tolist(), strict=True):
                if first >= 0:  # a child comes behind its parent
                    depth[first] = depth[second] = depth[node] + 1
            deepest = max(deepest, *depth)
        return _Walk(
            roots, np.concatenate(column), np.concatenate(threshold), np.concatenate(children), np.concatenate(value), deepest
        )


@dataclass(frozen=True)
class _Walk:
    """The nodes of all trees as arrays.

    Attributes:
        roots: Node of each tree's root.
        column: Column that a node compares: of the first half where a missing value goes left.
        threshold: The condition is ``value <= threshold``.
        children: Of node i at 2i the child where the condition does not hold, and behind it the other.
        value: Value of each node.
        depth: Conditions on the longest path.
    """

    roots: NDArray[np.int64]
    column: NDArray[np.int64]
    threshold: NDArray[np.float64]
    children: NDArray[np.int64]
    value: NDArray[np.float64]
    depth: int


def content_of(file: Path) -> str:
    """The text of a file of trees, for `read`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is too large, or not text.
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
        ValueError: The text is neither, or too large, or the trees split by categories, or by something else that is not a number.
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
    """What is wrong with a model, in words for people; other errors name what Python could not do."""


def _checked(names: Sequence[Any], count: int, trees: Iterable[DecisionTree]) -> tuple[DecisionTree, ...]:
    """The trees, made one by one until there are too many.

    Raises:
        ValueError: They are too many, or one does not hold what a tree holds.
    """
    if len(names) > MOST_FEATURES:
        raise _Refusal(f"it has more than {MOST_FEATURES:,} features")
    if count > MOST_TREES:
        raise _Refusal(f"it has more than {MOST_TREES:,} trees")
    checked, nodes = [], 0
    for tree in trees:
        nodes += len(tree.left)
        _check_count(nodes)
        _check(tree, len(names))
        checked.append(tree)
    return tuple(checked)


def _check_count(nodes: int) -> None:
    if nodes > MOST_NODES:
        raise _Refusal(f"it has more than {MOST_NODES:,} nodes")


def _check(tree: DecisionTree, features: int) -> None:
    """Refuse a tree with a node that is not there, is reached twice or compares a feature that is not there, and values that are not numbers."""
    inner = tree.left >= 0
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    if sorted(children.tolist()) != list(range(1, len(tree.left))) or (children <= np.tile(np.flatnonzero(inner), 2)).any():
        raise _Refusal(_BROKEN)
    if ((tree.feature[inner] < 0) | (tree.feature[inner] >= features)).any():
        raise _Refusal("a tree compares a feature that has no name")
    if not (np.abs(tree.value) <= _LARGEST).all() or np.isnan(tree.threshold[inner]).any():
        raise _Refusal(f"a tree holds something that is not a number, or is above {_LARGEST:g}")


def _whole(values: Sequence[Any]) -> NDArray[np.int64]:
    """Whole numbers; TypeError for anything else, because a number such as 0.7 is no place."""
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
    """LightGBM numbers inner nodes from 0 and leaves as -1, -2 and so on; here leaves follow the inner nodes."""
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
    return _tree(
        [[count - 1 - child if child < 0 else child for child in side] for side in (left, right)],
        features,
        thresholds,
        missing,
        [*expected, *values],
    )


def _tree(
    children: Sequence[Sequence[int]],
    features: Sequence[int],
    thresholds: Sequence[float],
    missing: Sequence[bool],
    values: Sequence[float],
) -> DecisionTree:
    """A tree whose inner nodes come first, its nodes numbered anew so that no child comes before its parent."""
    order, inner = [0], len(features)
    for node in order:
        if node < inner:
            order += [children[0][node], children[1][node]]
        if len(order) > len(values):
            raise _Refusal(_BROKEN)
    place = {node: at for at, node in enumerate(order)}
    rows = [
        (place[children[0][node]], place[children[1][node]], features[node], thresholds[node], missing[node], values[node])
        if node < inner
        else (-1, -1, 0, 0.0, False, values[node])
        for node in order
    ]
    kinds = (np.int64, np.int64, np.int64, np.float64, np.bool_, np.float64)
    return DecisionTree(*(np.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)))


def _xgboost(model: Mapping[str, Any]) -> DecisionTrees:
    learner = model["learner"]
    facts = learner["learner_model_param"]
    if int(facts.get("num_class", 0)) > 1 or int(facts.get("num_target", 1)) > 1:
        raise _Refusal(_CLASSES)
    booster = learner["gradient_booster"]["model"]
    best = learner.get("attributes", {}).get(
        "best_iteration"
    )  # XGBoost's own rankers predict without what early stopping added to it
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
    """XGBoost's condition is ``value < threshold`` in float32: ``value <=`` the number before it. Nodes that pruning cut off are left out."""
    if any(tree.get("split_type", [])):
        raise _Refusal("its trees split by categories")
    _check_count(len(tree["left_children"]))
    left, right, feature, default = (
        _whole(tree[name]) for name in ("left_children", "right_children", "split_indices", "default_left")
    )
    limits, weight = np.array(tree["split_conditions"], np.float32), np.array(tree["sum_hessian"], np.float64)
    if any(column.shape != left.shape for column in (right, feature, default, limits, weight)):
        raise _Refusal(_BROKEN)
    order, children = [0], list(zip(left.tolist(), right.tolist(), strict=True))
    for node in order:
        if children[node][0] >= 0:
            order += children[node]
        if len(order) > len(children) or order[-1] < 0:
            raise _Refusal(_BROKEN)
    place = np.zeros(len(left), np.int64)
    place[order] = np.arange(len(order))
    is_leaf = left[order] < 0
    value, hessians = limits.astype(np.float64).tolist(), weight.tolist()
    lowest, highest = limits[order][is_leaf].min(), limits[order][is_leaf].max()
    for node in reversed(order):  # an inner node is worth the mean of its leaves
        first, second = children[node]
        if first >= 0:
            total = hessians[first] + hessians[second]
            one, other = (hessians[first] / total, hessians[second] / total) if total > 0 else (0.5, 0.5)
            value[node] = min(max(one * value[first] + other * value[second], lowest), highest)
            hessians[node] = total
    return DecisionTree(
        np.where(is_leaf, -1, place[left[order]]),
        np.where(is_leaf, -1, place[right[order]]),
        feature[order],
        np.nextafter(limits[order], np.float32(-np.inf)).astype(np.float64),
        default[order].astype(np.bool_),
        np.array(value)[order],
    )
