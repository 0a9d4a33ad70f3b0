"""A group of a topic: its consumers, its unacked records, and the forms that change it."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response

from delayq.model.health import STALLED_SECONDS
from delayq.web import render
from delayq.web.changes import GROUP
from delayq.web.group_changes import BEGINNINGS, BUTTONS
from delayq.web.groups import MOST_CLAIMED, group_of, known
from delayq.web.routes import VIEW, Page

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
        beginnings=BEGINNINGS,
        most_claimed=MOST_CLAIMED,
        buttons=[each.action for each in BUTTONS],
        once=secrets.token_urlsafe(12),
    )


ROUTES = [Page(VIEW, GROUP, group, name="group")]
