"""What the clients of a scenario saw: written outside Redis, a line an event, by every process into a file of its own.

A line is in the kernel's hands once it is written: it outlives a SIGKILL of its process.
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
    "attempted",  # a send is about to be called; once for each call
    "sent",  # the send was acknowledged; `ms` is the due time, by the server's clock; 0 when it was stored before
    "refused",  # the send raised, and has certainly stored nothing
    "delivered",  # a handler begins, or receive returned; `ms` is the hand-out, by the server's clock
    "finished",  # the handler's work is done: what happens to the message from here on is a duplicate
    "failed",  # the handler gave the delivery up on purpose; the next one, if there is one, is due after `ms` at least
    "settled",  # ack, nack, … returned; `note` says which, and what the queue said
    "unstarted",  # a delivery was handed back behind others, before a handler saw it; `ms` and `due_ms` as if delivered
    "released",  # the delivery was handed back at no cost: the next one is the same attempt
    "cancelled",  # cancel said so: no delivery may begin from here on
    "buried",  # found among the dead letters; `note` is the reason, `ms` when it died, by the server's clock
    "fault",  # something was done to the process `pid`, or to the server (`pid` 0); `note` says what
    "recovered",  # the trouble that began with the last fault of that `pid` is over
]


class Event(msgspec.Struct, omit_defaults=True):
    """One thing that was seen.

    Attributes:
        at: on the machine's monotonic clock, which its processes share, in seconds.
        pid: the process that saw it; for a fault, the one that it was done to.
        id: the message's.
        attempt: which delivery of the message.
        ms: a time by the server's clock, where the kind has one.
        wall_ms: the time of the machine's clock, where that is to be compared with the server's.
        due_ms: of a delivery: when it fell due, by the server's clock; after a lost lease, the end of that; handed back
            behind others, the time when it was handed out before.
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
        """Write an event that happens now."""
        at = time.monotonic()
        wall = time.clock_gettime(time.CLOCK_REALTIME) * 1000 if kind in ("delivered", "buried") else 0.0
        event = Event(kind, at, os.getpid() if pid is None else pid, id, attempt, ms, wall, note, due_ms)
        os.write(self._file, self._encode(event) + b"\n")

    def delivered(self, message: Delivery) -> None:
        """Write that a message is here."""
        due_ms = float(message.due_ms)
        self.note("delivered", message.id, attempt=message.attempt, ms=message.handed_ms, due_ms=due_ms)

    def unstarted(self, id: str, message: Delivery) -> None:
        """Write that a message was here, and is handed back behind others."""
        due_ms = float(message.due_ms)
        self.note("unstarted", id, attempt=message.attempt, ms=message.handed_ms, due_ms=due_ms)

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Event]:
    """Read the journals of a folder, in the order of the events.

    The last line of a process that was killed may be cut short, and then tells nothing.
    """
    journals = (path.read_bytes().splitlines(keepends=True) for path in folder.glob("*.jsonl"))
    return sorted((event for lines in journals for event in _events(lines)), key=lambda event: event.at)


def read_tail(path: Path, count: int) -> list[Event]:
    """Read up to `count` events at the end of a journal; none of one that is not there."""
    return list(_events(path.read_bytes().splitlines(keepends=True)[-count:])) if path.exists() else []


def _events(lines: list[bytes]) -> Iterator[Event]:
    decode = msgspec.json.Decoder(Event).decode
    for line in lines:
        if line.endswith(b"\n"):
            yield decode(line)
