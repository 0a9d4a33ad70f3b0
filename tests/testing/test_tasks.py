"""Tasks in memory: they run in the test, as in production."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delayq import Queue, aio, current_message
from delayq.testing import Clock, assert_dead, assert_sent, in_memory
from delayq.testing import aio as kit
from tests.testing.conftest import NOWHERE


def test_task_runs_in_the_thread_of_the_test(emails: Queue, clock: Clock):
    seen: list[Any] = []

    @emails.task
    def welcome(user_id: int, *, language: str = "en") -> str:
        message = current_message()
        assert message is not None
        seen.append((user_id, language, message.task))
        return language

    welcome.options(delay=60).send(42)
    assert_sent(emails, {"user_id": 42}, due_in=60)
    clock.run_for(60)
    assert (seen, current_message()) == ([(42, "en", "welcome")], None)
    assert emails.stats().acked == 1


def test_error_that_is_not_retried_is_raised_to_the_test(emails: Queue, clock: Clock):
    @emails.task(retry_for=OSError)
    def divide(by: int) -> float:
        return 1 / by

    divide.send(0)
    with pytest.raises(ZeroDivisionError) as raised:
        clock.run_due()
    assert "it is dead" in raised.value.__notes__[0]
    assert_dead(emails, {"by": 0}, reason="not-retried")


def test_unknown_task_waits_as_the_clock_moves(emails: Queue, clock: Clock):
    emails.handler(print)
    emails.send({}, task="gone")
    clock.run_for(minutes=14)
    assert (emails.stats().retry, emails.stats().dead) == (1, 0)
    clock.run_for(minutes=2)
    assert_dead(emails, {}, reason="unknown-task")


def test_task_that_is_registered_in_a_block_is_forgotten_after_it():
    queue = Queue("others", url=NOWHERE)
    for _ in range(2):  # else the second one would be refused
        with in_memory(queue):
            queue.task(name="note")(len_of)
            assert list(queue.handlers.tasks) == ["note"]
    assert not queue.handlers
    assert queue.handlers.tasks == {}


def len_of(text: str) -> int:
    return len(text)


def test_async_task_runs_in_the_task_of_the_test():
    mails = aio.Queue("emails", url=NOWHERE)
    seen: list[Any] = []

    @mails.task
    async def welcome(user_id: int) -> None:
        await asyncio.sleep(0)
        message = aio.current_message()
        seen.append((user_id, message and message.id))

    async def main() -> None:
        async with kit.in_memory(mails) as clock:
            sent = await welcome.send(42)
            await clock.run_due()
            assert (seen, aio.current_message()) == ([(42, sent.id)], None)

    asyncio.run(main())
