"""One row of a table of `benchmarks/reproduction.py`: train a model, and measure it on test questions by exact search."""

from __future__ import annotations

import gzip
import json
import os
import random
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from termweave.declared_settings import settings_of
from termweave.encoders import model_lookup
from termweave.encoders.analysis.model_tokenizer import ModelTokenizer
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.manifest import TOKENIZER
from termweave.encoders.term_weighting.bm25_anchor import BM25
from termweave.evaluation.measures import per_query
from termweave.records import Run
from termweave.rerank import reciprocal
from termweave.support import atomic_files
from termweave.training.backbone import lookup
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.data.pairs import Collection
from termweave.training.dense import family
from termweave.training.dense.evaluation import rankings
from termweave.training.dense.inputs import tokenise
from termweave.training.dense.preparation import reading_of
from termweave.training.methods import base as methods
from termweave.training.mixture import learn, parts
from termweave.training.setup import analysis_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from termweave.training.dense.model import Towers

#: Candidates that rNN reranks, and its parameters for unit vectors (docs/reranking.md).
_RERANKED = 60
_NEIGHBOURS = {"k": 10, "k_exp": 3, "weight": 0.75}
#: Documents of a ranking: the deepest measure looks at 20.
_DEPTH = 20

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
        from termweave.training.data.pairs import count

        common = (analysis, count([self.documents], analysis), BM25())
        index = SparseIndex(bm25_weights(self.documents, *common, "document"))
        asked = bm25_weights(self.questions, *common, "query")
        return self.figures([index.search(query, _DEPTH)[0].tolist() for query in asked], measures)

    def dense(self, model: Towers, backbone: Path, measures: Sequence[str], length: int, *, reranked: bool) -> dict[str, Figures]:
        """A model on these documents, and with rNN over its best candidates under the name of the set and "+ rNN"."""
        _, reading = reading_of(backbone)
        tokenizer = ModelTokenizer(backbone / TOKENIZER, lower=reading.lower)
        queries = model.vectors("query", tokenise(tokenizer, self.questions, length, reading.prompt("query")))
        documents = self._document_vectors(model, tokenizer, length, reading.prompt("document"))
        lists = [best for best, _ in rankings(queries, documents, _RERANKED if reranked else _DEPTH)]
        found = {self.name: self.figures([best[:_DEPTH].tolist() for best in lists], measures)}
        if reranked:
            again = [
                best[np.argsort(-reciprocal(query, documents[best], **_NEIGHBOURS), kind="stable")][:_DEPTH].tolist()
                for query, best in zip(queries, lists, strict=True)
            ]
            found[f"{self.name} + rNN"] = self.figures(again, measures)
        return found

    def _document_vectors(self, model: Towers, tokenizer: ModelTokenizer, length: int, prompt: str) -> np.ndarray:
        """Encode the documents; an encoder that no row trains does so once."""
        texts = tokenise(tokenizer, self.documents, length, prompt)
        if not model.fixed_documents:
            return model.vectors("document", texts)
        if length not in self._fixed:
            self._fixed[length] = model.vectors("document", texts)
        return self._fixed[length]

    @cached_property
    def _fixed(self) -> dict[int, np.ndarray]:
        return {}


def fold(folder: Path, shares: tuple[float, float, float], work: Path) -> Path:
    """Split all questions of a set anew: a BEIR folder that shares corpus and questions with it."""
    home = work / "folds" / f"{'-'.join(f'{share:g}' for share in shares)}" / folder.name
    if (home / "qrels" / "test.tsv").is_file():
        return home
    (home / "qrels").mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.jsonl*"):
        (home / file.name).unlink(missing_ok=True)
        (home / file.name).symlink_to(file.resolve())
    judged: dict[str, list[str]] = {}
    for file in sorted(folder.glob("qrels/*.tsv*")):
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
            for line in list(lines)[1:]:
                judged.setdefault(line.split("\t")[0], []).append(line)
    questions = sorted(judged)
    random.Random(0).shuffle(questions)
    first = round(shares[0] * len(questions))
    second = first + round(shares[1] * len(questions))
    for split, own in (("train", questions[:first]), ("dev", questions[first:second]), ("test", questions[second:])):
        text = "".join(line.rstrip("\n") + "\n" for question in own for line in judged[question])
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
    collection = Collection(folder)
    if len(collection.texts) <= documents:
        return folder
    home = work / "parts" / f"{documents}-{questions}" / folder.parent.name / folder.name
    if (home / "corpus.jsonl").is_file():
        return home
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


def measured(file: Path, compute: Callable[[], tuple[dict[str, Figures], dict[str, Any]]]) -> dict[str, Any]:
    """Figures of a row from its file, or computed now and kept there: a table that was stopped goes on where it stopped."""
    if not file.is_file():
        begun = time.monotonic()
        figures, facts = compute()
        lists = {test: {name: values.tolist() for name, values in own.items()} for test, own in figures.items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "figures": lists,
            "minutes": (time.monotonic() - begun) / 60,
            "processor_minutes": time.process_time() / 60,
            **facts,
        }
        atomic_files.write(file, json.dumps(record).encode())
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def key(*parts: object) -> str:
    """A short name for exactly these settings."""
    return blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=6).hexdigest()


def train_and_test(
    method_name: str,
    folder: Path,
    given: Mapping[str, object],
    tests: Sequence[TestSet],
    measures: Sequence[str],
    *,
    reranked: bool,
    say: Callable[[str], None],
) -> tuple[dict[str, Figures], dict[str, Any]]:
    """Train a model as `termweave train` does, without exporting it; the development questions choose the step that is kept."""
    method = methods.get(method_name)
    settings = method.settings(given)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as work:
        data = parts(str(folder), settings, Path(work), say)
        trained = learn(method, data[0].settings, data, Path(work) / "checkpoints", say=say)
        backbone = data[0].setup.backbone
        figures: dict[str, Figures] = {}
        for test in tests:
            length = trained.settings.max_length
            figures.update(test.dense(trained.model, backbone, measures, length, reranked=reranked))
    history = trained.history
    facts = {
        "steps": history.steps[history.best],
        "development": history.values,
        "alpha": trained.settings.alpha if method_name == "le-bs" else None,
    }
    return figures, facts


def untrained(
    given: Mapping[str, object], tests: Sequence[TestSet], measures: Sequence[str], *, reranked: bool
) -> tuple[dict[str, Figures], dict[str, Any]]:
    """The backbone as it came."""
    method = methods.get("coder")
    known = settings_of(method.parameters)
    settings = method.settings({name: value for name, value in given.items() if name in known})
    backbone = lookup.find(settings, [], Path())
    model = family.build_model(settings, backbone).eval()
    figures: dict[str, Figures] = {}
    for test in tests:
        figures.update(test.dense(model, backbone, measures, settings.max_length, reranked=reranked))
    return figures, {}
