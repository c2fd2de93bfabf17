"""Put given documents first, in the given order: `--pin ID`. A share of the score lifts each of them above the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from termweave.declared_settings import Setting
from termweave.search.feature import Feature
from termweave.support.arguments import document_ids

if TYPE_CHECKING:
    from termweave.search.retrieval.plan import Retrieval


@dataclass(frozen=True, kw_only=True)
class PinOptions:
    """Documents that come first.

    Attributes:
        pin: Ids of documents that come first, in this order, also where the search does not find them. One that a filter leaves out, or
            that the index does not hold, is not shown.
    """

    pin: Annotated[
        Sequence[str],
        Setting(
            "Put this document first, also where the search does not find it; repeatable, in this order. One that a filter leaves out, or "
            "that the index does not hold, is not shown.",
            "ID",
            repeatable=True,
            control="",
            convert=document_ids("pin"),
        ),
    ] = ()


class Pin(Feature[PinOptions]):
    """Puts given documents first, before the documents that the rewriting of a query pins."""

    def plan(self, plan: Retrieval) -> Retrieval:
        """Ask for the pinned documents with the candidates."""
        return replace(plan, pin=self.options.pin)
