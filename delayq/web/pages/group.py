"""A group of a topic: its consumers, its unacked records, and claiming them."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response

from delayq.aio import Topic
from delayq.model.health import STALLED_SECONDS
from delayq.model.show import plural
from delayq.model.units import parse_duration
from delayq.model.validation import check_group_name
from delayq.web import audit, groups, path_params, render
from delayq.web.background_tasks import BackgroundTasks, word_of
from delayq.web.error_pages import back_on
from delayq.web.forms import field
from delayq.web.groups import MOST_CLAIMED, check_known, group_of, known
from delayq.web.request_context import visit
from delayq.web.routes import ACT, VIEW, Page

MOST_LISTED = 100


async def group(request: Request) -> Response:
    """Show a group."""
    found = await group_of(request)
    with known(found):
        info, members = await found.info(), await found.consumers()
        unacked = await found.unacked(count=MOST_LISTED)
    return render.page(
        request,
        "group.html",
        topic=found.topic,
        info=info,
        members=members[:MOST_LISTED],
        more_members=max(0, len(members) - MOST_LISTED),
        unacked=unacked,
        stalled_seconds=STALLED_SECONDS,
        most_claimed=MOST_CLAIMED,
        once=secrets.token_urlsafe(12),
    )


@back_on(group)
async def claim(request: Request) -> Response:
    """Claim records for a consumer that others have not acked for some time; a form that is sent twice claims once."""
    topic, form = await path_params.topic_of(request), visit(request).form
    found = await group_of(request, topic)
    with field("consumer"):
        consumer = check_group_name(form.get("consumer", "").strip(), "consumer name")
        if form.get("new") != "1":
            await check_known(found, consumer)
    with field("idle"):
        idle = parse_duration(form.get("idle", ""))
    tasks: BackgroundTasks = request.app.state.tasks
    notice = "Already done."
    with tasks.once(word_of(form)) as is_new:
        if is_new:
            async with audit.audited(request, "claim", topic=found.topic, group=found.name, consumer=consumer) as line:
                notice = line["told"] = await _claimed(topic, found.name, consumer, idle)
    return audit.back(request, notice, "group")


async def _claimed(topic: Topic, group: str, consumer: str, idle: float) -> str:
    done = await groups.claim(topic, group, consumer, idle)
    ghosts = f" Trimmed records removed from the list: {done.ghosts:,}." if done.ghosts else ""
    if not done.records:
        return f"No record has been unacked for that long.{ghosts}"
    records = plural(len(done.records), "record")
    return f"Claimed {records} for {consumer}, which receives them when it reads its unacked records.{ghosts}"


ROUTES = [
    Page(VIEW, "/{server:name}/topics/{topic:name}/groups/{group:name}", group, name="group"),
    Page(ACT, "/{server:name}/topics/{topic:name}/groups/{group:name}/claim", claim, name="claim"),
]
