"""Run files: what a spreadsheet would run as a formula, and what a column cannot hold, is percent-encoded and read back."""

from termweave.evaluation import runs
from termweave.records import Run

IDS = (
    "\ufeffmark",
    "=HYPERLINK(0)",
    "@SUM(1)",
    "a b",
    "100%",
    "tab\there",
    "line\nbreak",
    "a=b",
    "-5",
    "+1",
    "caf\u00e9",
    "nul\0byte",
)


def test_no_column_of_a_run_is_a_formula_of_equals_or_at(tmp_path):
    made = Run("=name", {query: dict.fromkeys(IDS, 1.0) for query in IDS})
    runs.write(made, tmp_path / "run.trec")
    columns = [line.split(" ") for line in (tmp_path / "run.trec").read_text(encoding="utf-8").splitlines()]
    assert {len(row) for row in columns} == {6}
    assert not any(cell.startswith(("=", "@")) or "\0" in cell for row in columns for cell in row)
    again = runs.read(tmp_path / "run.trec")
    assert list(again.scores) == list(IDS)
    assert list(again.scores[IDS[0]]) == list(IDS)
