"""What is in a generation, for the last lines of `index`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from termweave.engine import Engine
    from termweave.signals import DocumentLayout


def stored(engine: Engine, index: str, layout: DocumentLayout) -> list[str]:
    """How much each signal that can be counted stores, on average over the documents."""
    counted = {signal.name: signal.counted for signal in layout.signals if signal.counted}
    if not counted:
        return []
    aggregations = {name: {"avg": {"field": field}} for name, (field, _) in counted.items()}
    answer = engine.request("POST", f"/{index}/_search", body={"size": 0, "aggs": aggregations})["aggregations"]
    return [f"{name}: {answer[name]['value'] or 0:.1f} {what} a document on average." for name, (_, what) in counted.items()]
