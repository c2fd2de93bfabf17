"""Take the pictures of docs/images: every page of `termweave serve` on the index of `termweave demo`, in a headless Chromium.

    OPENSEARCH_URL=http://127.0.0.1:9200 python -m tools.screenshots [--out FOLDER] [--index NAME]

The server must hold the index of `termweave demo`. The book of that index gets a few queries and grades of the demo's own judgements, and
loses them at the end; a book that holds something already is left alone.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from termweave import corpora, engine, settings
from termweave.evaluation.book.store import INDEX, BookGrade, JudgementBook, pooled
from termweave.search import Index
from tests.browser.conftest import BROWSERS, Browser
from tests.ui.processes import serving

IMAGES = Path(__file__).parents[1] / "docs" / "images"
NAME, QUERIES = "demo", 24
QUERY = "how do I run a function after a delay in another thread"
#: Colours of a picture: pages have few, and the files stay small.
_COLOURS = 128
#: The window of the browser, and the part of a page that a picture shows, in pixels.
_WIDTH, _HEIGHT = 1200, 900
#: Seconds that an evaluation or a tuning may take.
_PATIENCE = 300
_ADDRESSES: dict[str, tuple[str, dict[str, Any]]] = {
    "search": ("/search", {"q": QUERY}),
    "side-by-side": ("/search", {"q": QUERY, "compare": 1, "mode": "lexical", "mode2": "hybrid", "rerank2": "rnn", "k": 5}),
    "judge": ("/judge", {"judge": "ann"}),
    "book": ("/book", {}),
    "generations": ("/generations", {}),
}


def main() -> None:
    """Run the command line: fill a book of judgements, take all pictures, and empty the book."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("--index", default=NAME, help="index of (a part of) the corpus of the demo")
    options = parser.parse_args()
    connection = engine.connect(settings.load())
    book = JudgementBook(connection, options.index)
    if book.queries():
        raise SystemExit(f"The book of {options.index} holds queries already: take the pictures on another server.")
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        _fill(book, Index.open(connection, options.index))
        _take(options)
    finally:
        body = {"query": {"term": {"book": options.index}}}
        connection.request("POST", f"/{INDEX}/_delete_by_query", params={"refresh": True}, body=body)


def _fill(book: JudgementBook, index: Index) -> None:
    """Fill the book with grades of two judges: one grades as the demo's judgements, the other differs now and then."""
    demo = corpora.open_dataset("demo")
    queries, qrels = demo.queries()[:QUERIES], demo.qrels()
    book.add(pooled(index, queries))
    for query in book.queries():
        for place, document in enumerate(query.pool):
            grade = min(3, qrels[query.id].get(document, 0))
            book.set_grade(BookGrade("eve", query.id, document, grade))
            if place % 3 == 0:
                book.set_grade(BookGrade("bob", query.id, document, max(0, grade - (place % 2))))


def _take(options: argparse.Namespace) -> None:
    """Serve the index, visit the pages with a browser, and write a picture of each."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("There is no Chromium on this machine: make programs")
    with (
        serving(options.index) as (_, started),
        tempfile.TemporaryDirectory() as profile,
        closing(Browser(program, Path(profile))) as browser,
    ):
        home = started["url"].rstrip("/")

        def shot(name: str, address: str) -> None:
            browser.open(home + address, _WIDTH, _HEIGHT)
            if name == "search":
                browser.do("document.querySelector('.hit details').open = true")
            path = options.out / f"{name}.png"
            browser.picture(path)
            picture = Image.open(path).convert("RGB")
            picture.crop((0, 0, picture.width, min(_HEIGHT, picture.height))).quantize(_COLOURS).save(path, optimize=True)

        for name, (path, values) in _ADDRESSES.items():
            shot(name, f"{path}?{urlencode(values)}")
        for kind in ("evaluate", "tune"):
            browser.open(f"{home}/{kind}", _WIDTH)
            browser.do(f"document.querySelector('form[action=\"/{kind}/start\"] button').click()")
            until = time.monotonic() + _PATIENCE
            while "job=" not in browser.do("location.search") or browser.do("document.querySelector('table') === null"):
                if time.monotonic() > until:
                    raise SystemExit(f"{kind} does not end.")
                time.sleep(0.5)
            shot(kind, browser.do("location.pathname + location.search"))


if __name__ == "__main__":
    main()
