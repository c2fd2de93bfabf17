"""A feature of a search is one file: without it and its line, everything else stands; with one more, it is everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

import pytest

from termweave.declared_settings import Setting, settings_of
from termweave.search.feature import Feature, Search, features_of
from termweave.search.options import SearchOptions
from termweave.search.retrieval.plan import Retrieval

ROOT = Path(__file__).parents[2]
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
#: A package that adds one of each.
OUTSIDE = ROOT / "tests" / "outside"
FEATURES = sorted(path.stem for path in (ROOT / "search" / "features").glob("*.py") if path.stem != "__init__")
#: Feature -> options whose answers have what it gives, too.
FALLS_WITH = {"totals": ("facets", "sort"), "explain": ("explain_words",)}
#: Features that take part in every search, because others or a profile may ask for what they do.
ALWAYS = ["Explanation", "CountedTotals", "Rewritten"]
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
    each.pop(sys.argv[4], None)
wrong = [line for old, new in pairs for line in cassette.differences(old, new)]
result = CliRunner().invoke(cli, ["search", "--help"], catch_exceptions=False)
print(json.dumps({"help": result.output, "names": sorted(names), "compared": len(pairs), "wrong": wrong[:5]}))
"""


def program(text, *arguments, path=OUTSIDE, folder=ROOT):
    """Run a program in a process of its own, which finds packages on this path; OUTSIDE has one that adds one of each."""
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("feature", FEATURES)
def test_one_file_and_its_line_can_be_deleted(feature, tmp_path):
    tree = tmp_path / "termweave"
    tree.mkdir()
    for path in (ROOT / "termweave").iterdir():
        (tree / path.name).symlink_to(path)
    for name, folder in FOLDERS.items():
        if name not in {"termweave", "termweave.search"}:
            (tree / name.removeprefix("termweave.")).symlink_to(ROOT / folder)
    for path in (ROOT / "search").rglob("*.py"):
        copy = tree / "search" / path.relative_to(ROOT / "search")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tree / "search" / "features" / f"{feature}.py").unlink()
    text = (tree / "search" / "options.py").read_text(encoding="utf-8")
    (options,) = re.findall(rf"(?m)^from termweave.search.features.{feature} import (\w+)\n", text)
    text = re.sub(rf"(?m)^(from termweave.search.features.{feature} import .*|    {options},)\n", "", text)
    (tree / "search" / "options.py").write_text(text, encoding="utf-8")
    declared = settings_of(owner := vars(import_module(f"termweave.search.features.{feature}"))[options])
    (part,) = (each.part for each in Feature.__subclasses__() if each.Options is owner)

    (tmp_path / "tables").mkdir()
    falling = ",".join((*declared, *FALLS_WITH.get(feature, ())))
    done = program(PROGRAM, tree, tmp_path / "tables", falling, part, path=f"{tmp_path}:{ROOT}", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["wrong"] == []
    assert result["compared"] > 80
    assert declared.keys().isdisjoint(result["names"])
    for setting in declared.values():
        assert not re.search(rf"(?m)^  {re.escape(setting.flag)}(?![\w-])", result["help"])


@dataclass(frozen=True, kw_only=True)
class ShortOptions:
    """A feature from outside.

    Attributes:
        short: The most hits.
    """

    short: Annotated[int | None, Setting("Show at most this many hits.", "COUNT")] = None


@dataclass(frozen=True, kw_only=True)
class WithShort(ShortOptions, SearchOptions):
    """The options of a search, and one more."""


def test_a_feature_takes_part_where_its_options_stand_and_one_of_them_is_set():
    class Short(Feature[ShortOptions]):
        Options = ShortOptions

        def rank(self, ranking):
            return replace(ranking, places=ranking.places[: self.options.short])

    search = Search(None, "docs", None, None, Retrieval((), 100))
    both = [type(each).__name__ for each in features_of(WithShort(short=2, collapse="kind"), search)]
    assert both == ["Short", "Collapse", *ALWAYS]
    assert [type(each).__name__ for each in features_of(WithShort(), search)] == ALWAYS
    assert {each.name for each in fields(WithShort)} - {each.name for each in fields(SearchOptions)} == {"short"}


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
    assert seen["signature"] is True
    assert not {"json-1", "json-2"} & {*seen["ids"]}
    assert len(seen["ids"]) == 10
    assert seen["json"] == 2
    assert "2 hidden.\nSome may be hidden." in seen["told"].replace(f"{index.answer('json functions', totals=True).totals}\n", "")
    assert "json-1" not in seen["run"]
    assert "json-2" in seen["run"]
    assert seen["explained"][0] > 0
    assert seen["explained"][1] == 0
    assert "1 hidden." in seen["line"]
    assert seen["openapi"] == "Hide this document; repeatable."
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
    assert "The search feature 'hide' has the option 'pin', and so has another one of termweave." in done.stderr
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
