"""What commands do with a lake, where pyarrow is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.doctor import Report, Step
from delayq.errors import InvalidInput
from delayq.queue import Queue


def queues(lake: str) -> list[str]:
    """Return the names of the queues that have something in a lake, in order."""
    shelf, _ = _modules()
    names: list[str] = shelf.queues(lake)
    return names


def examine(queue: Queue, lake: str, report: Report, on_step: Callable[[Step], None]) -> None:
    """Examine what a queue has in a lake, and add it to the report on the queue."""
    _, examining = _modules()
    found = examining.examine(queue, lake, on_step)
    report.messages += found.messages
    report.findings += found.findings


def _modules() -> tuple[Any, Any]:
    try:
        from delayq.lake import examining, shelf  # noqa: PLC0415  # without a lake, no command needs pyarrow
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a lake needs {error.name}: pip install 'delayq[lake]'") from error
    return shelf, examining
