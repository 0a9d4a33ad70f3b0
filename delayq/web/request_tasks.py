"""Tasks of requests: start one with an audit line, wait for its end for a moment, and find the one in a path."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.web import audit, path_params
from delayq.web.background_tasks import BackgroundTask, BackgroundTasks, Work

QUICK_SECONDS = 0.3
"""How long a request waits for its task to end before it shows the task's page."""


def begin(request: Request, task: BackgroundTask, work: Work, once: str, line: dict[str, object]) -> None:
    """Start a task; an audit line records its end, or why it was refused.

    Args:
        once: the unique word of its form.
        line: the fields of the audit line.
    """
    tasks: BackgroundTasks = request.app.state.tasks
    try:
        tasks.start(task, work, once, lambda ended: audit.note(request, line | _outcome(ended)))
    except HTTPException as error:
        audit.note(request, line | {"outcome": f"refused: {error.detail}"})
        raise


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
