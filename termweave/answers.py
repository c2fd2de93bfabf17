"""The forms of the JSON that commands and the API print; `tools/generate_docs.py` makes `docs/schemas` of them.

An answer that is one dataclass has no form here: its schema is made of the dataclass (`tools/generate_docs.py`, `RECORDS`). mypy checks the functions
that name a form in their signature, and tests check the printed JSON against the schemas. Only type checkers and the generator import this module.
"""

# ruff: noqa: UP013 - a shape in a few lines, and keys such as "schema" and "from"
# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required

from typing_extensions import TypedDict  # pydantic asks for it below Python 3.12

# A search
Signal = TypedDict("Signal", {"score": float, "rank": int | None, "share": float})
Term = TypedDict("Term", {"term": str, "share": float, "word": str})
Effect = TypedDict("Effect", {"word": str, "effect": float})
Feature = TypedDict("Feature", {"feature": str, "value": float | None, "share": float})
Part = TypedDict("Part", {
    "name": Required[str], "share": Required[float], "score": float, "rank": int | None, "terms": Sequence[Term], "jaccard": float,
    "logit": float, "scored": bool, "effects": Sequence[Effect], "weight": float, "similarity": float, "neighbours": Sequence[str],
    "passage": int, "normalised": float, "lowest": float, "dropped": Sequence[str], "counts": float, "approximate": bool, "field": str,
    "value": Any, "matched": Sequence[str], "worth": float, "cosine": float, "of": str | None, "pinned": int, "base": float,
    "features": Sequence[Feature],
}, total=False)
ShadedWord = TypedDict("ShadedWord", {"start": int, "end": int, "term": str, "share": float})
Explanation = TypedDict("Explanation", {
    "score": float, "parts": Sequence[Part], "text": str, "words": Sequence[ShadedWord], "excluded": NotRequired[bool],
})
Passage = TypedDict("Passage", {"number": int, "start": int, "end": int})
Highlight = TypedDict("Highlight", {
    "field": Literal["title", "text"], "start": int, "text": str, "matches": Sequence[tuple[int, int]],
})
FoundPassage = TypedDict("FoundPassage", {"number": int, "start": int, "end": int, "text": str, "score": float})
HitAnswer = TypedDict("HitAnswer", {
    "id": str, "score": float, "rank": int, "fields": Mapping[str, Any], "signals": Mapping[str, Signal], "reranked": float,
    "explanation": Explanation | None, "passage": NotRequired[Passage], "highlights": NotRequired[Sequence[Highlight]],
    "passages": NotRequired[Sequence[FoundPassage]],
})
Facet = TypedDict("Facet", {"value": str, "count": int, "filter": str})
Totals = TypedDict("Totals", {"listed": int, "deeper": bool, "candidates": int, "passing": int, "matching": int | None})
CutShort = TypedDict("CutShort", {"name": str, "scored": int, "candidates": int})
Search = TypedDict("Search", {
    "schema": str, "query": str, "took_ms": float, "hits": Sequence[HitAnswer], "dropped": NotRequired[Mapping[str, Sequence[str]]],
    "facets": NotRequired[Mapping[str, Sequence[Facet]]], "cut_short": NotRequired[Sequence[CutShort]],
    "warnings": NotRequired[Sequence[str]], "totals": NotRequired[Totals],
})
Explain = TypedDict("Explain", {"schema": str, "query": str, "hit": HitAnswer})
Request = TypedDict("Request", {
    "method": str, "path": str, "body": Sequence[Any] | Mapping[str, Any], "dropped": NotRequired[Mapping[str, Sequence[str]]],
    "left_out": NotRequired[Sequence[str]],
})
Requests = TypedDict("Requests", {"schema": str, "requests": Sequence[Request]})
Encoded = TypedDict("Encoded", {"text": str, "weights": Mapping[str, float] | None, "vector": Sequence[float] | None})
Encode = TypedDict("Encode", {"schema": str, "generation": str, "encodings": Sequence[Encoded]})
Ranks = TypedDict("Ranks", {"first": int | None, "second": int | None})
Compare = TypedDict("Compare", {
    "schema": str, "query": str, "head": int, "shared": int, "both": int, "correlation": float | None, "ranks": Mapping[str, Ranks],
})

# An index
Gate = TypedDict("Gate", {"gate": str, "met": bool, "reason": str})
Update = TypedDict("Update", {
    "new": int, "changed": int, "unchanged": int, "gone": int, "refused": int, "deleted": int, "outdated": int,
})
Index = TypedDict("Index", {
    "schema": str, "name": str, "generation": str, "documents": int, "passages": int, "sent": int, "signals": Sequence[str],
    "seconds": float, "published": bool, "gates": Sequence[Gate], "notes": Sequence[str], "update": NotRequired[Update],
})
NameAndHash = TypedDict("NameAndHash", {"name": str, "hash": str})
EncodedNow = TypedDict("EncodedNow", {"shards": int, "texts": int})
EncodeShards = TypedDict("EncodeShards", {
    "schema": str, "folder": str, "source": str, "texts": int, "shards": int, "encoded": EncodedNow, "models": Mapping[str, NameAndHash],
    "statistics": str, "notes": Sequence[str], "warnings": Sequence[str],
})
Enrich = TypedDict("Enrich", {
    "schema": Required[str], "index": Required[str], "removed": int, "documents": int, "written": int, "conflicts": int,
    "signals": Sequence[str], "notes": Sequence[str],
}, total=False)
Connect = TypedDict("Connect", {
    "schema": Required[str], "name": Required[str], "removed": Sequence[str], "pipeline": str | None, "template": str,
    "ingest_pipeline": str | None, "remote_models": Sequence[str], "model_server": str, "models": Mapping[str, str],
    "weights": Mapping[str, float], "fallback": bool, "notes": Sequence[str], "written": bool,
}, total=False)
Delete = TypedDict("Delete", {
    "schema": str, "name": str, "deleted": Sequence[str], "generation": NotRequired[str], "documents": NotRequired[Sequence[str]],
    "absent": NotRequired[Sequence[str]],
})
Verify = TypedDict("Verify", {
    "schema": str, "ok": bool, "generation": str, "deep": bool, "read": int, "expected": int, "counted": int, "documents": int,
    "missing": Sequence[str], "extra": Sequence[str], "altered": Sequence[str], "lost": str, "refused": Sequence[str],
})
ListedIndex = TypedDict("ListedIndex", {
    "name": str, "generation": str | None, "created": str | None, "documents": int | None, "bytes": int, "generations": int,
    "signals": Sequence[str], "models": Mapping[str, str],
})
List = TypedDict("List", {"schema": str, "url": str, "indices": Sequence[ListedIndex]})
Promote = TypedDict("Promote", {"schema": str, "name": str, "live": str, "before": str | None})
Prune = TypedDict("Prune", {"schema": str, "name": str, "deleted": Sequence[str]})

# Measuring and judging
FigureRow = TypedDict("FigureRow", {
    "system": str, "mode": str, "reranker": str, "measure": str, "value": float, "p": float | None, "n": int,
})
LatencyFigures = TypedDict("LatencyFigures", {"median": float, "p95": float, "queries": int})
SystemFigures = TypedDict("SystemFigures", {
    "system": str, "wins": int, "ties": int, "losses": int, "judged": float, "latency_ms": LatencyFigures | None,
})
Evaluate = TypedDict("Evaluate", {
    "schema": str, "dataset": str, "baseline": str, "rows": Sequence[FigureRow], "systems": Sequence[SystemFigures],
    "notes": Sequence[str], "gates": NotRequired[Sequence[Gate]],
})
Demo = TypedDict("Demo", {
    "schema": str, "url": str, "generation": str, "evaluation": Evaluate, "searches": Mapping[str, Sequence[HitAnswer]], "seconds": float,
})
PooledQuery = TypedDict("PooledQuery", {"id": str, "text": str, "documents": Sequence[str], "grades": int})
JudgePair = TypedDict("JudgePair", {"first": str, "second": str, "items": int, "kappa": float | None})
Agreement = TypedDict("Agreement", {
    "judges": Mapping[str, int], "shared": int, "pairs": Sequence[JudgePair], "complete": int, "fleiss": float | None,
    "alpha": float | None,
})
Book = TypedDict("Book", {
    "schema": str, "index": str, "queries": Sequence[PooledQuery], "agreement": Agreement | None, "guidelines": str,
})
NextDocument = TypedDict("NextDocument", {"query": str, "document": str, "title": str, "text": str})
Judge = TypedDict("Judge", {
    "schema": str, "index": str, "judge": str, "done": int, "documents": int, "next": NextDocument | None,
})
Job = TypedDict("Job", {
    "id": str, "kind": Literal["evaluate", "tune", "learn"], "title": str, "index": str, "state": Literal["running", "done", "failed"],
    "stage": str, "done": int, "total": int | None, "error": str | None,
})
Jobs = TypedDict("Jobs", {"schema": str, "jobs": Sequence[Job]})

# Models and training
KnownModel = TypedDict("KnownModel", {
    "name": str, "model": str, "origin": Literal["shipped", "package", "own", "fetched", "used", "to fetch"], "outputs": Sequence[str],
    "language": str, "bytes": int, "calibration": float | None, "folder": str | None, "saturates": bool,
})
Models = TypedDict("Models", {"schema": str, "models": Sequence[KnownModel]})
BackboneFolders = TypedDict("BackboneFolders", {"schema": str, "folders": Mapping[str, str], "licences": Mapping[str, str]})
Graph = TypedDict("Graph", {"file": str, "bytes": int})
Precisions = TypedDict("Precisions", {
    "fp32": float, "int8": float, "change": float, "shipped": NotRequired[float], "shipped_p": NotRequired[float],
})
Cost = TypedDict("Cost", {
    "questions": NotRequired[int], "documents": NotRequired[int], "weights": NotRequired[Precisions], "dense": NotRequired[Precisions],
    "scores": NotRequired[Precisions],
})
Comparison = TypedDict("Comparison", {
    "queries": int, "documents": int, "overlap": float, "ndcg": NotRequired[Precisions], "cosine_min": NotRequired[float],
    "cosine_mean": NotRequired[float],
})
Sample = TypedDict("Sample", {"weights": NotRequired[Comparison], "dense": NotRequired[Comparison]})
Export = TypedDict("Export", {
    "schema": str, "folder": str, "graphs": Mapping[str, Graph], "parity": Mapping[str, float], "ndcg": Cost,
    "sample": NotRequired[Sample],
})
WeightedWord = TypedDict("WeightedWord", {"start": int, "end": int, "word": str, "term": str, "weight": float})
Weights = TypedDict("Weights", {
    "schema": str, "model": str, "kind": Literal["document", "query"], "words": Sequence[WeightedWord], "terms": Mapping[str, float],
})
History = TypedDict("History", {"steps": Sequence[int], "values": Sequence[float], "losses": Sequence[float], "best": int})
ShownPassage = TypedDict("ShownPassage", {"id": str, "words": Sequence[WeightedWord]})
Change = TypedDict("Change", {"term": str, "ratio": float, "documents": int})
Train = TypedDict("Train", {
    "schema": str, "folder": str, "hash": str, "history": History, "measure": str, "bm25": float, "start": float | None,
    "start_p": float | None, "dev": float, "dev_float": float, "p": float, "default": bool, "parity": Mapping[str, float], "ndcg": Cost,
    "passages": Sequence[ShownPassage], "gained": Sequence[Change], "lost": Sequence[Change],
})
Profile = TypedDict("Profile", {
    "name": str, "weights": Mapping[str, float], "fusion": str, "reranking": Mapping[str, Any] | None,
    "ranker": NotRequired[Mapping[str, Any] | None], "rules": NotRequired[Sequence[str] | None],
    "rewrite": NotRequired[Mapping[str, Any] | None], "fitted": Mapping[str, Any],
})
Profiles = TypedDict("Profiles", {"schema": str, "name": str, "in_force": str, "profiles": Sequence[Profile]})
Tune = TypedDict("Tune", {
    "schema": str, "dataset": str, "measure": Literal["nDCG@10", "MRR@10"], "fitted": int, "held_out": int, "trials": int,
    "profile": Profile, "in_force": str, "figures": Mapping[str, float], "gain": float, "low": float, "high": float, "p": float,
    "notes": NotRequired[Sequence[str]], "adopted": bool, "proposed": NotRequired[bool],
})

# This host, and the server that pages and the API need
Setting = TypedDict("Setting", {"value": Any, "from": str, "description": str, "ignored": NotRequired[Sequence[str]]})
Place = TypedDict("Place", {"path": str, "description": str})
Config = TypedDict("Config", {"schema": str, "settings": Mapping[str, Setting], "folders": Mapping[str, Place]})
Finding = TypedDict("Finding", {"name": str, "ok": bool, "text": str, "advice": str})
Doctor = TypedDict("Doctor", {"schema": str, "ok": bool, "findings": Sequence[Finding]})
Node = TypedDict("Node", {
    "schema": str, "url": str | None, "version": str | None, "nodes": Sequence[Mapping[str, Any]], "state": str,
})
NodeLogs = TypedDict("NodeLogs", {"schema": str, "node": str, "lines": Sequence[str]})
NodeWipe = TypedDict("NodeWipe", {"schema": str, "folder": str, "bytes": int})
Serve = TypedDict("Serve", {"schema": str, "url": str, "read_only": bool})
Progress = TypedDict("Progress", {"schema": str, "stage": str, "done": int, "total": int | None, "detail": str})
Remark = TypedDict("Remark", {"schema": str, "text": str, "warning": bool})
Error = TypedDict("Error", {"schema": str, "error": str, "hint": str})

#: Name of a schema -> its shape.
ANSWERS: Mapping[str, Any] = {
    "search": Search, "explain": Explain, "requests": Requests, "encode": Encode, "compare": Compare,
    "index": Index, "encode-shards": EncodeShards, "enrich": Enrich, "connect": Connect, "delete": Delete, "verify": Verify, "list": List,
    "promote": Promote, "prune": Prune, "evaluate": Evaluate, "demo": Demo, "book": Book, "judge": Judge,
    "jobs": Jobs, "models": Models, "backbone": BackboneFolders, "export": Export, "weights": Weights,
    "train": Train, "profiles": Profiles, "tune": Tune, "config": Config,
    "doctor": Doctor, "node": Node, "node-logs": NodeLogs, "node-wipe": NodeWipe, "serve": Serve, "error": Error, "progress": Progress,
    "remark": Remark,
}
#: Shapes that may have further keys.
OPEN = {"Finding", "Doctor", "Node"}
