"""The consumers of a queue, as each reports itself every few seconds."""

from __future__ import annotations

import datetime as dt
import os
import platform
import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from itertools import chain, islice, repeat
from typing import Annotated, TypeVar

import msgspec

from delayq.model.delivery import Delivery
from delayq.model.text import printable_id
from delayq.model.units import MAX_COUNT, from_ms

D = TypeVar("D", bound=Delivery)

UNSEEN_MS = 30_000
"""A consumer not seen for this long counts as gone; a live one reports three times as often."""

MOST_HELD = 100
MOST_ID_CHARACTERS = 8192  # of all ids in one report, so that it stays small even if ids are long


class Held(msgspec.Struct, frozen=True):
    """A delivery that a consumer has taken and not yet settled.

    Attributes:
        since: when it was handed out. Its handler may have begun later.
        timeout: seconds that its handler may run; None for no limit, or if its consumer does not report it.
    """

    id: str
    since: dt.datetime
    attempt: int
    timeout: float | None = None


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer, as it last reported itself.

    Attributes:
        at: the server's clock when this was read.
        seen_at: when the consumer reported this.
        started_at: when its run began, by the server's clock.
        concurrency: how many handlers, or batches, it runs at the same time; 0 for a program that calls `receive`, for
            which the attributes below are unknown.
        handled: messages whose handling has ended, in this run.
        failed: how many of these deliveries did not end in an ack.
        holds: the first 100 deliveries that it had taken and not settled, earliest first.
        holds_count: how many there were in all.
        over_limit: how many of them ran beyond the time limit of their handler.
    """

    name: str
    host: str
    pid: int
    version: str
    at: dt.datetime
    seen_at: dt.datetime
    started_at: dt.datetime
    concurrency: int
    handled: int
    failed: int
    holds: tuple[Held, ...] = ()
    holds_count: int = 0
    over_limit: int = 0

    @property
    def receives(self) -> bool:
        """Whether it is a program that calls `receive`; what such a program does with its messages is unknown."""
        return self.concurrency == 0

    @property
    def is_alive(self) -> bool:
        """Whether it was seen within the last 30 seconds."""
        return (self.at - self.seen_at).total_seconds() * 1000 <= UNSEEN_MS


_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class _Document(msgspec.Struct, kw_only=True):
    """The report as stored, in JSON. `age` and the times in `holds` are in ms; those in `holds` are server time."""

    host: str
    pid: _Count
    version: str
    age: _Count
    concurrency: _Count
    handled: _Count
    failed: _Count
    holds: list[tuple[str, _Count, _Count]]
    count: _Count
    over: _Count = 0
    limits: list[_Count] = []  # of `holds`, in their order, ms; 0 for none


def describe(
    concurrency: int,
    began: float,
    handled: int = 0,
    failed: int = 0,
    held: Iterable[D] = (),
    over: int = 0,
    limit_of: Callable[[D], float | None] = lambda _: None,
) -> bytes:
    """Return the report of a consumer of this process.

    Args:
        concurrency: 0 for a program that calls `receive`.
        began: when its run began, on the monotonic clock.
        held: the deliveries that it has taken and not settled.
        over: how many of them run beyond the time limit of their handler.
        limit_of: returns the seconds that the handler of a delivery may run; None for no limit.
    """
    deliveries = list(held)
    holds = _listed(deliveries)
    limits = [round((limit_of(each) or 0) * 1000) for each in deliveries[: len(holds)]]
    document = _Document(
        host=platform.node(),
        pid=os.getpid(),
        version=installed_version(),
        age=round((time.monotonic() - began) * 1000),
        concurrency=concurrency,
        handled=handled,
        failed=failed,
        holds=holds,
        count=len(deliveries),
        over=over,
        limits=limits if any(limits) else [],
    )
    return msgspec.json.encode(document)


def _listed(deliveries: Iterable[Delivery]) -> list[tuple[str, int, int]]:
    listed, left = [], MOST_ID_CHARACTERS
    for each in islice(deliveries, MOST_HELD):
        name = printable_id(each.id)
        left -= len(name)
        if left < 0:
            break
        listed.append((name, int(each.handed_ms), each.attempt))
    return listed


def read(name: str, now_ms: int, seen_ms: int, document: bytes) -> ConsumerInfo | None:
    """Read a consumer's report; None for a document that delayq did not write."""
    try:
        report = _DECODER.decode(document)
    except msgspec.DecodeError:
        return None
    began = min([seen_ms - report.age, *(since for _, since, _ in report.holds)])  # the report took a while to arrive
    return ConsumerInfo(
        name=name,
        host=report.host,
        pid=report.pid,
        version=report.version,
        at=from_ms(now_ms),
        seen_at=from_ms(seen_ms),
        started_at=from_ms(began),
        concurrency=report.concurrency,
        handled=report.handled,
        failed=report.failed,
        holds=tuple(
            Held(message_id, from_ms(since), attempt, limit / 1000 if limit else None)
            for (message_id, since, attempt), limit in zip(report.holds, chain(report.limits, repeat(0)), strict=False)
        ),
        holds_count=report.count,
        over_limit=report.over,
    )


def holders(consumers: Iterable[ConsumerInfo], message_id: str, attempt: int) -> list[tuple[ConsumerInfo, Held]]:
    """Return who reports that it holds a delivery, the latest last: an older report may list one that was released."""
    key = printable_id(message_id), attempt
    found = [(each, held) for each in consumers for held in each.holds if (held.id, held.attempt) == key]
    return sorted(found, key=lambda report: report[1].since)


_DECODER = msgspec.json.Decoder(_Document)


@cache
def installed_version() -> str:
    """Return the version of delayq here; empty if it runs from a folder that is not installed."""
    try:
        return metadata.version("delayq")
    except metadata.PackageNotFoundError:
        return ""
