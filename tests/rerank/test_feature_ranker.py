"""Folders of feature rankers that are damaged or hostile end in a sentence when they are opened, not in a search."""

import json

import pytest

from termweave.encoders.manifest import Manifest, digest, write_manifest
from termweave.errors import TermweaveError
from termweave.rerank.feature_ranker import KIND, RATES, TREES, open_feature_ranker

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


def test_a_folder_by_hand(tmp_path):
    ranker = opened(tmp_path)
    assert ranker.reader.rates == {"d": (1.0, 2.0)}
    assert ranker.trees.used == {"clicks"}


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
