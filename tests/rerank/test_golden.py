"""The golden cases: outputs of the authors' program, and its rules with ties by index."""

import json
from pathlib import Path

import numpy as np
import pytest

from termweave.rerank import Rules, evidence, labels, neighbourhood, reciprocal

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "rnn"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden cases stand beside the project and are not here")

INDEX = json.loads((GOLDEN / "index.json").read_text()) if GOLDEN.is_dir() else {"cases": [], "configs": {}}
CASES = [
    (case, config) for case in INDEX["cases"] for config in INDEX["configs"] if list(GOLDEN.glob(f"{case['case']:02d}_*.npz"))
]


def load(folder, stem):
    (file,) = (GOLDEN.parent / folder).glob(f"{stem}.npz")
    with np.load(file) as data:
        return dict(data)


def rules(config):
    values = INDEX["configs"][config]
    normalize = None if values["normalization"] == "None" else values["normalization"]
    weighted = {"weight_function": values["weight_func"], "weight_parameter": values["weight_func_param"], "normalize": normalize}
    return Rules(k=values["k"], k_exp=values["k_exp"], tau=values["trust_factor"], **weighted)


def name_of(value):
    return value if isinstance(value, str) else value["name"]


@pytest.mark.parametrize(("case", "config"), CASES, ids=name_of)
def test_agrees_with_the_golden_values(case, config):
    data = load("rnn", f"{case['case']:02d}_*")
    weight = INDEX["configs"][config]["orig_coef"]
    found = neighbourhood(data["query"], data["docs"], rules(config))
    final = reciprocal(data["query"], data["docs"], weight=weight, rules=rules(config))
    clean = case[config]["clean"]
    key = "jaccard" if clean else "spec_jaccard_index_ties"
    expected = np.nan_to_num(data[f"{config}__{key}"], nan=0.0)[-len(final) :]
    np.testing.assert_allclose(found.jaccard, expected, atol=1e-5, rtol=0)
    expected_final = data[f"{config}__final" if clean else f"{config}__spec_final_index_ties"]
    known = np.isfinite(expected_final)
    np.testing.assert_allclose(final[known], expected_final[known], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("truths", ["soft_gt1", "soft_gt3"])
@pytest.mark.parametrize(("case", "config"), [(case, config) for case, config in CASES if case[config]["clean"]], ids=name_of)
def test_soft_evidence_agrees_with_the_golden_values(case, config, truths):
    data, weight = load("rnn", f"{case['case']:02d}_*"), INDEX["configs"][config]["orig_coef"]
    relevant, grades = (data[f"{config}__{truths}_{part}"].tolist() for part in ("docs", "rel"))
    found = evidence(data["query"], data["docs"], relevant, grades=grades, weight=weight, rules=rules(config))
    np.testing.assert_allclose(found, data[f"{config}__{truths}"], rtol=1e-5, atol=1e-5)


LABELS = [
    (file.stem, normalize, boost, keep)
    for file in sorted(GOLDEN.with_name("labels").glob("*.npz"))
    for normalize in ("max-min", "std", None)
    for boost, keep in ((1.222, 4), (1.525, 32))
]


@pytest.mark.parametrize(("name", "normalize", "boost", "keep"), LABELS)
def test_labels_agree_with_the_golden_values(name, normalize, boost, keep):
    data = load("labels", name)
    expected = data[f"alg1_{normalize.replace('-', '') if normalize else 'none'}_b{boost}_n{keep}"]
    found = labels(data["scores"], data["gt"].tolist(), boost=boost, keep=keep, normalize=normalize)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_cases_were_found():
    assert len(CASES) >= 60
    assert len(LABELS) >= 12
