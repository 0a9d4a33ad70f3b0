"""What a consumer does with the outcomes of handlers, in both APIs and with each kind of handler."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Outgoing, Queue, Reject, RetryAfter, backoff
from delayq.errors import HandlerMissing, InvalidInput
from delayq.model.outcome import INTERRUPTED
from delayq.model.units import from_ms
from tests.contract.conftest import Body, Drain, Make, Now


def raising(error: BaseException) -> Body:
    def handle(_: Any) -> None:
        raise error

    return handle


@pytest.mark.parametrize(
    ("handler", "state", "error"),
    [
        (lambda _: False, "retry", "the handler returned False"),
        (raising(ValueError("boom")), "retry", "ValueError: boom"),
        (raising(SystemExit(3)), "retry", "SystemExit: 3"),
        (raising(RetryAfter(60)), "retry", "RetryAfter: retry after 60"),
        (raising(Reject("no such user")), "dead", "Reject: no such user"),
    ],
)
def test_outcome_of_a_handler_decides_the_state(queue: Queue, drain: Drain, handler: Body, state: str, error: str):
    queue.send("x", id="a")
    assert drain(queue, handler) == 1
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.attempts, info.error) == (state, 1, error)
    assert info.reason == ("no such user" if state == "dead" else None)


def test_returning_acks_the_message_and_leaves_nothing(queue: Queue, drain: Drain):
    queue.send_many(Outgoing(n) for n in range(100))
    seen: list[int] = []
    assert drain(queue, lambda message: seen.append(message.payload)) == 100
    stats = queue.stats()
    assert sorted(seen) == list(range(100))
    assert (stats.acked, stats.inside, stats.garbage, stats.missing) == (100, 0, 0, 0)


def test_retry_after_sets_the_time_of_the_next_attempt(queue: Queue, drain: Drain, now: Now):
    queue.send("x", id="a")
    drain(queue, raising(RetryAfter(60)))
    info = queue.get("a")
    assert info is not None
    assert info.due_at == from_ms(now.ms + 60_000)


@pytest.mark.parametrize("options", [{}, {"expires_in": 3600}], ids=["", "until its expiry"])
def test_uncounted_retry_uses_up_no_retry(queue: Queue, drain: Drain, now: Now, options: Any):
    queue.send("x", id="a", max_retries=1, **options)
    for _ in range(5):
        assert drain(queue, raising(RetryAfter(60, "not ready", counts=False))) == 1
        now.later(60)
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.attempts, info.retries_used, info.error) == ("retry", 5, 0, "RetryAfter: not ready")
    for _ in range(2):
        assert drain(queue, raising(RetryAfter(60))) == 1
        now.later(60)
    (dead,) = queue.dead.list()
    assert (dead.reason, dead.attempts, dead.retries_used) == ("retries-exhausted", 7, 1)


def test_uncounted_retry_counts_once_the_message_has_expired(queue: Queue, drain: Drain, now: Now):
    queue.send("x", id="a", max_retries=1, expires_in=100)
    again, attempts = RetryAfter(60, counts=False), 0
    while not queue.dead.list():
        attempts += drain(queue, raising(again))
        now.later(60)
    assert attempts == 4  # two uncounted ones, after 0 and 60 s; then the first, and its only retry


def test_why_reports_an_uncounted_retry(queue: Queue, drain: Drain):
    queue.send("x", id="a", max_retries=1)
    drain(queue, raising(RetryAfter(60, "not ready", counts=False)))
    sentence = "a has failed once (0 of 1 retries used up), the last time with RetryAfter: not ready"
    assert str(queue.why("a")).startswith(sentence)


class TooMany(Exception):
    """The server says how long to wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"wait {seconds} s")
        self.seconds = seconds


def test_backoff_sees_the_error(make: Make, drain: Drain, now: Now):
    def wait(attempt: int, error: BaseException | None) -> float:
        return error.seconds if isinstance(error, TooMany) else attempt

    queue = make(backoff=wait)
    for name, error, seconds in (("a", TooMany(90), 90), ("b", ValueError("x"), 1)):
        queue.send("x", id=name)
        assert drain(queue, raising(error)) == 1
        assert queue.get(name).due_at == from_ms(now.ms + seconds * 1000)  # type: ignore[union-attr]  # it is there


def test_backoff_sees_the_error_given_to_nack(make: Make):
    seen: list[Any] = []

    def wait(_: int, error: BaseException | None) -> float:
        seen.append(error)
        return 0

    queue, failed = make(backoff=wait), ValueError("x")
    queue.send("x")
    for error in (failed, "text", None):
        queue.receive()[0].nack(error=error)
    assert seen == [failed, None, None]


def test_handler_that_keeps_failing_ends_in_dead_with_its_last_error(make: Make, drain: Drain, now: Now):
    queue, attempts = make(backoff=backoff.fixed(1)), []

    def fail(message: Any) -> None:
        attempts.append(message.attempt)
        raise ValueError(f"attempt {message.attempt}")

    queue.send("x", id="a", max_retries=3)
    for _ in range(4):
        assert drain(queue, fail) == 1
        now.later(1)
    assert attempts == [1, 2, 3, 4]
    (dead,) = queue.dead.list()
    assert (dead.reason, dead.error, dead.attempts) == ("retries-exhausted", "ValueError: attempt 4", 4)


def test_expired_message_is_counted_and_never_handled(queue: Queue, drain: Drain, now: Now):
    queue.send("x", expires_in=10)
    now.later(10)
    handled: list[Any] = []
    assert drain(queue, handled.append) == 0
    stats = queue.stats()
    assert (handled, stats.expired, stats.inside, stats.missing) == ([], 1, 0, 0)


def test_message_that_has_started_does_not_expire(queue: Queue, now: Now):
    queue.send_many([Outgoing("x", id=name, expires_in=10, max_retries=3) for name in ("failed", "lost")])
    failed = {message.id: message for message in queue.receive(2, lease=5)}["failed"]
    failed.nack()
    now.later(3600)
    queue.receive()  # takes back the lost message
    now.later(3600)
    stats = queue.stats()
    assert (stats.expired, stats.inside) == (0, 2)


def test_message_that_comes_back_after_its_start_does_not_expire(queue: Queue, now: Now):
    queue.send_many([Outgoing("x", id=name, expires_in=10, max_retries=0) for name in ("dead", "interrupted")])
    started = {message.id: message for message in queue.receive(2)}
    started["dead"].nack()
    queue.settle(started["interrupted"], INTERRUPTED)
    now.later(3600)
    assert queue.dead.requeue("all") == 1
    assert {message.id for message in queue.receive(2)} == {"dead", "interrupted"}


def test_unreadable_payload_is_dead_lettered_and_the_next_message_is_handled(queue: Queue, client: Any, drain: Drain):
    queue.send("broken", id="a")
    queue.send("fine", id="b")
    client.set(queue._context.shard("a").keys.message("a"), b"\xc1")
    seen: list[str] = []
    assert drain(queue, lambda message: seen.append(message.payload)) == 1
    assert (seen, [dead.reason for dead in queue.dead.list()]) == (["fine"], ["unreadable-envelope"])


def test_paused_queue_hands_out_nothing_until_resumed(queue: Queue, drain: Drain):
    queue.send("x")
    queue.pause()
    assert drain(queue, lambda _: None) == 0
    queue.resume()
    assert drain(queue, lambda _: None) == 1


def test_suspect_runs_alone(make: Make, client: Any, drain: Drain, now: Now):
    """A message that has crashed two consumers runs with nothing beside it, in both APIs."""
    queue = make(lease=1, shards=1, max_retries=5)
    queue.send("poison", id="a")
    for _ in range(2):
        assert len(queue.receive(1)) == 1
        now.later(1)
    queue.send_many(Outgoing("plain") for _ in range(20))
    beside: list[int] = []

    def handle(message: Any) -> None:
        if message.payload == "poison":
            beside.append(client.zcard(queue._context.shards[0].keys.unack))

    assert drain(queue, handle, concurrency=4) == 21
    assert beside == [1]


def test_consumer_needs_a_handler(queue: Queue, drain: Drain):
    with pytest.raises(HandlerMissing, match=r"@queue\.handler"):
        drain(queue, None)


def test_concurrency_out_of_range_is_refused(queue: Queue, drain: Drain, subtests: pytest.Subtests):
    for concurrency in [0, -1, 10_001, 1.5]:
        with subtests.test(concurrency=concurrency), pytest.raises(InvalidInput, match="concurrency"):
            drain(queue, lambda _: None, concurrency=concurrency)
