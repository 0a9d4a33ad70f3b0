"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hiredis
import redis

import delayq

LOOK_SECONDS = 3.0


def about(redis_version: str) -> dict[str, Any]:
    """Return the machine, the versions, and how busy the machine was before."""
    return {
        "at": now(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "redis": redis_version,
        "delayq": delayq.__version__,
        "redis-py": redis.__version__,
        "hiredis": hiredis.__version__,
        "longest_pause_ms": round(longest_pause_ms(), 2),
        "load_before": round(os.getloadavg()[0], 2),
    }


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def longest_pause_ms() -> float:
    """Return the longest pause of a process that was ready to run, within LOOK_SECONDS.

    Lateness below this may come from the machine.
    """
    longest, before = 0.0, time.perf_counter()
    end = before + LOOK_SECONDS
    while before < end:
        here = time.perf_counter()
        longest, before = max(longest, here - before), here
    return longest * 1000


def _processor() -> str:
    match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    return match[1].strip() if match else platform.machine()
