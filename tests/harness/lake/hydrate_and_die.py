"""A load that is killed at one of its steps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from delayq.lake import load as loading
from delayq.lake.queue_folder import QueueFolder
from tests.harness.lake.lakes import Clock, far_queue, load

STEPS = {
    "list": (QueueFolder, "hours"),
    "know": (QueueFolder, "manifest"),
    "write": (QueueFolder, "put_manifest"),
    "read": (QueueFolder, "read"),
    "send": (loading, "send_new"),
    "look": (loading, "marks"),
    "remove": (QueueFolder, "remove"),
}
DIED = 9


def die_at(step: str, times: int) -> None:
    """End this process when it starts a step after `times` successful ones."""
    place, name = STEPS[step]
    original = getattr(place, name)
    left = [times]

    def instead(*args: Any, **options: Any) -> Any:
        if not left[0]:
            os._exit(DIED)
        left[0] -= 1
        return original(*args, **options)

    setattr(place, name, instead)


def main(url: str, lake: Path, now_ms: int, step: str, times: int) -> None:
    """Load in a process of its own, and die.

    Args:
        step: where it dies: one of `STEPS`.
        times: how often that step succeeds before.
    """
    clock = Clock()
    clock.ms = now_ms
    loading.BATCH_ROWS = 4
    die_at(step, times)
    with far_queue(url, lake, clock) as queue:
        load(queue, lake, keep=0)
