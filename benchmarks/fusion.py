"""Fusion and rNN without judgements, for several dense models on many collections, ranked in memory.

    python benchmarks/fusion.py --work build/fusion
    python benchmarks/fusion.py --work build/fusion --models shipped bge-small-en --sets stackfaq cranfield

Words are the shipped model's term weights and BM25 over the same terms. Each model is exported to int8 and reads 256 word-pieces of a text. Large
collections stand for a part of their documents: those that answer one of at most 600 questions, and others drawn once. What was encoded is kept in
the work folder. A test compares ranking in memory with a search (`tests/training/ranker`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import pickle
import random
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from entry_point import enter

from termweave import corpora, encoders
from termweave.contracts.signal import Fitting
from termweave.encoders import backbones
from termweave.encoders.onnx.bert_graph import write_weights
from termweave.encoders.onnx.export import export
from termweave.encoders.term_weighting import BM25
from termweave.evaluation import randomisation_test
from termweave.evaluation.measures import interval
from termweave.evaluation.tuning import parameter_search
from termweave.evaluation.tuning.parameter_search import TrialRanker
from termweave.records import Capabilities, Encoding, TermWeights
from termweave.rerank.rnn import ReciprocalNeighbours
from termweave.search.retrieval.candidates import Candidates
from termweave.signals import fusion
from termweave.signals.dense import Dense
from termweave.signals.fusion import Ranked
from termweave.signals.lexical import Lexical
from termweave.signals.modes import Mode
from termweave.signals.weights import Weights
from termweave.statistics import CorpusStatistics
from termweave.training.data.bm25_index import SparseIndex

MODELS = ("shipped", "bge-small-en", "e5-small")
#: Set -> the most documents of it.
SETS = {
    "nfcorpus": 5000,
    "cranfield": 5000,
    "vaswani": 5000,
    "stackfaq": 5000,
    "wikiqa": 5000,
    "trec-dl-2019-2020": 5000,
    "medquad": 2500,
    "squad": 2500,
    "scifact": 3000,
    "demo": 3000,
}
QUESTIONS, PIECES, DEPTH, PART = 600, 256, 100, 256
#: Shares of rNN's similarity.
LAMBDAS = (0.75, 0.9, 0.95)
#: Constants of `signals.dense` that are tried, leaving out one model and one set at a time.
CONSTANTS = {"share": (0.6, 0.7, 0.8, 0.9, 1.0), "power": (0.0, 0.125, 0.25, 0.375)}
#: Standard errors that a step of tuning has to gain, and the most questions that are tuned on.
EVIDENCE, TUNED_ON = (1.0, 1.5), 300


@dataclass(frozen=True)
class EncodedCollection:
    """A collection encoded by one model, with the questions that have an answer.

    Attributes:
        ids: The documents.
        questions: Id -> text.
        judged: Question -> document -> grade.
        vectors: ``(documents, d)``.
        queries: ``(questions, d)``.
        words: Of the shipped model: weights of documents and of questions, terms of documents and of questions, average length.
    """

    ids: list[str]
    questions: dict[str, str]
    judged: dict[str, dict[str, int]]
    vectors: np.ndarray
    queries: np.ndarray
    words: dict[str, Any] | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of encodings and exported models")
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder of the data sets  [default: ../shared/data]"
    )
    parser.add_argument(
        "--models", nargs="+", default=MODELS, metavar="NAME", help=f"the first is shipped  [default: {' '.join(MODELS)}]"
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, metavar="NAME", help="[default: all]")
    parser.add_argument(
        "--tune", action="store_true", help="instead of the tables: what tuning gains, by the evidence that a step needs"
    )
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    values: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    means, gains = {}, {}
    for name in given.sets:
        words = encoded(given, name, "shipped")
        for model in given.models:
            print(f"{name}, {model}", file=sys.stderr, flush=True)
            held, now, before = candidates_of(given, name, model, words)
            assert words.words is not None
            if given.tune:
                gains[name, model] = tuned(held, now)
            else:
                values[name, model] = measured(held, now, before)
                means[name, model] = shifted(held, now, words.words["length"])
    if given.tune:
        print(json.dumps({" ".join(key): row for key, row in gains.items()}))
        for worth in map(str, EVIDENCE):
            each = np.array([np.mean(row[worth]) for row in gains.values()])
            low, high = interval(each)
            print(f"* {worth} standard errors: {each.mean():+.4f} [{low:+.4f}, {high:+.4f}], lowest {each.min():+.4f}")
        return
    for model in given.models:
        rows = {name: values[name, model] for name in given.sets}
        print(f"\n**{model}**\n\n{table(rows)}\n\n{summary(rows)}")
    if len(given.models) > 1 and len(given.sets) > 1:
        print(f"\nConstants chosen on the other models and sets:\n\n{left_out(means, given.sets, given.models)}")


def model_folder(given: argparse.Namespace, model: str) -> Path | None:
    """Return the int8 export of a backbone that reads `PIECES` word-pieces; None for the shipped model."""
    if model == "shipped":
        return None
    folder: Path = given.work / model
    if not folder.exists():
        source = backbones.fetch(model)
        write_weights(source)
        export(source, folder)
    manifest = folder / "termweave.json"
    content = json.loads(manifest.read_text("utf-8"))
    if content["max_length"] != PIECES:
        manifest.write_text(json.dumps({**content, "max_length": PIECES}), "utf-8")
    return folder


def encoder_of(given: argparse.Namespace, model: str) -> encoders.TextEncoder:
    folder = model_folder(given, model)
    return encoders.load() if folder is None else encoders.load(weights="none", dense=folder)


def encoded(given: argparse.Namespace, name: str, model: str) -> EncodedCollection:
    """Encode a collection, or read what an earlier run encoded."""
    file = given.work / f"{name}.{model}.pickle"
    if file.is_file():
        kept: EncodedCollection = pickle.loads(file.read_bytes())
        return kept
    dataset = corpora.open_dataset("demo" if name == "demo" else str(given.data / name))
    judged = dataset.qrels()
    queries = [each for each in dataset.queries() if any(grade > 0 for grade in judged.get(each.id, {}).values())]
    if len(queries) > QUESTIONS:
        queries = random.Random(0).sample(queries, QUESTIONS)
    documents = list(dataset.documents())
    if len(documents) > SETS[name]:
        answers = {document for query in queries for document, grade in judged[query.id].items() if grade > 0}
        others = [each.id for each in documents if each.id not in answers]
        random.Random(1).shuffle(others)
        drawn = answers | set(others[: max(0, SETS[name] - len(answers))])
        documents = [each for each in documents if each.id in drawn]
    texts, questions = [each.content for each in documents], [each.text for each in queries]
    encoder, words = encoder_of(given, model), None
    statistics = None
    if model == "shipped":
        terms = encoder.analyse(texts)
        frequency: Counter[str] = Counter()
        for each in terms:
            frequency.update(set(each))
        average = sum(map(len, terms)) / len(terms)
        statistics = CorpusStatistics(encoder.analysis or "", len(texts), average, dict(frequency))
    asked = encoder.encode(questions, kind="query", statistics=statistics)
    answered: list[Encoding] = []
    for start in range(0, len(texts), PART):
        answered += encoder.encode(texts[start : start + PART], kind="document", statistics=statistics)
    if statistics is not None:
        words = {
            "documents": [each.weights for each in answered],
            "queries": [each.weights for each in asked],
            "bm25": bm25(terms, statistics),
            "bm25 queries": [counted(each) for each in encoder.analyse(questions)],
            "length": statistics.average_length,
        }
    vectors = np.stack([each.vector for each in answered if each.vector is not None]).astype(np.float16)
    result = EncodedCollection(
        [each.id for each in documents],
        {each.id: each.text for each in queries},
        {each.id: dict(judged[each.id]) for each in queries},
        vectors,
        np.stack([each.vector for each in asked if each.vector is not None]),
        words,
    )
    file.write_bytes(pickle.dumps(result))
    return result


def counted(terms: list[str]) -> TermWeights:
    counts = Counter(terms)
    return TermWeights(tuple(counts), np.array(list(counts.values()), np.float32))


def bm25(documents: list[list[str]], statistics: CorpusStatistics) -> list[TermWeights]:
    formula, rows = BM25(), []
    for terms in documents:
        counts = counted(terms)
        length = formula.k1 * (1 - formula.b + formula.b * len(terms) / statistics.average_length)
        idf = np.array([statistics.idf(term) for term in counts.terms], np.float32)
        rows.append(replace(counts, weights=idf * counts.weights * (formula.k1 + 1) / (counts.weights + length)))
    return rows


def candidates_of(
    given: argparse.Namespace, name: str, model: str, words: EncodedCollection
) -> tuple[EncodedCollection, list[Candidates], list[Candidates]]:
    """Return the candidates of each question, by the signals of today and with the spreads of the rule before this one."""
    held = encoded(given, name, model)
    assert words.words is not None
    assert held.ids == words.ids
    weights, lexical = SparseIndex(words.words["documents"]), SparseIndex(words.words["bm25"])
    sample = held.vectors[:: max(1, len(held.vectors) // 1000)].astype(np.float32)
    fitting = Fitting(
        Capabilities(""),
        dimension=held.vectors.shape[1],
        dense_spread=encoder_of(given, model).dense_spread(),
        statistics=CorpusStatistics("", 0, words.words["length"], {}),
    )
    now = {"lexical": Lexical(), "weights": Weights(unit=1.0), "dense": Dense.fit(fitting)}
    before = {
        **now,
        "weights": Weights(),
        "dense": Dense.fit(replace(fitting, dense_spread=0.0, sample=[Encoding("text", None, each) for each in sample])),
    }
    asked: dict[bool, list[Candidates]] = {False: [], True: []}
    vectors = held.vectors.astype(np.float32)
    for row, text in enumerate(held.questions.values()):
        query = words.words["queries"][row]
        similarities = vectors @ held.queries[row]
        near = np.argsort(-similarities, kind="stable")[:DEPTH]
        pairs = {
            "lexical": named(held.ids, *lexical.search(words.words["bm25 queries"][row], DEPTH)),
            "weights": named(held.ids, *weights.search(query, DEPTH)),
            "dense": named(held.ids, near, similarities[near]),
        }
        near_vectors = {held.ids[place]: vectors[place] for place in near}
        places = {document: place for place, document in enumerate(held.ids)}
        near_vectors |= {document: vectors[places[document]] for document, _ in pairs["weights"]}
        for earlier, signals in ((False, now), (True, before)):
            lists = {
                signal: Ranked.from_scores(
                    pairs[signal],
                    DEPTH,
                    signals[signal],
                    full_match_score=query.full_match_score if signal == "weights" else None,
                )
                for signal in signals
            }
            asked[earlier].append(Candidates(Encoding(text, query, held.queries[row]), lists, {}, near_vectors))
    return held, asked[False], asked[True]


def measured(held: EncodedCollection, now: list[Candidates], before: list[Candidates]) -> dict[str, np.ndarray]:
    """Return system -> nDCG@10 of each question."""
    judged = [held.judged[question] for question in held.questions]
    ranker, earlier = (TrialRanker(candidates, judged, 1, "nDCG@10") for candidates in (now, before))
    both = {"weights": 0.5, "dense": 0.5}
    singles = {"BM25": "lexical", "weights": "weights", "dense": "dense"}
    result = {label: ranker.values(Mode(label, {signal: 1.0}), None) for label, signal in singles.items()}
    result["hybrid"] = ranker.values(Mode("hybrid", both), None)
    result["earlier rule"] = earlier.values(Mode("hybrid", both), None)
    for method in fusion.METHODS:
        if method != fusion.DEFAULT:
            result[f"hybrid@{method}"] = ranker.values(Mode("hybrid", both, method), None)
    for share in LAMBDAS:
        result[f"hybrid + rNN {share}"] = ranker.values(Mode("hybrid", both), ReciprocalNeighbours(weight=share))
    return result


def shifted(held: EncodedCollection, now: list[Candidates], length: float) -> dict[tuple[float, float], float]:
    """Return (share, power) -> mean nDCG@10 with these constants of `signals.dense` in place of its own: they scale the count of dense."""
    judged = [held.judged[question] for question in held.questions]
    ranker, means = TrialRanker(now, judged, 1, "nDCG@10"), {}
    for share, power in itertools.product(CONSTANTS["share"], CONSTANTS["power"]):
        factor = (0.8 / share) ** 2 * (length / 50) ** (2 * (0.25 - power))
        mode = Mode("hybrid", {"weights": 1 / (1 + factor), "dense": factor / (1 + factor)})
        means[share, power] = float(ranker.values(mode, None).mean())
    return means


def left_out(means: dict[tuple[str, str], dict[tuple[float, float], float]], sets: list[str], models: list[str]) -> str:
    """Write the mean of each model with the constants that are best on the other models and the other sets."""
    lines = []
    for model in models:
        values = []
        for name in sets:
            others = [row for (other, another), row in means.items() if other != name and another != model]
            best = max(others[0], key=lambda constants: np.mean([row[constants] for row in others]))
            values.append(means[name, model][best])
        lines.append(f"* {model}: {np.mean(values):.4f}")
    return "\n".join(lines)


def tuned(held: EncodedCollection, now: list[Candidates]) -> dict[str, list[float]]:
    """Return evidence -> gains over the default on the half of the questions that had no say, for two splits."""
    order, gains = list(range(len(now))), {}
    judged = [held.judged[question] for question in held.questions]
    for worth in EVIDENCE:
        gains[str(worth)] = []
        for seed in (0, 1):
            random.Random(seed).shuffle(order)
            drawn = order[:TUNED_ON]
            halves = [
                TrialRanker([now[place] for place in half], [judged[place] for place in half], 1, "nDCG@10")
                for half in (drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :])
            ]
            with mock.patch.object(parameter_search, "WORTH", worth):
                search = parameter_search.ParameterSearch(halves[0], ("lexical", "weights", "dense"), lambda *_: None)
                mode, reranking = search.choice(search.descend())
            default = halves[1].values(Mode("hybrid", {"weights": 0.5, "dense": 0.5}), None)
            gains[str(worth)].append(float((halves[1].values(mode, reranking) - default).mean()))
    return gains


def named(ids: list[str], places: np.ndarray, scores: np.ndarray) -> list[tuple[str, float]]:
    return [(ids[place], score) for place, score in zip(places.tolist(), scores.tolist(), strict=True)]


def better(values: dict[str, np.ndarray]) -> np.ndarray:
    """Return BM25 or dense, whichever has the higher mean."""
    return max((values["BM25"], values["dense"]), key=lambda each: float(each.mean()))


def mark(one: np.ndarray, other: np.ndarray) -> str:
    if randomisation_test(one, other) >= 0.05:
        return ""
    return " ▲" if one.mean() > other.mean() else " ▼"


def table(figures: dict[str, dict[str, np.ndarray]]) -> str:
    """Write nDCG@10 of each system, marked where it differs from the better of BM25 and dense."""
    systems = list(next(iter(figures.values())))
    lines = [f"| | {' | '.join(figures)} | mean | over the better one |", f"|---|{'---:|' * (len(figures) + 2)}"]
    for system in systems:
        cells = [
            f"{values[system].mean():.4f}{'' if system in {'BM25', 'dense'} else mark(values[system], better(values))}"
            for values in figures.values()
        ]
        means = np.array([float(values[system].mean()) for values in figures.values()])
        over = means - np.array([float(better(values).mean()) for values in figures.values()])
        lines.append(f"| {system} | {' | '.join(cells)} | {means.mean():.4f} | {over.mean():+.4f} |")
    return "\n".join(lines)


def summary(figures: dict[str, dict[str, np.ndarray]]) -> str:
    """Write mean differences between systems over the sets, each with its interval."""
    lines = []
    pairs = [("hybrid", "earlier rule"), *((f"hybrid + rNN {share}", "hybrid") for share in LAMBDAS)]
    for one, other in pairs:
        means = np.array([float((values[one] - values[other]).mean()) for values in figures.values()])
        low, high = interval(means) if len(means) > 1 else (np.nan, np.nan)
        above, below = (
            [name for name, values in figures.items() if mark(values[one], values[other]) == sign] for sign in (" ▲", " ▼")
        )
        lines.append(
            f"* {one} minus {other}: {means.mean():+.4f} [{low:+.4f}, {high:+.4f}]; significantly above on {len(above)}, below on {len(below)}"
            + (f" ({', '.join(below)})" if below else "")
        )
    return "\n".join(lines)


if __name__ == "__main__":
    enter(main)
