"""When a batch starts, and what is in it."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.model.batch_handler import BatchHandler, Batching
from delayq.model.middleware import Middleware
from delayq.runtime.batch_buffer import BatchBuffer, room


class Fake:
    """A delivery, as the buffer sees it."""

    def __init__(self, name: str, suspect: bool = False) -> None:
        self.name = name
        self.is_suspect = suspect

    def __repr__(self) -> str:
        return self.name


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def collector(clock: Clock) -> BatchBuffer[Any]:
    """For batches of 3 that wait 2 seconds; messages named "alone" are handled by themselves."""
    handler = BatchHandler.of(lambda _: None, 3, 2)
    batching: Batching[Any] = Batching(handler, Middleware(), lambda message: message.name == "alone")  # type: ignore[attr-defined]
    return BatchBuffer(batching, clock)


def fakes(names: str) -> list[Fake]:
    return [Fake(name) for name in names]


def named(messages: list[Fake]) -> str:
    return "".join(message.name for message in messages)


def test_full_batch_starts_at_once(collector: BatchBuffer[Any]):
    collector.add(fakes("ab"))
    assert collector.left() == 2
    collector.add(fakes("cd"))
    assert collector.left() == 0
    assert named(collector.take()) == "abc"
    assert collector.left() == 2


def test_incomplete_batch_starts_when_its_first_message_has_waited(collector: BatchBuffer[Any], clock: Clock):
    collector.add(fakes("a"))
    clock.now += 1.5
    collector.add(fakes("b"))
    assert collector.left() == 0.5
    clock.now += 0.5
    assert collector.left() == 0
    assert named(collector.take()) == "ab"
    assert collector.left() is None


def test_batch_that_nobody_has_taken_keeps_growing(collector: BatchBuffer[Any], clock: Clock):
    collector.add(fakes("a"))
    clock.now += 60
    collector.add(fakes("b"))
    assert (collector.left(), named(collector.take())) == (0, "ab")


def test_hastened_batches_do_not_wait_for_more_messages_but_later_ones_do(collector: BatchBuffer[Any]):
    collector.add(fakes("abcd"))
    assert collector.may_hasten
    collector.hasten()
    assert not collector.may_hasten
    assert named(collector.take()) == "abc"
    assert collector.left() == 0
    collector.add(fakes("e"))
    assert named(collector.take()) == "de"
    collector.add(fakes("f"))
    assert collector.left() == 2
    assert collector.may_hasten


def test_message_that_is_handled_by_itself_starts_at_once_and_alone(collector: BatchBuffer[Any]):
    collector.add([Fake("a"), Fake("alone"), Fake("b")])
    assert (collector.left(), named(collector.take())) == (0, "alone")
    assert (collector.left(), named(collector.take())) == (2, "ab")


def test_suspect_does_not_wait_for_others(collector: BatchBuffer[Any]):
    collector.add([Fake("suspect", suspect=True)])
    assert (collector.left(), named(collector.take())) == (0, "suspect")


def test_clear_returns_everything_that_waits(collector: BatchBuffer[Any]):
    collector.add([Fake("alone"), *fakes("abcd")])
    collector.hasten()
    assert named(collector.clear()) == "aloneabcd"
    assert (collector.left(), collector.may_hasten, collector.take()) == (None, False, [])


@pytest.mark.parametrize(
    ("unfinished", "batch_seconds", "expected"),
    [
        (0, None, 1000),  # of unknown duration: no batch ahead
        (400, None, 600),
        (1000, None, 0),
        (1000, 0.1, 500),
        (1500, 0.1, 0),
        (2000, 0.1, 0),
        (1000, 2.0, 500),  # two at a time: one of them ends each second
        (1000, 2.1, 0),
    ],
)
def test_room_is_one_batch_per_place_and_one_ahead_if_batches_are_quick(
    unfinished: int, batch_seconds: float | None, expected: int
):
    assert room(2, 500, unfinished, batch_seconds) == expected
