"""The async way to a lake: its work on files is done by threads."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from delayq.aio.connection import Connection
from delayq.lake.plans import Plan

T = TypeVar("T")


async def do(connection: Connection, plan: Plan[T]) -> T:
    """Run a plan to its end and return its result."""
    try:
        wanted = next(plan)
        while True:
            try:
                done = await (asyncio.to_thread(wanted) if callable(wanted) else connection.run(wanted))
            except BaseException as error:  # noqa: BLE001  # a cancel, too: it is the plan's to handle
                wanted = plan.throw(error)
            else:
                wanted = plan.send(done)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns
