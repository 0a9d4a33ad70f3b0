"""Handlers run in the test's thread, and their messages have the same outcomes as in production."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Ack, Message, Outgoing, Queue, Reject, RetryAfter
from delayq.errors import HandlerMissing, PayloadNotSerializable
from delayq.testing import Clock, in_memory


class Handler:
    """Records what it is given, and fails the first attempts."""

    def __init__(self, clock: Clock, failing: int = 0, error: BaseException | None = None) -> None:
        self.clock = clock
        self.began = clock.ms
        self.failing = failing
        self.error = error or TimeoutError("no answer")
        self.seen: list[tuple[Any, int, float]] = []

    def __call__(self, message: Message) -> None:
        self.seen.append((message.payload, message.attempt, (self.clock.ms - self.began) / 1000))
        if message.attempt <= self.failing:
            raise self.error


def state(queue: Queue, id: str) -> str:
    info = queue.get(id)
    return info.state if info else "gone"


def test_only_due_messages_are_handled(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock))
    emails.send("later", delay=60)
    emails.send("now")
    assert [message.payload for message in clock.run_due()] == ["now"]
    clock.advance(59)
    assert clock.run_due() == []
    clock.advance(1)
    assert [message.payload for message in clock.run_due()] == ["later"]
    assert handler.seen == [("now", 1, 0), ("later", 1, 60)]
    assert [message.payload for message in clock.handled] == ["now", "later"]


def test_rate_lets_messages_go_as_the_clock_moves(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock))
    emails.configure(rate="2/90s")
    for number in range(5):
        emails.send(number)
    assert [message.payload for message in clock.run_due()] == [0, 1]
    clock.advance(89.999)
    assert clock.run_due() == []
    clock.run_for(minutes=5)
    assert handler.seen == [(0, 1, 0), (1, 1, 0), (2, 1, 90), (3, 1, 90), (4, 1, 180)]


@pytest.mark.parametrize(("rate", "step"), [("1/10ms", 0.01), ("1/1min", 60), ("1/7s", 7)])
def test_clock_stops_exactly_when_a_rate_allows_the_next_message(emails: Queue, clock: Clock, rate: str, step: float):
    handler = emails.handler(Handler(clock))
    emails.configure(rate=rate)
    for number in range(5):
        emails.send(number)
    clock.run_for(minutes=10)
    assert [at for _, _, at in handler.seen] == [pytest.approx(number * step) for number in range(5)]


def test_messages_due_together_are_handled_in_the_order_of_their_sends(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock))
    for n in range(0, 12, 2):
        emails.send(n)
        emails.send_many([Outgoing(n + 1)])
    clock.run_due()
    assert [payload for payload, *_ in handler.seen] == list(range(12))


def test_handler_runs_in_the_thread_of_the_test(emails: Queue, clock: Clock):
    threads: list[threading.Thread] = []
    emails.handler(lambda _: threads.append(threading.current_thread()))
    emails.send("x")
    clock.run_due()
    assert threads == [threading.current_thread()]


def test_messages_sent_by_handlers_are_handled(emails: Queue, orders: Queue, clock: Clock):
    mails = emails.handler(Handler(clock))
    orders.handler(lambda message: emails.send(f"thanks for {message.payload}"))
    orders.send("a lamp")
    assert [message.queue for message in clock.run_due()] == ["orders", "emails"]
    assert mails.seen == [("thanks for a lamp", 1, 0)]


def test_only_the_given_queues_are_handled(emails: Queue, orders: Queue, clock: Clock):
    emails.handler(Handler(clock))
    orders.handler(lambda message: emails.send(message.payload))
    orders.send("a lamp")
    assert len(clock.run_due(orders)) == 1
    assert emails.stats().pending == 1
    assert len(clock.run_due(emails)) == 1


def test_each_message_is_handled_at_its_time(emails: Queue, orders: Queue, clock: Clock):
    mails, ordered = emails.handler(Handler(clock)), orders.handler(Handler(clock))
    for seconds in (3600, 60, 7200):
        emails.send("mail", delay=seconds)
    orders.send("order", delay=600.5)
    assert [message.queue for message in clock.run_for(hours=1)] == ["emails", "orders", "emails"]
    assert [at for *_, at in mails.seen] == [60, 3600]
    assert [at for *_, at in ordered.seen] == [600.5]
    assert clock.ms == mails.began + 3_600_000


def test_time_passes_until_a_moment(emails: Queue, clock: Clock):
    emails.handler(Handler(clock))
    noon = clock.now() + dt.timedelta(hours=3)
    emails.send("x", at=noon)
    assert clock.run_until(noon - dt.timedelta(milliseconds=1)) == []
    assert len(clock.run_until(noon)) == 1
    assert clock.now() == noon


def test_failed_delivery_is_retried_after_the_backoff_of_the_queue(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock, failing=2))
    emails.send("x", id="a")
    clock.run_for(minutes=5)
    assert handler.seen == [("x", 1, 0), ("x", 2, 10), ("x", 3, 70)]
    assert state(emails, "a") == "gone"


def test_message_dies_when_its_retries_are_used_up(emails: Queue, clock: Clock):
    emails.handler(Handler(clock, failing=9))
    emails.send("x", id="a")
    assert len(clock.run_for(minutes=5, raise_errors=False)) == 3
    (letter,) = emails.dead.list()
    assert (letter.id, letter.reason, letter.error) == ("a", "retries-exhausted", "TimeoutError: no answer")


def test_error_of_a_handler_is_raised_once_its_message_is_settled(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock, failing=1))
    emails.send("x", id="a")
    with pytest.raises(TimeoutError, match="no answer") as caught:
        clock.run_due()
    assert caught.value is handler.error
    assert caught.value.__notes__ == [
        "raised by the handler of emails in attempt 1 at a: it waits for its next attempt"
    ]
    assert state(emails, "a") == "retry"
    assert len(clock.run_for(10)) == 1
    assert state(emails, "a") == "gone"


def test_error_does_not_keep_other_messages_from_their_handlers(emails: Queue, clock: Clock):
    emails.handler(Handler(clock, failing=1))
    ids = [emails.send(n).id for n in range(3)]
    with pytest.raises(ExceptionGroup, match="3 messages failed") as caught:
        clock.run_due()
    assert len(caught.value.exceptions) == 3
    assert {state(emails, id) for id in ids} == {"retry"}
    assert len(clock.handled) == 3


def test_error_that_makes_a_dead_letter_says_so(emails: Queue, clock: Clock):
    emails.handler(Handler(clock, failing=9))
    emails.send("x", id="a", max_retries=0)
    with pytest.raises(TimeoutError) as caught:
        clock.run_due()
    assert caught.value.__notes__ == ["raised by the handler of emails in attempt 1 at a: it is dead"]


@pytest.mark.parametrize(
    ("verdict", "then"), [(Reject("no address"), "dead"), (RetryAfter(60), "retry"), (None, "retry")], ids=repr
)
def test_reject_and_retry_are_not_errors(emails: Queue, clock: Clock, verdict: Exception | None, then: str):
    def decide(_: Message) -> bool:
        if verdict:
            raise verdict
        return False

    emails.handler(decide)
    emails.send("x", id="a")
    clock.run_due()
    assert state(emails, "a") == then


def test_handler_can_settle_its_message_itself(emails: Queue, clock: Clock):
    emails.handler(lambda message: message.nack(delay=5) if message.attempt == 1 else None)
    emails.send("x", id="a")
    clock.run_due()
    assert state(emails, "a") == "retry"
    assert len(clock.run_for(5)) == 1
    assert emails.stats().missing == 0


def test_error_of_a_handler_that_has_acked_is_logged(emails: Queue, clock: Clock):
    @emails.handler
    def deliver(message: Message) -> None:
        message.ack()
        raise TimeoutError("no answer")

    emails.send("x", id="a")
    with capture_logs() as logs:
        clock.run_due()
    assert state(emails, "a") == "gone"
    assert [(line["event"], line["id"], line["error"]) for line in logs] == [
        ("handler failed after settling", "a", "TimeoutError: no answer")
    ]


def test_error_of_a_handler_that_has_nacked_is_raised(emails: Queue, clock: Clock):
    @emails.handler
    def deliver(message: Message) -> None:
        message.nack()
        raise TimeoutError("no answer")

    emails.send("x", id="a")
    with pytest.raises(TimeoutError):
        clock.run_due()
    assert state(emails, "a") == "retry"


def test_followers_of_a_message_are_handled_at_their_time(emails: Queue, clock: Clock):
    emails.handler(lambda message: Ack(then=[Outgoing(message.payload + 1, delay=60)]) if message.payload < 3 else None)
    emails.send(1)
    assert [message.payload for message in clock.run_for(minutes=2)] == [1, 2, 3]


def test_message_fails_if_its_follower_cannot_be_sent(emails: Queue, clock: Clock):
    emails.handler(lambda _: Ack(then=[Outgoing(object())]))
    emails.send("x", id="a")
    with pytest.raises(PayloadNotSerializable):
        clock.run_due()
    assert state(emails, "a") == "retry"


def test_schedule_fires_at_each_of_its_slots(emails: Queue):
    slots: list[str] = []
    clock: Clock
    emails.cron("*/10 * * * *", name="tick")(lambda _: slots.append(f"{clock.now():%H:%M}"))
    with in_memory(emails, start=dt.datetime(2030, 1, 1, tzinfo=dt.UTC)) as clock:
        clock.run_for(minutes=25)
        clock.run_for(minutes=5)
    assert slots == ["00:10", "00:20", "00:30"]


def test_schedule_fires_once_per_slot_until_its_end(emails: Queue):
    slots: list[dt.datetime] = []
    clock: Clock
    start, end = dt.datetime(2030, 1, 1, 0, 20, tzinfo=dt.UTC), dt.datetime(2030, 1, 1, 1, tzinfo=dt.UTC)
    tick = emails.cron("*/10 * * * *", name="tick", start=start, end=end, jitter=300)
    tick(lambda _: slots.append(clock.now()))
    with in_memory(emails, start=dt.datetime(2030, 1, 1, tzinfo=dt.UTC)) as clock:
        clock.run_for(days=1)
        assert [each.finished for each in emails.schedules.list()] == [True]
    assert [each.minute // 10 for each in slots] == [2, 3, 4, 5, 0]
    assert start <= min(slots)
    assert max(slots) <= end


def test_handler_that_takes_longer_than_its_lease_can_still_ack(emails: Queue, clock: Clock):
    emails.handler(lambda _: clock.advance(minutes=5))
    emails.send("x")
    clock.run_due()
    assert (emails.stats().acked, emails.stats().inside) == (1, 0)


def test_clock_never_goes_back(emails: Queue, clock: Clock):
    emails.handler(lambda _: clock.advance(minutes=5))
    began = clock.now()
    emails.send("x", delay=1)
    clock.run_for(seconds=10)
    assert clock.now() == began + dt.timedelta(minutes=5, seconds=1)
    clock.move(clock.ms - 1)
    assert clock.now() == began + dt.timedelta(minutes=5, seconds=1)


def test_lease_of_a_message_received_by_the_test_ends(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock))
    emails.send("x")
    emails.receive()
    assert clock.run_for(seconds=29) == []
    clock.run_for(minutes=1)
    assert handler.seen == [("x", 2, 30)]


def test_expired_message_reaches_no_handler(emails: Queue, clock: Clock):
    emails.handler(Handler(clock))
    emails.send("x", expires_in=60)
    clock.advance(minutes=2)
    assert clock.run_due() == []
    assert emails.stats().expired == 1


def test_paused_queue_lets_time_pass_and_handles_nothing(emails: Queue, clock: Clock):
    emails.handler(Handler(clock))
    emails.send("x")
    emails.pause()
    assert clock.run_for(days=365) == []
    emails.resume()
    assert len(clock.run_due()) == 1


def test_queue_with_a_timed_pause_is_handled_when_the_pause_ends(emails: Queue, clock: Clock):
    handler = emails.handler(Handler(clock))
    emails.send("x")
    emails.pause(90)
    assert clock.run_due() == []
    clock.run_for(minutes=5)
    assert handler.seen == [("x", 1, 90)]


def test_message_that_never_ends_is_stopped(emails: Queue, clock: Clock):
    emails.handler(lambda message: emails.send(message.payload))
    emails.send("x")
    with pytest.raises(AssertionError, match="20 messages were handled, and message-000021 of emails is also due"):
        clock.run_due(limit=20)
    assert len(clock.handled) == 20
    assert (emails.stats().unack, emails.stats().inside) == (0, 1)


def test_interrupt_ends_the_test_at_once(emails: Queue, clock: Clock):
    emails.handler(Handler(clock, failing=1, error=KeyboardInterrupt()))
    emails.send("x", id="a")
    emails.send("y", id="b")
    with pytest.raises(KeyboardInterrupt):
        clock.run_due(raise_errors=False)
    assert (state(emails, "a"), state(emails, "b")) == ("retry", "ready")


def test_queue_without_a_handler_is_skipped_unless_it_is_given(emails: Queue, orders: Queue, clock: Clock):
    orders.send("x")
    with pytest.raises(HandlerMissing, match="queue emails has no handler"):
        clock.run_due()
    emails.handler(Handler(clock))
    assert clock.run_due() == []
    with pytest.raises(HandlerMissing, match="queue orders has no handler: decorate a function"):
        clock.run_due(orders, emails)
    assert orders.stats().pending == 1


def test_message_that_dies_calls_the_dead_letter_hook() -> None:
    queue, buried = Queue("emails"), list[tuple[Any, ...]]()
    queue.middleware.on_dead(lambda info: buried.append((info.id, info.reason, info.payload)))

    @queue.handler
    def deliver(_: Message) -> None:
        raise Reject("unwanted")

    with in_memory(queue) as clock:
        queue.send("x", id="a")
        clock.run_due()
    assert buried == [("a", "unwanted", "x")]
