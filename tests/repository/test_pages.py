"""The pages: links lead somewhere, files that they name exist, terms are explained, packages and layers are those of the project, examples run."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import termweave as tw
from termweave import corpora
from termweave.indexer import BuildOptions, build

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: `folder/file.py` in backticks; commands and addresses hold blanks or colons and are left out, and so is a file "at" an earlier commit.
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|yml|toml))`(?! at [0-9a-f]{7})")


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page):
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """The fragments that a page's headings give, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        linked = (page.parent / name) if name else page
        assert linked.exists(), target
        if fragment:
            assert fragment in anchors(linked), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_on_a_page_exist(page):
    for name in NAMED_FILE.findall(text_of(page)):
        if not name.startswith((".ci/", "qrels/")):
            assert (ROOT / name).exists() or (page.parent / name).exists(), name


@pytest.mark.parametrize("term", ["signal", "impact", "generation", "ledger", "lineage", "gate", "profile", "anchored", "rNN"])
def test_pages_link_to_the_terms_of_art_which_the_glossary_explains_once(term):
    terms = re.findall(r"^### (.+)$", text_of("docs/glossary.md"), flags=re.MULTILINE)
    assert term in terms
    assert len(terms) == len(set(terms))
    assert any(f"glossary.md#{term.lower()})" in text_of(page) for page in PAGES)


def test_the_files_and_folders_named_exist():
    text = "".join(map(text_of, ("docs/architecture.md", "docs/ten-functions.md", "CONTRIBUTING.md")))
    names = set(re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?)(?:: \w+)?`", text))
    assert len(names) > 110
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_every_package_folder_lies_in_a_folder_of_the_page():
    packages = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/__init__.py") if ".venv" not in path.parts}
    packages = {name for name in packages if not name.startswith(("tests", "build", "."))}
    listed = re.findall(r"^\| `([\w/]+)/` \|", text_of("docs/architecture.md"), flags=re.MULTILINE)
    assert packages - {*listed} == set()


def test_the_layers_are_those_that_are_enforced():
    (contract,) = (each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    enforced = [[name.strip().removeprefix("termweave.") for name in re.split(r"[|:]", layer)] for layer in contract["layers"]]
    drawing = re.search(r"## The layers.*?```\n(.*?)```", text_of("docs/architecture.md"), flags=re.DOTALL).group(1)
    lines = [line.split() for line in drawing.splitlines()]
    assert [line[: len(layer)] for line, layer in zip(lines, enforced, strict=True)] == enforced


def test_the_worked_examples_of_contributing_are_those_that_tests_run():
    """They are the parts of `tests/outside`, which other tests run."""
    examples, outside = (
        re.findall(r"```python\n(.*?)```", text_of("CONTRIBUTING.md"), re.DOTALL),
        text_of("tests/outside/outside.py"),
    )
    assert len(examples) == 3
    assert [example for example in examples if example not in outside] == []


def named(heading):
    """The functions of a section of docs/ten-functions.md: (file, function)."""
    section = text_of("docs/ten-functions.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py): (\w+)`", section, flags=re.MULTILINE)


def called(run, functions):
    """Those of the functions that a program calls, in the order of their first calls."""
    first = {}

    def note(frame, event, _):
        if event == "call":
            code = frame.f_code
            for file, name in functions:
                if code.co_name == name and code.co_filename.endswith(f"/{file}"):
                    first.setdefault((file, name))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(first)


def test_a_search_and_a_build_call_the_functions_in_this_order(opensearch_engine, name):
    documents = corpora.open_documents([{"id": "a", "text": "Parse a text."}, {"id": "b", "text": "Read a file."}], name="corpus")
    functions = named("A build in ten functions")
    assert len(functions) == 10
    assert called(lambda: build(opensearch_engine, documents, name, BuildOptions(dense="none")), functions) == functions
    index = tw.connect(opensearch_engine.url).index(name)
    functions = named("A search in ten functions")
    assert len(functions) == 10
    assert called(lambda: index.search("parse", mode="lexical:0.5,weights:0.5"), functions) == functions
