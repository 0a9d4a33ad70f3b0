"""What happens between two round trips of a call, or without a second one, does no harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from delayq import Queue
from delayq.doctor import examine
from delayq.errors import ServerUnreachable
from tests.harness.wounds import of_queue


def before_trips(queue: Queue, act: Callable[[int], object]) -> pytest.MonkeyPatch:
    """Call `act` before each round trip of a queue with its number, counted from 0, until the patch is undone."""
    patch, run, number = pytest.MonkeyPatch(), queue._executor.run, iter(range(1000))

    def run_then(calls: Sequence[Any], repeat: bool = True) -> Any:
        act(next(number))
        return run(calls, repeat)

    patch.setattr(queue._executor, "run", run_then)
    return patch


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    queue = Queue("jobs", redis=redis_client)
    queue.send("recorded", id="recorded")
    return queue


def test_cancel_does_not_miss_a_message_that_moves_meanwhile(queue: Queue, redis_client: redis.Redis) -> None:
    """The message is promoted after a first look, if there is one, and is back at the next."""
    pending, ready = "delayq:{jobs}:pending", "delayq:{jobs}:ready"
    queue.send("x", id="a", delay=60)

    def move(trip: int) -> None:
        source, target = (pending, ready) if trip % 2 else (ready, pending)
        if redis_client.zrem(source, "a"):
            redis_client.zadd(target, {"a": 1})

    patch = before_trips(queue, move)
    answer = queue.cancel("a")
    patch.undo()
    assert (answer, queue.get("a"), queue.stats().cancelled) == ("cancelled", None, 1)


@pytest.mark.parametrize("options", [{}, {"id": "a"}, {"id": "recorded", "on_conflict": "replace"}], ids=repr)
def test_interrupted_send_is_stored_completely_or_not_at_all(queue: Queue, options: dict[str, Any]) -> None:
    """Cut before each of its round trips in turn, that is, after the one before, until a send runs to its end."""
    trips, is_cut = 0, True
    while is_cut:
        is_cut = sends_until(trips, queue, options)
        report = examine(queue)
        assert (report.errors, of_queue(report)) == ([], [])
        trips += 1


def sends_until(last: int, queue: Queue, options: dict[str, Any]) -> bool:
    """Send. Return whether that took more round trips than `last`, in which case it was cut off there."""

    def cut(trip: int) -> None:
        if trip == last:
            raise ServerUnreachable("cut")

    patch = before_trips(queue, cut)
    try:
        queue.send("x", delay=60, **options)
    except ServerUnreachable:
        return True
    finally:
        patch.undo()
    return False
