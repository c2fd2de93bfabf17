"""The layout of the product: a class name is used once, a function's name says something, a folder holds few files, and every package is installed."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
#: Top package of every folder that is installed: "termweave.cli" -> the folder "cli".
FOLDERS = {package: ROOT / folder for package, folder in PYPROJECT["package-dir"].items()}
#: What a folder may hold, beside `__init__.py`.
MOST_FILES = 12
#: The verbs of the command line: a file for those of one job.
VERBS = "cli/verbs"
#: The kinds of models that are trained have one layout: the file of each task has the same name in all of them.
TRAINED = {"training/term_weights", "training/dense", "training/ranker"}
#: What remains to be renamed or split. Take an entry out once it is done; the tests below refuse entries that are not needed.
NAMES_USED_TWICE: set[str] = set()
LARGE_FOLDERS = {"search/features"}  # a file for each feature
FILES_OF_ONE_NAME: set[str] = set()
#: Names of functions that say neither what is done nor what is returned, and that no search finds.
VAGUE = {"of", "there", "own", "learned", "beyond", "waits"}


def sources():
    return sorted(path for folder in FOLDERS.values() for path in folder.rglob("*.py"))


def relative(path):
    return path.relative_to(ROOT).as_posix()


def packages():
    """Every folder of the product that holds modules."""
    return sorted({path.parent for path in sources()})


def test_a_class_name_is_used_once():
    places = defaultdict(list)
    for path in (*sources(), *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(relative(path))
    assert {"Engine", "Document", "Experiment"} <= set(places)  # the search itself works
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert set(twice) == NAMES_USED_TWICE, {name: twice.get(name) for name in set(twice) ^ NAMES_USED_TWICE}


def test_no_function_has_a_name_that_says_nothing():
    functions = {
        f"{relative(path)}: {node.name}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in VAGUE
    }
    assert functions == set()


def neighbours(first, second):
    """A package and one of its subpackages, or two subpackages of one package."""
    return first.parent == second or second.parent == first or (first.parent == second.parent != ROOT)


def test_no_two_files_of_one_name_in_neighbouring_packages():
    same = set()
    for first, second in combinations(packages(), 2):
        folders = {relative(first), relative(second)}
        if VERBS in folders or folders <= TRAINED or not neighbours(first, second):
            continue
        shared = {path.name for path in first.glob("*.py")} & {path.name for path in second.glob("*.py")}
        same |= {f"{relative(first)} and {relative(second)}: {name}" for name in shared - {"__init__.py", "__main__.py"}}
    assert same == FILES_OF_ONE_NAME


@pytest.mark.parametrize("folder", [relative(folder) for folder in packages() if relative(folder) != VERBS])
def test_a_folder_holds_few_files(folder):
    files = {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
    assert (len(files) > MOST_FILES) == (folder in LARGE_FOLDERS), sorted(files)


def test_every_package_is_installed():
    names = {
        ".".join((package, *folder.relative_to(top).parts))
        for package, top in FOLDERS.items()
        for folder in packages()
        if folder.is_relative_to(top)
    }
    listed = set(PYPROJECT["packages"])
    assert names - listed == set(), "add these to [tool.setuptools] packages in pyproject.toml"
    assert [name for name in sorted(listed) if not folder_of(name).is_dir()] == []


def folder_of(package):
    top = max((each for each in FOLDERS if package == each or package.startswith(f"{each}.")), key=len)
    return FOLDERS[top].joinpath(*package.removeprefix(top).strip(".").split("."))
