# Made from delayq/aio/doctor.py by `make faces`: change that file.
"""The doctor: checks a queue in use for faults, and repairs what can be repaired.

report = examine(Queue("emails"))
for finding in report.findings:
    print(finding)
"""

from __future__ import annotations

from collections.abc import Callable

from delayq.operations.doctor import examine as operation
from delayq.operations.doctor.finding import Finding, Step
from delayq.operations.doctor.report import Report, silent
from delayq.operations.doctor.server import ServerHealth, health
from delayq.queue import Queue

__all__ = ["Finding", "Report", "ServerHealth", "Step", "examine", "server_health"]


def examine(queue: Queue, repair: bool = False, on_step: Callable[[Step], None] = silent) -> Report:
    """Check everything that a queue holds, and its servers; safe while the queue is in use.

    It reads every message once, a few hundred at a time, and never blocks the server for more than a few milliseconds.

    Args:
        repair: repair what can be repaired: keep each message in one structure, or move it to the dead letters if its
            payload or its place is gone; remove leftovers of messages that are gone; take back expired leases; and
            count differences in the counts as adjusted.
        on_step: called with each step.

    Raises:
        ServerError: at any point; earlier repairs stay.
    """
    return queue.execute(operation.examine, repair, on_step)


def server_health(queue: Queue) -> ServerHealth:
    """Return what the server of a queue, or of its first shard, reports about itself; the queue need not exist."""
    return queue.execute(health)
