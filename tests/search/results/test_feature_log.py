"""Features of candidates in files for other tools."""

import numpy as np

from termweave.search.results import feature_log
from termweave.search.results.feature_log import CandidateFeatures


def test_a_line_end_in_an_id_or_a_value_does_not_break_a_line(tmp_path):
    path = tmp_path / "features.txt"
    with feature_log.created(path, ["score", "metadata.brand=two\nlines"]) as log:
        log.add("a\nquery", CandidateFeatures(["d\n1", "d2"], np.array([[0.5, np.nan], [0.25, 1.0]])))
    assert path.read_text().splitlines() == [
        "# 1 score",
        "# 2 metadata.brand=two lines",
        "0 qid:1 1:0.5 # a query d 1",
        "0 qid:1 1:0.25 2:1 # a query d2",
    ]
