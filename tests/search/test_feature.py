"""A feature of a search is one file: without it and its line, everything else stands; with one more, it is everywhere."""

from __future__ import annotations

import json
import os
import re
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

ROOT = Path(__file__).parents[2]
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
FEATURES = sorted(path.stem for path in (ROOT / "search" / "features").glob("*.py") if path.stem != "__init__")
#: Feature -> options whose answers have what it gives, too.
FALLS_WITH = {"totals": ("facets", "sort")}
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
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(tree),
            str(tmp_path / "tables"),
            ",".join((*declared, *FALLS_WITH.get(feature, ()))),
            part,
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["wrong"] == []
    assert result["compared"] > 80
    assert declared.keys().isdisjoint(result["names"])
    for setting in declared.values():
        assert not re.search(rf"(?m)^  {re.escape(setting.flag)}\b", result["help"])


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

    search = Search(None, "docs", None, None)
    assert [type(each).__name__ for each in features_of(WithShort(short=2, collapse="kind"), search)] == [
        "Short",
        "Collapse",
        "CountedTotals",
    ]
    assert [type(each).__name__ for each in features_of(WithShort(), search)] == ["CountedTotals"]
    assert {each.name for each in fields(WithShort)} - {each.name for each in fields(SearchOptions)} == {"short"}
