"""Handlers of batches, in memory."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Message, Outgoing, Queue, Reject
from delayq.testing import Clock


def payloads(messages: list[Message]) -> list[Any]:
    return [message.payload for message in messages]


def test_batch_has_the_messages_due_at_the_same_time(emails: Queue, clock: Clock):
    batches: list[list[Any]] = []
    emails.batch_handler(max_messages=3, max_wait=3600)(lambda messages: batches.append(payloads(messages)))
    emails.send_many(Outgoing(n) for n in range(5))
    emails.send("later", delay=60)
    assert payloads(clock.run_due()) == [0, 1, 2, 3, 4]
    assert batches == [[0, 1, 2], [3, 4]]
    clock.run_for(60)
    assert batches[2:] == [["later"]]


def test_batch_can_be_larger_than_one_receive(emails: Queue, clock: Clock):
    sizes: list[int] = []
    emails.batch_handler(max_messages=700)(lambda messages: sizes.append(len(messages)))
    emails.send_many(Outgoing(n) for n in range(701))
    clock.run_due()
    assert sizes == [700, 1]


def test_each_verdict_decides_the_outcome_of_its_message(emails: Queue, clock: Clock):
    @emails.batch_handler()
    def handle(messages: list[Message]) -> dict[str, Any]:
        return {"b": False, "c": Reject("no")} if messages[0].attempt == 1 else {}

    for name in "abc":
        emails.send(name, id=name)
    assert payloads(clock.run_due()) == ["a", "b", "c"]
    assert payloads(clock.run_for(hours=1)) == ["b"]
    assert (emails.stats().acked, emails.stats().dead, emails.stats().missing) == (2, 1, 0)


def test_error_of_a_batch_is_raised_once(emails: Queue, clock: Clock):
    @emails.batch_handler()
    def handle(_: list[Message]) -> None:
        raise ValueError("no table")

    emails.send_many(Outgoing(n) for n in range(3))
    with pytest.raises(ValueError, match="no table") as raised:
        clock.run_due()
    assert len(raised.value.__notes__) == 3
    assert emails.stats().retry == 3


def test_schedule_functions_are_called_with_single_messages(emails: Queue, clock: Clock):
    seen: list[Any] = []
    emails.batch_handler()(lambda messages: seen.append(payloads(messages)))

    @emails.cron("every 1h", payload="tick")
    def tick(message: Message) -> None:
        seen.append(message.payload)

    emails.send("other", delay=3600)
    clock.run_for(hours=1)
    assert sorted(seen, key=str) == [["other"], "tick"]


def test_limit_applies_to_batches(emails: Queue, clock: Clock):
    @emails.batch_handler()
    def handle(messages: list[Message]) -> None:
        for message in messages:
            emails.send(message.payload)

    emails.send_many(Outgoing(n) for n in range(4))
    with pytest.raises(AssertionError, match=r"10 messages were handled, and .* of emails is also due"):
        clock.run_due(limit=10)
    assert len(clock.handled) == 10
    assert (emails.stats().unack, emails.stats().missing) == (0, 0)
