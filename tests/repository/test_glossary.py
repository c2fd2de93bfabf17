"""docs/glossary.md: it explains each word of the project once, and other pages link to it where they use the word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^### (.+)$", GLOSSARY, flags=re.MULTILINE)


def test_each_term_is_explained_once():
    assert len(TERMS) == len(set(TERMS))


@pytest.mark.parametrize("term", ["signal", "impact", "generation", "ledger", "lineage", "gate", "profile", "anchored", "rNN"])
def test_pages_link_to_the_terms_of_art(term):
    assert term in TERMS
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"glossary.md#{term.lower()})" in page.read_text(encoding="utf-8") for page in pages)
