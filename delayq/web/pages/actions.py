"""Actions on messages: a form is confirmed on a page with a count, and then runs as a job."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response

from delayq.web import audit, forms, job_work, meant, path_params, render, tab_counts
from delayq.web.actions import ActionRequest, start
from delayq.web.background_jobs import BackgroundJob
from delayq.web.error_pages import back_on
from delayq.web.pages import dead_letters, messages
from delayq.web.request_context import visit
from delayq.web.request_jobs import asked_once, shown
from delayq.web.routes import ACT, Page


async def _origin(request: Request) -> Response:
    """Show the page that the form was sent from: the form's path has the query of that page."""
    return await (dead_letters.dead if visit(request).form.get("page") == "dead" else messages.messages)(request)


@back_on(_origin)
async def confirm(request: Request) -> Response:
    """Show what the action would do, and to how many messages; ask for the remaining fields."""
    queue = await path_params.queue_of(request)
    asked = ActionRequest.of(visit(request).form, render.redaction(request))
    up_to = None if asked.action.takes_ids else (await job_work.extent(queue, asked.filter.state))[1]
    return render.page(
        request,
        "actions.html",
        asked=asked,
        count=await meant.look(queue, asked.filter, asked.ids),
        up_to=up_to or 0,
        now=(await queue.stats()).at,
        once=secrets.token_urlsafe(12),
        counts=(await tab_counts.count(queue))[1],
    )


@back_on(confirm)
async def run(request: Request) -> Response:
    """Start a job for the action; a form that is sent twice leads to the first job."""
    queue, form = await path_params.queue_of(request), visit(request).form
    asked = ActionRequest.confirmed(form, render.redaction(request))
    work = asked.work(queue, (await queue.stats()).at)
    if asked.action.confirmed_by:
        forms.check_name(form, asked.action.confirmed_by, queue.name)
    job = await asked_once(request, lambda once: start(request, queue.name, asked, work, once))
    if job.status == "done" and not asked.dry:
        return _back(request, job, asked)
    return shown(request, job)


def _back(request: Request, job: BackgroundJob, asked: ActionRequest) -> Response:
    """Return to the page where the action began, with a notice of its outcome."""
    notice = f"{asked.title()}: {' '.join(job.results)}"
    if asked.page == "message" and asked.ids and asked.action.name != "cancel":
        return audit.back(request, notice, "message", id=asked.ids[0])
    if asked.page == "dead":
        return audit.back(request, notice, "dead")
    query = request.url.query or render.query(**asked.filter.fields() | {"state": asked.filter.state})
    return audit.back(request, notice, "messages", query)


ROUTES = [
    Page(ACT, "/{server:name}/queues/{queue:name}/confirm", confirm, name="confirm"),
    Page(ACT, "/{server:name}/queues/{queue:name}/run", run, name="run"),
]
