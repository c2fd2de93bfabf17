"""The pages `/evaluate`, `/tune` and `/learn`, whose work runs in the background.

`/evaluate` compares ways of searching on judged queries, `/tune` fits a search profile to the judged queries, and `/learn` runs `termweave learn` with
the judged queries (book) of an index and the log of user behaviour; the generation that learning made is promoted on the page Generations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from termweave import corpora
from termweave.catalog import audit
from termweave.catalog.lineage import read_lineage, resolve_index, store_lineage
from termweave.catalog.profiles import adopted
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.evaluation import html_page, table
from termweave.evaluation.book.reader import BookDataset
from termweave.evaluation.book.store import JudgementBook
from termweave.evaluation.measures import MEASURES as SHOWN
from termweave.rerank.stored_rerankers import reranking_of
from termweave.search import profiles
from termweave.training.needs import missing
from termweave.ui import parameters
from termweave.ui.jobs import BackgroundJob
from termweave.ui.learning_process import LearningJob, LearningProcess
from termweave.ui.pages.forms import form_route, text_of
from termweave.ui.parameters import INDEX, JOB
from termweave.ui.rendering import page, page_address, problem, see_other, status_of
from termweave.ui.workspace import Workspace, workspace_of

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from termweave.corpora import Dataset
    from termweave.evaluation import Experiment
    from termweave.evaluation.gates import Verdict
    from termweave.search import Index

    #: Works on an index and a data set, and says how far it is.
    Work = Callable[[Index, Dataset, Callable[..., None]], Any]

#: Gates of one evaluation.
_MOST_GATES = 20
MEASURES = ("nDCG@10", "MRR@10")


@dataclass(frozen=True)
class GatedExperiment:
    """The result of an evaluation that a page began: the experiment, and for each required gate the verdict whether it is met."""

    experiment: Experiment
    verdicts: tuple[Verdict, ...]


def routes() -> list[Route]:
    """The routes of the three pages and of their forms."""
    return [
        *(Route(f"/{kind}", partial(_show, kind=kind), methods=["GET"]) for kind in ("evaluate", "tune", "learn")),
        *(form_route(f"/{kind}/start", partial(_begun, kind=kind), changes=False) for kind in ("evaluate", "tune")),
        Route("/progress", _progress, methods=["GET"]),
        form_route("/tune/adopt", _adopt),
        form_route("/learn/start", _learn),
        form_route("/learn/stop", _stop),
    ]


def _show(request: Request, kind: str) -> Response:
    values = parameters.read(request.query_params, (INDEX, replace(JOB, required=False)))
    book = workspace_of(request).book(values["index"])
    return _page(request, kind, book, values["job"] and request.app.state.jobs.find(values["job"], kind, book.name))


def _page(
    request: Request,
    kind: str,
    book: JudgementBook,
    job: BackgroundJob | None = None,
    form: FormData | None = None,
    error: TermweaveError | None = None,
) -> Response:
    """Make a page that shows a job; if a form that was sent could not start a job, a page with the form as filled in and the error."""
    jobs, workspace, name = request.app.state.jobs, workspace_of(request), book.name
    job = replace(job) if job else None  # as it is now: it may end while the page is made
    listed = [each for each in jobs.all() if (each.kind, each.about["index"]) == (kind, name)]
    listed = [job if job is not None and each.id == job.id else each for each in listed]
    context: dict[str, Any] = {"index": name, "kind": kind, "jobs": listed, "job": job, "error": error}
    if kind == "learn":
        return page(request, "learn.html", {**context, "judged": len(book.qrels()), "obstacles": _obstacles()})
    context |= {
        "datasets": [f"book:{name}", *workspace.options.datasets],
        "graded": next(book.entries("grade", ["query"]), None) is not None,
        "places": [each for each in workspace.places(name) if each != name],
        "measures": MEASURES,
    }
    if job is not None and job.result is not None:
        context |= _table(job) if kind == "evaluate" else {"report": job.result}
    sent = {field: text_of(form or {}, field) for field in ("gates", "dataset", "measure", "against")}
    context |= {"gates": sent["gates"] or (job.about.get("gates", "") if job is not None else ""), "sent": sent}
    return page(request, f"{kind}.html", context, status_of(error) if error else HTTPStatus.OK)


def _table(job: BackgroundJob) -> dict[str, Any]:
    """The template values for the result of an evaluation: its table, the verdicts on its gates, and functions that format cells and links."""
    result: GatedExperiment = job.result
    experiment, name, against = result.experiment, job.about["index"], job.about["against"]
    rows = {row.system: row for row in experiment.rows}

    def configuration(system: str, second: str) -> list[tuple[str, str]]:
        """The parameters with which the search page searches as one system did; a profile's own reranker is left out, as the profile implies it."""
        row = rows[system]
        profile = profiles.find(job.about["lineage"], row.mode)
        stored = reranking_of(profile)
        comes_with_mode = stored is not None and stored.name == row.reranker
        return [(f"mode{second}", row.mode), *([] if comes_with_mode else [(f"rerank{second}", row.reranker)])]

    def both(query: str, system: str) -> str:
        """The address of the search page that compares two lists of a query: of the baseline and of a system, or of two indices."""
        pairs = {"q": experiment.texts[query], "index": name, "compare": "1"}
        if against:
            return page_address("/search", [*(pairs | {"index": against, "index2": name}).items()])
        return page_address("/search", [*pairs.items(), *configuration(experiment.baseline, ""), *configuration(system, "2")])

    others = [row for row in experiment.rows if row.system != experiment.baseline]
    return {
        "experiment": experiment,
        "verdicts": result.verdicts,
        "shown": SHOWN,
        "cell": table.cell,
        "legend": table.legend(experiment, "better, same, worse:"),
        "moved": {row.system: html_page.moved_most(experiment, row) for row in others},
        "both": both,
    }


def _progress(request: Request) -> Response:
    """Answer with the part of a page that shows the progress of a job; the browser asks for this part again until the job has ended."""
    values = parameters.read(request.query_params, (JOB,))
    try:
        job = request.app.state.jobs.find(values["job"])
    except UsageError as error:  # the server was started anew
        answer = problem(request, status_of(error), error.message, error.hint)
    else:
        answer = page(request, "progress.html", {"job": job})
        if job.running:
            return answer
    answer.headers["hx-refresh"] = "true"
    return answer


def _begun(request: Request, form: FormData, kind: str) -> Response:
    """Start the evaluation or tuning that a form asks for, once index and data set are open; after a mistake show the form as filled in."""
    workspace, spec = workspace_of(request), text_of(form, "dataset")
    book = workspace.book(text_of(form, "index"))
    try:
        about, work = {"evaluate": _evaluate, "tune": _tune}[kind](workspace, form)
        name = workspace.chosen(text_of(form, "index"))
        index = workspace.pinned(name)
        dataset = _dataset(workspace, name, spec)
        title = f"{'Evaluation' if kind == 'evaluate' else 'Tuning'} on {spec}"
        title += f" against {about['against']}" if about.get("against") else ""
        job = BackgroundJob(kind, title, {"index": name, "generation": index.generation, "lineage": index.lineage, **about})
        request.app.state.jobs.start(job, lambda update: work(index, dataset, update))
    except (UsageError, InputError) as error:
        return _page(request, kind, book, form=form, error=error)
    return see_other(f"/{kind}", index=name, job=job.id)


def _evaluate(workspace: Workspace, form: FormData) -> tuple[dict[str, str], Work]:
    from termweave.evaluation import evaluate, gates, index_comparison  # noqa: PLC0415 - numpy comes with it

    required = [gates.parse(line.strip()) for line in text_of(form, "gates").splitlines() if line.strip()]
    if len(required) > _MOST_GATES:
        raise UsageError(f"You gave {len(required)} gates.", f"Give at most {_MOST_GATES}.")
    if any(gate.run is not None for gate in required):  # a request must not make this process read a file
        raise UsageError("A page cannot compare with a saved run.", "Write 'nDCG@10>=0.4', or use 'termweave evaluate'.")
    name, against = workspace.chosen(text_of(form, "index")), text_of(form, "against")
    other = workspace.pinned(against) if against else None

    def work(index: Index, dataset: Dataset, update: Callable[..., None]) -> GatedExperiment:
        options: dict[str, Any] = {"progress": partial(update, stage="Queries"), "required": required}
        if other is None:
            experiment = evaluate(index, dataset, **options)
        else:
            experiment = index_comparison.evaluate_against(index, name, other, against, dataset, **options)
        return GatedExperiment(experiment, tuple(gates.verdict(gate, experiment, dataset) for gate in required))

    return {"gates": "\n".join(gate.text for gate in required), "against": against}, work


def _tune(_: Workspace, form: FormData) -> tuple[dict[str, str], Work]:
    from termweave.evaluation import tune  # noqa: PLC0415 - numpy comes with it

    measure = text_of(form, "measure") or MEASURES[0]

    def work(index: Index, dataset: Dataset, update: Callable[..., None]) -> Any:
        return tune(index, dataset, measure=measure, progress=lambda stage, done, total: update(done, total, stage))

    return {"measure": measure}, work


def _dataset(workspace: Workspace, name: str, spec: str) -> Dataset:
    """Open the book of the index, or a data set that `termweave serve` was started with: a request must not make the server open any other folder.

    Raises:
        UsageError: The request names another data set.
    """
    if spec == f"book:{name}":
        book = BookDataset(spec, JudgementBook(workspace.engine, name))
        book.queries()  # without grades it says so now, not in a job
        return book
    if spec in workspace.options.datasets:
        return corpora.open_dataset(spec)
    raise UsageError(f"Pages may not use the data set {spec!r}.", "'termweave serve --on DATASET' allows one.")


def _adopt(request: Request, form: FormData) -> Response:
    """Store the profile that tuning found to be better on the held-out queries, so that searches use the profile from now on."""
    job = request.app.state.jobs.find(text_of(form, "job"), "tune")
    if job.result is None or not job.result.better:
        raise UsageError("There is no better profile to adopt.", "Judge more queries, or keep the default.")
    workspace, tuned = workspace_of(request), job.about["generation"]
    if (live := resolve_index(workspace.engine, job.about["index"])) != tuned:
        raise UsageError(f"{job.about['index']} points to {live} by now; the profile was tuned on {tuned}.", "Tune again.")
    before = read_lineage(workspace.engine, tuned)  # another process may have adopted a profile
    store_lineage(workspace.engine, tuned, adopted(before, job.result.profile, use=True))
    audit.write(workspace.engine, "profile", before.name, before=before.profile, after=job.result.profile.name)
    job.about["adopted"] = True
    workspace.indices.forget(job.about["index"])
    return see_other("/tune", index=job.about["index"], job=job.id)


def _obstacles() -> list[str]:
    """Sentences about the packages that this server lacks for learning, each with how to install the package."""
    return [f"Learning needs {package}. {advice}" for package, advice in missing()]


def _learn(request: Request, form: FormData) -> Response:
    """Start a learning run, which continues an earlier stopped run if there is one."""
    workspace = workspace_of(request)
    name = workspace.book(text_of(form, "index")).name
    if obstacles := _obstacles():
        raise UsageError(" ".join(obstacles))
    process = LearningProcess(LearningJob(workspace.options.settings, name, workspace.options.models or {}))
    job = BackgroundJob("learn", f"Learning for {name}", {"index": name}, stop=process.stop)
    request.app.state.jobs.start(job, lambda update: process.run(update, job.remarks.append))
    return see_other("/learn", index=name, job=job.id)


def _stop(request: Request, form: FormData) -> Response:
    job = request.app.state.jobs.find(text_of(form, "job"), "learn")
    if not job.running:
        raise UsageError("This learning run has ended.", "Open the page again.")
    job.stop()
    return see_other("/learn", index=job.about["index"], job=job.id)
