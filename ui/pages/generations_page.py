"""The page `/generations`: the generations of an index; making another one live, after a question that lists what changes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.routing import Route

from termweave.catalog import generations
from termweave.errors import TermweaveError, UsageError
from termweave.indexer.generations import listing, publication
from termweave.support.messages import sized
from termweave.ui import parameters
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.parameters import INDEX, Parameter
from termweave.ui.rendering import page, see_other
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.catalog.audit import Act
    from termweave.engine import Engine
    from termweave.indexer.generations.listing import Generation

_PARAMETERS = (INDEX, Parameter("promote", "The generation to ask about."))


def routes() -> list[Route]:
    """The routes of the page and of its form."""
    return [Route("/generations", _show, methods=["GET"]), form_route("/generations/promote", _promote)]


def _show(request: Request) -> Response:
    values = parameters.read(request.query_params, _PARAMETERS)
    workspace = workspace_of(request)
    name = workspace.book(values["index"]).name
    listed = listing.list_generations(workspace.engine, name)
    live = next((each for each in listed if each.live), None)
    promoted = next((each for each in listed if each.index == values["promote"]), None)
    if values["promote"] and promoted is None:
        raise UsageError(f"{name!r} has no generation {values['promote']!r}.", "Choose one on the page Generations.")
    previous = None
    with suppress(TermweaveError):
        previous = publication.previous(workspace.engine, name)
    context = {"index": name, "listed": listed, "live": live, "promoted": promoted, "previous": previous}
    changes = _changes(workspace.engine, live, promoted) if promoted else ()
    return page(request, "generations.html", {**context, "changes": changes, "state": listing.state_of, "sized": sized})


def _changes(engine: Engine, live: Generation | None, promoted: Generation) -> list[tuple[str, str, str]]:
    """The properties in which the live generation and the one to promote differ: name, value of the live generation, value of the other."""
    rows = []
    for name, read in (
        ("created (UTC)", lambda each: each.created[:19].replace("T", " ")),
        ("source", lambda each: each.source),
        ("documents", lambda each: "unknown" if each.documents is None else f"{each.documents:,}"),
        ("size", lambda each: sized(each.bytes)),
        ("signals", lambda each: ", ".join(each.signals)),
        ("models", lambda each: ", ".join(dict.fromkeys(each.models.values())) or "none"),
        ("built with", lambda each: " ".join(f"{flag} {value}" for flag, value in each.options.items()) or "the usual options"),
    ):
        now, then = read(live) if live else "", read(promoted)
        if now != then:
            rows.append((name, now, then))
    if live and (change := publication.profile_change(engine, live.index, promoted.index)):
        rows.append(("profile in use", *change))
    return rows


def _promote(request: Request, form: FormData) -> Response:
    """Make a generation live, unless another generation went live since the user was asked for confirmation."""
    workspace = workspace_of(request)
    name, generation = text_of(form, "index"), text_of(form, "generation")
    listing.list_generations(workspace.engine, name)  # refuses a name that is not of termweave; none of them need be live
    if (now := generations.live(workspace.engine, name) or "") != text_of(form, "live"):
        raise UsageError(
            f"Meanwhile the generation {now or 'none'} is live.", "Open the page again, and look at what changes now."
        )
    act: Act = "rollback" if text_of(form, "act") == "rollback" else "promote"
    publication.promote(workspace.engine, name, generation, act)
    workspace.indices.forget(name)
    return see_other("/generations", index=name)
