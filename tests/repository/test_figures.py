"""`make figures`: every command that a page names is in its list, every command of the list exists, and what was stopped begins again."""

import json
import re
import sys

import pytest

from benchmarks import figures
from benchmarks.figures import FIGURES, ROOT, Figures

#: No scripts of their own.
MODULES = {"figures", "reproduction_tables"}


def scripts(text):
    """The scripts that a page names, without those that it names at the commit that last had them."""
    return set(re.findall(r"benchmarks/([a-z_]+)\.py(?!` at [0-9a-f]{7})", text))


def test_every_script_that_a_page_names_is_in_the_list():
    listed = {each.command.split(".py")[0] for each in FIGURES if ".py" in each.command}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert scripts(page.read_text(encoding="utf-8")) - MODULES <= listed, page.name
    assert len({each.name for each in FIGURES}) == len(FIGURES)
    for each in FIGURES:
        for page in each.page.split(", "):
            text = (ROOT / page).read_text(encoding="utf-8")
            script = each.command.split()[0]
            assert script in text or each.command.startswith("train"), (each.name, page)


def gains(section):
    return [line for line in section.splitlines() if re.search(r"^\|.*\|\s*[+-]0?\.\d{3}", line)]


def test_every_table_of_gains_says_which_sets_chose_the_settings():
    said = re.compile(r"had (a|no|that) say|No (default|setting) was chosen")
    pages = [(ROOT / "README.md"), *(ROOT / "docs").glob("*.md")]
    found = 0
    for page in pages:
        head, *sections = re.split(r"(?m)^(?=## )", page.read_text(encoding="utf-8"))
        for section in (head, *sections):
            found += bool(gains(section))
            assert not gains(section) or said.search(section) or said.search(head), (page.name, section.splitlines()[0])
    assert found >= 3


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Two commands in place of the list, the second of which fails until a file is there."""
    (tmp_path / "good.py").write_text("print('text'); print('| a | b |'); print('|---|---:|'); print('| c | 1 |')")
    flag = tmp_path / "flag"
    (tmp_path / "bad.py").write_text(f"import pathlib, sys; print('half'); sys.exit(not pathlib.Path({str(flag)!r}).exists())")
    rows = [Figures(name, "README.md", "a", f"{tmp_path}/{script}.py") for name, script in (("one", "good"), ("two", "bad"))]
    for name, value in (("FIGURES", rows), ("HOME", tmp_path / "home"), ("RESULTS", tmp_path / "results")):
        monkeypatch.setattr(figures, name, value)
    return flag


def test_what_is_done_stays_and_what_failed_begins_again(two, monkeypatch, capsys):
    def made(status, *arguments):
        monkeypatch.setattr(sys, "argv", ["figures.py", *arguments])
        assert figures.main() == status
        return capsys.readouterr().out

    assert "Failed: two." in made(1)
    result = json.loads((figures.RESULTS / "one.json").read_text())
    assert (result["tables"], result["what"]) == ([[["a", "b"], ["c", "1"]]], "a")
    assert re.fullmatch("[0-9a-f]{40}", result["commit"])
    assert not (figures.HOME / "two.txt").exists()
    two.touch()
    printed = made(0)
    assert "one: " not in printed.replace("done: ", "")
    assert "All is done" in printed
    monkeypatch.setattr(figures, "_shipped", lambda: "another model")
    assert made(0, "--list").count("to do") == 2
    with pytest.raises(SystemExit):
        made(0, "three")


def test_a_result_is_compared_with_the_one_before(two, tmp_path, capsys):
    for shown, changed in (("1", 2), ("1", 0), ("2", 1)):
        (tmp_path / "good.py").write_text(f"print('| a | b |'); print('|---|---:|'); print('| c | {shown} |')")
        assert figures.made(figures.FIGURES[0], tmp_path, tmp_path)
        assert f"{changed} of 2 rows differ" in capsys.readouterr().out
