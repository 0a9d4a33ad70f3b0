# Made from delayq/aio/doctor.py by `make faces`: change that file.
"""The doctor: whether a queue, live, keeps its promises, and what can be repaired.

report = examine(Queue("emails"))
for finding in report.findings:
    print(finding)
"""

from __future__ import annotations

from collections.abc import Callable

from delayq.operations.doctor import examine as operation
from delayq.operations.doctor.finding import Finding, Step
from delayq.operations.doctor.report import Report, silent
from delayq.operations.doctor.server import ServerHealth
from delayq.queue import Queue

__all__ = ["Finding", "Report", "ServerHealth", "Step", "examine"]


def examine(queue: Queue, repair: bool = False, on_step: Callable[[Step], None] = silent) -> Report:
    """Look at everything that a queue holds, and at its servers, while it is in use.

    It reads every message once, some hundreds at a time, and never holds the server for more than a few milliseconds.

    Args:
        repair: mend what can be: a message is brought into one structure, or among the dead letters when its payload
            or its place is gone; what is left of messages that are gone is removed; leases that ran out are taken
            back; and what the books cannot account for is counted as adjusted.
        on_step: is told of each step.

    Raises:
        ServerError: also in the middle; what was repaired until then stays so.
    """
    return queue.execute(operation.examine, repair, on_step)
