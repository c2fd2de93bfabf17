"""The features of candidates, each against its definition; folders of feature rankers that are damaged or hostile."""

import json
import math
from datetime import UTC, datetime

import numpy as np
import pytest

from termweave.encoders.manifest import Manifest, digest, write_manifest
from termweave.errors import TermweaveError, UsageError
from termweave.records import Encoding, TermWeights
from termweave.rerank import Rules, candidate_features, neighbourhood
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
