"""A schedule as the dashboard and the HTTP API reach it: finding it, and acting on it."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.aio import Queue
from delayq.model.actions import ScheduleAction
from delayq.model.delivery import SentMessage
from delayq.model.schedule import Schedule
from delayq.web import audit, path_params


async def schedule_of(request: Request) -> tuple[Queue, Schedule]:
    """Return the queue and the schedule in the path; raises a 404 if one of them does not exist."""
    queue = await path_params.queue_of(request)
    return queue, await known(queue, request.path_params["schedule"])


async def known(queue: Queue, name: str) -> Schedule:
    """Return a schedule of a queue; raises a 404 if it does not exist."""
    found = await queue.schedules.get(name)
    if found is None:
        raise HTTPException(404, f"Queue {queue.name} has no schedule {name}.")
    return found


async def act(request: Request, queue: Queue, action: ScheduleAction, name: str) -> SentMessage | None:
    """Act on a schedule, with an audit line; return what it sent, if it sends. Raises a 404 if it does not exist."""
    async with audit.audited(request, action.audited, queue=queue.name, schedule=name):
        done: SentMessage | bool = await getattr(queue.schedules, action.method or action.name)(name)
        if done is False:
            raise HTTPException(404, f"Queue {queue.name} has no schedule {name}.")
    return done if isinstance(done, SentMessage) else None
