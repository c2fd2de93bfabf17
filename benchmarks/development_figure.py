"""Does the development figure of `train` hold on questions of the test split? One model, its held-out questions and its test questions.

    python benchmarks/development_figure.py ../shared/data/squad --documents 2500 --test-documents 800

A part of the data set is written to a folder without a split dev, so that `train` holds questions out itself: answers of drawn training
questions, answers of drawn test questions, and the questions. `fectek` with its defaults is trained on it. The table shows nDCG@10 of BM25
and of the model, and the gain with its standard error over the questions. Held-out questions are searched in the part of the corpus that was
searched before (answers, BM25's ten best, documents trained on); in a third of the corpus, with random documents beside BM25's ten best, and as
`train` draws it from a large corpus (BM25's best of each question in half of it); and in the whole corpus, as are the test questions. All in
memory, impacts in 8 bits as an index stores them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entry_point import enter

from termweave import corpora, encoders
from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.training import setup as setups
from termweave.training.data.bm25_index import bm25_weights
from termweave.training.data.pairs import Pairs
from termweave.training.dev_measure import search_measure, stored
from termweave.training.methods import base
from termweave.training.run import train

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from termweave.training.setup import RunSetup

#: Where questions are searched.
_COLUMNS = ("answers, BM25's ten", "a third, ten and random", "a third", "whole corpus", "test, whole corpus")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="DATASET", help="BEIR folder with splits train and test")
    parser.add_argument(
        "--documents", type=int, default=2500, help="documents to draw that answer training questions  [default: 2500]"
    )
    parser.add_argument("--test-documents", type=int, default=800, help="likewise for test questions  [default: 800]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the method; repeatable")
    given = parser.parse_args()
    print(f"| set | documents | {' | '.join(f'{each}: BM25 | model | gain' for each in _COLUMNS)} |")
    print(f"|---|{'---:|' * (1 + 3 * len(_COLUMNS))}")
    for folder in given.folders:
        with tempfile.TemporaryDirectory(prefix="development-") as work:
            print(row(Path(folder), Path(work), given), flush=True)


def row(folder: Path, work: Path, given: argparse.Namespace) -> str:
    """Draw, train, measure: a line of the table."""
    part = drawn(folder, work / folder.name, given.documents, given.test_documents)
    method = base.get("fectek")
    settings = method.settings(dict(each.split("=", 1) for each in given.set))
    train(method, str(part), settings, work / "model", say=lambda line: print(f"  {line}", file=sys.stderr, flush=True))
    setup = setups.set_up(str(part), settings, work / "again", lambda _: None)
    held_out, judged = setup.dev, test_pairs(part, setup)
    encoder = encoders.load(weights=str(work / "model"), dense="none")
    texts, common = setup.texts, (setup.analysis, setup.statistics, BM25())
    of_model = stored([_weights(each) for each in encoder.encode(texts, kind="document", statistics=setup.statistics)], 8)
    of_bm25 = bm25_weights(texts, *common, "document")
    before = sorted(searched_before(setup))
    pools = [before, *(sorted(each) for each in thirds(setup, before)), range(len(texts))]
    cells = []
    for pairs, places in (*((held_out, pool) for pool in pools), (judged, range(len(texts)))):
        position = {place: index for index, place in enumerate(places)}
        own = pairs.within(position)
        asked = [_weights(each) for each in encoder.encode(own.questions, kind="query", statistics=setup.statistics)]
        plain = bm25_weights(own.questions, *common, "query")
        plain_figures, learned = (
            measured([documents[place] for place in places], questions, own)
            for documents, questions in ((of_bm25, plain), (of_model, asked))
        )
        gain, error = (learned - plain_figures).mean(), (learned - plain_figures).std(ddof=1) / len(learned) ** 0.5
        cells.append(f"{plain_figures.mean():.4f} | {learned.mean():.4f} | {gain:+.3f} ± {error:.3f}")
    return f"| {folder.name}, {len(held_out)} held out | {len(before):,} and {len(texts):,} | {' | '.join(cells)} |"


def measured(documents: Sequence[Any], questions: Sequence[Any], pairs: Pairs) -> NDArray[np.float64]:
    """nDCG@10 of each question."""
    return search_measure(documents, questions, [dict.fromkeys(known, 1) for known in pairs.relevant], pairs.spared)


def searched_before(setup: RunSetup) -> set[int]:
    """Documents in which held-out questions were searched by earlier versions: answers, BM25's ten best, documents trained on."""
    trained = {place for known in setup.train.relevant for place in known}
    return trained | setups.searched(setup.examples, setup.analysis, setup.statistics, trained, 0)


def thirds(setup: RunSetup, before: Sequence[int]) -> tuple[set[int], set[int]]:
    """A third of the corpus: `before` and random documents; and what `train` searches if it may search no more."""
    most = len(setup.examples.texts) // 3
    others = sorted(set(range(len(setup.examples.texts))) - {*before})
    random.Random(0).shuffle(others)
    trained = {place for known in setup.train.relevant for place in known}
    drawn = setups.searched(setup.examples, setup.analysis, setup.statistics, trained, most)
    return {*before, *others[: max(0, most - len(before))]}, trained | drawn


def test_pairs(part: Path, setup: RunSetup) -> Pairs:
    """The test questions with the indices of their answers."""
    place = {each: index for index, each in enumerate(setup.examples.ids)}
    opened = corpora.open_dataset(f"{part}:test")
    qrels = opened.qrels()
    asked = [
        (query.text, frozenset(place[each] for each, grade in qrels[query.id].items() if grade > 0 and each in place))
        for query in opened.queries()
    ]
    return Pairs([text for text, known in asked if known], [known for _, known in asked if known])


def drawn(folder: Path, out: Path, documents: int, test_documents: int) -> Path:
    """Write the drawn part of a data set as a BEIR folder with the splits train and test."""
    (out / "qrels").mkdir(parents=True)
    dice, kept, queries = random.Random(0), set[str](), dict[str, str]()
    for split, count in (("train", documents), ("test", test_documents)):
        opened = corpora.open_dataset(f"{folder}:{split}")
        qrels = opened.qrels()
        answers = sorted({each for known in qrels.values() for each, grade in known.items() if grade > 0})
        chosen = set(dice.sample(answers, min(count, len(answers))))
        lines = ["query-id\tcorpus-id\tscore"]
        for query in opened.queries():
            own = [(each, grade) for each, grade in qrels[query.id].items() if each in chosen and grade > 0]
            lines += [f"{query.id}\t{each}\t{grade}" for each, grade in own]
            queries.update({query.id: query.text} if own else {})
        (out / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        kept |= chosen
    everything = documents + test_documents >= sum(1 for _ in corpora.open_source(folder).documents())
    with (out / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for document in corpora.open_source(folder).documents():
            if document.id in kept or everything:
                file.write(json.dumps({"_id": document.id, "title": document.title, "text": document.text}) + "\n")
    with (out / "queries.jsonl").open("w", encoding="utf-8") as file:
        for identifier, text in queries.items():
            file.write(json.dumps({"_id": identifier, "text": text}) + "\n")
    return out


def _weights(encoding: Any) -> Any:
    return encoding.weights


if __name__ == "__main__":
    enter(main)
