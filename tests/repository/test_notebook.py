"""docs/notebook.ipynb runs from top to bottom, and what it shows is a table."""

import ast
import json
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@pytest.mark.engine
def test_the_notebook_runs_from_top_to_bottom(opensearch_engine, monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    notebook = json.loads(PAGE.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names, shown = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []  # outputs would grow old
            shown.append(_run("".join(cell["source"]), names))
    assert sum("<table>" in value._repr_html_() for value in shown if hasattr(value, "_repr_html_")) == 2


def _run(source, names):
    """Run a cell; returns the value of its last line, which a notebook shows."""
    *statements, last = ast.parse(source).body
    exec(compile(ast.Module(statements, []), PAGE.name, "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names)
    exec(compile(ast.Module([last], []), PAGE.name, "exec"), names)
    return None
