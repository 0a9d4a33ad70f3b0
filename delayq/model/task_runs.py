"""How the runs of tasks end, counted by the names of the tasks."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from delayq.model import outcome as oc
from delayq.model.delivery import Delivery

MOST = 100
"""The names that a consumer reports, and that each shard of a queue keeps; more are counted together."""

OTHER = "other"
"""The name under which all further tasks are counted, and those that a consumer does not know."""

_NOT_RUNS = (oc.Released, oc.Stopped, oc.Expired)


class TaskRuns(msgspec.Struct, frozen=True):
    """How the runs of a task ended.

    Attributes:
        acked: in an ack.
        failed: in an error after which the message is retried.
        dead: in an error that made the message a dead letter.
    """

    acked: int = 0
    failed: int = 0
    dead: int = 0


class RunCounter:
    """Counts the runs of a consumer's tasks.

    Args:
        known: the names of its tasks; None for any that are found.
    """

    def __init__(self, known: Container[str] | None) -> None:
        self._known = known
        self._names: set[str] = set()
        self.counts: dict[str, int] = {}

    def note(self, message: Delivery[Any], outcome: oc.Outcome) -> None:
        """Count a delivery that was settled with this outcome, or by its handler."""
        name = message.task
        if name is None or message.released or isinstance(outcome, _NOT_RUNS):
            return
        if not message.failed:
            ended = "acked"
        elif message.death is not None:
            ended = "dead"
        elif isinstance(outcome, oc.Unknown):  # it waits for a consumer that has the task
            return
        else:
            ended = "failed"
        if name not in self._names:
            is_known = not isinstance(outcome, oc.Unknown) if self._known is None else name in self._known
            if is_known and len(self._names) < MOST:
                self._names.add(name)
            else:
                name = OTHER
        field = f"task:{ended}:{name}"
        self.counts[field] = self.counts.get(field, 0) + 1


def read(counters: Mapping[str, int]) -> dict[str, TaskRuns]:
    """Return the runs of each task, by name, from a queue's counters."""
    found: dict[str, dict[str, int]] = {}
    for field, count in counters.items():
        kind, _, rest = field.partition(":")
        ended, _, name = rest.partition(":")
        if kind == "task" and name and ended in TaskRuns.__struct_fields__:
            found.setdefault(name, {})[ended] = count
    return {name: TaskRuns(**found[name]) for name in sorted(found)}
