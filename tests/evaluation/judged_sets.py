"""Small judged sets, and an index that needs no server, for the tests of measuring and tuning."""

import orjson

from termweave.catalog.layout import DocumentLayout
from termweave.catalog.lineage import Lineage
from termweave.catalog.profiles import adopted
from termweave.engine.client.resolved_name import ResolvedName
from termweave.search import Index
from termweave.search.opening import OpenGeneration


def write_set(folder, documents, queries, qrels):
    """A BEIR folder of id -> text or (title, text), id -> text, and query -> document -> grade."""
    (folder / "qrels").mkdir(parents=True)
    pairs = {key: text if isinstance(text, tuple) else ("", text) for key, text in documents.items()}
    entries = [{"_id": key, "title": title, "text": text} for key, (title, text) in pairs.items()]
    (folder / "corpus.jsonl").write_bytes(b"\n".join(map(orjson.dumps, entries)))
    (folder / "queries.jsonl").write_bytes(b"\n".join(orjson.dumps({"_id": key, "text": text}) for key, text in queries.items()))
    judged = {query: of for query, of in qrels.items() if query in queries}
    rows = "".join(f"{query}\t{document}\t{grade}\n" for query, of in judged.items() for document, grade in of.items())
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return folder


class Known(Index):
    """An index of which nothing is asked but its signals and profiles."""

    def __init__(self, *signals, profile=None):
        parameters = {"dense": {"dimension": 4}}
        lineage = Lineage("docs", "", "", {}, "", {name: parameters.get(name, {}) for name in signals})
        layout = DocumentLayout.from_meta(lineage.signals)
        lineage = lineage if profile is None else adopted(lineage, profile)
        self.name = "docs"
        self._now = OpenGeneration("docs-1", lineage, layout, None, None, ResolvedName("docs", "docs-1"), None)
