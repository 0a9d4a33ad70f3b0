"""The timeout of a message, and where it is kept. How it ends handlers is tested with their pools."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from delayq import InvalidInput, Outgoing, Queue
from delayq.model.outcome import Ack
from tests.contract.conftest import Drain, Now, Take


def timeouts(queue: Queue, *ids: str) -> list[float | None]:
    infos = [queue.get(id) for id in ids]
    assert all(infos)
    return [info.timeout for info in infos if info]


def test_timeout_is_shown_by_the_message_and_by_get(queue: Queue, take: Take):
    queue.send("x", id="a", timeout=90)
    assert timeouts(queue, "a") == [90]
    assert [info.timeout for info in queue.peek("pending")] == [90]
    assert take().timeout == 90


def test_message_without_a_timeout_has_none(queue: Queue, take: Take):
    queue.send("x", id="a")
    assert timeouts(queue, "a") == [None]
    assert take().timeout is None


def test_timedelta_and_fractional_timeouts_are_kept_to_the_millisecond(queue: Queue):
    queue.send_many(
        [
            Outgoing("x", id="a", timeout=dt.timedelta(minutes=2)),
            Outgoing("x", id="b", timeout=0.25),
            Outgoing("x", id="c"),
        ]
    )
    assert timeouts(queue, "a", "b", "c") == [120, 0.25, None]


def test_timeout_survives_retries_and_is_replaced_with_the_message(queue: Queue, take: Take):
    queue.send("x", id="a", timeout=90)
    take().nack(delay=1)
    assert timeouts(queue, "a") == [90]
    queue.send("y", id="a", timeout=30, on_conflict="replace")
    assert timeouts(queue, "a") == [30]


def test_follow_ups_have_their_own_timeout(queue: Queue, drain: Drain):
    queue.send("first", timeout=5)
    seen: list[tuple[Any, float | None]] = []

    def handler(message: Any) -> Any:
        seen.append((message.payload, message.timeout))
        then = [Outgoing("second", timeout=7), Outgoing("third")] if message.payload == "first" else []
        return Ack(then=then)

    assert drain(queue, handler) == 3
    assert sorted(seen) == [("first", 5), ("second", 7), ("third", None)]


def test_edit_can_keep_or_change_the_timeout(queue: Queue, take: Take):
    for timeout, becomes in ((msgspec.UNSET, 90), (5, 5), (None, None)):
        queue.send("x", id="a", timeout=90, on_conflict="replace")
        take().reject("no")
        assert queue.dead.edit("a", "y", timeout=timeout)
        assert timeouts(queue, "a") == [becomes]
    take().reject("no")
    assert queue.dead.edit("a", timeout=8)
    info = queue.get("a")
    assert info is not None
    assert (info.payload, info.timeout) == ("y", 8)


def test_occurrences_have_the_timeout_of_their_schedule(queue: Queue, now: Now):
    added = queue.schedules.add("tick", "*/5 * * * *", "x", timeout=600)
    assert added.timeout == 600
    for _ in range(2):
        now.later(300)
        (message,) = queue.receive(1)
        assert message.timeout == 600
        message.ack()
    changed = queue.schedules.add("tick", "*/5 * * * *", "x")
    assert (changed.timeout, queue.stats().pending) == (None, 1)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon", True, 86_401, dt.timedelta(0)])
def test_invalid_timeout_is_refused_with_its_value(queue: Queue, take: Take, timeout: Any):
    queue.send("x", id="dead")
    take("dead").reject("no")
    before = queue.stats().sent
    for call in (
        lambda: queue.send("x", timeout=timeout),
        lambda: queue.send_many([Outgoing("x"), Outgoing("x", timeout=timeout)]),
        lambda: queue.schedules.add("tick", "*/5 * * * *", timeout=timeout),
        lambda: queue.dead.edit("dead", timeout=timeout),
    ):
        with pytest.raises(InvalidInput, match="timeout") as raised:
            call()
        assert repr(timeout) in str(raised.value)
    assert (queue.stats().sent, timeouts(queue, "dead")) == (before, [None])
