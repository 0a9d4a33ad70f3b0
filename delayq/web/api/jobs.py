"""The jobs that run in the dashboard, and their progress."""

from __future__ import annotations

import datetime as dt

from starlette.requests import Request

from delayq.web import audit, path_params
from delayq.web.api.operation import Operation
from delayq.web.api.values import Answer, of
from delayq.web.background_jobs import BackgroundJob, Status
from delayq.web.request_jobs import job_of, soon
from delayq.web.routes import ACT, VIEW


class Job(Answer):
    """A job: an action on many messages, which runs in the dashboard and can be stopped.

    Attributes:
        queue: empty if it is about a topic.
        topic: empty if it is about a queue, as is `group`.
        title: what it does.
        who: the user who started it.
        looked_at: the number of messages checked so far.
        total: the number of messages to check; null if unknown.
        done: the number of messages changed; null if it changes none.
        told: its results so far, in sentences.
        error: why it failed, or null.
        ended_at: null while it runs.
    """

    id: str
    server: str
    queue: str
    topic: str
    group: str
    title: str
    who: str
    status: Status
    looked_at: int
    total: int | None
    done: int | None
    told: list[str]
    error: str | None
    started_at: dt.datetime
    ended_at: dt.datetime | None


class Jobs(Answer):
    """The jobs of a server, the latest first: running ones, and the last 200 that ended."""

    jobs: list[Job]


class Tasks(Answer):
    """The jobs of a server, as the former path names them."""

    tasks: list[Job]


async def list_jobs(request: Request) -> Jobs:
    """List the jobs of a server."""
    return Jobs(jobs=_all(request))


async def list_tasks(request: Request) -> Tasks:
    """List the jobs of a server, by the former path."""
    return Tasks(tasks=_all(request))


async def get_job(request: Request) -> Job:
    """Return the progress and results of a job."""
    return job(job_of(request))


async def stop_job(request: Request) -> Job:
    """Stop a job before its next step. The rest stays unchanged."""
    found = job_of(request)
    async with audit.audited(request, "stop", **found.about(), job=found.id):
        found.stop()
    return await begun(found)


async def begun(seen: BackgroundJob) -> Job:
    """Return a job as an answer has it, after a short wait for it to end."""
    await soon(seen)
    return job(seen)


def job(seen: BackgroundJob) -> Job:
    """Return a job as an answer has it."""
    return of(Job, seen, told=seen.results, error=seen.error or None)


def _all(request: Request) -> list[Job]:
    return [*map(job, request.app.state.jobs.all(path_params.server_of(request).name))]


OPERATIONS = [
    Operation(VIEW, "/servers/{server}/jobs", list_jobs),
    Operation(VIEW, "/servers/{server}/jobs/{job}", get_job),
    Operation(ACT, "/servers/{server}/jobs/{job}/stop", stop_job, action="stop"),
    # jobs were once called tasks
    Operation(VIEW, "/servers/{server}/tasks", list_tasks, is_former=True),
    Operation(
        VIEW, "/servers/{server}/tasks/{job}", get_job, name="get_task", text="Return a job, by the former path.",
        is_former=True,
    ),
    Operation(
        ACT, "/servers/{server}/tasks/{job}/stop", stop_job, name="stop_task", text="Stop a job, by the former path.",
        action="stop", is_former=True,
    ),
]  # fmt: skip
