"""A cassette of searches: what a server answered to each request, so that every way to search runs again without one.

    OPENSEARCH_URL=... python -m tests.search.cassette     record anew, after a change of results that is meant

Options are combined so that every two values of different options stand together in a search. A recording says for each search which requests
were sent and what came out; `test_cassette.py` searches again with the recorded answers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import orjson
from backports import zstd

from termweave import corpora, settings
from termweave.cli import run
from termweave.engine import EngineResponseError, connect
from termweave.errors import TermweaveError
from termweave.indexer import BuildOptions, build
from termweave.indexer.options import Window
from termweave.rerank import adjustments, candidate_features
from termweave.search import Index
from termweave.search.options import SENT, ExplainOptions, RunOptions
from termweave.search.results import json as results

if TYPE_CHECKING:
    from termweave.engine.client.connection import Engine

FILE = Path(__file__).parents[1] / "fixtures" / "searches.json.zst"
#: Index -> how its documents are indexed; `enriched` is an application's own index.
INDICES = {
    "cassette-whole": BuildOptions(),
    "cassette-passages": BuildOptions(passages=Window(12, 8)),
    "cassette-words": BuildOptions(dense="none"),
    "cassette-enriched": None,
}
#: Index -> what stands in values that it refuses: each of them is searched once alone, and is not combined.
REFUSED = {
    "cassette-whole": ("1+1", "2"),
    "cassette-passages": ("True server_fusion",),
    "cassette-words": ("1+1", "2", "dense", "rnn", "diverse", "True server_fusion"),
    "cassette-enriched": ("1+1", "2"),
}
_SUBJECTS = ("timer", "json", "thread", "file", "socket", "date", "random", "queue")
VERBS = ("start", "open", "read", "send")
QUERIES = ("start a thread later", 'read "json text" -socket', "opne a scoket", "random date", "zebra", "the")
#: Option -> its values, the usual one first. TABLES is the folder of `tables`.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "mode": (None, "lexical", "weights", "dense", "hybrid@rrf", "hybrid@z-score", "weights:0.6,dense:0.4", "hybrid@min-max"),
    "rerank": (None, "none", "rnn", "rnn@dense", "boost@votes:0.2", "rnn>decay@day:0.1:30d", "match@title:0.3", "diverse@0.5"),
    "rewrite": (None, "operators", "spelling", "synonyms@TABLES/synonyms.txt", "pins@TABLES/pins.tsv", "operators,spelling"),
    "candidates": (100, 8),
    "where": ((), ("kind=a",), ("votes>=3 AND NOT kind=b", "exists(day)")),
    "k": (10, 3),
    "start": (0, 4),
    "explain": (False, True),
    "like": ((), ("json-1", "file-2")),
    "pin": ((), ("queue-4", "nowhere", "json-0")),
    "highlight": (False, True),
    "passages": (None, "2", "1+1"),
    "fields": (("title", "text", "metadata"), ("title",), ("*",), ("metadata.kind",)),
    "facets": ((), ("kind", "votes:2/4")),
    "sort": (None, "votes:desc", "day"),
    "collapse": (None, "kind", "kind:2"),
    "min_score": (None, "0.4", "dense:0.3"),
    "totals": (False, True),
    "server_fusion": (False, True),
    "log_features": (None, "TABLES/features.csv"),
}
#: What a document is explained by, whether it is found or not.
_DOCUMENT = "thread-3"


def documents() -> list[dict[str, Any]]:
    """Forty documents with metadata; each has some sentences, so that passages differ."""
    chance = random.Random(7)
    return [
        {
            "id": f"{subject}-{number}",
            "title": f"The {subject} module, part {number}",
            "text": " ".join(f"Use {chance.choice(_SUBJECTS)} to {verb} a {subject} later." for verb in VERBS),
            "kind": "abc"[number % 3],
            "votes": chance.randrange(6),
            **({"day": f"2026-0{1 + number}-1{number}"} if number else {}),
        }
        for subject in _SUBJECTS
        for number in range(5)
    ]


def tables(folder: Path) -> Path:
    """Write the files that options name."""
    (folder / "synonyms.txt").write_text("later, afterwards\nthread => worker, thread\n", encoding="utf-8")
    rows = "query\tdocument\taction\nrandom date\tdate-4\tpin\nrandom date\trandom-0\thide\n"
    (folder / "pins.tsv").write_text(rows, encoding="utf-8")
    return folder


def cases(index: str) -> list[dict[str, Any]]:
    """Each value alone, and combinations in which every two values of different options stand together, unless they exclude each other."""
    chance = random.Random(11)
    sizes = {name: len(values) for name, values in OPTIONS.items()}
    usable = {
        name: [at for at, value in enumerate(values) if not _refused(index, name, value)] for name, values in OPTIONS.items()
    }
    open_pairs = {
        ((one, i), (other, j)) for one, other in itertools.combinations(OPTIONS, 2) for i in usable[one] for j in usable[other]
    }
    chosen: list[dict[str, int]] = []
    for _ in range(90):
        tried = [{name: chance.choice(places) for name, places in usable.items()} for _ in range(60)]
        best = max(filter(_allowed, tried), key=lambda case: len(open_pairs.intersection(_pairs(case))))
        open_pairs.difference_update(_pairs(best))
        chosen.append(best)
    usual = dict.fromkeys(OPTIONS, 0)
    alone = [usual, *({**usual, name: place} for name, size in sizes.items() for place in range(1, size))]
    return [{name: OPTIONS[name][place] for name, place in each.items() if place} for each in alone + chosen]


def _pairs(case: dict[str, int]) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    return itertools.combinations(case.items(), 2)


def _refused(index: str, name: str, value: Any) -> bool:
    return name not in {"like", "pin"} and any(
        part in str(value).split("@")[0] or part == f"{value} {name}" for part in REFUSED[index]
    )


def _allowed(case: dict[str, int]) -> bool:
    chosen = {name: OPTIONS[name][place] for name, place in case.items()}
    fusible = chosen["mode"] in {None, "hybrid@min-max", "weights:0.6,dense:0.4"}
    if chosen["server_fusion"] and not (fusible and chosen["log_features"] is None and chosen["min_score"] != "dense:0.3"):
        return False
    if chosen["min_score"] == "dense:0.3" and chosen["mode"] in {"lexical", "weights"}:
        return False
    return not (chosen["pin"] and chosen["sort"]) and not (chosen["server_fusion"] and chosen["explain"])


class Cassette:
    """The answers of a server by their requests.

    Args:
        answers: Request -> answer; filled where it records.
        engine: The server to record; None: only recorded answers are given.
    """

    def __init__(self, answers: dict[str, Any], engine: Engine | None = None) -> None:
        self.answers = answers
        self.sent: list[str] = []
        self.engine = connect(settings.load(url="http://127.0.0.1:9")) if engine is None else engine
        send = None if engine is None else engine._send
        vars(self.engine)["_send"] = lambda request: self._answer(request, send)

    def _answer(self, request: Any, send: Any) -> Any:
        key = _key(request)
        if key not in self.answers:
            assert send is not None, f"not recorded: {key}"
            try:
                self.answers[key] = {"ok": send(request)}
            except EngineResponseError as error:
                self.answers[key] = {"status": error.status, "body": error.body, "message": error.message, "hint": error.hint}
        if not key.startswith("GET"):
            self.sent.append(key)
        answer = self.answers[key]
        if "ok" in answer:
            return json.loads(json.dumps(answer["ok"]))
        raise EngineResponseError(answer["status"], answer["message"], answer["body"], hint=answer["hint"])


def _key(request: Any) -> str:
    """A request as text. Numbers have four digits: another processor may encode a query with other last bits."""
    params = sorted((name, value) for name, value in (request.params or {}).items())
    text = f"{request.method} {request.path} {json.dumps(params)} {(request.data or b'').decode()}"
    return re.sub(r"-?\d+\.\d{3,}(?:e-?\d+)?", lambda match: f"{float(match[0]):.3g}", text)


class _OneDay(datetime):
    """The age of a document does not grow."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 1, tzinfo=tz)


@patch.object(adjustments, "datetime", _OneDay)
@patch.object(candidate_features, "datetime", _OneDay)
def played(name: str, cassette: Cassette, folder: Path) -> list[dict[str, Any]]:
    """Run all cases on an index; returns what came out of each."""
    # A host that has no copy of the statistics: they are asked for, too.
    with patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder / name)}):
        index, out = Index.pinned(cassette.engine, name), []
    for number, case in enumerate(cases(name)):
        query = QUERIES[number % len(QUERIES)]
        options = {name: _placed(value, folder) for name, value in case.items()}
        ranking, running, sent_options = (
            {name: value for name, value in options.items() if name in names}
            for names in ({each.name for each in fields(ExplainOptions)}, {each.name for each in fields(RunOptions)}, SENT)
        )
        verbs = {
            "search": lambda: results.search(query, index.answer(query, **options), 0.0),  # noqa: B023 - called at once
            "explain": lambda: results.explain(query, index.explain(query, _DOCUMENT, **ranking)),  # noqa: B023
            "run": lambda: index.run({f"q{number}": each for number, each in enumerate(QUERIES)}, **running).scores,  # noqa: B023
            "requests": lambda: results.requests(index.requests(query, **sent_options)),  # noqa: B023
        }
        for verb, call in verbs.items():
            if verb == "run" and number % 3:
                continue
            cassette.sent.clear()
            log = folder / "features.csv"
            log.unlink(missing_ok=True)
            try:
                result = call()
            except TermweaveError as error:
                result = {"error": error.message, "hint": error.hint}
            logged = log.read_text(encoding="utf-8") if log.exists() else None
            sent = sorted(hashlib.sha256(key.encode()).hexdigest()[:12] for key in set(cassette.sent))
            described = {"verb": verb, "query": query, "options": _plain(case, folder), "result": _plain(result, folder)}
            out.append({**described, "log": logged, "sent": sent})
    needs = ("vectors",) if "dense" in index.signals else ()
    lists = index.candidates(list(QUERIES), index.signals, depth=8, where="votes>=1", needs=needs)
    scores = [{name: each.scores for name, each in found.lists.items()} for found in lists]
    return [*out, {"verb": "candidates", "result": _plain(scores, folder)}]


def _placed(value: Any, folder: Path) -> Any:
    return value.replace("TABLES", str(folder)) if isinstance(value, str) else value


def _plain(value: Any, folder: Path) -> Any:
    """A result as JSON has it; paths and times are left out."""
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()
    return json.loads(content.replace(str(folder), "TABLES"))


def differences(recorded: Any, now: Any, path: str = "", *, exact: bool = False) -> list[str]:
    """Where two results differ. Numbers may differ by 1e-5 of their size, which another processor's sums explain, unless `exact`."""
    if isinstance(recorded, float) and isinstance(now, float):
        same = recorded == now if exact else bool(np.isclose(recorded, now, rtol=1e-5, atol=1e-6))
        return [] if same else [f"{path}: {recorded!r}, now {now!r}"]
    if isinstance(recorded, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*recorded, *now])
        return [line for key in keys for line in differences(recorded.get(key), now.get(key), f"{path}.{key}", exact=exact)]
    if path.endswith((".warnings", ".remarks")):  # in any order
        recorded, now = sorted(recorded or ()), sorted(now or ())
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        return [
            line
            for place, (one, other) in enumerate(zip(recorded, now, strict=True))
            for line in differences(one, other, f"{path}[{place}]", exact=exact)
        ]
    return [] if recorded == now else [f"{path}: {recorded!r}, now {now!r}"]


def main() -> None:
    """Build the indices, record, and write the cassette."""
    import tempfile

    engine = connect(settings.load())
    recording: dict[str, Any] = {"answers": {}, "indices": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = tables(Path(scratch))
        for name, options in INDICES.items():
            engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})
            if options is None:
                _own_index(engine, name)
            else:
                build(engine, corpora.open_documents(documents(), name="corpus"), name, options)
            cassette = Cassette(recording["answers"], connect(settings.load()))
            recording["indices"][name] = played(name, cassette, folder)
            engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})
    FILE.write_bytes(zstd.compress(orjson.dumps(recording), level=19))


def _own_index(engine: Engine, name: str) -> None:
    """An application's index, enriched."""
    mapping = {"properties": {"kind": {"type": "keyword"}, "votes": {"type": "integer"}, "day": {"type": "date"}}}
    engine.request("PUT", f"/{name}", body={"settings": {"index.knn": True}, "mappings": mapping})
    data = b""
    for each in documents():
        for line in ({"index": {"_id": each["id"]}}, {key: each[key] for key in each if key != "id"}):
            data += orjson.dumps(line) + b"\n"
    engine.request("POST", f"/{name}/_bulk", params={"refresh": True}, body=data)
    assert run(["enrich", name, "--url", os.environ["OPENSEARCH_URL"], "--quiet"]) == 0


if __name__ == "__main__":
    main()
