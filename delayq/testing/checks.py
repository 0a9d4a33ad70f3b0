"""The criteria of assertions, and their failures."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.envelope import encode_envelope, open_body, parse
from delayq.model.message_info import MessageInfo
from delayq.model.queue_stats import QueueStats
from delayq.model.show import plural
from delayq.model.units import Seconds, milliseconds
from delayq.testing.sent import STATES, SentInfo, payload_of

ANY: Any = type("Any", (), {"__repr__": lambda _: "anything"})()
_SHOWN = 20


class Wanted:
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
        """Whether a message matches."""
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

    def found(self, queue: str, messages: Sequence[SentInfo], count: int | None) -> SentInfo:
        """Return the first message that matches; raise AssertionError unless there is one, or `count` of them."""
        __tracebackhide__ = True
        found = [message for message in messages if self.fits(message)]
        if not found or (count is not None and len(found) != count):
            how_many = "no message" if not found else f"{plural(len(found), 'message')}, not {count}"
            raise AssertionError(_described(f"{how_many} with {self} in what was sent to {queue}", messages))
        return found[0]

    def missing(self, queue: str, messages: Sequence[SentInfo]) -> None:
        """Raise AssertionError if a message matches."""
        __tracebackhide__ = True
        if found := [message for message in messages if self.fits(message)]:
            raise AssertionError(_described(f"{len(found)} sent to {queue} with {self}", found))


def check_count(count: int | None) -> None:
    """Raise InvalidInput if `count` is not a number of messages."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InvalidInput(f"count {count!r} is not a number of messages, 1 or more: for none, use assert_not_sent")


def check_dead(
    queue: str,
    letters: Sequence[MessageInfo],
    stats: QueueStats,
    payload: Any,
    id: str | None,
    reason: str | None,
    error: str | None,
) -> MessageInfo:
    """Return the first dead letter that matches; raise AssertionError if none does."""
    __tracebackhide__ = True
    for letter in letters:
        fits = (id is None or letter.id == id) and (reason is None or letter.reason == reason)
        if fits and (error is None or error in (letter.error or "")) and _equals(payload_of(letter), payload):
            return letter
    criteria = {"id": id, "reason": reason, "error": error}
    raise AssertionError(
        _described(
            f"no dead letter with {_named(payload, criteria)} in {queue}",
            [f"{payload_of(each)!r} ({each.id}, reason={each.reason!r}, error={each.error!r})" for each in letters],
            "dead" if letters else f"dead; in other states: {_elsewhere(stats)}",
        )
    )


def check_empty(queue: str, left: Sequence[SentInfo | str]) -> None:
    """Raise AssertionError if anything is left."""
    __tracebackhide__ = True
    if left:
        raise AssertionError(_described(f"{queue} is not empty", left, "there"))


def _equals(payload: Any, wanted: Any) -> bool:
    if wanted is ANY or payload == wanted:
        return True
    try:
        _, envelope = parse(b"0" * 13 + encode_envelope(wanted, 0))
    except InvalidInput:  # it cannot be sent, such as mock.ANY: then its own == above decides
        return False
    return bool(payload == open_body(envelope))


def _named(payload: Any, criteria: Mapping[str, Any]) -> str:
    given = {name: value for name, value in {"payload": payload, **criteria}.items() if value is not None}
    if payload is ANY:
        del given["payload"]
    return ", ".join(f"{name}={value!r}" for name, value in given.items()) or "any payload"


def _elsewhere(stats: QueueStats) -> str:
    counts = {state: getattr(stats, state) for state in STATES if state != "dead"}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none"


def _described(claim: str, there: Sequence[Any], what: str = "sent") -> str:
    lines = [f"  {each}" for each in there[:_SHOWN]]
    if len(there) > _SHOWN:
        lines.append(f"  … and {len(there) - _SHOWN} more")
    return "\n".join([claim, f"{len(there)} {what}{':' if lines else ''}", *lines])
