"""README.md, the tutorials, docs/python.md and the notebook: their examples run, and print what the pages show."""

import ast
import doctest
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial.md", pytest.param("docs/tutorial-learning.md", marks=pytest.mark.nightly))
#: Differs from run to run: the name of a generation, how long the build took, and what training reaches.
VARYING = (
    (r"-\d{14}-[0-9a-f]{8}\b", "-GENERATION"),
    (r"sent in [\d.]+ s(, \d+/s)?", "sent in TIME"),
    (r"[\d.]+ after \(.*\)", "REACHED after"),
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def steps(page):
    """The commands of the console blocks, each with the lines that the page shows below it."""
    shown = "".join(re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL))
    return [tuple(part.partition("\n")[::2]) for part in re.split(r"^\$ ", shown, flags=re.MULTILINE) if part]


def lines_and_numbers(output):
    """The lines without their numbers, and the numbers.

    Lines are sorted because standard output and standard error have no order between each other; numbers stand apart because the last
    digit that is printed may be rounded otherwise: the server adds vectors in another order once its code is compiled.
    """
    for pattern, replacement in VARYING:
        output = re.sub(pattern, replacement, output)
    lines = sorted((NUMBER.sub("N", line.rstrip()), NUMBER.findall(line)) for line in output.splitlines() if line.strip())
    return [text for text, _ in lines], [float(number) for _, numbers in lines for number in numbers]


@pytest.mark.parametrize("page", PAGES)
def test_the_example_prints_what_the_page_shows(page, opensearch_engine, tmp_path):
    name = f"kitchen{uuid.uuid4().hex[:8]}"
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "termweave"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m termweave "$@"\n')
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    own = {"OPENSEARCH_URL": opensearch_engine.url, "PATH": path, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment = {**os.environ, **own}
    assert {"index", "search"} <= {line.split()[1] for line, _ in steps(page)}
    try:
        for line, expected in steps(page):
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8"}
            patience = 1500 if "learn" in line else 600
            command = line.replace("kitchen", name)
            ended = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True, timeout=patience, **streams)
            printed, printed_numbers = lines_and_numbers(ended.stdout.replace(name, "kitchen"))
            shown, shown_numbers = lines_and_numbers(expected)
            assert printed == shown, line
            assert printed_numbers == pytest.approx(shown_numbers, rel=1e-4, abs=2e-4), line
    finally:
        opensearch_engine.request("DELETE", f"/{name}-*", params={"expand_wildcards": "all"})


@pytest.fixture
def beside(opensearch_engine, tmp_path, monkeypatch):
    """An empty folder, the server at hand, and nothing left of what the page makes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    yield
    opensearch_engine.request("DELETE", "/tea-notes-*", params={"expand_wildcards": "all"})


@pytest.mark.usefixtures("beside")
def test_the_examples_of_python_give_what_the_page_says():
    result = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert result.attempted >= 30
    assert result.failed == 0


@pytest.mark.usefixtures("beside")
def test_the_notebook_runs_from_top_to_bottom_and_shows_tables():
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
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
    exec(compile(ast.Module(statements, []), "notebook.ipynb", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "notebook.ipynb", "eval"), names)
    exec(compile(ast.Module([last], []), "notebook.ipynb", "exec"), names)
    return None
