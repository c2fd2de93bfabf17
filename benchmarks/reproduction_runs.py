"""One row of a table of `benchmarks/reproduction.py`: train a model, and measure it on test questions by exact search."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from reproduction_tables import WITH_RNN

from termweave.encoders import model_lookup
from termweave.encoders.analysis.word_pieces import ModelTokenizer, PieceTokenizer
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.term_weighting import BM25, Kind
from termweave.evaluation.measures import per_query
from termweave.records import Run
from termweave.rerank import Rules, neighbourhood
from termweave.rerank.neighbours.reciprocal import mix
from termweave.support import atomic_files, file_locks
from termweave.training import backbone_model
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Collection, Pairs, count
from termweave.training.dense.model import TokenIds, Towers, reading_of, tokenise
from termweave.training.dev_measure import rankings
from termweave.training.methods import base as methods
from termweave.training.mixture import DataPart, learn, parts
from termweave.training.setup import analysis_of

#: Candidates that rNN reranks, its rules for unit vectors (docs/reranking.md), and the shares of the similarity that are tried.
RERANKED, RULES = 60, Rules(k=10, k_exp=3, clamp=True)
SHARES = (0.25, 0.451, 0.6, 0.75, 0.85, 0.9, 0.95, 1.0)
#: Documents of a ranking: the deepest measure looks at 20.
_DEPTH = 20
#: Training questions of the most and of the rarest answer of a skewed cut.
_MOST, _LEAST = 120, 3

Figures = dict[str, np.ndarray]


@dataclass(frozen=True)
class TestSet:
    """Test questions and the documents that they are searched in.

    Attributes:
        name: Of the data set.
        documents: Texts.
        questions: Texts.
        gains: Document index -> grade, of each question.
    """

    name: str
    documents: list[str]
    questions: list[str]
    gains: list[dict[int, int]]

    @classmethod
    def read(cls, folder: Path, questions: int, pool: int) -> TestSet:
        """Draw test questions, and the documents: their judged ones and others up to `pool`; 0: the whole corpus."""
        collection = Collection(folder)
        queries, qrels = collection.judged("test")
        held = [
            query for query in queries if any(grade > 0 and each in collection.index for each, grade in qrels[query.id].items())
        ]
        drawn = random.Random(0).sample(held, min(questions, len(held)))
        judged = {
            collection.index[each] for query in drawn for each, grade in qrels[query.id].items() if each in collection.index
        }
        others = [place for place in range(len(collection.texts)) if place not in judged]
        random.Random(1).shuffle(others)
        kept = sorted({*judged, *(others[: max(0, pool - len(judged))] if pool else others)})
        place = {old: new for new, old in enumerate(kept)}
        gains = [
            {place[collection.index[each]]: grade for each, grade in qrels[query.id].items() if each in collection.index}
            for query in drawn
        ]
        return cls(folder.name, [collection.texts[each] for each in kept], [query.text for query in drawn], gains)

    def figures(self, ranked: Sequence[Sequence[int]], measures: Sequence[str]) -> Figures:
        """Measures of each question."""
        run = Run(
            "row",
            {str(row): {str(each): -float(rank) for rank, each in enumerate(best)} for row, best in enumerate(ranked)},
        )
        qrels = {str(row): {str(each): grade for each, grade in own.items()} for row, own in enumerate(self.gains)}
        return dict(per_query(run, qrels, list(qrels), measures=tuple(measures)))

    def bm25(self, measures: Sequence[str]) -> Figures:
        """BM25 on these documents."""
        tokenizer = PieceTokenizer(model_lookup.resolve(model_lookup.DEFAULT) / TOKENIZER)
        analysis = analysis_of("word", self.documents, tokenizer)
        common = (analysis, count([self.documents], analysis), BM25())
        index = SparseIndex(bm25_weights(self.documents, *common, "document"))
        asked = bm25_weights(self.questions, *common, "query")
        return self.figures([index.search(query, _DEPTH)[0].tolist() for query in asked], measures)

    def dense(self, model: Towers, backbone: Path, measures: Sequence[str], length: int, *, reranked: bool) -> dict[str, Figures]:
        """A model on these documents, and with rNN over its best candidates under the name of the set and `WITH_RNN`."""
        _, reading = reading_of(backbone)
        tokenizer = ModelTokenizer(backbone / TOKENIZER, lower=reading.lower)
        queries = model.vectors("query", tokenise(tokenizer, self.questions, length, reading.prompt("query")))
        documents = model.vectors("document", tokenise(tokenizer, self.documents, length, reading.prompt("document")))
        lists = [best for best, _ in rankings(queries, documents, RERANKED if reranked else _DEPTH)]
        figures = {self.name: self.figures([best[:_DEPTH].tolist() for best in lists], measures)}
        if reranked:
            near = [neighbourhood(query, documents[best], RULES) for query, best in zip(queries, lists, strict=True)]
            by_share = {}
            for share in SHARES:
                scores = [mix(each.similarity, each.jaccard, share) for each in near]
                ranked = [
                    best[np.argsort(-own, kind="stable")][:_DEPTH].tolist() for best, own in zip(lists, scores, strict=True)
                ]
                by_share[share] = self.figures(ranked, measures[:1])[measures[0]]
            figures[self.name + WITH_RNN] = {measures[0]: chosen_on_halves(by_share)[0]}
        return figures

    def part(self, trained: DataPart, reranked: int) -> DataPart:
        """These questions as the development questions of a data set that a model was trained on."""
        relevant = [frozenset(each for each, grade in own.items() if grade > 0) for own in self.gains]
        setup = replace(
            trained.setup,
            examples=replace(trained.setup.examples, texts=self.documents),
            places=list(range(len(self.documents))),
            train=Pairs(self.questions[:1], relevant[:1]),  # nothing is trained on
            dev=Pairs(self.questions, relevant),
        )
        settings = replace(trained.settings, **({"reranked": reranked} if hasattr(trained.settings, "reranked") else {}))
        return replace(trained, setup=setup, settings=settings)


def chosen_on_halves(by_share: Mapping[float, np.ndarray]) -> tuple[np.ndarray, list[float]]:
    """Give each half of the questions the share that is best on the other half: figures of each question, and the two shares.

    The paper fits rNN's parameters on one set of questions and uses them on others of the same collection.
    """
    questions = len(next(iter(by_share.values())))
    first = np.zeros(questions, bool)
    first[random.Random(0).sample(range(questions), questions // 2)] = True
    figures, shares = np.zeros(questions), []
    for half in (first, ~first):
        best = max(by_share, key=lambda share: by_share[share][~half].mean())
        figures[half] = by_share[best][half]
        shares.append(best)
    return figures, shares


def skewed(folder: Path, work: Path) -> Path:
    """Cut the training questions of a set so that answers are as skewed as words are (Zipf): a BEIR folder with the other splits untouched.

    The answer of rank r, in an order drawn once, keeps `_MOST` / r of its training questions, at least `_LEAST`.
    """
    home = work / "skewed" / f"{folder.name}-skewed"
    if (home / "qrels" / "train.tsv").is_file():
        return home
    (home / "qrels").mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("*.jsonl*"), *folder.glob("qrels/*")):
        if not file.name.startswith("train"):
            shutil.copyfile(file, home / file.relative_to(folder))
    asked: dict[str, list[str]] = {}
    for line in lines_of(next(folder.glob("qrels/train.tsv*"))):
        asked.setdefault(line.split("\t")[1], []).append(line)
    generator = random.Random(0)
    text = "query-id\tcorpus-id\tscore\n"
    for rank, answer in enumerate(generator.sample(sorted(asked), len(asked)), start=1):
        own = asked[answer]
        text += "".join(f"{line}\n" for line in generator.sample(own, min(len(own), max(_LEAST, _MOST // rank))))
    atomic_files.write(home / "qrels" / "train.tsv", text.encode())
    return home


def lines_of(file: Path) -> list[str]:
    """Lines of a file of judgements, without its head."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return [line.rstrip("\n") for line in list(lines)[1:]]


def fold(folder: Path, shares: tuple[float, float, float], work: Path) -> Path:
    """Split all questions of a set anew: a BEIR folder."""
    home = work / "folds" / f"{'-'.join(f'{share:g}' for share in shares)}" / folder.name
    if (home / "qrels" / "test.tsv").is_file():
        return home
    (home / "qrels").mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.jsonl*"):
        shutil.copyfile(file, home / file.name)
    judged: dict[str, list[str]] = {}
    for file in sorted(folder.glob("qrels/*.tsv*")):
        for line in lines_of(file):
            judged.setdefault(line.split("\t")[0], []).append(line)
    questions = sorted(judged)
    random.Random(0).shuffle(questions)
    first = round(shares[0] * len(questions))
    second = first + round(shares[1] * len(questions))
    for split, own in (("train", questions[:first]), ("dev", questions[first:second]), ("test", questions[second:])):
        text = "".join(f"{line}\n" for question in own for line in judged[question])
        atomic_files.write(home / "qrels" / f"{split}.tsv", f"query-id\tcorpus-id\tscore\n{text}".encode())
    return home


def reduced(folder: Path, documents: int, questions: int, work: Path) -> Path:
    """Take a part of a large set to train on: a BEIR folder of some questions of train and dev, their answers, and other documents.

    Held-out questions are searched in the whole corpus whenever training is interrupted for it, which would take longer than a short training.
    A set of no more documents stays as it is.

    Args:
        folder: The set.
        documents: Documents of the part, if the answers are no more.
        questions: Training questions at most, and a fifth as many of the split dev.
        work: The part is kept below it.
    """
    home = work / "parts" / f"{documents}-{questions}" / folder.parent.name / folder.name
    if (home / "corpus.jsonl").is_file():
        return home
    collection = Collection(folder)
    if len(collection.texts) <= documents:
        return folder
    (home / "qrels").mkdir(parents=True, exist_ok=True)
    kept: dict[str, None] = {}
    asked: dict[str, str] = {}
    for split, most in (("train", questions), ("dev", questions // 5)):
        if not any(folder.glob(f"qrels/{split}.tsv*")):
            continue
        queries, qrels = collection.judged(split)
        held = [
            query for query in queries if any(grade > 0 and each in collection.index for each, grade in qrels[query.id].items())
        ]
        drawn = random.Random(0).sample(held, min(most, len(held)))
        lines = ["query-id\tcorpus-id\tscore\n"]
        for query in drawn:
            asked[query.id] = query.text
            judged = {each: grade for each, grade in qrels[query.id].items() if each in collection.index}
            kept.update(dict.fromkeys(judged))
            lines += [f"{query.id}\t{each}\t{grade}\n" for each, grade in judged.items()]
        (home / "qrels" / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    others = [each for each in collection.index if each not in kept]
    random.Random(1).shuffle(others)
    kept.update(dict.fromkeys(others[: max(0, documents - len(kept))]))
    texts = [{"_id": each, "text": collection.texts[place]} for each, place in collection.index.items() if each in kept]
    (home / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in asked.items()), encoding="utf-8"
    )
    atomic_files.write(home / "corpus.jsonl", "".join(json.dumps(each) + "\n" for each in texts).encode())
    return home


def measured(file: Path, compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any] | None:
    """A row from its file, or computed now and kept there; None: another process computes it.

    Args:
        file: Its record.
        compute: ``(folder of checkpoints) -> record``. Where the folder has some already, training goes on.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file_locks.noted(file.with_suffix(".lock"), "row"):
            if not file.is_file():
                begun, home = time.monotonic(), file.with_suffix("")
                commit = subprocess.run(
                    ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
                )
                record = {**compute(home), "commit": commit.stdout.strip(), "minutes": (time.monotonic() - begun) / 60}
                atomic_files.write(file, json.dumps(record, default=np.ndarray.tolist).encode())
                shutil.rmtree(home, ignore_errors=True)
    except file_locks.Held:
        return None
    return finished(file)


def finished(file: Path) -> dict[str, Any] | None:
    """A row from its file; None: it is not there yet."""
    record: dict[str, Any] | None = json.loads(file.read_bytes()) if file.is_file() else None
    return record


def key(*parts: object) -> str:
    """A short name for exactly these settings."""
    return blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=6).hexdigest()


def digest_of(figures: Iterable[Sequence[float]]) -> str:
    """Of the figure of each question: it tells whether a later run gives the same."""
    return blake2b(b"".join(np.round(np.array(each, np.float64), 6).tobytes() for each in figures), digest_size=4).hexdigest()


def train_and_test(
    method_name: str,
    folder: Path,
    given: Mapping[str, object],
    tests: Sequence[TestSet],
    measures: Sequence[str],
    home: Path,
    vectors: Path,
    *,
    reranked: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Train a model as `termweave train` does, without exporting it; the development questions choose the step that is kept.

    Returns:
        Figures of the tests before the first step ("start") and of the model, test set -> measure -> one number a question; the step that was
        kept, the development figures and the fingerprint of the backbone.
    """
    method = methods.get(method_name)
    home.mkdir(parents=True, exist_ok=True)
    with kept_vectors(vectors):
        data = parts(str(folder), method.settings(given), home, say)
        backbone = data[0].setup.backbone

        def tested(model: Any, settings: Any) -> dict[str, Figures]:
            figures: dict[str, Figures] = {}
            for test in tests:
                if method.kind == "dense":
                    figures.update(test.dense(model, backbone, measures, settings.max_length, reranked=reranked))
                else:
                    development = method.held_out(test.part(data[0], _DEPTH), model, say)
                    figures[test.name] = {measures[0]: replace(development, measure=measures[0]).figures(model)[0]}
            return figures

        model = method.build(data[0].settings, backbone)
        start = tested(model.eval(), backbone_model.settled(model.backbone, data[0].settings, say))
        trained = learn(method, data[0].settings, data, home / "checkpoints", say=say)
        history = trained.history
        return {
            "start": start,
            "figures": tested(trained.model, trained.settings),
            "steps": history.steps[history.best],
            "development": history.values,
            "backbone": backbone_model.fingerprint(model.backbone),
        }


@contextmanager
def kept_vectors(folder: Path) -> Iterator[None]:
    """Keep the vectors of documents on disk where their encoder is not trained: the rows of a table share them."""
    compute = Towers.vectors

    def vectors(model: Towers, side: Kind, texts: TokenIds) -> np.ndarray:
        if side == "query" or not model.fixed_documents:
            return compute(model, side, texts)
        name = key(
            backbone_model.fingerprint(model.backbone), model.pooling, model.unit, blake2b(texts.values.tobytes()).hexdigest()
        )
        file = folder / f"{name}.npy"
        if not file.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            content = BytesIO()
            np.save(content, compute(model, side, texts))
            atomic_files.write(file, content.getvalue())
        kept: np.ndarray = np.load(file)
        return kept

    with mock.patch.object(Towers, "vectors", vectors):
        yield
