"""The pages of README, docs/ and the others at the top: their links lead somewhere, the files they name exist, and words of ours are explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
#: `folder/file.py` in backticks; commands and addresses hold blanks or colons and are left out, and so is a file "at" an earlier commit.
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|yml|toml))`(?! at [0-9a-f]{7})")


def prose(page):
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


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
    for name in NAMED_FILE.findall(page.read_text(encoding="utf-8")):
        if not name.startswith((".ci/", "qrels/")):
            assert (ROOT / name).exists() or (page.parent / name).exists(), name


@pytest.mark.parametrize("term", ["signal", "impact", "generation", "ledger", "lineage", "gate", "profile", "anchored", "rNN"])
def test_pages_link_to_the_terms_of_art_which_the_glossary_explains_once(term):
    terms = re.findall(r"^### (.+)$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert term in terms
    assert len(terms) == len(set(terms))
    assert any(f"glossary.md#{term.lower()})" in page.read_text(encoding="utf-8") for page in PAGES)
