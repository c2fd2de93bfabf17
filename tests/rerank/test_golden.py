"""The golden cases: outputs of the authors' program, and its rules with ties by index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from termweave.rerank import neighbourhood, reciprocal

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "rnn"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden cases stand beside the project and are not here")

INDEX = json.loads((GOLDEN / "index.json").read_text()) if GOLDEN.is_dir() else {"cases": [], "configs": {}}
CASES = [
    (case, config) for case in INDEX["cases"] for config in INDEX["configs"] if list(GOLDEN.glob(f"{case['case']:02d}_*.npz"))
]


def options(config: str) -> dict[str, object]:
    values = INDEX["configs"][config]
    return {
        "k": values["k"],
        "k_exp": values["k_exp"],
        "tau": values["trust_factor"],
        "weight_function": values["weight_func"],
        "weight_parameter": values["weight_func_param"],
        "normalize": None if values["normalization"] == "None" else values["normalization"],
    }


@pytest.mark.parametrize(("case", "config"), CASES, ids=lambda value: value if isinstance(value, str) else value["name"])
def test_agrees_with_the_golden_values(case, config):
    (file,) = GOLDEN.glob(f"{case['case']:02d}_*.npz")
    data = np.load(file)
    weight = INDEX["configs"][config]["orig_coef"]
    found = neighbourhood(data["query"], data["docs"], **options(config))
    final = reciprocal(data["query"], data["docs"], weight=weight, **options(config))
    clean = case[config]["clean"]
    key = "jaccard" if clean else "spec_jaccard_index_ties"
    expected = np.nan_to_num(data[f"{config}__{key}"], nan=0.0)[-len(final) :]
    np.testing.assert_allclose(found.jaccard, expected, atol=1e-5, rtol=0)
    expected_final = data[f"{config}__final" if clean else f"{config}__spec_final_index_ties"]
    known = np.isfinite(expected_final)
    np.testing.assert_allclose(final[known], expected_final[known], rtol=1e-5, atol=1e-5)


def test_cases_were_found():
    assert len(CASES) >= 60
