"""Actions on messages: a form is confirmed on a page with a count, and then runs as a task."""

from __future__ import annotations

import secrets

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from delayq.model.text import printable_id
from delayq.web import audit, forms, jobs, meant, path_params, render, tab_counts
from delayq.web.actions import ActionRequest
from delayq.web.background_tasks import BackgroundTask, BackgroundTasks, Work, word_of
from delayq.web.error_pages import back_on
from delayq.web.pages import dead_letters, messages
from delayq.web.request_context import visit, who
from delayq.web.routes import ACT, Page


async def _origin(request: Request) -> Response:
    """Show the page that the form was sent from: the form's path has the query of that page."""
    return await (dead_letters.dead if visit(request).form.get("page") == "dead" else messages.messages)(request)


@back_on(_origin)
async def confirm(request: Request) -> Response:
    """Show what the action would do, and to how many messages; ask for the remaining fields."""
    queue = await path_params.queue_of(request)
    deed = ActionRequest.of(visit(request).form, render.redaction(request))
    up_to = await jobs.last_score(queue, deed.filter.state) if deed.act == "purge" else None
    return render.page(
        request,
        "actions.html",
        deed=deed,
        count=await meant.look(queue, deed),
        up_to=up_to or 0,
        now=(await queue.stats()).at,
        once=secrets.token_urlsafe(12),
        counts=(await tab_counts.count(queue))[1],
    )


@back_on(confirm)
async def run(request: Request) -> Response:
    """Start a task for the action; a form that is sent twice leads to the first task."""
    queue, form = await path_params.queue_of(request), visit(request).form
    tasks: BackgroundTasks = request.app.state.tasks
    deed, once = ActionRequest.of(form, render.redaction(request)), word_of(form)
    work = deed.work(queue, (await queue.stats()).at)
    if deed.act == "purge":
        forms.check_name(form, "queue", queue.name)
    task = tasks.asked(once)
    if task is None:  # no await between here and its start: a double click sends two requests at once
        task = start(request, queue.name, deed, work, once)
        await task.over(QUICK_SECONDS)
    if task.status == "done" and not deed.dry:
        return _back(request, task, deed)
    return RedirectResponse(render.url(request, "task", server=task.server, task=task.id), 303)


def start(request: Request, queue: str, deed: ActionRequest, work: Work, once: str) -> BackgroundTask:
    """Start a task for the action, with audit lines at its start and end."""
    alone = deed.is_sweep and not deed.dry
    task = BackgroundTask(request.path_params["server"], queue, deed.title(), who(request), alone)
    if deed.dry:
        task.again = dict(deed.fields()) | {"delay": deed.delay, "rate": deed.rate}
    line = audit_line(task, deed)
    begin(request, task, work, once, line)
    if deed.is_sweep:
        audit.note(request, line | {"outcome": "began"})
    return task


def _back(request: Request, task: BackgroundTask, deed: ActionRequest) -> Response:
    """Return to the page where the action began, with a notice of its outcome."""
    told = f"{deed.title()}: {' '.join(task.told)}"
    if deed.page == "message" and deed.ids and deed.act != "cancel":
        return audit.back(request, told, "message", id=deed.ids[0])
    if deed.page == "dead":
        return audit.back(request, told, "dead")
    asked = request.url.query or render.query(**deed.filter.fields() | {"state": deed.filter.state})
    return audit.back(request, told, "messages", asked)


QUICK_SECONDS = 0.3
"""How long a request waits for its task to end before it shows the task's page."""


def begin(request: Request, task: BackgroundTask, work: Work, once: str, line: dict[str, object]) -> None:
    """Start a task; an audit line records its end, or why it was refused."""
    tasks: BackgroundTasks = request.app.state.tasks
    try:
        tasks.start(task, work, once, lambda ended: audit.note(request, line | outcome(ended)))
    except HTTPException as error:
        audit.note(request, line | {"outcome": f"refused: {error.detail}"})
        raise


def audit_line(task: BackgroundTask, deed: ActionRequest) -> dict[str, object]:
    """Return the fields of an audit line for a task."""
    about: dict[str, object] = {"ids": [*map(printable_id, deed.ids)]} if deed.ids else {"all": deed.filter.words()}
    return {"who": task.who, "action": deed.act, "server": task.server, "queue": task.queue, "task": task.id} | about


def outcome(task: BackgroundTask) -> dict[str, object]:
    """Return the fields of an audit line for the end of a task."""
    return {"outcome": f"failed: {task.error}" if task.error else task.status, "told": " ".join(task.told)}


ROUTES = [
    Page(ACT, "/{server:name}/queues/{queue:name}/confirm", confirm, name="confirm"),
    Page(ACT, "/{server:name}/queues/{queue:name}/run", run, name="run"),
]
