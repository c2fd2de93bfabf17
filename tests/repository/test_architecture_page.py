"""docs/architecture.md, ten-functions.md and CONTRIBUTING.md name files that exist; the first has every package, and the enforced layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = set(re.findall(r"^\| `([\w/]+)/` \|", PAGE, flags=re.MULTILINE))


def test_the_files_and_folders_named_exist():
    pages = (ROOT / "docs" / "architecture.md", ROOT / "docs" / "ten-functions.md", ROOT / "CONTRIBUTING.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    names = set(re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?)(?:: \w+)?`", text))
    assert len(names) > 110
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_every_package_folder_lies_in_a_folder_of_the_page():
    packages = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/__init__.py") if ".venv" not in path.parts}
    packages = {name for name in packages if not name.startswith(("tests", "build", "."))}
    assert packages - FOLDERS == set()


def test_the_layers_are_those_that_are_enforced():
    (contract,) = (each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    enforced = [[name.strip().removeprefix("termweave.") for name in re.split(r"[|:]", layer)] for layer in contract["layers"]]
    drawing = re.search(r"## The layers.*?```\n(.*?)```", PAGE, flags=re.DOTALL).group(1)
    lines = [line.split() for line in drawing.splitlines()]
    assert [line[: len(layer)] for line, layer in zip(lines, enforced, strict=True)] == enforced
