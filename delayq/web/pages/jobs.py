"""Jobs: their progress and results; running ones can be stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.web import audit, path_params, render, sse
from delayq.web.background_jobs import BackgroundJob
from delayq.web.live_part import LivePart
from delayq.web.render import NavLink
from delayq.web.request_jobs import job_of
from delayq.web.routes import ACT, VIEW, Page

NEWS_SECONDS = 1.0  # maximum between two updates, which show how long a job has run
LEAST_SECONDS = 0.2  # minimum between two updates


async def jobs(request: Request) -> Response:
    """List the jobs of a server."""
    server = path_params.server_of(request)
    return render.page(request, "jobs.html", jobs=request.app.state.jobs.all(server.name))


async def job(request: Request) -> Response:
    """Show a job."""
    return render.page(request, "job.html", job=job_of(request))


async def follow(request: Request) -> Response | sse.EventStream:
    """Stream the progress of a job until it ends; answer 204 if it has ended."""
    found = job_of(request)
    return sse.stream(request, _parts(request, found)) if found.runs else Response(status_code=204)


async def stop(request: Request) -> Response:
    """Stop a job before its next step."""
    found = job_of(request)
    async with audit.audited(request, "stop", **found.about(), job=found.id):
        found.stop()
    await found.over(LEAST_SECONDS)
    return audit.back(request, "Stopping the job.", "job")


async def former(request: Request) -> Response:
    """Lead from the path that jobs had when they were called tasks."""
    if "job" in request.path_params:
        found = job_of(request)  # an address is only shown if it leads to a job: another one may hold a password
        to = render.url(request, "job", server=found.server, job=found.id)
    else:
        to = render.url(request, "jobs", server=path_params.server_of(request).name)
    return RedirectResponse(to, 308)


async def _parts(request: Request, found: BackgroundJob) -> AsyncGenerator[LivePart, None]:
    goes_on = True
    while goes_on:
        goes_on = found.runs
        yield LivePart.of("job", render.render(request, "_job.html", job=found))
        if goes_on:
            await found.news(NEWS_SECONDS)
            await found.over(LEAST_SECONDS)


NAV = NavLink("Jobs", "jobs")
ROUTES = [
    Page(VIEW, "/{server:name}/jobs", jobs, name="jobs"),
    Page(VIEW, "/{server:name}/jobs/{job:name}", job, name="job"),
    Page(VIEW, "/{server:name}/jobs/{job:name}/live", follow, name="follow"),
    Page(ACT, "/{server:name}/jobs/{job:name}/stop", stop, name="stop"),
    Page(VIEW, "/{server:name}/tasks", former, name="former_jobs"),
    Page(VIEW, "/{server:name}/tasks/{job:name}", former, name="former_job"),
]
