"""axe-core on every page of `termweave serve`: no violation of WCAG 2.2 A and AA or of its best practices."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'ui' is not installed")

from termweave.evaluation.book.store import BookGrade, JudgementBook
from tests.browser.test_served_pages import address  # noqa: F401 - the fixture
from tests.ui.conftest import WORKBENCH, attacked  # noqa: F401 - the fixture

AXE = "axe-core@4.10.3"
PAGES = (
    "/search",
    "/search?q=run+a+function&facet=kind&id=zh",
    "/search?q=run+a+function&compare=1&mode=lexical&mode2=dense",
    "/search?q=run+a+function&judge=ann&curl=1",
    "/search?q=x&mode=nothing",
    "/judge?judge=ann",
    *WORKBENCH,
    "/login",
    "/nothing",
)


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core, which npm fetches into the user's cache once. It is no part of termweave."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "termweave-tests"
    script = cache / f"{AXE}.js"
    if not script.is_file():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        cache.mkdir(parents=True, exist_ok=True)
        line = ["npm", "pack", AXE, "--silent", "--pack-destination", str(cache)]
        packed = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
        if packed.returncode:
            pytest.skip(f"npm cannot fetch {AXE}: {packed.stderr.strip()[:200]}")
        with tarfile.open(cache / packed.stdout.split()[-1]) as archive:
            script.write_bytes(archive.extractfile("package/axe.min.js").read())
    return script.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def filled(opensearch_engine, attacked):  # noqa: F811 - the fixture above
    """A book with grades of two judges, and notes, so that the pages show all that they can."""
    book = JudgementBook(opensearch_engine, attacked)
    for judge, grade in (("bob", 3), ("eve", 1)):
        for document in ("timer", "json", "csv"):
            book.set_grade(BookGrade(judge, "q1", document, grade, "a note"))
    return book


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False)])
def test_no_page_violates_a_rule(browser, address, axe, filled, width, dark):  # noqa: F811 - the fixture above
    violations = []
    for path in PAGES:
        browser.open(address + path, width, dark=dark)
        browser.do("document.querySelectorAll('details').forEach(each => each.open = true)")
        browser.do(f"{axe}; 0")
        found = browser.do("axe.run().then(found => ({passes: found.passes.length, violations: found.violations}))")
        assert found["passes"] > 10
        violations += [(path, each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found["violations"]]
    assert violations == []
