"""What the clients of a scenario saw: each process writes one line per event into its own file, outside Redis.

A written line is in the kernel, so it survives a SIGKILL of its process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from delayq.model.delivery import Delivery

Kind: TypeAlias = Literal[
    "attempted",  # a send is about to be called, once per call
    "sent",  # the send was acknowledged; `ms` is the due time by the server's clock, or 0 if the message existed before
    "refused",  # the send raised an error, and has certainly stored nothing
    "delivered",  # a handler starts, or receive returned; `ms` is the time of the claim by the server's clock
    "finished",  # the handler's work is done: every later delivery is a duplicate
    "failed",  # the handler failed on purpose; the next attempt, if any, is due after `ms` or more
    "settled",  # ack, nack, … returned; `note` has the call and its result
    "unstarted",  # a delivery was returned behind others before a handler saw it; `ms` and `due_ms` as for delivered
    "released",  # the delivery was returned uncounted: the next one is the same attempt
    "cancelled",  # cancel returned it: no delivery may start from here on
    "buried",  # found among the dead letters; `note` is the reason, `ms` the time of death by the server's clock
    "fault",  # a fault hit the process `pid`, or the server (`pid` 0); `note` names it
    "recovered",  # the trouble that started with the last fault of this `pid` is over
]


class Event(msgspec.Struct, omit_defaults=True):
    """One thing that was seen.

    Attributes:
        at: seconds on the machine's monotonic clock, which all processes share.
        pid: the process that saw it; for a fault, the process it hit.
        id: the id of the message.
        attempt: the number of the delivery.
        ms: a time by the server's clock, if the kind has one.
        wall_ms: the time of the machine's clock, if it has to be compared with the server's.
        due_ms: of a delivery: when it fell due by the server's clock. After a lost lease, the end of the lease; after a
            return behind others, the time of the claim before.
    """

    kind: Kind
    at: float
    pid: int
    id: str = ""
    attempt: int = 0
    ms: float = 0.0
    wall_ms: float = 0.0
    note: str = ""
    due_ms: float = 0.0


class Journal:
    """Writes events into a file.

    Args:
        path: of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._encode = msgspec.json.Encoder().encode

    def note(
        self,
        kind: Kind,
        id: str = "",
        *,
        attempt: int = 0,
        ms: float = 0.0,
        note: str = "",
        pid: int | None = None,
        due_ms: float = 0.0,
    ) -> None:
        """Write an event with the current time."""
        at = time.monotonic()
        wall = time.clock_gettime(time.CLOCK_REALTIME) * 1000 if kind in ("delivered", "buried") else 0.0
        event = Event(kind, at, os.getpid() if pid is None else pid, id, attempt, ms, wall, note, due_ms)
        os.write(self._file, self._encode(event) + b"\n")

    def delivered(self, message: Delivery) -> None:
        """Write that a message was delivered."""
        due_ms = float(message.due_ms)
        self.note("delivered", message.id, attempt=message.attempt, ms=message.handed_ms, due_ms=due_ms)

    def unstarted(self, id: str, message: Delivery) -> None:
        """Write that a message was returned behind others."""
        due_ms = float(message.due_ms)
        self.note("unstarted", id, attempt=message.attempt, ms=message.handed_ms, due_ms=due_ms)

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Event]:
    """Read the journals of a folder, in the order of events.

    The last line of a killed process may be truncated, and is then ignored.
    """
    journals = (path.read_bytes().splitlines(keepends=True) for path in folder.glob("*.jsonl"))
    return sorted((event for lines in journals for event in _events(lines)), key=lambda event: event.at)


def read_tail(path: Path, count: int) -> list[Event]:
    """Read up to `count` events from the end of a journal; none if it does not exist."""
    return list(_events(path.read_bytes().splitlines(keepends=True)[-count:])) if path.exists() else []


def _events(lines: list[bytes]) -> Iterator[Event]:
    decode = msgspec.json.Decoder(Event).decode
    for line in lines:
        if line.endswith(b"\n"):
            yield decode(line)
