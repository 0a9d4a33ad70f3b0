"""Dead letters: what they died of."""

from __future__ import annotations

import datetime as dt

from starlette.requests import Request

from delayq.operations.bulk.causes import causes
from delayq.web import path_params, render
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.values import Answer, of
from delayq.web.pages.dead_letters import MOST


class Cause(Answer):
    """Dead letters that died of the same.

    Attributes:
        reason: why they died, or null.
        error: the first line of their last errors, each number as #; null where there is none.
        first_at: when the first of them died.
        last_at: when the last of them died.
        example: the id of the last one.
    """

    reason: str | None
    error: str | None
    count: int
    first_at: dt.datetime
    last_at: dt.datetime
    example: str


class Causes(Answer):
    """What dead letters died of, the most frequent cause first.

    Attributes:
        total: how many dead letters there are.
        looked_at: how many of them were grouped: those that died last.
    """

    causes: list[Cause]
    total: int
    looked_at: int


async def list_causes(request: Request) -> Causes:
    """Group the last 5,000 dead letters by what they died of."""
    queue = await path_params.queue_of(request)
    found = await queue.execute(causes, MOST, render.redaction(request).text)
    return of(Causes, found, causes=[of(Cause, each) for each in found.causes])


OPERATIONS = [Operation("GET", f"{QUEUE}/causes", list_causes)]
