"""Tasks of requests: start one with an audit line, wait for its end for a moment, and find the one in a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from delayq.web import audit, path_params, render
from delayq.web.background_tasks import BackgroundTask, BackgroundTasks, Work, word_of
from delayq.web.request_context import visit

QUICK_SECONDS = 0.3
"""How long a request waits for its task to end before it shows the task's page."""


def start(
    request: Request, task: BackgroundTask, work: Work, once: str, action: str,
    about: Mapping[str, object] = {}, *, is_announced: bool = False,
) -> BackgroundTask:  # fmt: skip
    """Start a task; audit lines record its end, or why it was refused, and if `is_announced`, its start.

    Args:
        once: the unique word of its form.
        action: what audit lines call it.
        about: more fields of the audit lines.
    """
    tasks: BackgroundTasks = request.app.state.tasks
    line = {"who": task.who, "action": action, "server": task.server, "task": task.id} | task.about() | dict(about)
    try:
        tasks.start(task, work, once, lambda ended: audit.note(request, line | _outcome(ended)))
    except HTTPException as error:
        audit.note(request, line | {"outcome": f"refused: {error.detail}"})
        raise
    if is_announced:
        audit.note(request, line | {"outcome": "began"})
    return task


async def asked_once(request: Request, begin: Callable[[str], BackgroundTask]) -> BackgroundTask:
    """Start the task of a form, and wait for its end for a moment; a form that is sent twice leads to the first task.

    Args:
        begin: starts the task, with the unique word of the form.
    """
    tasks: BackgroundTasks = request.app.state.tasks
    once = word_of(visit(request).form)
    task = tasks.asked(once)
    if task is None:  # no await between here and its start: a double click sends two requests at once
        task = begin(once)
        await soon(task)
    return task


def shown(request: Request, task: BackgroundTask) -> RedirectResponse:
    """Go to the page of a task."""
    return RedirectResponse(render.url(request, "task", server=task.server, task=task.id), 303)


async def soon(task: BackgroundTask) -> None:
    """Wait for the end of a task, but not long: most are quick."""
    await task.over(QUICK_SECONDS)


def task_of(request: Request) -> BackgroundTask:
    """Return the task in the path; raises a 404."""
    server = path_params.server_of(request)
    found: BackgroundTask | None = request.app.state.tasks.get(request.path_params["task"])
    if found is None or found.server != server.name:
        raise HTTPException(404, "There is no such task: it ended long ago, or the dashboard has restarted since.")
    return found


def _outcome(task: BackgroundTask) -> dict[str, object]:
    """Return the fields of an audit line for the end of a task."""
    return {"outcome": f"failed: {task.error}" if task.error else task.status, "told": " ".join(task.results)}
