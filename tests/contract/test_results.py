"""Results of tasks: what they returned, how they failed, and that no result is ever that of another message."""

from __future__ import annotations

import contextlib
import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import delayq
from delayq import Ack, NoResult, Outgoing, Queue, Reject, ResultTimeout, RetryAfter, TaskFailed, current_message
from delayq.errors import InvalidInput, InvalidTime
from tests.contract.conftest import Drain, Make, Now, registered
from tests.contract.test_tasks import having, task
from tests.harness.awaiting import Awaited

HOUR = dt.timedelta(hours=1)


def add(a: int, b: int = 1) -> int:
    return a + b


def fail(text: str) -> None:
    raise KeyError(text)


def result(queue: Any, sent: Any, timeout: Any = 0) -> Any:
    """Return the result of a message that was sent; in the async API, it is awaited."""
    found = sent.result(timeout)
    return queue.run(found) if isinstance(queue, Awaited) else found


def failure(queue: Any, sent: Any) -> TaskFailed:
    with pytest.raises(TaskFailed) as raised:
        result(queue, sent)
    return raised.value


def test_value_is_kept_with_the_ack(queue: Queue, drain: Drain):
    adding = task(queue, add, results=HOUR)
    sent = adding.send(1, b=2)
    with pytest.raises(ResultTimeout, match="has not ended yet"):
        result(queue, sent)
    drain(queue, None)
    assert (result(queue, sent), adding.result(sent.id)) == (3, 3)
    assert queue.stats().acked == 1


def test_record_says_how_the_task_ended(queue: Queue, drain: Drain, now: Now):
    task(queue, add)
    sent = queue.send({"a": 1, "b": 2}, task="add", results=HOUR, headers={"from": "a test"})
    now.later(5)
    drain(queue, None)
    record: Any = queue.result(sent.id)
    assert (record.id, record.queue, record.status) == (sent.id, "jobs", "done")
    assert (record.task, record.arguments, record.value) == ("add", {"a": 1, "b": 2}, 3)
    assert record.headers == {"from": "a test"}
    assert (record.created_at, record.started_at) == (sent.due_at, sent.due_at + dt.timedelta(seconds=5))
    assert record.last_attempted_at == record.started_at
    assert record.finished_at >= record.started_at
    assert (record.attempts, record.error, len(record.consumers)) == (1, None, 1)
    assert record.kept_until > record.finished_at


def test_record_adds_the_attempts_up(queue: Queue, drain: Drain, now: Now):
    def flaky(a: int) -> int:
        message: Any = current_message()
        if message.attempt < 3:
            raise ValueError(f"attempt {message.attempt}")
        return a

    sent = task(queue, flaky, results=HOUR).send(7)
    started = sent.due_at
    drain(queue, None)
    record: Any = queue.result(sent.id)
    assert (record.status, record.error[:2], record.attempts) == ("retry", ("ValueError", "attempt 1"), 1)
    with pytest.raises(ResultTimeout):
        result(queue, sent)
    now.later(1)
    drain(queue, None)
    now.later(10)
    drain(queue, None)
    record = queue.result(sent.id)
    assert (record.status, record.value, record.attempts, len(record.consumers)) == ("done", 7, 3, 3)
    assert record.started_at == started
    assert record.last_attempted_at >= started + dt.timedelta(seconds=11)
    assert result(queue, sent) == 7


def test_failure_says_type_text_traceback_and_reason(queue: Queue, drain: Drain):
    sent = having(queue, task(queue, fail, results=HOUR), max_retries=0).send("x")
    drain(queue, None)
    error = failure(queue, sent)
    assert (error.type, error.text, error.reason) == ("KeyError", "'x'", "retries-exhausted")
    assert error.traceback.startswith("Traceback")
    assert "raise KeyError(text)" in error.traceback
    assert "task 'fail'" in str(error)


def test_traceback_is_at_most_8_kib_of_its_end(queue: Queue, drain: Drain):
    sent = having(queue, task(queue, fail, results=HOUR), max_retries=0).send("é" * 20_000)
    drain(queue, None)
    error = failure(queue, sent)
    assert len(error.traceback.encode()) <= 8192
    assert error.traceback.endswith("é'\n")
    assert len(error.text) <= 2000


def test_verdicts_end_a_task_with_results(queue: Queue, drain: Drain):
    def decide(how: str) -> None:
        if how == "reject":
            raise Reject("unwanted")
        raise RetryAfter(60, "not yet")

    deciding = task(queue, decide, results=HOUR)
    rejected, late = deciding.send("reject"), deciding.send("late")
    drain(queue, None)
    assert failure(queue, rejected).reason == "unwanted"
    assert queue.result(late.id).error.text == "not yet"  # type: ignore[union-attr]
    with pytest.raises(ResultTimeout):
        result(queue, late)


def test_ack_with_then_keeps_none(queue: Queue, drain: Drain):
    def chain(a: int) -> Any:
        return Ack(then=[Outgoing({"a": a}, task="add")])

    task(queue, add)
    sent = task(queue, chain, results=HOUR).send(1)
    drain(queue, None)
    assert result(queue, sent) is None
    assert queue.result(sent.id).arguments == {"a": 1}  # type: ignore[union-attr]
    assert queue.stats().acked == 2


@dataclass
class Point:
    x: int
    at: dt.date


@pytest.mark.parametrize(
    "value", [None, False, 0, "é", [1, {"a": None}], b"\0\xff", Point(1, dt.date(2026, 1, 2)), dt.timedelta(seconds=3)]
)
def test_value_has_the_type_of_the_annotation(queue: Queue, drain: Drain, value: Any):
    def give() -> Any:
        return value

    give.__annotations__["return"] = None if value is None else type(value)
    sent = task(queue, give, results=HOUR).send()
    drain(queue, None)
    assert result(queue, sent) == value


WRONG = {"object": object(), "nan": float("nan"), "two keys": {1: "a", "1": "b"}, "large": "x" * 2**20}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_value_that_cannot_be_kept_is_a_dead_letter_at_once(queue: Queue, drain: Drain, value: Any):
    ran = []

    def give() -> Any:
        ran.append(1)
        return value

    sent = task(queue, give, results=HOUR).send()
    drain(queue, None)
    error = failure(queue, sent)
    assert (error.type, error.reason) == ("NotKept", "result-not-serializable")
    assert [(each.reason, each.attempts) for each in queue.dead.list()] == [("result-not-serializable", 1)]
    assert len(ran) == 1


def test_task_without_results_keeps_nothing(queue: Queue, drain: Drain):
    sent = task(queue, add).send(1)
    with pytest.raises(NoResult, match="results="):
        result(queue, sent)
    drain(queue, None)
    assert queue.result(sent.id) is None


def test_id_without_a_message_has_no_result(queue: Queue):
    with pytest.raises(NoResult, match="unknown"):
        task(queue, add, results=HOUR).result("nobody")


@pytest.mark.parametrize("end", ["cancel", "purge", "replace"])
def test_message_that_is_gone_has_no_result(queue: Queue, end: str):
    adding = task(queue, add, results=HOUR)
    sent = having(queue, adding, id="a", delay=5).send(1)
    if end == "cancel":
        queue.cancel("a")
    elif end == "purge":
        queue.purge("pending")
    else:
        having(queue, adding, id="a", on_conflict="replace").send(2)
    with pytest.raises(NoResult):
        result(queue, sent)


def test_result_is_never_that_of_another_message_with_this_id(queue: Queue, drain: Drain):
    adding = having(queue, task(queue, add, results=HOUR), id="a")
    first = adding.send(1)
    drain(queue, None)
    second = adding.send(2)
    assert result(queue, first) == 2
    with pytest.raises(ResultTimeout):
        result(queue, second)
    with pytest.raises(ResultTimeout):
        adding.result("a")  # that of the latest message
    drain(queue, None)
    assert (result(queue, second), adding.result("a")) == (3, 3)
    with pytest.raises(NoResult):
        result(queue, first)
    queue.send({"a": 5}, id="a", task="add")  # one without results does not hide the record
    assert result(queue, second) == 3


def test_message_that_was_kept_answers_for_one_that_was_not_sent(queue: Queue, drain: Drain):
    adding = having(queue, task(queue, add, results=HOUR), id="a")
    adding.send(1)
    again = adding.send(8)
    assert not again.created
    drain(queue, None)
    assert result(queue, again) == 2


def test_redriven_message_is_waited_for_again(queue: Queue, drain: Drain):
    ran = []

    def once() -> int:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError
        return 5

    sent = having(queue, task(queue, once, results=HOUR), max_retries=0).send()
    drain(queue, None)
    assert failure(queue, sent).type == "ValueError"
    queue.dead.requeue([sent.id])
    with pytest.raises(ResultTimeout):
        result(queue, sent)
    drain(queue, None)
    assert result(queue, sent) == 5


def test_death_is_reported_even_after_the_dead_letter_was_purged(queue: Queue, drain: Drain):
    sent = having(queue, task(queue, fail, results=HOUR), max_retries=0).send("x")
    drain(queue, None)
    queue.dead.purge()
    assert failure(queue, sent).type == "KeyError"


def test_expired_task_says_so(queue: Queue, drain: Drain, now: Now):
    sent = having(queue, task(queue, add, results=HOUR), expires_in=5).send(1)
    now.later(6)
    drain(queue, None)
    error = failure(queue, sent)
    assert (error.reason, "not started" in error.text) == ("expired", True)
    assert queue.result(sent.id).started_at is None  # type: ignore[union-attr]


def test_death_without_a_handler_answers_with_its_reason(make: Make, now: Now, client: Any):
    queue = make()
    adding = task(queue, add, results=HOUR)
    lost, crashed = adding.send(1), having(queue, adding, max_retries=0).send(2)
    client.delete(queue._context.shard(lost.id).keys.message(lost.id))
    assert [each.id for each in queue.receive(lease=1)] == [crashed.id]
    now.later(60)
    assert queue.receive() == []
    now.later(60)
    assert queue.receive() == []
    assert failure(queue, lost).reason == "payload-missing"
    assert failure(queue, crashed).reason == "consumer-lost"
    assert failure(queue, crashed).type == "LeaseLost"


def test_message_that_has_lost_its_payload_is_waited_for_until_it_is_dead(make: Make, client: Any):
    queue = make()
    adding = task(queue, add, results=HOUR)
    sent = adding.send(1)
    client.delete(queue._context.shard(sent.id).keys.message(sent.id))
    with pytest.raises(ResultTimeout):
        adding.result(sent.id)  # from another program, which has only the id
    assert queue.receive() == []
    with pytest.raises(TaskFailed) as raised:
        adding.result(sent.id)
    assert raised.value.reason == "payload-missing"


def test_unknown_task_answers_with_its_reason(make: Make, drain: Drain, now: Now):
    sent = task(make(), add, results=HOUR).send(1)
    other = make()
    task(other, fail)
    for _ in range(40):
        drain(other, None)
        now.later(30)
    queue = make()
    task(queue, add, results=HOUR)
    assert failure(queue, sent).reason == "unknown-task"


def test_ack_by_hand_keeps_none(queue: Queue):
    adding = task(queue, add, results=HOUR)
    sent, other = adding.send(1), adding.send(2)
    messages = {each.id: each for each in queue.receive(2)}
    messages[sent.id].ack()
    queue.ack([messages[other.id]])
    assert (result(queue, sent), result(queue, other)) == (None, None)


def settling(queue: Any, how: str) -> Callable[[], Any]:
    """Return a task's function that settles its own message, and then returns a value."""

    def settled() -> Any:
        message: Any = current_message()
        if how == "then":
            return message.ack(then=[Outgoing({"a": 1}, task="add")])
        return queue.ack([message]) if how == "many" else getattr(message, how)()

    def settle() -> str:
        settled()
        return "too late"

    async def settle_async() -> str:
        await settled()
        return "too late"

    if not isinstance(queue, Awaited):
        return settle
    queue = queue.target
    return settle_async


@pytest.mark.parametrize("how", ["ack", "then", "many", "nack", "reject"])
def test_task_that_settles_its_own_message_is_never_waited_for_without_end(queue: Queue, drain: Drain, how: str):
    task(queue, add)
    register: Any = queue.target.task if isinstance(queue, Awaited) else queue.task
    found = register(results=HOUR)(settling(queue, how))
    sent = (Awaited(found, queue._runner) if isinstance(queue, Awaited) else found).send()
    drain(queue, None)
    if how == "nack":
        with pytest.raises(ResultTimeout):
            result(queue, sent)
    elif how == "reject":
        assert failure(queue, sent).reason == "rejected"
    else:
        assert result(queue, sent) is None
        assert queue.result(sent.id).status == "done"  # type: ignore[union-attr]


def test_swallowed_error_answers_with_none(queue: Queue, drain: Drain):
    @queue.middleware.around_delivery
    def swallow(_: Any) -> Iterator[None]:
        with contextlib.suppress(KeyError):
            yield

    sent = task(queue, fail, results=HOUR).send("x")
    drain(queue, None)
    assert result(queue, sent) is None


@pytest.mark.parametrize("kind_of_handler", ["plain", "batch"])
def test_handler_of_no_task_keeps_none_for_a_message_that_wants_a_result(
    queue: Queue, drain: Drain, monkeypatch: pytest.MonkeyPatch, kind_of_handler: str
):
    adding = task(queue, add, results=HOUR)
    with monkeypatch.context() as patched:  # another program may write this
        patched.setattr("delayq.operations.encode.header_of_results", lambda *_: {"delayq-results": "60000-a1"})
        queue.send_many([Outgoing("x", id=id, results=60) for id in "ab"])
    register = queue.handler if kind_of_handler == "plain" else queue.batch_handler()
    registered(queue, register, lambda _: None)
    drain(queue, None)
    assert [adding.result("a"), adding.result("b")] == [None, None]
    assert queue.stats().acked == 2


def test_stale_delivery_keeps_nothing(queue: Queue, now: Now):
    sent = task(queue, add, results=HOUR).send(1)
    (message,) = queue.receive(lease=1)
    now.later(40)
    (again,) = queue.receive()
    with pytest.raises(delayq.StaleReceipt):
        message.ack()
    assert queue.result(sent.id) is None
    again.ack()
    assert queue.result(sent.id) is not None


def test_message_of_a_task_carries_the_wish_wherever_it_is_sent(queue: Queue, drain: Drain):
    adding = task(queue, add, results=HOUR)
    queue.send_many([Outgoing({"a": 4}, id="b", task="add", results=60)])
    with pytest.raises(InvalidInput, match="task="):
        queue.send("x", results=60)
    drain(queue, None)
    assert adding.result("b") == 5
    assert queue.get("b") is None


@pytest.mark.parametrize("wrong", [0, -1, 367 * 86400, True, "1h"])
def test_wrong_time_is_refused_when_the_task_is_registered(queue: Queue, wrong: Any):
    with pytest.raises(InvalidTime, match="results"):
        task(queue, add, results=wrong)


def test_result_within_a_handler_of_the_queue_is_refused(queue: Queue, drain: Drain):
    refused: list[str] = []
    target: Any = queue.target if isinstance(queue, Awaited) else queue
    target._context.clock = str  # the waits of a test's clock end at once

    def add_late(a: int) -> int:
        return a

    adding = task(queue, add_late, results=HOUR)
    sender: Any = adding.target if isinstance(adding, Awaited) else adding

    if isinstance(queue, Awaited):

        async def waits_async() -> None:
            later = await sender.options(delay=60).send(1)
            with pytest.raises(InvalidInput) as raised:
                await later.result(5)
            refused.append(str(raised.value))

        queue.run(target.task(waits_async).send())
    else:

        def waits() -> None:
            later = sender.options(delay=60).send(1)
            with pytest.raises(InvalidInput) as raised:
                later.result(5)
            refused.append(str(raised.value))

        target.task(waits).send()
    drain(queue, None)
    assert len(refused) == 1
    assert "same queue" in refused[0]


def test_sent_task_can_be_pickled_and_then_names_the_remedy(queue: Queue):
    sent = task(queue, add, results=HOUR).send(1)
    copy = pickle.loads(pickle.dumps(sent))
    assert copy == sent
    with pytest.raises(InvalidInput, match="of its task"):
        result(queue, copy)


def test_schedule_with_results_does_not_change_at_each_start(queue: Queue):
    adding = task(queue, add, results=HOUR)
    first = queue.schedules.add("daily", "@daily", message=adding.message(1))
    assert queue.schedules.add("daily", "@daily", message=adding.message(1)) == first


def test_foreign_header_of_results_hurts_only_its_message(queue: Queue, drain: Drain, monkeypatch: pytest.MonkeyPatch):
    adding = task(queue, add, results=HOUR)
    with monkeypatch.context() as patched:
        patched.setattr("delayq.operations.encode.header_of_results", lambda *_: {"delayq-results": "1h"})
        foreign = adding.send(1)
    sents = [adding.send(2), adding.send(3)]
    drain(queue, None)
    assert [result(queue, each) for each in sents] == [3, 4]
    with pytest.raises(NoResult):
        result(queue, foreign)
    assert queue.stats().acked == 3
