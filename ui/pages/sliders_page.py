"""`/sliders`: the weights of the signals and lambda of rNN, moved by hand; the kept candidates are ranked again at once.

Without script the page is a form: its button ranks with the weights that were typed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from termweave.errors import UsageError
from termweave.search.catalog import profiles
from termweave.search.ranking.fusion import METHODS
from termweave.search.ranking.rnn import ReciprocalNeighbours
from termweave.ui import kept_candidates, parameters, searching
from termweave.ui.addresses import page_address
from termweave.ui.pages.judge_page import book_of
from termweave.ui.parameters import Parameter
from termweave.ui.rendering import page
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.search import Index
    from termweave.search.rewriting.configuration import Rewriting
    from termweave.ui.kept_candidates import SliderSetting

#: Hits that are shown.
_SHOWN = 20
_WEIGHT = "weight."


def routes() -> list[Route]:
    """The page."""
    return [Route("/sliders", _show, methods=["GET"])]


def _show(request: Request) -> Response:
    workspace = workspace_of(request)
    index = workspace.index(workspace.chosen(request.query_params.get("index")))
    weights = [Parameter(f"{_WEIGHT}{name}", f"Weight of {name}.", "number", None, 0, 1) for name in index.signals]
    fused = Parameter("fusion", "Fusion method.")
    values = parameters.read(request.query_params, (*parameters.CANDIDATES_PAGE, fused, *weights))
    setting = _changed(kept_candidates.setting_of(index, values["mode"]), index, values)
    book = book_of(request, index.book)
    kept = kept_candidates.keep(index, values["q"], book, values["filter"], values["mode"])
    first = kept[0] if kept and not kept[0].id else None
    best = kept_candidates.ranked(first, setting)[:_SHOWN] if first else []
    figure, judged = kept_candidates.measure(kept, setting)
    titles = searching.titles(index, [document for document, _ in best])
    rewriting = profiles.rewriting(index.lineage, values["mode"])
    context: dict[str, Any] = {
        "index": values["index"] or index.book,
        "values": values,
        "setting": setting,
        "methods": list(METHODS),
        "best": [(titles.get(document, document), document, score) for document, score in best],
        "figure": figure,
        "judged": judged,
        "most": kept_candidates.QUERIES,
        "left_out": kept_candidates.left_out(index, values["mode"]),
        "search": _search(index, values, setting, rewriting),
        "synonyms": rewriting is not None and rewriting.synonyms,
        "usual": ReciprocalNeighbours().weight,
        # In ASCII: ids may have characters that HTML cannot carry.
        "kept": json.dumps(kept_candidates.as_data(index, kept, setting)) if kept else "",
    }
    return page(request, "sliders.html", context)


def _changed(setting: SliderSetting, index: Index, values: Mapping[str, Any]) -> SliderSetting:
    """The setting with the values of the form.

    Raises:
        UsageError: All weights are 0, or there is no such fusion method.
    """
    given = {name: values[f"{_WEIGHT}{name}"] for name in index.signals}
    if any(weight is not None for weight in given.values()):
        setting = replace(setting, weights={name: weight or 0.0 for name, weight in given.items()})
    if not sum(setting.weights.values()) > 0:
        raise UsageError("All weights are 0.", "Give at least one signal a weight.")
    if values["fusion"] and values["fusion"] not in METHODS:
        raise UsageError(f"There is no fusion method {values['fusion']!r}.", f"Known: {', '.join(METHODS)}.")
    if setting.neighbours is not None and values["rnn"] is not None:
        setting = replace(setting, neighbours=replace(setting.neighbours, weight=values["rnn"]))
    return replace(setting, fusion=values["fusion"] or setting.fusion)


def _search(index: Index, values: Mapping[str, Any], setting: SliderSetting, rewriting: Rewriting | None) -> str:
    """The address of the search with this setting, as far as the search page takes it."""
    weights = ",".join(f"{name}:{weight:g}" for name, weight in setting.weights.items() if weight > 0)
    rewrite = [name for name in ("operators", "spelling") if getattr(rewriting, name, False)]
    pairs = [("q", values["q"]), ("index", values["index"] or index.book)]
    pairs += [("filter", text) for text in values["filter"]]
    pairs += [("rewrite", ",".join(rewrite))] if rewrite else []
    pairs += [("mode", f"{weights}@{setting.fusion}")]
    return page_address("/search", pairs + ([("rerank", "rnn")] if setting.reranking else []))
