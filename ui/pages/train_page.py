"""`/train`: a model trained on one half of the book, a generation built with it, and the other half that decides about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from termweave.errors import UsageError
from termweave.ui import parameters
from termweave.ui.addresses import see_other
from termweave.ui.background import training_places
from termweave.ui.background.jobs import BackgroundJob
from termweave.ui.background.training_process import TrainingProcess
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.pages.judge_page import book_of
from termweave.ui.parameters import INDEX, Parameter
from termweave.ui.rendering import page

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.ui.serve_options import TrainingCorpus
    from termweave.ui.workspace import Workspace

_KIND = "train"
_PARAMETERS = (INDEX, Parameter("job", "The training to show."))


def routes() -> list[Route]:
    """The page and its forms."""
    return [Route("/train", _show, methods=["GET"]), form_route("/train/start", _start), form_route("/train/stop", _stop)]


def _show(request: Request) -> Response:
    values = parameters.read(request.query_params, _PARAMETERS)
    workspace = _workspace(request)
    name = workspace.index(workspace.chosen(values["index"])).lineage.name
    jobs = request.app.state.jobs
    job = jobs.find(values["job"]) if values["job"] else None
    if job is not None and (job.kind, job.about["index"]) != (_KIND, name):
        raise UsageError("This result is of another page.", "Open it from the list.")
    learned, measured = training_places.counts(book_of(request, name))
    stopped = training_places.unfinished(name)
    context: dict[str, Any] = {
        "index": name,
        "jobs": jobs.of_kind(_KIND, name),
        "job": job,
        "margin": f"{training_places.MARGIN:g}",
        "learned": learned,
        "measured": measured,
        "stopped": stopped.name if stopped else "",
        "obstacles": _obstacles(workspace, name, learned, measured),
        "corpus": workspace.options.corpus.source if workspace.options.corpus else "",
    }
    return page(request, "train.html", context)


def _obstacles(workspace: Workspace, name: str, learned: int, measured: int) -> list[str]:
    """What keeps this server from training on the book, each as a sentence with what to do."""
    from termweave.training.needs import missing  # noqa: PLC0415 - only this page needs it

    found = [f"Training needs {what}. {advice}" for what, advice in missing()]
    if workspace.options.corpus is None or workspace.options.index != name:
        found.append(
            f"This server does not know the corpus of {name}. Start it with: termweave serve {name} --corpus SOURCE, the source that "
            f"'termweave index SOURCE {name}' read."
        )
    for count, least, what in (
        (learned, training_places.FEWEST_LEARNED, "to learn from"),
        (measured, training_places.FEWEST_MEASURED, "to measure with"),
    ):
        if count < least:
            found.append(
                f"There are {count} judged queries {what}, and {least} are needed. Judge more; each query falls into one half by its words."
            )
    return found


def _start(request: Request, form: FormData) -> Response:
    """Check what can be checked at once, and begin."""
    from termweave.indexer.generations import generations, option_compatibility  # noqa: PLC0415 - only this page needs it

    workspace = _workspace(request)
    name = workspace.index(workspace.chosen(text_of(form, "index"))).lineage.name
    corpus = workspace.options.corpus
    if obstacles := _obstacles(workspace, name, *training_places.counts(book_of(request, name))):
        raise UsageError(" ".join(obstacles))
    assert corpus is not None
    live = generations.find_live(workspace.engine, name)
    if live is None or "weights" not in live.lineage.models:
        raise UsageError(f"{name!r} has no term weights that could be trained.", "Build it with a weights model.")
    option_compatibility.options_of(workspace.engine, live, {})
    job = BackgroundJob(_KIND, f"Training on book:{name}", {"index": name})
    process = TrainingProcess(_task(corpus, workspace, name, resume=text_of(form, "act") == "resume"))
    job.stop = process.stop

    def work(update: Callable[..., None]) -> dict[str, Any]:
        def say(line: str) -> None:
            job.said.append(line)
            update(0, None, line)

        try:
            return process.run(update, say)
        finally:
            workspace.forget(name)

    request.app.state.jobs.start(job, work)
    return see_other("/train", index=name, job=job.id)


def _task(corpus: TrainingCorpus, workspace: Workspace, name: str, *, resume: bool) -> training_places.TrainingTask:
    models = workspace.options.models or {}
    return training_places.TrainingTask(corpus.settings, name, corpus.source, corpus.reading, models, resume)


def _stop(request: Request, form: FormData) -> Response:
    job = request.app.state.jobs.find(text_of(form, "job"))
    if job.kind != _KIND or job.stop is None or not job.running:
        raise UsageError("This training has ended.", "Open the page again.")
    job.stop()
    return see_other("/train", index=job.about["index"], job=job.id)


def _workspace(request: Request) -> Workspace:
    workspace: Workspace = request.app.state.workspace
    return workspace
