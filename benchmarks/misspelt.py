"""Misspelt copies of judged questions: how much `--rewrite spelling` brings back of what the mistakes cost, in nDCG@10.

    python benchmarks/misspelt.py ../shared/data/cranfield ../shared/data/stackfaq ../shared/data/xquad-en-reqa

Each set is indexed with the shipped model as `misspelt-SET`, unless that index is there. In each question one edit is made in a third of the
words of four letters and more: a letter is left out, doubled, replaced, or swapped with the next one.
"""

from __future__ import annotations

import argparse
import random
import re
import string
from pathlib import Path

from entry_point import enter

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.evaluation import per_query, randomisation_test
from termweave.indexer import BuildOptions, build
from termweave.search import Index

MEASURE, SHARE = "nDCG@10", 1 / 3
WORD = re.compile(r"[^\W\d_]{4,}")


def misspelt(text: str, draw: random.Random) -> str:
    """The text with one edit in a third of its longer words, at least in one."""
    words = list(WORD.finditer(text))
    for word in sorted(draw.sample(words, max(1, round(len(words) * SHARE)) if words else 0), key=lambda each: -each.start()):
        text = text[: word.start()] + _edited(word[0], draw) + text[word.end() :]
    return text


def _edited(word: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(word) - 1)
    kind = draw.choice(("left out", "doubled", "replaced", "swapped"))
    if kind == "left out":
        return word[:place] + word[place + 1 :]
    if kind == "doubled":
        return word[: place + 1] + word[place:]
    if kind == "swapped":
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return word[:place] + draw.choice(string.ascii_lowercase.replace(word[place].lower(), "")) + word[place + 1 :]


def main() -> None:
    """Measure each set, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="folders of data sets, with :SPLIT where it is not test")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", default="hybrid")
    given = parser.parse_args()
    print(
        f"| {MEASURE} | questions | as asked | corrected | misspelt | corrected | of the loss | p |\n|---|---:|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    with engine.connect(settings.load(), pool_maxsize=6) as server:
        for spec in given.sets:
            print(row(server, spec, given.seed, given.mode), flush=True)


def row(server: engine.Engine, spec: str, seed: int, mode: str) -> str:
    """The line of one set."""
    base, split = corpora.path_and_split(spec)
    dataset = corpora.open_dataset(f"{base}:{split or 'test'}")
    name = f"misspelt-{Path(base).name}"
    if generations.find_live(server, name) is None:
        build(server, corpora.open_source(base), name, BuildOptions())
    index = Index.pinned(server, name)
    draw = random.Random(seed)
    asked = {query.id: query.text for query in dataset.queries()}
    wrong = {query: misspelt(text, draw) for query, text in asked.items()}
    ids = list(asked)
    values = [
        per_query(index.run(queries, k=10, mode=mode, rerank="none", rewrite=rewrite), dataset.qrels(), ids)[MEASURE]
        for queries in (asked, wrong)
        for rewrite in ("none", "spelling")
    ]
    right, kept, lost, back = (each.mean() for each in values)
    share = (back - lost) / (right - lost)
    figures = " | ".join(f"{each:.4f}" for each in (right, kept, lost, back))
    return f"| {Path(base).name} | {len(ids):,} | {figures} | {share:.0%} | {randomisation_test(values[3], values[2]):.2g} |"


if __name__ == "__main__":
    enter(main)
