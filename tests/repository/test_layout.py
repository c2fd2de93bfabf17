"""The layout of the product: names, folders and packages; what is not imported: torch anywhere, private names of another package, a circle."""

from __future__ import annotations

import ast
import doctest
import graphlib
import importlib
import subprocess
import sys
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


def modules():
    """Module -> file, of the whole product."""
    names = {
        path: [top, *path.relative_to(folder).with_suffix("").parts]
        for top, folder in FOLDERS.items()
        for path in folder.rglob("*.py")
    }
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in names.items()}


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


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


def test_encoding_needs_no_torch():
    loaded = modules_after("from termweave.encoders import load; load(threads=1).encode(['a cat'], kind='document')")
    assert not loaded & {"torch", "transformers", "onnx"}


@pytest.mark.parametrize(
    "code", ["import termweave", "import termweave.encoders", "import termweave.cli.verbs.search, termweave.cli.verbs.models"]
)
def test_importing_opens_nothing(code):
    assert not modules_after(code) & {"torch", "onnxruntime", "tokenizers", "Stemmer", "transformers", "orjson"}


def test_listing_training_methods_needs_no_torch():
    """A method's file holds its loss, too; the declaration is read without torch and numpy."""
    code = "from termweave.training.methods import base; [base.get(name).settings({}) for name in base.names()]"
    assert not modules_after(code) & {"torch", "numpy", "transformers"}


class RunImports(ast.NodeVisitor):
    """The modules that a file imports when it runs: at module level or in a function, but not for type checkers alone."""

    def __init__(self, known):
        self.known, self.found = known, set()

    def visit_If(self, node):
        for each in node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else [*node.body, *node.orelse]:
            self.visit(each)

    def visit_Import(self, node):
        self.found |= {name.name for name in node.names} & self.known

    def visit_ImportFrom(self, node):
        names = {f"{node.module}.{name.name}" for name in node.names}
        self.found |= names & self.known or {node.module} & self.known


def test_what_a_base_install_runs_imports_nothing_of_the_extra_train():
    """Only what makes models, and what trains them, does; it is entered behind a check for the extra."""
    names = [name for name in modules() if not name.startswith(("termweave.training.", "termweave.encoders.models."))]
    blocked = f"import sys; sys.modules |= dict.fromkeys({['torch', 'transformers', 'safetensors', 'onnx', 'lightgbm']!r})"
    assert "termweave" in modules_after(f"{blocked}\nimport importlib\nfor name in {names!r}: importlib.import_module(name)")


def test_no_files_import_each_other_in_a_circle():
    """An import inside a function counts: it only hides the circle. Imports for type checkers do not, because they never run."""
    files = modules()
    graph = {}
    for module, file in files.items():
        visitor = RunImports(set(files))
        visitor.visit(ast.parse(file.read_text(encoding="utf-8")))
        graph[module] = visitor.found
    assert "termweave.encoders.manifest" in graph["termweave.encoders.kinds"]  # the search itself works
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the files


def private_names(path):
    """(line, module, name) of every private name that a file takes from a module of termweave."""
    modules, taken = {}, []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("termweave"):
            modules |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
            taken += [(node.lineno, node.module, name.name) for name in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            taken.append((node.lineno, modules[node.value.id], node.attr))
    return [(line, module, name) for line, module, name in taken if name.startswith("_") and not name.startswith("__")]


def test_benchmarks_and_tests_of_other_packages_use_public_names():
    """A change inside a package breaks only the tests of that package."""
    wrong, own = [], 0
    for path in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        folder = path.relative_to(ROOT).parts[1]
        for line, module, name in private_names(path):
            part = module.split(".")[1]
            package = part if (ROOT / part).is_dir() else "termweave"
            if folder == package:
                own += 1
            else:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {module}.{name}")
    assert own  # the search itself works
    assert wrong == []


WITH_EXAMPLES = [name for name, path in sorted(modules().items()) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings_hold(name):
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted or name == "termweave.engine.pytest_plugin"  # its example is a test of somebody else
    assert not found.failed
