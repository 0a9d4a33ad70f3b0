"""The messages of a queue that are due beyond its horizon: a `MessageStore` that keeps them in a lake."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake.layout import HOUR_MS, DeferredMessage, DeferredRow
from delayq.lake.queue_folder import QueueFolder
from delayq.lake.shown_path import shown
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.message_ids import new_id
from delayq.model.message_info import MessageInfo
from delayq.model.show import show_moment
from delayq.model.text import printable_id
from delayq.model.units import Seconds, due_word, from_ms
from delayq.operations import explain, inspect, manage, send
from delayq.operations.bulk import actions
from delayq.operations.encode import EncodedMessage
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.protocol.command import Command, Raw, identity
from delayq.protocol.operation import Operation, Program, execute, unwrap

HOLD_MS = 600_000  # enough for a change to write its file, and for a load that looked for changes before it to send
RESERVE_MS = 86_400_000  # after the message's hour: a load that broke off must be finished within a day


class DeferredMessages:
    """The messages of a queue that are due beyond its horizon."""

    defers = True

    def __init__(self, context: QueueContext, horizon_ms: int, lake: str | os.PathLike[str]) -> None:
        self._context = context
        self._horizon_ms = horizon_ms
        self._folder = QueueFolder(lake, context.name)

    def may_defer(self, message: Outgoing) -> bool:
        """Whether a send may concern the lake; by this machine's clock, with a minute's margin."""
        sure = self._local_ms() - 60_000
        return self._context.middleware.has_sends or self._is_far(due_word(message.delay, message.at), sure)

    def send_many(self, outgoing: Any, wait_replicas: int, is_batch: bool = True) -> Program[list[SentMessage]]:
        """Send messages: those beyond the horizon into the lake; otherwise as `send.send_many`."""
        return send.send_many(self._context, outgoing, wait_replicas, is_batch, self._send_encoded)

    def cancel(self, message_id: str, running: bool = False) -> Program[Any]:
        """Withdraw a message, from Redis or from the lake; `running`: also stop its handler."""
        result = yield from manage.cancel(self._context, message_id, running)
        if result != "unknown":
            return result
        deferred = yield partial(self._folder.find, message_id)
        while deferred is not None and (token := (yield from self._hold(deferred))) is not None:
            yield partial(self._folder.withdraw, deferred)
            if (yield from self._mark(deferred)) == token:  # else the hold has expired, and it may have been sent
                return "cancelled"
        result = yield from manage.cancel(self._context, message_id, running)  # it may have been loaded meanwhile
        return (yield from self._unless_held(result, deferred))

    def reschedule(self, message_id: str, delay: Seconds | None, at: dt.datetime | None) -> Program[Any]:
        """Give a message another due time; move it within the lake, or into Redis if it is now within the horizon."""
        result = yield from manage.reschedule(self._context, message_id, delay, at)
        if result != "unknown":
            return result
        deferred = yield partial(self._folder.find, message_id)
        if deferred is not None:
            now = yield from self._now()
            due = due_word(delay, at)
            row = deferred.row._replace(due_ms=_absolute(due, now))
            move = self._move if self._is_far(due, now) else self._bring
            if (yield from move(deferred, row, now)):
                return "rescheduled"
        result = yield from manage.reschedule(self._context, message_id, delay, at)
        return (yield from self._unless_held(result, deferred))

    def now(self, ids: str | Iterable[str]) -> Program[dict[str, Any]]:
        """Make messages due now; move those of the lake into Redis."""
        outcomes = yield from actions.now(self._context, ids)
        for message_id in [each for each, outcome in outcomes.items() if outcome == "unknown"]:
            outcomes[message_id] = yield from self.reschedule(message_id, 0, None)
        return outcomes

    def get(self, message_id: str) -> Program[MessageInfo | None]:
        """Find a message, in Redis or in the lake."""
        info = yield from inspect.get(self._context, message_id)
        if info is not None:
            return info
        deferred = yield partial(self._folder.find, message_id)
        if deferred is not None and not (yield from self._was_loaded(deferred)):
            return describe(self._context.name, deferred.row)
        return (yield from inspect.get(self._context, message_id))

    def why(self, message_id: str) -> Program[str]:
        """Say why a message has not been delivered."""
        info = yield from self.get(message_id)
        if info is None or info.state != "deferred" or info.due_at is None:
            return (yield from explain.why(self._context, message_id))
        due = show_moment(info.due_at, from_ms((yield from self._now())))
        where = f"waits in {shown(self._folder.path)} until a load moves it into Redis"
        return f"{printable_id(message_id)} is due at {due}, and {where}"

    def _send_encoded(
        self, context: QueueContext, encoded: Sequence[EncodedMessage], wait_replicas: int
    ) -> Program[list[SentMessage]]:
        if not context.is_open:
            yield from context.opened(create=True)  # record its shards before anything is written
        now = yield from self._now()
        far = [i for i, each in enumerate(encoded) if not each.unique_ms and self._is_far(each.due, now)]
        results: list[SentMessage | int | None] = [None] * len(encoded)
        if far and not wait_replicas:
            for i, sent in zip(far, (yield from self._defer([encoded[i] for i in far], now)), strict=True):
                results[i] = sent
        near = [i for i, sent in enumerate(results) if sent is None]
        sents = yield from send.send_each(context, [encoded[i] for i in near], wait_replicas)
        for i, result in zip(near, sents, strict=True):
            results[i] = result
        return send.all_sent(context, encoded, results)  # type: ignore[arg-type]  # none is None now

    def _defer(self, encoded: Sequence[EncodedMessage], now: int) -> Program[list[SentMessage | None]]:
        """Write messages into the lake; None for those that must replace a message in Redis."""
        named = sorted({each.id for each in encoded if each.named})
        there, deferred = (yield from self._existing(named, now)) if named else ({}, {})
        sents: list[SentMessage | None] = []
        rows: dict[str, DeferredRow] = {}
        for each in encoded:
            row = DeferredRow(each.id, _absolute(each.due, now), now, each.envelope)
            if not each.named:
                row = row._replace(id=layout.id_with_hour(layout.hour_of(row.due_ms), each.id))
            old = rows[row.id].due_ms if row.id in rows else there.get(row.id)
            sent = SentMessage(row.id, from_ms(row.due_ms if old is None else old), old is None)
            if old is None:
                rows[row.id] = row
            elif each.on_conflict == "replace":
                if row.id in rows:
                    rows[row.id] = row
                elif row.id not in deferred or not (yield from self._move(deferred[row.id], row, now)):
                    yield from self._unless_held("unknown", deferred.get(row.id))  # else it would be sent twice
                    sents.append(None)
                    continue
                sent = SentMessage(row.id, from_ms(row.due_ms), False)
            sents.append(sent)
        yield partial(self._write, list(rows.values()))
        return sents

    def _existing(self, ids: list[str], now: int) -> Program[tuple[dict[str, int], dict[str, DeferredMessage]]]:
        """Return when messages with these ids are due (now, if they don't wait), and which of them are in the lake."""
        yield from self._context.opened(create=True)
        deferred: dict[str, DeferredMessage] = yield partial(self._folder.find_all, ids)
        found = yield from inspect.find_all(self._context, ids)
        there = {message_id: each.row.due_ms for message_id, each in deferred.items()}
        for message_id, each in zip(ids, found, strict=True):
            states = each.scores.keys() - {"garbage"}
            if states:
                waits = states & {"pending", "ready", "retry"}
                there[message_id] = round(each.scores[waits.pop()]) if waits else now
                deferred.pop(message_id, None)
        return there, deferred

    def _write(self, rows: Sequence[DeferredRow]) -> None:
        by_hour: dict[str, list[DeferredRow]] = {}
        for row in rows:
            by_hour.setdefault(layout.hour_of(row.due_ms), []).append(row)
        for hour, group in by_hour.items():
            self._folder.write(hour, new_id(), group)

    def _move(self, deferred: DeferredMessage, row: DeferredRow, now: int) -> Program[bool]:  # noqa: ARG002  # as `_bring`
        """Replace a row in the lake; return False if the old one was loaded, or another program is changing it."""
        token = yield from self._hold(deferred)
        if token is None:
            return False
        hour, writer = layout.hour_of(row.due_ms), new_id()
        moved = row._replace(origin=f"{deferred.hour}/{deferred.mark}")
        yield partial(self._folder.write, hour, writer, [moved])
        if (yield from self._mark(deferred)) != token:  # this process was suspended: a load may have overtaken it
            raise LakeMismatch(
                f"{printable_id(row.id)} was not moved in {shown(self._folder.path)} because the move took too long: "
                "try again"
            )
        yield partial(self._folder.withdraw, deferred, writer)  # from here on, the new row counts
        return True

    def _bring(self, deferred: DeferredMessage, row: DeferredRow, now: int) -> Program[bool]:
        """Send a row to Redis and withdraw the one in the lake; return False as `_move` does."""
        ends = max(now, layout.start_ms(deferred.hour) + HOUR_MS) + RESERVE_MS
        envelope = layout.envelope_at(row, now)
        encoded = EncodedMessage(row.id, row.due_ms, envelope, "ignore", True, ends - now, deferred.mark)
        if not all((yield from send.send_new(self._context, [encoded]))):
            return False
        yield partial(self._folder.withdraw, deferred, "")
        return True

    def _hold(self, deferred: DeferredMessage) -> Operation[int | None]:
        """Take the mark of a message, for as long as a change needs; None if it was loaded, or is taken.

        Returns:
            The value of the mark for as long as it is ours.
        """
        key = self._context.shard(deferred.row.id).keys.unique(deferred.mark)
        token = layout.HELD + random.randrange(10**12)  # a SET that is sent twice finds its own
        replies = yield [
            Command(key, ("SET", key, token, "NX", "PX", HOLD_MS), identity),
            Command(key, ("GET", key), identity),
        ]
        stands = [unwrap(reply) for reply in replies][1]
        return token if stands == str(token).encode() else None

    def _unless_held(self, result: str, deferred: DeferredMessage | None) -> Operation[str]:
        """Return the result from Redis; raise LakeMismatch if it is "unknown" because of a change in the lake."""
        if result == "unknown" and deferred is not None and layout.is_held((yield from self._mark(deferred))):
            text = f"{printable_id(deferred.row.id)} is being changed in {shown(self._folder.path)}"
            raise LakeMismatch(f"{text}: try again in a few minutes")
        return result

    def _was_loaded(self, deferred: DeferredMessage) -> Operation[bool]:
        value = yield from self._mark(deferred)
        return value is not None and not layout.is_held(value)

    def _mark(self, deferred: DeferredMessage) -> Operation[int | None]:
        key = self._context.shard(deferred.row.id).keys.unique(deferred.mark)
        value = yield from execute(Command(key, ("GET", key), identity))
        return None if value is None else int(value)

    def _is_far(self, due: Raw, now: int) -> bool:
        return _absolute(due, now) > now + self._horizon_ms

    def _local_ms(self) -> int:
        return int(self._context.clock() or time.time() * 1000)

    def _now(self) -> Operation[int]:
        return server_ms(self._context)


def describe(queue: str, row: DeferredRow) -> MessageInfo:
    """Return what is known about a message in the lake."""
    envelope = layout.envelope_of(row)
    expires = envelope.expires_ms
    return MessageInfo(
        id=row.id,
        queue=queue,
        state="deferred",
        due_at=from_ms(row.due_ms),
        created_at=from_ms(row.created_ms),
        expires_at=None if expires is None else from_ms(row.created_ms + expires),
        max_retries=envelope.max_retries,
        timeout=envelope.timeout,
        headers=envelope.sent_headers,
        envelope=envelope,
    )


def _absolute(due: Raw, now: int) -> int:
    return now + int(due) if isinstance(due, str) else int(due)
