"""`/api/jobs`, `/api/evaluate`, `/api/tune` and `/api/learn`: the work that pages began, and what came out, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from termweave.ui.background.jobs import BackgroundJob


def jobs(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """All work whose result is kept, the newest first."""
    del given
    return {"jobs": [_job(each) for each in request.app.state.jobs.all()]}


def evaluate(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an evaluation, as `termweave evaluate --json`."""
    from termweave.evaluation.report import json  # noqa: PLC0415 - numpy comes with it

    result = _ended(request, given, "evaluate").result
    verdicts = [verdict.as_json(gate) for gate, verdict in result.verdicts]
    return {**json.evaluation(result.experiment), "gates": verdicts}


def tune(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The result of tuning, as `termweave tune --json`."""
    job = _ended(request, given, "tune")
    return {**asdict(job.result), "adopted": bool(job.about.get("adopted"))}


def learn(request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """The result of learning."""
    result: dict[str, Any] = _ended(request, given, "learn").result
    return result


def _ended(request: Request, given: Mapping[str, Any], kind: str) -> BackgroundJob:
    """The job that a request names.

    Raises:
        UsageError: There is none of this kind, or it has not ended.
        TermweaveError: The error that ended it.
    """
    job: BackgroundJob = request.app.state.jobs.find(given["job"])
    if job.kind != kind:
        raise UsageError(f"This is not a result of {kind!r}.", f"Ask /api/{job.kind} for it.")
    if job.error is not None:
        raise job.error
    if job.running:
        raise UsageError(f"{job.title} is running.", "Ask again when /api/jobs says that it is done.")
    return job


def _job(job: BackgroundJob) -> dict[str, Any]:
    state = "running" if job.running else "failed" if job.error else "done"
    about = {"id": job.id, "kind": job.kind, "title": job.title, "index": job.about["index"], "state": state}
    error = f"{job.error.message} {job.error.hint}".strip() if job.error else None
    return about | {"stage": job.stage, "done": job.done, "total": job.total, "error": error}
