"""A feature of a search is one file: without it and its line, everything else stands; with one more, it is everywhere."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import combinations
from pathlib import Path

import pytest

from termweave.declared_settings import settings_of
from termweave.search.feature import Feature

ROOT = Path(__file__).parents[2]
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
#: A package that adds one of each.
OUTSIDE = ROOT / "tests" / "outside"
FEATURES = sorted(path.stem for path in (ROOT / "search" / "features").glob("*.py") if path.stem != "__init__")
#: Feature -> the trees without it: two for each, and no other feature is deleted from the same two, so that each stands without each other one.
TREES = 6
DELETED_IN = dict(zip(FEATURES, combinations(range(TREES), 2), strict=False))
#: Feature -> options whose answers have what it gives, too.
FALLS_WITH = {"totals": ("facets", "sort"), "explain": ("explain_words",)}
#: Imports everything of search, and plays each value of each option alone; prints the help, and what came out.
PROGRAM = """
import importlib, json, pkgutil, sys
import orjson
from backports import zstd
from click.testing import CliRunner
import termweave
assert termweave.__file__.startswith(sys.argv[1]), termweave.__file__
import termweave.search
for each in pkgutil.walk_packages(termweave.search.__path__, "termweave.search."):
    importlib.import_module(each.name)
from pathlib import Path
from termweave.cli import cli
from tests.search import cassette
every = cassette.cases
cassette.cases = lambda index: every(index)[:45]
from termweave.search.options import SearchOptions
names = {each.name for each in cassette.fields(SearchOptions)}
cassette.SENT = cassette.SENT & names
recording = orjson.loads(zstd.decompress(cassette.FILE.read_bytes()))
now = cassette.played("cassette-words", cassette.Cassette(recording["answers"]), cassette.tables(Path(sys.argv[2])))
was = recording["indices"]["cassette-words"]
own = set(sys.argv[3].split(","))
pairs = [(old, new) for old, new in zip(was, now[:-1]) if not own & set(old["options"])]
for each in (each["result"] for pair in pairs for each in pair):
    for part in sys.argv[4].split(","):
        each.pop(part, None)
wrong = [line for old, new in pairs for line in cassette.differences(old, new)]
result = CliRunner().invoke(cli, ["search", "--help"], catch_exceptions=False)
print(json.dumps({"help": result.output, "names": sorted(names), "compared": len(pairs), "wrong": wrong[:5]}))
"""


def program(text, *arguments, path=OUTSIDE, folder=ROOT):
    """Run a program in a process of its own, which finds packages on this path; OUTSIDE has one that adds one of each."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("tree_number", range(TREES))
def test_files_and_their_lines_can_be_deleted(tree_number, tmp_path):
    deleted = [feature for feature, trees in DELETED_IN.items() if tree_number in trees]
    tree = tmp_path / "termweave"
    tree.mkdir()
    for path in (ROOT / "termweave").iterdir():
        (tree / path.name).symlink_to(path)
    for name, folder in FOLDERS.items():
        if name not in {"termweave", "termweave.search"}:
            (tree / name.removeprefix("termweave.")).symlink_to(ROOT / folder)
    shutil.copytree(ROOT / "search", tree / "search", ignore=shutil.ignore_patterns("__pycache__"))
    text = (tree / "search" / "options.py").read_text(encoding="utf-8")
    declared, parts, falling = {}, set(), set()
    for feature in deleted:
        (tree / "search" / "features" / f"{feature}.py").unlink()
        (options,) = re.findall(rf"(?m)^from termweave.search.features.{feature} import (\w+)\n", text)
        text = re.sub(rf"(?m)^(from termweave.search.features.{feature} import .*|    {options},)\n", "", text)
        declared |= settings_of(owner := vars(import_module(f"termweave.search.features.{feature}"))[options])
        parts |= {each.part for each in Feature.__subclasses__() if each.Options is owner}
        falling |= {*declared, *FALLS_WITH.get(feature, ())}
    (tree / "search" / "options.py").write_text(text, encoding="utf-8")

    (tmp_path / "tables").mkdir()
    lists = (",".join(falling), ",".join(parts))
    done = program(PROGRAM, tree, tmp_path / "tables", *lists, path=f"{tmp_path}:{ROOT}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["wrong"] == []
    assert result["compared"] > 80
    assert declared.keys().isdisjoint(result["names"])
    for setting in declared.values():
        assert not re.search(rf"(?m)^  {re.escape(setting.flag)}(?![\w-])", result["help"])


SEARCHED = """
import json, sys
from collections import defaultdict
from click.testing import CliRunner
from starlette.testclient import TestClient
import termweave as tw
from termweave import engine, settings
from termweave.cli import cli
from termweave.search import Index
from termweave.search.results import json as results
from termweave.ui import application, parameters
from termweave.ui.serve_options import ServeOptions
from tools.generate_docs import openapi
url, name = sys.argv[1:]
index = tw.connect(url).index(name)
answer = index.answer("json functions", hide=["json-1", "json-2"], totals=True)
client = TestClient(application.create(engine.connect(settings.load(url=url)), ServeOptions()), base_url="http://127.0.0.1:8321")
address = f"index={name}&q=json+functions&hide=json-1"
document = openapi(defaultdict(dict))
(found,) = [each for each in document["paths"]["/api/search"]["get"]["parameters"] if each["name"] == "hide"]
run = CliRunner().invoke(cli, ["search", name, "json functions", "--hide", "json-1", "--url", url])
print(json.dumps({
    "help": CliRunner().invoke(cli, ["search", "--help"]).output,
    "signature": "hide" in Index.search.__signature__.parameters and "Ids of documents that are not shown." in Index.search.__doc__,
    "ids": [hit.id for hit in answer.hits], "json": results.search("json", answer, 1.0)["hidden"], "told": repr(answer),
    "run": list(index.run({"q": "json functions"}, hide=["json-1"]).scores["q"]),
    "explained": [index.explain("json functions", "json-1", hide=hide).rank for hide in ((), ["json-1"])],
    "line": run.output, "openapi": found["description"],
    "api": client.get(f"/api/search?{address}").json(), "page": client.get(f"/search?{address}").text,
    "filed": [each.name for each in parameters.SEARCH],
}))
"""


def test_a_feature_of_another_package_is_everywhere(index, tmp_path):
    done = program(SEARCHED, index.engine.url, index.name)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert re.search(r"(?m)^  --hide ID +Hide this document; repeatable\.", seen["help"])
    assert (seen["signature"], seen["json"], seen["openapi"]) == (True, 2, "Hide this document; repeatable.")
    assert not {"json-1", "json-2"} & {*seen["ids"]}
    assert len(seen["ids"]) == 10
    assert "2 hidden.\nSome may be hidden." in seen["told"].replace(f"{index.answer('json functions', totals=True).totals}\n", "")
    assert ["json-1" in seen["run"], "json-2" in seen["run"]] == [False, True]
    assert [rank > 0 for rank in seen["explained"]] == [True, False]
    assert "1 hidden." in seen["line"]
    assert "json-1" not in {hit["id"] for hit in seen["api"]["hits"]}
    assert (seen["api"]["hidden"], seen["api"]["warnings"]) == (1, ["Some may be hidden."])
    assert '<label>Hide <input name="hide" value="json-1"' in seen["page"]
    assert "Some may be hidden." in seen["page"]

    shutil.copytree(OUTSIDE, tmp_path / "outside")
    text = (OUTSIDE / "outside.py").read_text(encoding="utf-8")
    text = text.replace("    hide: Ann", "    pin: Ann").replace("options.hide", "options.pin")
    (tmp_path / "outside" / "outside.py").write_text(text, encoding="utf-8")
    search = "from termweave.cli import run; import sys; sys.exit(run(['search', sys.argv[2], 'json', '--url', sys.argv[1]]))"
    done = program(search, index.engine.url, index.name, path=tmp_path / "outside")
    assert done.returncode == 2
    assert "The search feature 'hide' and one of termweave both have the option 'pin'." in done.stderr
    assert "Traceback" not in done.stderr


#: Indexes a file that only the package can read with a signal of its own, and searches by it with a reranker and a feature.
EACH = """
import json, sys
from pathlib import Path
import termweave as tw
from click.testing import CliRunner
from termweave.cli import cli, run
from termweave.encoders.manifest import Manifest
from termweave import plugins
url, name, folder = sys.argv[1:]
Path(folder, "a.shouts").write_text("TEA! Water and leaves.\\nPOT! A kettle for tea, and more.\\n")
built = run(["index", f"{folder}/a.shouts", name, "--signals", "lexical,titles", "--url", url])
hits = tw.connect(url).index(name).search("tea pot", mode="titles", rerank="short", hide=["shout-1"])
parts = hits[0].explain()["parts"]
print(json.dumps({
    "built": built, "ids": [hit.id for hit in hits], "parts": [part["name"] for part in parts],
    "sum": sum(part["share"] for part in parts) - hits[0].score,
    "train": CliRunner().invoke(cli, ["train", "--help"]).output,
    "plan": CliRunner().invoke(cli, ["train", "margin", "--help"]).output,
    "runtime": plugins.load("encoders", "slow").__name__,
}))
"""


def test_another_package_adds_one_of_each(opensearch_engine, name, tmp_path):
    done = program(EACH, opensearch_engine.url, name, tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert (seen["built"], seen["ids"], seen["runtime"]) == (0, ["shout-2"], "Slow")
    assert {"titles", "short"} <= {*seen["parts"]}
    assert abs(seen["sum"]) < 1e-5
    assert "by a margin" in seen["train"]
