"""The consumers of a queue as pages list them, with the messages that each holds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from delayq.aio import Queue
from delayq.model.consumer_info import ConsumerInfo, Held
from delayq.operations import inspect


class HeldMessage(NamedTuple):
    """A delivery that a consumer has taken and not settled.

    Attributes:
        lease_until: when its lease ends; None if it was settled since the consumer was last seen.
    """

    held: Held
    lease_until: dt.datetime | None


class ConsumerRow(NamedTuple):
    """A consumer as a row of the list; `holds` are the first of the deliveries that it holds."""

    info: ConsumerInfo
    holds: list[HeldMessage]


class ConsumerRows(NamedTuple):
    """The consumers of a queue, live ones first; `rows` are the first of `total`."""

    queue: str
    rows: list[ConsumerRow]
    total: int
    alive: int


async def consumer_rows(queue: Queue, most: int, most_held: int) -> ConsumerRows:
    """List the consumers of a queue.

    Args:
        most: the maximum number of consumers.
        most_held: the maximum number of deliveries listed for each.
    """
    found = sorted(await queue.consumers(), key=lambda each: (not each.is_alive, each.name))
    held = [held for each in found[:most] for held in each.holds[:most_held]]
    leases = await _leases(queue, [each.id for each in held])
    rows = [
        ConsumerRow(each, [HeldMessage(held, leases.get(held.id)) for held in each.holds[:most_held]])
        for each in found[:most]
    ]
    return ConsumerRows(queue.name, rows, len(found), sum(each.is_alive for each in found))


async def _leases(queue: Queue, ids: Sequence[str]) -> dict[str, dt.datetime]:
    """Return when the leases of messages end; messages that are not running have none."""
    ends = await queue.execute(inspect.lease_ends, ids) if ids else []
    return {message_id: end for message_id, end in zip(ids, ends, strict=True) if end is not None}
