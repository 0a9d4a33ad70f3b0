"""Tasks: their progress and results; running ones can be stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from delayq.web import audit, path_params, render, sse
from delayq.web.background_tasks import BackgroundTask
from delayq.web.live_part import LivePart
from delayq.web.render import NavLink
from delayq.web.request_tasks import task_of
from delayq.web.routes import ACT, VIEW, Page

NEWS_SECONDS = 1.0  # maximum between two updates, which show how long a task has run
LEAST_SECONDS = 0.2  # minimum between two updates


async def tasks(request: Request) -> Response:
    """List the tasks of a server."""
    server = path_params.server_of(request)
    return render.page(request, "tasks.html", tasks=request.app.state.tasks.all(server.name))


async def task(request: Request) -> Response:
    """Show a task."""
    return render.page(request, "task.html", task=task_of(request))


async def follow(request: Request) -> Response | sse.EventStream:
    """Stream the progress of a task until it ends; answer 204 if it has ended."""
    found = task_of(request)
    return sse.stream(request, _parts(request, found)) if found.runs else Response(status_code=204)


async def stop(request: Request) -> Response:
    """Stop a task before its next step."""
    found = task_of(request)
    async with audit.audited(request, "stop", **found.about(), task=found.id):
        found.stop()
    await found.over(LEAST_SECONDS)
    return audit.back(request, "Stopping the task.", "task")


async def _parts(request: Request, found: BackgroundTask) -> AsyncGenerator[LivePart, None]:
    goes_on = True
    while goes_on:
        goes_on = found.runs
        yield LivePart.of("task", render.render(request, "_task.html", task=found))
        if goes_on:
            await found.news(NEWS_SECONDS)
            await found.over(LEAST_SECONDS)


NAV = NavLink("Tasks", "tasks")
ROUTES = [
    Page(VIEW, "/{server:name}/tasks", tasks, name="tasks"),
    Page(VIEW, "/{server:name}/tasks/{task:name}", task, name="task"),
    Page(VIEW, "/{server:name}/tasks/{task:name}/live", follow, name="follow"),
    Page(ACT, "/{server:name}/tasks/{task:name}/stop", stop, name="stop"),
]
