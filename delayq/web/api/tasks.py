"""The tasks that run in the dashboard, and their progress."""

from __future__ import annotations

import datetime as dt

from starlette.requests import Request

from delayq.web import audit, path_params
from delayq.web.api.operation import Operation
from delayq.web.api.values import Answer, of
from delayq.web.background_tasks import BackgroundTask, Status
from delayq.web.request_tasks import soon, task_of
from delayq.web.routes import ACT, VIEW


class Task(Answer):
    """A task: an action on many messages, which runs in the dashboard and can be stopped.

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


class Tasks(Answer):
    """The tasks of a server, the latest first: running ones, and the last 200 that ended."""

    tasks: list[Task]


async def list_tasks(request: Request) -> Tasks:
    """List the tasks of a server."""
    server = path_params.server_of(request)
    return Tasks(tasks=[*map(task, request.app.state.tasks.all(server.name))])


async def get_task(request: Request) -> Task:
    """Return the progress and results of a task."""
    return task(task_of(request))


async def stop_task(request: Request) -> Task:
    """Stop a task before its next step. The rest stays unchanged."""
    found = task_of(request)
    async with audit.audited(request, "stop", **found.about(), task=found.id):
        found.stop()
    return await begun(found)


async def begun(seen: BackgroundTask) -> Task:
    """Return a task as an answer has it, after a short wait for it to end."""
    await soon(seen)
    return task(seen)


def task(seen: BackgroundTask) -> Task:
    """Return a task as an answer has it."""
    return of(Task, seen, told=seen.results, error=seen.error or None)


OPERATIONS = [
    Operation(VIEW, "/servers/{server}/tasks", list_tasks),
    Operation(VIEW, "/servers/{server}/tasks/{task}", get_task),
    Operation(ACT, "/servers/{server}/tasks/{task}/stop", stop_task, action="stop"),
]
