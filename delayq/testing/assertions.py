"""Assertions on queues, in memory or not, whose failures tell what there is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.envelope import encode_envelope, open_body, parse
from delayq.model.message_info import MessageInfo
from delayq.model.units import Seconds, milliseconds
from delayq.queue import Queue
from delayq.testing.sent import ALL, STATES, SentInfo, sent

_ANY: Any = type("Any", (), {"__repr__": lambda _: "anything"})()
_SHOWN = 20


def assert_sent(
    queue: Queue,
    payload: Any = _ANY,
    *,
    id: str | None = None,
    due_in: Seconds | None = None,
    due_at: dt.datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    within: Seconds = 0,
    count: int | None = None,
) -> SentInfo:
    """Assert that a message was sent to a queue, and return the first such one; see `sent` for what counts.

    Args:
        payload: equal to what a handler gets, also when it was sent in another form: a tuple is a list there.
        due_in: seconds or a timedelta from its sending until it is due.
        due_at: an aware datetime.
        headers: those that it has, maybe among others.
        within: by how much `due_in` and `due_at` may be missed, seconds or a timedelta. Times that were computed from
            `datetime.now()` need that, unless the clock moves it, too.
        count: exactly so many, 1 or more; at least one when None.
    """
    __tracebackhide__ = True
    wanted = _Wanted(payload, id, due_in, due_at, headers, within)
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidInput(f"count {count!r} is not a number of messages, 1 or more: see assert_not_sent")
    messages = sent(queue)
    found = [message for message in messages if wanted.fits(message)]
    if not found or (count is not None and len(found) != count):
        how_many = "no message" if not found else f"{len(found)} messages, not {count}"
        raise AssertionError(_described(f"{how_many} with {wanted} in what was sent to {queue.name}", messages))
    return found[0]


def assert_not_sent(
    queue: Queue,
    payload: Any = _ANY,
    *,
    id: str | None = None,
    due_in: Seconds | None = None,
    due_at: dt.datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    within: Seconds = 0,
) -> None:
    """Assert that no such message was sent to a queue, or none at all; the arguments are those of `assert_sent`."""
    __tracebackhide__ = True
    wanted = _Wanted(payload, id, due_in, due_at, headers, within)
    found = [message for message in sent(queue) if wanted.fits(message)]
    if found:
        raise AssertionError(_described(f"{len(found)} sent to {queue.name} with {wanted}", found))


def assert_dead(
    queue: Queue, payload: Any = _ANY, *, id: str | None = None, reason: str | None = None, error: str | None = None
) -> MessageInfo:
    """Assert that a message is among the dead letters of a queue, and return it.

    Args:
        reason: of its death, such as "retries-exhausted", or what a handler has given to `Reject`.
        error: a part of its last error, as in "TimeoutError".
    """
    __tracebackhide__ = True
    letters = queue.dead.list(ALL)
    for letter in letters:
        fits = (id is None or letter.id == id) and (reason is None or letter.reason == reason)
        if fits and (error is None or error in (letter.error or "")) and _equals(letter.payload, payload):
            return letter
    criteria = {"id": id, "reason": reason, "error": error}
    raise AssertionError(
        _described(
            f"no dead letter with {_named(payload, criteria)} in {queue.name}",
            [f"{each.payload!r} ({each.id}, reason={each.reason!r}, error={each.error!r})" for each in letters],
            "dead" if letters else f"dead; in other states: {_elsewhere(queue)}",
        )
    )


def assert_empty(queue: Queue) -> None:
    """Assert that nothing waits or runs in a queue, and nothing is dead."""
    __tracebackhide__ = True
    left = [message for message in sent(queue) if message.state != "gone"]
    lost = [info.id for state in STATES for info in queue.peek(state, ALL) if info.created_at is None]
    if left or lost:
        raise AssertionError(_described(f"{queue.name} is not empty", [*left, *lost], "there"))


class _Wanted:
    """What a message must be like."""

    def __init__(
        self,
        payload: Any,
        id: str | None,
        due_in: Seconds | None,
        due_at: dt.datetime | None,
        headers: Mapping[str, Any] | None,
        within: Seconds,
    ) -> None:
        if due_at is not None and (not isinstance(due_at, dt.datetime) or due_at.utcoffset() is None):
            raise InvalidInput(f"due_at={due_at!r} is not an aware datetime: add a time zone")
        self._payload = payload
        self._id = id
        self._due_in_ms = None if due_in is None else milliseconds(due_in, "due_in")
        self._due_at = due_at
        self._headers = headers
        self._within = dt.timedelta(milliseconds=milliseconds(within, "within"))
        self._named = {"id": id, "due_in": due_in, "due_at": due_at, "headers": headers, "within": within or None}

    def fits(self, message: SentInfo) -> bool:
        """Whether a message is like that."""
        if self._id is not None and message.id != self._id:
            return False
        headers = (self._headers or {}).items()
        if any(name not in message.headers or message.headers[name] != value for name, value in headers):
            return False
        due_at = self._due_at
        if self._due_in_ms is not None and not self._meets(
            message, message.created_at + dt.timedelta(milliseconds=self._due_in_ms)
        ):
            return False
        return (due_at is None or self._meets(message, due_at)) and _equals(message.payload, self._payload)

    def _meets(self, message: SentInfo, due_at: dt.datetime) -> bool:
        return message.due_at is not None and abs(message.due_at - due_at) <= self._within

    def __str__(self) -> str:
        return _named(self._payload, self._named)


def _equals(payload: Any, wanted: Any) -> bool:
    if wanted is _ANY or payload == wanted:
        return True
    try:
        _, envelope = parse(b"0" * 13 + encode_envelope(wanted, 0))
    except InvalidInput:  # nothing that could be sent, such as mock.ANY: what it says itself has counted
        return False
    return bool(payload == open_body(envelope))


def _named(payload: Any, criteria: Mapping[str, Any]) -> str:
    given = {name: value for name, value in {"payload": payload, **criteria}.items() if value is not None}
    if payload is _ANY:
        del given["payload"]
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "any payload"


def _elsewhere(queue: Queue) -> str:
    stats = queue.stats()
    counts = {state: getattr(stats, state) for state in STATES if state != "dead"}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none"


def _described(claim: str, there: Sequence[Any], what: str = "sent") -> str:
    lines = [f"  {each}" for each in there[:_SHOWN]]
    if len(there) > _SHOWN:
        lines.append(f"  … and {len(there) - _SHOWN} more")
    return "\n".join([claim, f"{len(there)} {what}{':' if lines else ''}", *lines])
