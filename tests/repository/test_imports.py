"""What is not imported: torch anywhere, compiled libraries before they are needed, private names of another package, files in a circle."""

import ast
import graphlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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


def modules():
    """Module -> file, of the whole product."""
    found = {}
    for folder in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values():
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(("termweave", *parts[parts[0] == "termweave" :])).removesuffix(".__init__")
            found[name] = file
    return found


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
