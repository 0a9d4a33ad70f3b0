"""A load that is killed at one of its steps: `python -m tests.harness.lake.hydrate_and_die URL LAKE NOW_MS STEP`.

STEP is where it dies: the name of one of `STEPS`, and how often that step succeeds before.
"""

from __future__ import annotations

import os
import sys
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


def main(url: str, lake: str, now_ms: str, step: str, times: str) -> None:
    """Load, and die."""
    clock = Clock()
    clock.ms = int(now_ms)
    loading.BATCH_ROWS = 4
    die_at(step, int(times))
    with far_queue(url, Path(lake), clock) as queue:
        load(queue, Path(lake), keep=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
