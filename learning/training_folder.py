"""The folder that every candidate is trained on: a BEIR folder with the questions, and the documents that training looks at."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import orjson

from termweave.learning.questions import HELD_OUT, TRAIN
from termweave.support import atomic_files, private_files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from termweave.learning.questions import JudgedQuestions, QuestionSplit
    from termweave.records import Document, Run

#: Most documents that training looks at: with more, every look at the held-out questions would take minutes on two cores.
MOST_DOCUMENTS = 6000
#: How many of the best documents of the live system are kept for each question: wrong ones among them are the hardest.
_HARDEST = 10


def documents_to_keep(questions: JudgedQuestions, split: QuestionSplit, live: Run, every: list[str]) -> set[str]:
    """Choose the documents: answers and best results of held-out questions first, then answers of the others, then random ones.

    Args:
        questions: All questions.
        split: Their parts.
        live: What the live system found for the held-out questions.
        every: Ids of all documents.
    """
    if len(every) <= MOST_DOCUMENTS:
        return set(every)
    kept: set[str] = set()
    for query in split.parts[HELD_OUT]:
        kept.update(document for document, grade in questions.qrels[query].items() if grade > 0)
        kept.update(list(live.scores.get(query, {}))[:_HARDEST])
    generator = random.Random(0)  # noqa: S311 - a draw, not a secret
    answers = {document for query in split.parts[TRAIN] for document, grade in questions.qrels[query].items() if grade > 0}
    for part, most in ((answers, MOST_DOCUMENTS * 3 // 4), (set(every), MOST_DOCUMENTS)):
        rest = sorted(part - kept)
        kept.update(generator.sample(rest, max(0, min(len(rest), most - len(kept)))))
    return kept


def write(folder: Path, questions: JudgedQuestions, split: QuestionSplit, documents: Iterable[Document], kept: set[str]) -> None:
    """Write the folder.

    Args:
        folder: The folder; it is made.
        questions: All questions.
        split: Their parts. Each becomes a file of judgements.
        documents: All documents of the index.
        kept: Ids of the documents to write.
    """
    private_files.make_folder(folder)
    private_files.make_folder(folder / "qrels")
    with private_files.opened(folder / "corpus.jsonl", "wb") as file:
        for document in documents:
            if document.id in kept:
                line = {"_id": document.id, "title": document.title, "text": document.text, "metadata": dict(document.metadata)}
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    with private_files.opened(folder / "queries.jsonl", "wb") as file:
        for query in questions.queries:
            file.write(orjson.dumps({"_id": query.id, "text": query.text}, option=orjson.OPT_APPEND_NEWLINE))
    for part, ids in split.parts.items():
        rows = [
            f"{query}\t{document}\t{grade}\n"
            for query in ids
            for document, grade in questions.qrels[query].items()
            if document in kept or part not in {TRAIN, HELD_OUT}
        ]
        judged = "".join(["query-id\tcorpus-id\tscore\n", *rows])
        atomic_files.write(
            folder / "qrels" / f"{part}.tsv", judged.encode("utf-8"), private=True
        )  # the last one says that the folder is whole
