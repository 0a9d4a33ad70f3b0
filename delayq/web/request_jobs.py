"""Jobs of requests: start one with an audit line, wait for its end for a moment, and find the one in a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from delayq.web import audit, path_params, render
from delayq.web.background_jobs import BackgroundJob, BackgroundJobs, Work, word_of
from delayq.web.request_context import visit

QUICK_SECONDS = 0.3
"""How long a request waits for its job to end before it shows the job's page."""


def start(
    request: Request, job: BackgroundJob, work: Work, once: str, action: str,
    about: Mapping[str, object] = {}, *, is_announced: bool = False,
) -> BackgroundJob:  # fmt: skip
    """Start a job; audit lines record its end, or why it was refused, and if `is_announced`, its start.

    Args:
        once: the unique word of its form.
        action: what audit lines call it.
        about: more fields of the audit lines.
    """
    jobs: BackgroundJobs = request.app.state.jobs
    line = {"who": job.who, "action": action, "server": job.server, "job": job.id} | job.about() | dict(about)
    try:
        jobs.start(job, work, once, lambda ended: audit.note(request, line | _outcome(ended)))
    except HTTPException as error:
        audit.note(request, line | {"outcome": f"refused: {error.detail}"})
        raise
    if is_announced:
        audit.note(request, line | {"outcome": "began"})
    return job


async def asked_once(request: Request, begin: Callable[[str], BackgroundJob]) -> BackgroundJob:
    """Start the job of a form, and wait for its end for a moment; a form that is sent twice leads to the first job.

    Args:
        begin: starts the job, with the unique word of the form.
    """
    jobs: BackgroundJobs = request.app.state.jobs
    once = word_of(visit(request).form)
    job = jobs.asked(once)
    if job is None:  # no await between here and its start: a double click sends two requests at once
        job = begin(once)
        await soon(job)
    return job


def shown(request: Request, job: BackgroundJob) -> RedirectResponse:
    """Go to the page of a job."""
    return RedirectResponse(render.url(request, "job", server=job.server, job=job.id), 303)


async def soon(job: BackgroundJob) -> None:
    """Wait for the end of a job, but not long: most are quick."""
    await job.over(QUICK_SECONDS)


def job_of(request: Request) -> BackgroundJob:
    """Return the job in the path; raises a 404."""
    server = path_params.server_of(request)
    found: BackgroundJob | None = request.app.state.jobs.get(request.path_params["job"])
    if found is None or found.server != server.name:
        raise HTTPException(404, "There is no such job: it ended long ago, or the dashboard has restarted since.")
    return found


def _outcome(job: BackgroundJob) -> dict[str, object]:
    """Return the fields of an audit line for the end of a job."""
    return {"outcome": f"failed: {job.error}" if job.error else job.status, "told": " ".join(job.results)}
