"""The messages that an action applies to, for its confirmation: their number, examples and range of times."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence

import msgspec

from delayq.aio import Queue
from delayq.model.message_info import MessageInfo
from delayq.model.placement import Row, State
from delayq.model.text import encode_id
from delayq.model.units import from_ms
from delayq.operations import paging
from delayq.operations.bulk.search import Search
from delayq.operations.bulk.sweep import count
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, unwrap
from delayq.web import jobs
from delayq.web.filters import MessageFilter
from delayq.web.redaction import in_turns

COUNT_SECONDS = 0.06  # that a confirmation may spend on counting
MOST_EXAMPLES = 5
MOST_GROUPED = 5000  # dead letters that are grouped by cause
LARGEST = 16 * 1024  # bytes of a payload; an example reads no larger one for its preview


class Meant(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that an action applies to, as far as they could be counted in a moment.

    Attributes:
        matched: the number of messages found.
        looked_at: the number of messages checked.
        total: the number of messages in the state.
        examples: some of the messages found, without large payloads.
        sizes: the payload sizes of the examples in bytes, by id.
        first_at, last_at: the earliest and the latest time of the messages found, or None.
    """

    matched: int
    looked_at: int
    total: int
    examples: Sequence[MessageInfo] = ()
    sizes: dict[str, int] = {}
    first_at: dt.datetime | None = None
    last_at: dt.datetime | None = None

    @property
    def is_all(self) -> bool:
        """Whether all messages were checked."""
        return self.looked_at >= self.total


async def look(queue: Queue, wanted: MessageFilter, ids: Sequence[str] = ()) -> Meant:
    """Count for a moment the messages that a filter selects, or those of these ids that are in its state."""
    state = wanted.state
    if ids:
        rows = await queue.execute(_rows, state, ids)
        return await _meant(queue, wanted, rows, len(ids), len(ids), len(ids))
    if wanted.is_empty:
        page, last_ms = await queue.page(state, limit=1), await jobs.last_score(queue, state)
        rows = await queue.execute(Search(state, wanted.choice()).step)
        found = await _meant(queue, wanted, rows, page.total, page.total, page.total)
        first_at = None if not page.messages else at(page.messages[0])
        return msgspec.structs.replace(found, first_at=first_at, last_at=None if last_ms is None else from_ms(last_ms))
    searching, until, rows = Search(state, wanted.choice()), time.monotonic() + COUNT_SECONDS, list[Row]()
    while not searching.done:
        rows += await queue.execute(searching.step)
        if time.monotonic() >= until:
            break
    total = await queue.execute(count, [state])
    return await _meant(queue, wanted, rows, len(rows), total if searching.done else searching.looked_at, total)


def at(info: MessageInfo) -> dt.datetime | None:
    """Return the time that lists sort a message by: when it is due, its lease ends, or it died."""
    return info.due_at or info.lease_until or info.died_at


async def _meant(
    queue: Queue, wanted: MessageFilter, rows: list[Row], matched: int, looked_at: int, total: int
) -> Meant:
    some, times = rows[:MOST_EXAMPLES], [float(score) for _, score in rows]
    examples, sizes = await queue.execute(paging.described, wanted.state, some, LARGEST)
    return Meant(
        matched=matched,
        looked_at=looked_at,
        total=total,
        examples=await in_turns(wanted.redaction.info, examples),
        sizes=sizes,
        first_at=from_ms(min(times)) if times else None,
        last_at=from_ms(max(times)) if times else None,
    )


def _rows(context: QueueContext, state: State, ids: Sequence[str]) -> Operation[list[Row]]:
    """Return the given messages that are in the state, with their scores, lowest first."""
    yield from context.opened()
    keys = [context.shard(each).keys.state(state) for each in ids]
    asked = [Command(key, ("ZSCORE", key, encode_id(each)), _bytes) for key, each in zip(keys, ids, strict=True)]
    scores = [unwrap(told) for told in (yield asked)]
    rows = [(each, score) for each, score in zip(ids, scores, strict=True) if score is not None]
    return sorted(rows, key=lambda row: float(row[1]))


def _bytes(reply: bytes | None) -> bytes | None:
    return reply
