"""What an anchored ranker adds to hybrid search on sets that it was not trained on, which decides whether one is shipped.

    termweave node start
    python benchmarks/ranker_gain.py --data ../shared/data --set steps=260 --set every=65 --set precision=bf16

The ranker is trained as `termweave train sir` does, on a part of squad, medquad and stackfaq each; then the best 30 documents of other sets are
reranked through OpenSearch, and compared with hybrid+rNN by a paired randomisation test. A folder of a trained ranker goes on or is taken as it is.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from entry_point import enter
from reproduction_runs import key, reduced

from termweave import corpora, engine, settings
from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import per_query
from termweave.indexer import BuildOptions, build, up_to_date
from termweave.records import Run
from termweave.search import Index
from termweave.search.ranking import modes, rerankers
from termweave.search.ranking.order import order
from termweave.search.ranking.ranker import CrossEncoderReranker
from termweave.search.ranking.rerankers import Reranking
from termweave.training import run
from termweave.training.methods import base as methods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from termweave.search.retrieval.candidates import Candidates

#: Sets whose licences permit a shipped model, and sets that a ranker has not seen.
TRAINED, UNSEEN = ("squad", "medquad", "stackfaq"), ("cranfield", "nfcorpus", "wikiqa", "vaswani", "trec-dl-2019-2020")
#: Name of a system -> the share of the ranker, and whether it reads the order of rNN.
RANKED = {
    "ranker .25": (0.25, False),
    "ranker .5": (0.5, False),
    "ranker alone": (1.0, False),
    "rNN>ranker .5": (0.5, True),
}
_REFERENCE = "hybrid+rNN"
_MEASURE = "nDCG@10"


def main() -> None:
    """Train the ranker if it is not there, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets, in BEIR's layout")
    parser.add_argument("--work", type=Path, default=Path("build/ranker-gain"), help="folder of parts and models")
    parser.add_argument("--model", default="", help="a ranker that is there, instead of training one")
    parser.add_argument("--trained-on", default=",".join(TRAINED), help="sets, with commas")
    parser.add_argument("--sets", default=",".join(UNSEEN), help="sets that are searched, with commas")
    parser.add_argument("--name", default="bench", help="indices are called NAME-SET, as retrieval.py calls them")
    parser.add_argument("--documents", type=int, default=2000, help="documents of the part of each training set")
    parser.add_argument("--pairs", type=int, default=1500, help="training questions of the part of each training set")
    parser.add_argument("--questions", type=int, default=150, help="test questions of a set at most")
    parser.add_argument("--candidates", type=int, default=30, help="documents of a question that are reranked")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the training")
    given = parser.parse_args()
    model = given.model or trained(given)
    server = engine.connect(settings.load())
    found: dict[str, dict[str, np.ndarray]] = {}
    print(f"| {_MEASURE} | hybrid | {_REFERENCE} | {' | '.join(RANKED)} |\n|---|{'---:|' * (2 + len(RANKED))}", flush=True)
    for name in given.sets.split(","):
        found[name] = figures(server, given.data / name, f"{given.name}-{name}", model, given.questions, given.candidates)
        cells = [f"{found[name]['hybrid'].mean():.4f}", f"{found[name][_REFERENCE].mean():.4f}"]
        for system in RANKED:
            p = randomisation_test(found[name][system], found[name][_REFERENCE])
            cells.append(f"{found[name][system].mean():.4f} ({p:.2g})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    gains = [
        np.mean([own[system].mean() - own[_REFERENCE].mean() for own in found.values()])
        for system in ("hybrid", _REFERENCE, *RANKED)
    ]
    print(f"| mean difference to {_REFERENCE} | {' | '.join(f'{gain:+.4f}' for gain in gains)} |")


def trained(given: argparse.Namespace) -> str:
    """Train on the parts, or go on."""
    first, *others = [
        reduced(given.data / name, given.documents, given.pairs, given.work) for name in given.trained_on.split(",")
    ]
    method = methods.get("sir")
    chosen = {**dict(each.split("=", 1) for each in given.set), "beside": ",".join(str(each.absolute()) for each in others)}
    out = given.work / f"model-{key(given.trained_on, given.documents, given.pairs, given.set)}"
    say = partial(print, file=sys.stderr, flush=True)
    run.train(method, str(first), method.settings(chosen), out, resume=out.is_dir(), say=say)
    return str(out)


def figures(server: engine.Engine, folder: Path, name: str, model: str, most: int, depth: int) -> dict[str, np.ndarray]:
    """The measure of each question, of every system."""
    dataset, options = corpora.open_dataset(str(folder)), BuildOptions()
    if up_to_date(server, dataset, name, options) is None:
        build(server, dataset, name, options)
    index = Index.pinned(server, name)
    qrels, mode = dataset.qrels(), modes.parse("hybrid", index.signals)
    queries = [query for query in dataset.queries() if any(grade > 0 for grade in qrels.get(query.id, {}).values())][:most]
    ids, texts = [query.id for query in queries], [query.text for query in queries]
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for first in range(0, len(texts), 16):
        answered = index.candidates(texts[first : first + 16], list(mode.weights), needs={"texts", "vectors"})
        for identifier, candidates in zip(ids[first:], answered, strict=False):
            for system, scores in _ranked(candidates, mode, model, depth).items():
                runs.setdefault(system, {})[identifier] = scores
    return {
        system: per_query(Run(system, scores), qrels, ids, relevant_from=dataset.relevant_from, measures=[_MEASURE])[_MEASURE]
        for system, scores in runs.items()
    }


def _ranked(candidates: Candidates, mode: modes.Mode, model: str, depth: int) -> Mapping[str, dict[str, float]]:
    """Document -> score of one question, for every system; the ranker reads each text once."""
    neighbours = rerankers.choose("rnn")
    ranker = CrossEncoderReranker(model, candidates=depth).for_one_query()
    chosen: dict[str, Reranking | None] = {"hybrid": None, _REFERENCE: neighbours}
    for system, (weight, behind) in RANKED.items():
        chosen[system] = Reranking((*(neighbours.stages if behind else ()), replace(ranker, weight=weight)))
    return {
        system: {place.id: place.score for place in order(candidates, mode, reranking)} for system, reranking in chosen.items()
    }


if __name__ == "__main__":
    enter(main)
