"""`/learn`: `termweave learn` with the book of an index and the log of user behaviour; what it found is promoted on the page Generations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from termweave.errors import UsageError
from termweave.training.needs import missing
from termweave.ui import parameters
from termweave.ui.jobs import BackgroundJob
from termweave.ui.learning_process import LearningJob, LearningProcess
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.parameters import INDEX, JOB
from termweave.ui.rendering import page, see_other
from termweave.ui.workspace import workspace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.ui.workspace import Workspace

_KIND = "learn"


def routes() -> list[Route]:
    """The page and its forms."""
    return [Route("/learn", _show, methods=["GET"]), form_route("/learn/start", _start), form_route("/learn/stop", _stop)]


def _show(request: Request) -> Response:
    values = parameters.read(request.query_params, (INDEX, replace(JOB, required=False)))
    workspace, jobs = workspace_of(request), request.app.state.jobs
    book = workspace.book(values["index"])
    context = {
        "index": book.name,
        "jobs": jobs.of_kind(_KIND, book.name),
        "job": jobs.shown(values["job"], _KIND, book.name),
        "judged": len(book.qrels()),
        "obstacles": _obstacles(workspace),
    }
    return page(request, "learn.html", context)


def _obstacles(workspace: Workspace) -> list[str]:
    """What keeps this server from learning, each as a sentence with what to do."""
    obstacles = [f"Learning needs {what}. {advice}" for what, advice in missing()]
    if workspace.options.settings is None:
        obstacles.append("This server does not learn. Start it with 'termweave serve'.")
    return obstacles


def _start(request: Request, form: FormData) -> Response:
    """Begin, or go on with what was stopped."""
    workspace = workspace_of(request)
    name = workspace.book(text_of(form, "index")).name
    if (obstacles := _obstacles(workspace)) or workspace.options.settings is None:
        raise UsageError(" ".join(obstacles))
    process = LearningProcess(LearningJob(workspace.options.settings, name, workspace.options.models or {}))
    job = BackgroundJob(_KIND, f"Learning for {name}", {"index": name})
    job.stop = process.stop

    def work(update: Callable[..., None]) -> dict[str, Any]:
        def say(line: str) -> None:
            job.said.append(line)
            update(0, None, line)

        return process.run(update, say)

    request.app.state.jobs.start(job, work)
    return see_other("/learn", index=name, job=job.id)


def _stop(request: Request, form: FormData) -> Response:
    job = request.app.state.jobs.find(text_of(form, "job"))
    if job.kind != _KIND or job.stop is None or not job.running:
        raise UsageError("This run has ended.", "Open the page again.")
    job.stop()
    return see_other("/learn", index=job.about["index"], job=job.id)
