"""The kit for `delayq.aio`: what it awaits, and what only it has. The other tests show what both kits share."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis

import delayq
from delayq import Ack, Message, Outgoing, Reject, RetryAfter, aio, backoff
from delayq.errors import HandlerMissing, InvalidInput, ServerUnreachable
from delayq.testing import aio as kit
from tests.harness.servers import RedisServer
from tests.testing.conftest import NOWHERE
from tests.testing.test_plugin import run_pytest


@pytest.fixture
def mails() -> aio.Queue:
    return aio.Queue("emails", url=NOWHERE, max_retries=2, backoff=backoff.sequence([10, 60]), lease=30)


@pytest.fixture
def moving(mails: aio.Queue) -> Iterator[kit.Clock]:
    with kit.in_memory(mails) as clock:
        yield clock


async def payloads(messages: Awaitable[list[aio.Message]]) -> list[Any]:
    return [message.payload for message in await messages]


def test_queue_is_in_memory_until_the_block_ends(mails: aio.Queue):
    async def main() -> None:
        async with kit.in_memory(mails) as clock:
            await mails.send("x", delay=60)
            assert await mails.receive() == []
            clock.advance(minutes=1)
            (message,) = await mails.receive()
            await message.ack()
            assert (await mails.stats()).acked == 1
            assert await clock.client.keys("*:stats") == [b"delayq:{emails}:stats"]
        with pytest.raises(ServerUnreachable):
            await mails.send("x")

    asyncio.run(main())


def test_waiting_call_gets_what_another_task_sends_to_one_of_several_shards():
    async def main() -> None:
        async with aio.Queue("emails", url=NOWHERE, shards=3) as mails, kit.in_memory(mails):
            waiting = asyncio.create_task(payloads(mails.receive(wait=60)))
            await asyncio.sleep(0.01)
            await mails.send("x")
            assert await waiting == ["x"]

    asyncio.run(main())


def test_queue_returns_to_its_server_with_everything_it_held(redis_server: RedisServer):
    async def main() -> None:
        async with aio.Queue("jobs", url=redis_server.url) as jobs:
            await jobs.send("real", id="a")
            assert await payloads(jobs.receive(wait=0.01)) == ["real"]
            async with kit.in_memory(jobs) as clock:
                assert (await jobs.stats()).inside == 0
                await jobs.send("in memory", id="a", delay=5)
                clock.advance(5)
                assert await payloads(jobs.receive(wait=0.01)) == ["in memory"]
                await jobs.dead.purge()
            assert (await jobs.stats()).sent == 1
            found = await jobs.get("a")
            assert found is not None
            assert (found.state, found.payload) == ("unack", "real")
            await jobs.send("real, too")
            assert await payloads(jobs.receive(wait=5)) == ["real, too"]

    asyncio.run(main())


def test_block_can_be_entered_outside_an_event_loop_and_span_several(mails: aio.Queue, moving: kit.Clock):
    mails.handler(seen := Seen())

    async def wait() -> None:
        await mails.send("x", delay=60)
        assert await mails.receive(wait=0.01) == []  # leaves a connection to its event loop

    for number in range(3):
        asyncio.run(wait())
        moving.advance(60)
        asyncio.run(moving.run_due())
        assert len(seen.payloads) == number + 1


class Seen:
    """An async handler that records what it is given, and fails the first attempts."""

    def __init__(self, failing: int = 0) -> None:
        self.payloads: list[Any] = []
        self.tasks: list[Any] = []
        self._failing = failing

    async def __call__(self, message: aio.Message) -> None:
        await asyncio.sleep(0)
        self.payloads.append(message.payload)
        self.tasks.append(asyncio.current_task())
        if message.attempt <= self._failing:
            raise TimeoutError("no answer")


def test_async_handlers_run_in_the_task_of_the_test_each_at_its_time(mails: aio.Queue, moving: kit.Clock):
    mails.handler(seen := Seen())

    async def main() -> None:
        began = moving.now()
        for seconds in (3600, 60, 7200):
            await mails.send(seconds, delay=seconds)
        await mails.send("now")
        assert await payloads(moving.run_due()) == ["now"]
        assert await payloads(moving.run_for(hours=1)) == [60, 3600]
        assert await payloads(moving.run_until(began + dt.timedelta(hours=2))) == [7200]
        assert seen.payloads == [message.payload for message in moving.handled] == ["now", 60, 3600, 7200]
        assert set(seen.tasks) == {asyncio.current_task()}

    asyncio.run(main())


def test_plain_handler_runs_in_a_thread_where_it_can_run_an_event_loop(mails: aio.Queue, moving: kit.Clock):
    seen = []

    @mails.handler
    def deliver(message: aio.Message) -> None:
        asyncio.run(asyncio.sleep(0))
        seen.append((message.payload, threading.current_thread() is threading.main_thread()))

    async def main() -> None:
        await mails.send("x")
        await moving.run_due()

    asyncio.run(main())
    assert seen == [("x", False)]


def test_failed_delivery_is_retried_by_the_backoff_and_its_error_raised(mails: aio.Queue, moving: kit.Clock):
    mails.handler(seen := Seen(failing=1))

    async def main() -> None:
        await mails.send("x", id="a")
        with pytest.raises(TimeoutError, match="no answer") as caught:
            await moving.run_due()
        assert caught.value.__notes__ == [
            "raised by the handler of emails in attempt 1 at a: it waits for its next attempt"
        ]
        assert await moving.run_for(9) == []
        assert await payloads(moving.run_for(1)) == ["x"]
        assert await mails.get("a") is None

    asyncio.run(main())
    assert seen.payloads == ["x", "x"]


VERDICTS: dict[str, tuple[Callable[[], Any], str]] = {
    "returns": (lambda: None, "gone"),
    "False": (lambda: False, "retry"),
    "Ack": (lambda: Ack(then=[Outgoing("next", id="b", delay=5)]), "gone"),
    "Reject": (lambda: _raise(Reject("no address")), "dead"),
    "RetryAfter": (lambda: _raise(RetryAfter(60)), "retry"),
}


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("name", VERDICTS)
def test_handler_decides_the_outcome_of_its_message(mails: aio.Queue, moving: kit.Clock, name: str):
    verdict, then = VERDICTS[name]

    @mails.handler
    async def decide(_: aio.Message) -> Any:
        return verdict()

    async def main() -> None:
        await mails.send("x", id="a")
        await moving.run_due()
        info = await mails.get("a")
        assert (info.state if info else "gone") == then
        assert (await mails.get("b") is not None) == (name == "Ack")

    asyncio.run(main())


def test_handler_can_settle_its_message_itself(mails: aio.Queue, moving: kit.Clock):
    @mails.handler
    async def deliver(message: aio.Message) -> None:
        if message.attempt == 1:
            await message.nack(delay=5)

    async def main() -> None:
        await mails.send("x", id="a")
        await moving.run_due()
        assert len(await moving.run_for(5)) == 1
        assert (await mails.stats()).missing == 0

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
def test_batches_and_schedules_are_handled(mails: aio.Queue, is_async: bool):
    seen: list[Any] = []

    def note(messages: list[Message]) -> dict[str, Any]:
        seen.append([message.payload for message in messages])
        return {message.id: Reject("no") for message in messages if message.id == "b"}

    async def note_async(messages: list[Message]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return note(messages)

    mails.batch_handler(max_messages=2)(note_async if is_async else note)

    @mails.cron("every 1h", payload="tick")
    def tick(message: Message) -> None:
        seen.append(message.payload)

    async def main() -> None:
        async with kit.in_memory(mails) as clock:
            for name in "abc":
                await mails.send(name, id=name)
            await clock.run_for(hours=1)
            await kit.assert_dead(mails, "b", reason="no")
            assert (await mails.stats()).acked == 3

    asyncio.run(main())
    assert seen == [["a", "b"], ["c"], "tick"]


def test_error_of_a_batch_is_raised_once(mails: aio.Queue, moving: kit.Clock):
    @mails.batch_handler()
    async def handle(_: list[Message]) -> None:
        raise ValueError("no table")

    async def main() -> None:
        await mails.send_many(Outgoing(n) for n in range(3))
        with pytest.raises(ValueError, match="no table") as raised:
            await moving.run_due()
        assert len(raised.value.__notes__) == 3

    asyncio.run(main())


def test_cancelling_the_test_ends_it_but_cancelling_a_handler_does_not(mails: aio.Queue, moving: kit.Clock):
    begun = asyncio.Event()

    @mails.handler
    async def deliver(message: aio.Message) -> None:
        if message.payload == "own":
            raise asyncio.CancelledError("of a task of its own")
        begun.set()
        await asyncio.sleep(3600)

    async def main() -> None:
        await mails.send("own", id="a")
        await moving.run_due(raise_errors=False)
        await kit.assert_sent(mails, "own", count=1)
        await mails.send("long", id="b")
        running = asyncio.create_task(moving.run_due(mails, raise_errors=False))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [message.id for message in moving.handled] == ["a", "b"]
        assert (await mails.stats()).retry == 2

    asyncio.run(main())


def test_message_that_never_ends_is_stopped(mails: aio.Queue, moving: kit.Clock):
    @mails.handler
    async def again(message: aio.Message) -> None:
        await mails.send(message.payload)

    async def main() -> None:
        await mails.send("x")
        with pytest.raises(AssertionError, match="20 messages were handled, and message-000021 of emails is also due"):
            await moving.run_due(limit=20)
        assert ((await mails.stats()).unack, (await mails.stats()).inside) == (0, 1)

    asyncio.run(main())


def test_assertions_hold_if_true_and_otherwise_show_what_there_is(mails: aio.Queue, moving: kit.Clock):
    async def main() -> None:
        await kit.assert_empty(mails)
        await kit.assert_not_sent(mails)
        await mails.send({"to": "ann"}, delay=3600, id="a", headers={"tenant": "acme"})
        assert (await kit.assert_sent(mails, {"to": "ann"}, due_in=3600, headers={"tenant": "acme"}, count=1)).id == "a"
        with pytest.raises(AssertionError, match=r"^no message with payload='y' in what was sent to emails\n1 sent:\n"):
            await kit.assert_sent(mails, "y")
        with pytest.raises(AssertionError, match="1 sent to emails with due_in=3600"):
            await kit.assert_not_sent(mails, due_in=3600)
        with pytest.raises(AssertionError, match=r"emails is not empty\n1 there:"):
            await kit.assert_empty(mails)
        with pytest.raises(AssertionError, match="0 dead; in other states: 1 pending"):
            await kit.assert_dead(mails)
        with pytest.raises(InvalidInput, match="count 0 is not a number"):
            await kit.assert_sent(mails, count=0)
        moving.advance(hours=1)
        (message,) = await mails.receive()
        await message.reject("no address")
        assert (await kit.assert_dead(mails, {"to": "ann"}, reason="no address")).id == "a"
        assert [(each.payload, each.state) for each in await kit.sent(mails)] == [({"to": "ann"}, "dead")]

    asyncio.run(main())


def test_assertions_work_on_a_real_server(redis_server: RedisServer, redis_client: redis.Redis):
    async def main() -> None:
        async with aio.Queue("jobs", url=redis_server.url) as jobs:
            await jobs.send("x", delay=60)
            await kit.assert_sent(
                jobs, "x", due_in=60, within=0.002
            )  # the server's time has fractions of a millisecond
            await kit.assert_sent(delayq.Queue("jobs", redis=redis_client), "x")

    asyncio.run(main())


# -- both APIs in one test ---------------------------------------------------------------------------------------------


def test_sync_and_async_queues_handle_each_others_messages(mails: aio.Queue):
    blocking, seen = delayq.Queue("emails", url=NOWHERE), Seen()
    orders = delayq.Queue("orders", url=NOWHERE)
    threads = []
    mails.handler(seen)

    @orders.handler
    def take(message: Message) -> None:
        threads.append(threading.current_thread())
        blocking.send(f"thanks for {message.payload}", delay=60)

    async def main() -> None:
        async with kit.in_memory(mails, blocking, orders) as clock:
            blocking.send("hello")
            orders.send("a lamp")
            assert [message.queue for message in await clock.run_for(minutes=1)] == ["emails", "orders", "emails"]
            await kit.assert_sent(blocking, "thanks for a lamp", due_in=60)
            await kit.assert_sent(orders, "a lamp")
            await aio.Queue("orders", redis=clock.client, clock=clock).send("a chair")
            assert await payloads(clock.run_due(orders)) == ["a chair"]

    asyncio.run(main())
    assert seen.payloads == ["hello", "thanks for a lamp"]
    assert threading.main_thread() not in threads


def test_sync_queue_is_restored(mails: aio.Queue, redis_client: redis.Redis):
    real = delayq.Queue("emails", redis=redis_client)
    with kit.in_memory(mails, real):
        real.send("in memory")
    assert real.stats().sent == 0


# -- topics ------------------------------------------------------------------------------------------------------------


def test_delayed_record_of_a_topic_comes_when_the_clock_says_so():
    topic, handled = aio.Topic("orders", url=NOWHERE), []

    async def handle(record: Any) -> None:
        handled.append(record.payload)

    async def main() -> None:
        async with kit.in_memory(topic) as clock:
            group = await topic.group("billing", start="0")
            await topic.publish("later", delay=60)
            await topic.publish("now")
            assert await aio.TopicConsumer(group, handle).drain() == 1
            clock.advance(minutes=1)
            assert await topic.length() == 2
            assert await aio.TopicConsumer(group, handle).drain() == 1
            assert await clock.topic("others").length() == 0
        with pytest.raises(ServerUnreachable):
            await topic.length()

    asyncio.run(main())
    assert handled == ["now", "later"]


def test_sync_topic_is_in_memory_too(redis_client: redis.Redis):
    topic = delayq.Topic("orders", redis=redis_client, shards=3)
    group = topic.group("billing", start="0")
    topic.publish("real")
    with delayq.testing.in_memory(topic) as clock:
        assert topic.group("billing", start="0").poll("c") == []
        topic.publish("x", delay=60)
        assert topic.length() == 0
        clock.advance(minutes=1)
        assert [record.payload for record in topic.range()] == ["x"]
        assert clock.topic("others", shards=2).length() == 0
    assert [record.payload for record in topic.range()] == ["real"]
    assert [record.payload for record in group.poll("c")] == ["real"]


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_unsupported_objects_are_refused(mails: aio.Queue, moving: kit.Clock):
    async def main() -> None:
        with pytest.raises(InvalidInput, match="emails is already in memory"):
            moving.add(mails)
        for wrong in ("emails", mails.events):
            with pytest.raises(InvalidInput, match=r"expected a delayq.Queue or delayq.Topic"):
                moving.add(wrong)  # type: ignore[arg-type]
        with pytest.raises(HandlerMissing, match="queue emails has no handler"):
            await moving.run_due()
        with pytest.raises(InvalidInput, match="elsewhere is not in memory: give it to in_memory"):
            await moving.run_due(aio.Queue("elsewhere", url=NOWHERE))

    asyncio.run(main())


def test_sync_kit_names_the_kit_for_async_queues(mails: aio.Queue):
    with pytest.raises(InvalidInput, match=r"got <aio.Queue emails>: .*delayq\.testing\.aio"):
        delayq.testing.in_memory(mails).__enter__()  # type: ignore[arg-type]


def test_queue_is_restored_when_another_cannot_be_in_memory(mails: aio.Queue):
    before = mails._context.clock
    with pytest.raises(InvalidInput), kit.in_memory(mails, "emails"):  # type: ignore[arg-type]
        pass
    assert mails._context.clock is before


# -- with and without plugins ------------------------------------------------------------------------------------------

USER = """
import asyncio
import pytest
from delayq import Queue, aio
from delayq.testing.aio import assert_sent, in_memory

emails = aio.Queue("emails", url="redis://127.0.0.1:1/0")
emails_of_others = Queue("emails", url="redis://127.0.0.1:1/0")
seen = []

@emails.handler
async def deliver(message):
    await asyncio.sleep(0)
    seen.append(message.payload)

@pytest.fixture
def clock():
    seen.clear()
    with in_memory(emails, emails_of_others) as clock:
        yield clock

def test_without_a_plugin(clock):
    async def main():
        await emails.send("x", delay=7200)
        await clock.run_for(hours=2)
    asyncio.run(main())
    assert seen == ["x"]

def test_of_the_fixtures(delayq_async_queue, delayq_async_clock):
    async def main():
        await delayq_async_queue.send("x", delay=7200)
        await assert_sent(delayq_async_queue, "x", due_in=7200)
        delayq_async_clock.advance(hours=2)
        assert len(await delayq_async_queue.receive()) == 1
    asyncio.run(main())

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def awaited_clock():
    seen.clear()
    async with in_memory(emails) as clock:
        yield clock

@pytest.mark.anyio
async def test_with_anyio(clock):
    emails_of_others.send("x", delay=7200)
    await clock.run_for(hours=2)
    assert seen == ["x"]

@pytest.mark.anyio
async def test_with_anyio_and_its_fixture(awaited_clock):
    await emails.send("x")
    await awaited_clock.run_due()
    assert seen == ["x"]

@pytest.mark.anyio
async def test_that_fails(clock):
    await emails.send("x")
    await assert_sent(emails, "y")
"""


def test_kit_works_without_a_plugin_and_with_anyio(tmp_path: Path):
    (tmp_path / "test_user.py").write_text(USER)
    done = run_pytest(tmp_path, "-W", "error")
    assert re.search(r"1 failed, 4 passed", done.stdout), done.stdout + done.stderr
    assert "AssertionError: no message with payload='y' in what was sent to emails" in done.stdout
    assert "raise AssertionError" not in done.stdout  # pytest shows the failure at the test's own assert


def test_clock_runs_in_a_task_group_of_anyio(mails: aio.Queue, moving: kit.Clock):
    mails.handler(seen := Seen())

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(mails.send, "x")
        with anyio.fail_after(60):
            await moving.run_due()

    anyio.run(main)
    assert seen.payloads == ["x"]
