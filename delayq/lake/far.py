"""What a queue does with messages that are due beyond its horizon, without I/O: for both faces."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from delayq.calls import Call, Raw, Steps, as_is, expect, one, shown
from delayq.errors import InvalidInput, LakeMismatch
from delayq.info import MessageInfo
from delayq.lake import layout
from delayq.lake.layout import HOUR_MS, Resting, Row
from delayq.lake.plans import Plan, server_ms
from delayq.message import Outgoing, SentMessage
from delayq.names import new_id
from delayq.operations import explaining, inspecting, managing, sending
from delayq.operations.core import Core
from delayq.operations.sealing import Sealed, due_word
from delayq.times import Seconds, from_ms, milliseconds, show_moment

if TYPE_CHECKING:
    from delayq.lake.shelf import Shelf

HOLD_MS = 600_000  # for a change to write its file: and a load that has looked for changes before has sent by then
RESERVE_MS = 86_400_000  # behind its hour: a load that broke off is finished within a day


class Far:
    """The messages of a queue that are due beyond its horizon."""

    def __init__(self, core: Core, horizon_ms: int, shelf: Shelf) -> None:
        self._core = core
        self._horizon_ms = horizon_ms
        self._shelf = shelf

    @classmethod
    def of(cls, core: Core, horizon: Seconds | None, lake: str | os.PathLike[str] | None) -> Far | None:
        """Return what the arguments of a queue ask for; None when they don't.

        Raises:
            InvalidInput: one of them is missing or out of range, or pyarrow is not installed.
        """
        if horizon is None and lake is None:
            return None
        if horizon is None or lake is None:
            raise InvalidInput(f"horizon={horizon!r} and lake={lake!r} go together: give both, or neither")
        try:
            from delayq.lake.shelf import Shelf  # noqa: PLC0415  # without it, a queue needs no pyarrow
        except ModuleNotFoundError as error:
            raise InvalidInput(f"lake={lake!r} needs {error.name}: pip install 'delayq[lake]'") from error
        return cls(core, milliseconds(horizon, "horizon"), Shelf(lake, core.name))

    def may_take(self, message: Outgoing) -> bool:
        """Whether a send may concern the lake; by this machine's clock, a minute on the safe side."""
        sure = self._local_ms() - 60_000
        return self._core.middleware.has_sends or self._is_far(due_word(message.delay, message.at), sure)

    def send_many(self, outgoing: Any, wait_replicas: int, is_batch: bool = True) -> Plan[list[SentMessage]]:
        """Send messages: those beyond the horizon into the lake; otherwise as `sending.send_many`."""
        return sending.send_many(self._core, outgoing, wait_replicas, is_batch, self._send_sealed)

    def cancel(self, message_id: str) -> Plan[Any]:
        """Withdraw a message, from Redis or from the lake."""
        told = yield from managing.cancel(self._core, message_id)
        if told != "unknown":
            return told
        resting = yield partial(self._shelf.find, message_id)
        if resting is not None and (token := (yield from self._hold(resting))) is not None:
            yield partial(self._shelf.withdraw, resting)
            # Not so when this process has stood still, and the hold has run out: a load may have passed by.
            if (yield from self._mark(resting)) in (token, None):
                return "cancelled"
        told = yield from managing.cancel(self._core, message_id)  # it may have been loaded meanwhile
        return (yield from self._unless_held(told, resting))

    def reschedule(self, message_id: str, delay: Seconds | None, at: dt.datetime | None) -> Plan[Any]:
        """Give a message another due time, and move it in the lake, or into Redis when that is within the horizon."""
        told = yield from managing.reschedule(self._core, message_id, delay, at)
        if told != "unknown":
            return told
        resting = yield partial(self._shelf.find, message_id)
        if resting is not None:
            now = yield from self._now()
            due = due_word(delay, at)
            row = resting.row._replace(due_ms=_absolute(due, now))
            move = self._move if self._is_far(due, now) else self._bring
            if (yield from move(resting, row, now)):
                return "rescheduled"
        told = yield from managing.reschedule(self._core, message_id, delay, at)
        return (yield from self._unless_held(told, resting))

    def get(self, message_id: str) -> Plan[MessageInfo | None]:
        """Find a message, in Redis or in the lake."""
        info = yield from inspecting.get(self._core, message_id)
        if info is not None:
            return info
        resting = yield partial(self._shelf.find, message_id)
        if resting is not None and not (yield from self._was_loaded(resting)):
            return describe(self._core.name, resting.row)
        return (yield from inspecting.get(self._core, message_id))

    def why(self, message_id: str) -> Plan[str]:
        """Say why a message has not been delivered."""
        info = yield from self.get(message_id)
        if info is None or info.state != "deferred" or info.due_at is None:
            return (yield from explaining.why(self._core, message_id))
        due = show_moment(info.due_at, from_ms((yield from self._now())))
        return f"{shown(message_id)} is due at {due}, and rests in {self._shelf.path} until a load brings it into Redis"

    def _send_sealed(self, core: Core, sealed: Sequence[Sealed], wait_replicas: int) -> Plan[list[SentMessage]]:
        if not core.is_open:
            yield from core.opened(create=True)  # its shards are recorded before anything rests
        now = yield from self._now()
        far = [i for i, each in enumerate(sealed) if not each.unique_ms and self._is_far(each.due, now)]
        results: list[SentMessage | None] = [None] * len(sealed)
        if far and not wait_replicas:
            for i, sent in zip(far, (yield from self._defer([sealed[i] for i in far], now)), strict=True):
                results[i] = sent
        near = [i for i, sent in enumerate(results) if sent is None]
        sents = yield from sending.send_sealed(core, [sealed[i] for i in near], wait_replicas)
        for i, sent in zip(near, sents, strict=True):
            results[i] = sent
        sending.raise_duplicates(sealed, results)
        return results  # type: ignore[return-value]  # none of them is None any more

    def _defer(self, sealed: Sequence[Sealed], now: int) -> Plan[list[SentMessage | None]]:
        """Put messages into the lake; None for those that are to replace what is in Redis."""
        named = sorted({each.id for each in sealed if each.named})
        there, resting = (yield from self._existing(named, now)) if named else ({}, {})
        sents: list[SentMessage | None] = []
        rows: dict[str, Row] = {}
        for each in sealed:
            row = Row(each.id, _absolute(each.due, now), now, each.envelope)
            if not each.named:
                row = row._replace(id=layout.hinting(layout.hour_of(row.due_ms), each.id))
            old = rows[row.id].due_ms if row.id in rows else there.get(row.id)
            sent = SentMessage(row.id, from_ms(row.due_ms if old is None else old), old is None)
            if old is None:
                rows[row.id] = row
            elif each.on_conflict == "replace":
                if row.id in rows:
                    rows[row.id] = row
                elif row.id not in resting or not (yield from self._move(resting[row.id], row, now)):
                    yield from self._unless_held("unknown", resting.get(row.id))  # else it would come twice
                    sents.append(None)
                    continue
                sent = SentMessage(row.id, from_ms(row.due_ms), False)
            sents.append(sent)
        yield partial(self._write, list(rows.values()))
        return sents

    def _existing(self, ids: list[str], now: int) -> Plan[tuple[dict[str, int], dict[str, Resting]]]:
        """Return when messages of these ids are due (now, if they don't wait), and those of them in the lake."""
        yield from self._core.opened(create=True)
        resting: dict[str, Resting] = yield partial(self._shelf.find_all, ids)
        found = yield from inspecting.find_all(self._core, ids)
        there = {message_id: each.row.due_ms for message_id, each in resting.items()}
        for message_id, each in zip(ids, found, strict=True):
            states = each.scores.keys() - {"garbage"}
            if states:
                waits = states & {"pending", "ready", "retry"}
                there[message_id] = round(each.scores[waits.pop()]) if waits else now
                resting.pop(message_id, None)
        return there, resting

    def _write(self, rows: Sequence[Row]) -> None:
        by_hour: dict[str, list[Row]] = {}
        for row in rows:
            by_hour.setdefault(layout.hour_of(row.due_ms), []).append(row)
        for hour, group in by_hour.items():
            self._shelf.write(hour, new_id(), group)

    def _move(self, resting: Resting, row: Row, now: int) -> Plan[bool]:  # noqa: ARG002  # as `_bring`
        """Put a row in the place of one in the lake; False when that was loaded, or somebody else is changing it."""
        token = yield from self._hold(resting)
        if token is None:
            return False
        hour, writer = layout.hour_of(row.due_ms), new_id()
        moved = row._replace(origin=f"{resting.hour}/{resting.mark}")
        yield partial(self._shelf.write, hour, writer, [moved])
        if (yield from self._mark(resting)) != token:  # this process has stood still: a load may have passed by the row
            raise LakeMismatch(f"{shown(row.id)} was not moved in {self._shelf.path}, which took too long: try again")
        yield partial(self._shelf.withdraw, resting, writer)  # from here on, it counts
        return True

    def _bring(self, resting: Resting, row: Row, now: int) -> Plan[bool]:
        """Send a row to Redis, in the place of one in the lake; False as `_move`."""
        ends = max(now, layout.start_ms(resting.hour) + HOUR_MS) + RESERVE_MS
        envelope = layout.envelope_at(row, now)
        sealed = Sealed(row.id, row.due_ms, envelope, "ignore", True, ends - now, resting.mark)
        if not all((yield from sending.send_new(self._core, [sealed]))):
            return False
        yield partial(self._shelf.withdraw, resting, "")
        return True

    def _hold(self, resting: Resting) -> Steps[int | None]:
        """Take the mark of a message, for as long as a change needs; None when it was loaded, or is taken.

        Returns:
            what stands under the mark, for as long as it is ours.
        """
        key = self._core.shard(resting.row.id).keys.unique(resting.mark)
        token = layout.HELD + random.randrange(10**12)  # a SET that is sent twice finds its own
        replies = yield [
            Call(key, ("SET", key, token, "NX", "PX", HOLD_MS), as_is),
            Call(key, ("GET", key), as_is),
        ]
        stands = [expect(reply) for reply in replies][1]
        return token if stands == str(token).encode() else None

    def _unless_held(self, told: str, resting: Resting | None) -> Steps[str]:
        """Return what Redis has told of a message, unless it knows none because somebody changes it in the lake."""
        if told == "unknown" and resting is not None and layout.is_held((yield from self._mark(resting))):
            text = f"{shown(resting.row.id)} is being changed in {self._shelf.path} at this moment"
            raise LakeMismatch(f"{text}: try again in some minutes")
        return told

    def _was_loaded(self, resting: Resting) -> Steps[bool]:
        value = yield from self._mark(resting)
        return value is not None and not layout.is_held(value)

    def _mark(self, resting: Resting) -> Steps[int | None]:
        key = self._core.shard(resting.row.id).keys.unique(resting.mark)
        value = yield from one(Call(key, ("GET", key), as_is))
        return None if value is None else int(value)

    def _is_far(self, due: Raw, now: int) -> bool:
        return _absolute(due, now) > now + self._horizon_ms

    def _local_ms(self) -> int:
        return int(self._core.clock() or time.time() * 1000)

    def _now(self) -> Steps[int]:
        return server_ms(self._core)


def describe(queue: str, row: Row) -> MessageInfo:
    """Tell what is known of a message that rests."""
    envelope = layout.opened(row)
    expires = envelope.expires_ms
    return MessageInfo(
        id=row.id,
        queue=queue,
        state="deferred",
        due_at=from_ms(row.due_ms),
        created_at=from_ms(row.created_ms),
        expires_at=None if expires is None else from_ms(row.created_ms + expires),
        max_retries=envelope.max_retries,
        headers=envelope.headers or {},
        envelope=envelope,
    )


def _absolute(due: Raw, now: int) -> int:
    return now + int(due) if isinstance(due, str) else int(due)
