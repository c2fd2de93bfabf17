"""Unfinished generations: where ledgers lie, which build can be resumed, what is thrown away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from termweave import places
from termweave.errors import UsageError
from termweave.indexer.ledger import Ledger
from termweave.search.lineage import Lineage, ModelLineage, exists
from termweave.search.stored_statistics import companion

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.engine import Engine


def folder(engine: Engine) -> Path:
    """Where the ledgers of this cluster lie."""
    cluster: str = engine.request("GET", "/")["cluster_uuid"]
    return places.state() / "ledgers" / cluster


def open_ledger(engine: Engine, index: str) -> Ledger:
    """The ledger of a generation; a new one where there is none."""
    return Ledger(folder(engine) / f"{index}.sqlite")


def existing_ledger(engine: Engine, index: str) -> Ledger:
    """The ledger of a generation that was built from this host.

    Raises:
        UsageError: It was built elsewhere, or its ledger was removed.
    """
    path = folder(engine) / f"{index}.sqlite"
    if not path.exists():
        raise UsageError(
            f"The ledger of {index!r} is not on this host.", "Compare with the source instead: 'termweave verify NAME SOURCE'."
        )
    return Ledger(path)


def resume(engine: Engine, name: str, fingerprint: str, *, fresh: bool) -> tuple[str, Lineage, Ledger] | None:
    """The unfinished generation of `name`, if there is one.

    Args:
        engine: The cluster.
        name: The alias it is built for.
        fingerprint: Of source, models and settings as they are now.
        fresh: Throw it away.

    Raises:
        UsageError: There is one, of another source, model or setting.
    """
    for path in sorted(folder(engine).glob(f"{name}-*.sqlite"), reverse=True):
        ledger = Ledger(path)
        if ledger.get("name") != name or ledger.get("state") != "building":
            ledger.close()
            continue
        index = path.stem
        found = _lineage(ledger.get("lineage"))
        if not exists(engine, index):
            discard(ledger)
            continue
        if fresh:
            engine.request("DELETE", f"/{index}")
            if exists(engine, companion(index)):
                engine.request("DELETE", f"/{companion(index)}")
            discard(ledger)
            continue
        if found.fingerprint != fingerprint:
            done, total = ledger.acknowledged, ledger.total
            ledger.close()
            raise UsageError(
                f"An unfinished generation of {name!r} is there ({index}, {done:,} of {total:,} documents), "
                "made from another source, model or setting.",
                f"Its source was {found.source['name']!r}. Repeat that command to finish it, or add --fresh to throw it away.",
            )
        return index, found, ledger
    return None


def discard(ledger: Ledger) -> None:
    """Close a ledger and remove its files."""
    ledger.close()
    for suffix in ("", "-wal", "-shm"):
        ledger.path.with_name(ledger.path.name + suffix).unlink(missing_ok=True)


def refusal_file(ledger: Ledger) -> Path:
    """Write what the engine refused, one JSON object a line, beside the ledger."""
    path = ledger.path.with_suffix(".refused.jsonl")
    lines = [
        json.dumps({"id": identity, "line": line, "reason": reason}, ensure_ascii=False)
        for identity, line, reason in ledger.refused()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _lineage(values: dict[str, Any]) -> Lineage:
    models = {output: ModelLineage(**model) for output, model in values.pop("models").items()}
    return Lineage(**values, models=models)
