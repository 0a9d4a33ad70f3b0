"""The doctor of the async face: see `delayq.doctor`."""

from __future__ import annotations

from collections.abc import Callable

from delayq.aio.queue import Queue
from delayq.doctor import silent
from delayq.operations import examining
from delayq.operations.findings import Step
from delayq.operations.report import Report


async def examine(queue: Queue, repair: bool = False, on_step: Callable[[Step], None] = silent) -> Report:
    """Look at everything that a queue holds, and at its servers, while it is in use: as `delayq.doctor.examine`.

    Args:
        repair: mend what can be.
        on_step: is told of each step.

    Raises:
        ServerError: also in the middle; what was repaired until then stays so.
    """
    return await queue.connection.do(examining.examine(queue.core, repair, on_step))
