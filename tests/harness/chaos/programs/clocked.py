"""Run another of these programs with a wrong clock.

Usage: python -m tests.harness.chaos.programs.clocked WHOSE FILE PROGRAM JSON

WHOSE    "client": the program's own clock is wrong: `time.time`, `time.time_ns`, `localtime`, `gmtime`, and `now`,
         `utcnow` and `today` of `datetime`, which is what Python code uses. C code gets the right time from the
         kernel, and so does `time.clock_gettime`, which the journal uses.
         "server": the scripts get this time, as if the server's clock were wrong.
FILE     holds by how many seconds the clock is ahead; it is read each time.
PROGRAM  "consume" or "produce"; JSON is its task.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.harness.chaos.clocks import read_offset, true_time

REAL = dt.datetime


class Kind(type):
    """Lets datetimes made before, or by C code, count as instances of the replacement class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, REAL)


def set_wrong(now: Callable[[], float]) -> None:
    """Give this process another time, in seconds since 1970."""

    class Datetime(REAL, metaclass=Kind):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now(), tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.fromtimestamp(now(), dt.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Self:
            return cls.fromtimestamp(now())

    localtime, gmtime = time.localtime, time.gmtime
    wrong: dict[str, Any] = {
        "time": now,
        "time_ns": lambda: int(now() * 1_000_000_000),
        "localtime": lambda seconds=None: localtime(now() if seconds is None else seconds),
        "gmtime": lambda seconds=None: gmtime(now() if seconds is None else seconds),
    }
    vars(time).update(wrong)
    vars(dt)["datetime"] = Datetime


def main(whose: str, file: Path, name: str, task: str) -> None:
    def now() -> float:
        return true_time() + read_offset(file)

    if whose == "client":
        set_wrong(now)
    # Imported only now, so that it does not find the right clock.
    program = importlib.import_module(f"tests.harness.chaos.programs.{name}")
    if whose == "server":
        vars(program)["Queue"] = functools.partial(program.Queue, clock=lambda: now() * 1000)
    program.main(msgspec.json.decode(task, type=program.Task))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
