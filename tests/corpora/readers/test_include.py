"""Folders of other texts: .rst and .adoc, and any file that --include names."""

import pytest

from termweave import corpora
from termweave.cli import run
from termweave.corpora.formats import markup
from termweave.errors import UsageError


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    (root / "src").mkdir(parents=True)
    (root / "guide.rst").write_text("=====\nGuide\n=====\n\nHow to begin.\n\nNext\n----\n\nMore.\n")
    (root / "notes.adoc").write_text("= Notes\n\nWhat we noted.\n")
    (root / "src" / "pump.py").write_text("def pump():\n    return 'water'\n")
    (root / "src" / "pump.c").write_text("int pump(void);\n")
    return root


def read(*arguments, **options):
    return {document.id: (document.title, document.text) for document in corpora.open_source(*arguments, **options).documents()}


def test_restructured_text_and_asciidoc_are_read_with_their_titles(folder):
    assert read(folder) == {
        "guide.rst": ("Guide", "How to begin.\n\nNext\n----\n\nMore."),
        "notes.adoc": ("Notes", "What we noted."),
    }
    assert markup.restructured("Only a text.\nTwo lines.") == ("", "Only a text.\nTwo lines.")


def test_patterns_name_files_of_any_type(folder, capsys):
    assert read(folder, include=["*.py"]) == {"src/pump.py": ("", "def pump():\n    return 'water'")}
    assert set(read(folder, include=["src/*", "*.rst"])) == {"src/pump.py", "src/pump.c", "guide.rst"}
    prints = {corpora.open_source(folder, include=include).fingerprint for include in ((), ["*.py"], ["*.c"])}
    assert len(prints) == 3
    assert "not included and ignored (1 .rst, 1 .adoc, 1 .c)" in corpora.open_source(folder, include=["*.py"]).remarks[1]
    with pytest.raises(UsageError, match=r"No file in .* matches \*\.java"):
        corpora.open_source(folder, include=["*.java"])
    for source in (folder / "guide.rst", "opensearch:docs", "-"):
        with pytest.raises(UsageError, match=f"names files in a folder, and {source} is none"):
            corpora.open_source(source, include=["*.rst"])
    assert run(["index", str(folder), "x", "--include", "*.java", "--url", "http://127.0.0.1:9"]) in {2, 5}
