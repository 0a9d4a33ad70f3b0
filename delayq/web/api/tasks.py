"""Tasks: what runs in the dashboard, and how far it is."""

from __future__ import annotations

import datetime as dt

from starlette.requests import Request

from delayq.web import audit, path_params
from delayq.web.api.operation import Operation
from delayq.web.api.values import Answer, of
from delayq.web.background_tasks import BackgroundTask, Status
from delayq.web.pages.actions import QUICK_SECONDS
from delayq.web.pages.tasks import task_of


class Task(Answer):
    """A task: something with many messages, which runs in the dashboard and can be stopped.

    Attributes:
        queue: empty where it is about a topic.
        topic: empty where it is about a queue, as is `group`.
        title: what it does.
        who: who has asked for it.
        looked_at: how many messages it has looked at.
        total: how many there are to look at; null where that is not known.
        done: how many messages it has changed; null where it changes none.
        told: what has come of it so far, in sentences.
        error: why it has failed, or null.
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
    """The tasks of a server, the latest first: those that run, and the last 200 that have ended."""

    tasks: list[Task]


async def list_tasks(request: Request) -> Tasks:
    """List the tasks of a server."""
    server = path_params.server_of(request)
    return Tasks(tasks=[*map(task, request.app.state.tasks.all(server.name))])


async def get_task(request: Request) -> Task:
    """Return how far a task is, and what has come of it."""
    return task(task_of(request))


async def stop_task(request: Request) -> Task:
    """Let a task end before its next step; what it has not reached then is as before."""
    found = task_of(request)
    async with audit.audited(request, "stop", **found.about(), task=found.id):
        found.stop()
    return await begun(found)


async def begun(seen: BackgroundTask) -> Task:
    """Return a task as answers have it, after a moment in which it may end."""
    await seen.over(QUICK_SECONDS)
    return task(seen)


def task(seen: BackgroundTask) -> Task:
    """Return a task as answers have it."""
    return of(Task, seen, error=seen.error or None)


OPERATIONS = [
    Operation("GET", "/servers/{server}/tasks", list_tasks),
    Operation("GET", "/servers/{server}/tasks/{task}", get_task),
    Operation("POST", "/servers/{server}/tasks/{task}/stop", stop_task, action="stop"),
]
