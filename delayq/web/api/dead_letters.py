"""The causes of dead letters."""

from __future__ import annotations

import datetime as dt

from starlette.requests import Request

from delayq.web import path_params, render
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.values import Answer, of
from delayq.web.meant import MOST_GROUPED
from delayq.web.routes import VIEW


class Cause(Answer):
    """Dead letters with the same cause.

    Attributes:
        reason: why they died, or null.
        error: the first line of their last errors, with each number as #; null if there is none.
        first_at: when the first of them died.
        last_at: when the last of them died.
        example: the id of the latest one.
    """

    reason: str | None
    error: str | None
    count: int
    first_at: dt.datetime
    last_at: dt.datetime
    example: str


class Causes(Answer):
    """The causes of dead letters, the most frequent first.

    Attributes:
        total: the number of dead letters.
        looked_at: the number of grouped dead letters: the latest ones.
    """

    causes: list[Cause]
    total: int
    looked_at: int


async def list_causes(request: Request) -> Causes:
    """Group the latest 5,000 dead letters by cause."""
    queue = await path_params.queue_of(request)
    found = await queue.dead.causes(MOST_GROUPED, shown=render.redaction(request).text)
    return of(Causes, found, causes=[of(Cause, each) for each in found.causes])


OPERATIONS = [Operation(VIEW, f"{QUEUE}/causes", list_causes)]
