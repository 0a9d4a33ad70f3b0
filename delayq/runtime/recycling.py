"""When a process that runs handlers is replaced by a new one: after a number of messages, or above a size."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import NamedTuple

from delayq.errors import InvalidInput
from delayq.model.show import show_size
from delayq.model.validation import check_limit

SPREAD = 0.1  # each process has limits up to a tenth lower or higher, so that not all are replaced at once
MOST_MESSAGES = 10**12
MOST_BYTES = 10**18
_STATM = "/proc/{}/statm"


class Recycling(NamedTuple):
    """The limits of a process.

    Attributes:
        after: messages; None for no limit.
        memory: bytes of resident memory; None for no limit.
    """

    after: int | None = None
    memory: int | None = None

    @classmethod
    def of(cls, recycle_after: int | None, recycle_memory: int | None) -> Recycling:
        """Return the limits that a user gives.

        Raises:
            InvalidInput: a limit is not in its range, or this system does not say how much memory a process has.
        """
        if recycle_after is not None:
            check_limit(recycle_after, "recycle_after", most=MOST_MESSAGES)
        if recycle_memory is not None:
            check_limit(recycle_memory, "recycle_memory", most=MOST_BYTES)
            if resident_bytes(os.getpid()) is None:
                raise InvalidInput(
                    f"recycle_memory {recycle_memory!r} needs /proc, which this system does not have: give "
                    "recycle_after instead"
                )
        return cls(recycle_after, recycle_memory)

    def drawn(self) -> Recycling:
        """Return the limits of one process: up to a tenth lower or higher."""
        return Recycling(*(each and max(1, round(each * random.uniform(1 - SPREAD, 1 + SPREAD))) for each in self))

    def is_worn(self, handled: int) -> bool:
        """Return whether a process has handled as many messages as it should."""
        return self.after is not None and handled >= self.after

    def is_large(self, pid: int) -> bool:
        """Return whether a process has as much memory as it may."""
        return self.memory is not None and (resident_bytes(pid) or 0) >= self.memory

    def refusal(self, fresh: int | None) -> str | None:
        """Return why a process could have been replaced before its first message; None if it could not.

        Args:
            fresh: the bytes that it has before its first message; None if unknown.
        """
        if self.memory is None or fresh is None or fresh < self.memory * (1 - SPREAD):
            return None
        return (
            f"recycle_memory {show_size(self.memory)} is too low: a process uses {show_size(fresh)} before its first "
            f"message, and some are replaced from {show_size(self.memory * (1 - SPREAD))} on: give at least "
            f"{show_size(fresh * 1.5)}"
        )


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, which is also what `ps` shows; None if this system does not say it.

    Other systems than Linux have no such file, and `getrusage` gives only the peak of this process.
    """
    try:
        return int(Path(_STATM.format(pid)).read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
