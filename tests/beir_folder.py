"""Data sets of tests, written as BEIR lays them out."""

import json


def beir_folder(path, documents, queries, **judgements):
    """Write a data set: documents and queries by id, each a text or its fields; of each split its rows (query, document, grade; else 1)."""
    (path / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in (("corpus", documents), ("queries", queries)):
        lines = ({"_id": key, **(each if isinstance(each, dict) else {"text": each})} for key, each in texts.items())
        (path / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for split, rows in judgements.items():
        lines = ("\t".join(map(str, (*row, 1)[:3])) for row in rows)
        (path / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
    return path
