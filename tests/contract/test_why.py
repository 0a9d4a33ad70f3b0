"""Why a message has not been delivered, or what happened to it, in both APIs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis

from delayq import Message, Outgoing, Queue
from delayq.errors import InvalidName
from tests.contract.conftest import Drain, Make, Now, Take, examine, intercept

NEVER = "but no consumer of queue jobs has ever been seen"


def why(queue: Any, id: str = "a") -> str:
    """The sentence, with each time replaced by its distance from the queue's now: <in 5s>."""
    sentence = queue.why(id)
    assert isinstance(sentence, str)
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d \(([^)]*)\)"
    return re.sub(moment, r"<\1>", sentence)


@pytest.fixture
def narrow(make: Make) -> Queue:
    """A queue with one shard, because only such a queue can have limits."""
    return make(shards=1, concurrency_key=lambda message: message.headers.get("tenant"))


def test_why_of_a_message_that_was_never_sent(queue: Queue):
    assert why(queue, "a").startswith("a is not in queue jobs: it was never sent, or is gone; the ledger")
    queue.send("x", id="b")
    assert why(queue, "a").startswith("a is not in queue jobs")


def test_why_of_an_acked_message(queue: Queue, take: Take):
    queue.send("x", id="a")
    take().ack()
    assert why(queue).startswith("a is not in queue jobs: it was never sent, or is gone")


def test_why_of_a_cancelled_message(queue: Queue):
    queue.send("x", id="a", delay=5)
    assert queue.cancel("a") == "cancelled"
    assert why(queue) == "a is gone from queue jobs: it was cancelled or purged, or it expired"


def test_why_of_a_pending_message_says_when_it_is_due(queue: Queue, now: Now):
    queue.send("x", id="a", delay=3600)
    now.later(3415)
    assert why(queue) == "a is not due until <in 3m 5s>"


def test_why_of_a_message_that_will_expire_before_it_is_due(queue: Queue):
    queue.send("x", id="a", expires_in=60)
    queue.reschedule("a", delay=3600)
    assert why(queue) == "a is not due until <in 1h>, but expires before, at <in 1m>"


def test_why_of_an_expired_message(queue: Queue, now: Now):
    queue.send("x", id="a", expires_in=60)
    now.later(90)
    assert why(queue) == "a has been due since <1m 30s ago>, but it expired at <30s ago>: the next consumer drops it"


def test_why_of_a_message_without_a_payload(make: Make, client: redis.Redis):
    queue = make(shards=1)
    queue.send("x", id="a")
    client.delete("delayq:{jobs}:msg:a")
    assert "but its payload is gone or unreadable" in why(queue)


def test_why_says_since_when_the_queue_is_paused(queue: Queue, now: Now):
    queue.send("x", id="a", delay=10)
    queue.pause()
    now.later(15)
    assert why(queue) == "a has been due since <5s ago>, but the queue has been paused since <15s ago>"
    queue.resume()
    assert why(queue) == f"a has been due since <5s ago>, {NEVER}"


def test_why_says_until_when_the_queue_is_paused(queue: Queue, now: Now):
    queue.send("x", id="a")
    queue.pause(20)
    now.later(15)
    assert why(queue) == "a has been due since <15s ago>, but the queue has been paused since <15s ago> until <in 5s>"
    now.later(5)
    assert why(queue) == f"a has been due since <20s ago>, {NEVER}"


def test_why_says_since_when_there_is_no_consumer(queue: Queue, now: Now, drain: Drain):
    queue.send_many([Outgoing("x", id="a", delay=10), Outgoing("x", id="b")])
    drain(queue, lambda _: None, name="web-7")
    now.later(30)
    soon = "a has been due since <20s ago>, and is handed out as soon as a consumer has room:"
    assert why(queue) == f"{soon} web-7 was seen 30s ago"
    now.later(30)
    gone = "but no consumer of queue jobs has been seen for 1m (the last was web-7)"
    assert why(queue) == f"a has been due since <50s ago>, {gone}"


def test_why_counts_a_receiver_as_a_consumer(queue: Queue, take: Take):
    queue.send_many([Outgoing("x", id="b", delay=1), Outgoing("x", id="a")])
    assert why(queue) == f"a has been due since <0ms ago>, {NEVER}"
    take("a").release()
    assert re.search(r"has room: \S+-\d+-[0-9a-f]{8} was seen 0ms ago$", why(queue))


def test_receive_on_an_unused_queue_leaves_no_trace(make: Make, client: redis.Redis):
    assert make().receive() == []
    assert client.keys("*") == []


def test_why_says_how_many_messages_are_ahead(queue: Queue, make: Make, now: Now):
    queue = make(shards=1)
    queue.send_many([Outgoing("x", id=f"b{n}", delay=n) for n in range(3)])
    queue.send_many([Outgoing("x", id="c", delay=5), Outgoing("x", id="a", delay=5), Outgoing("x", id="d", delay=6)])
    now.later(9)
    assert len(queue.receive(1)) == 1
    assert why(queue) == "a has been due since <4s ago>, but waits behind others: 2 messages are due earlier"


def test_why_estimates_when_the_messages_ahead_are_handed_out(make: Make, now: Now):
    queue = make(shards=1)
    queue.send_many([Outgoing("x", id=f"b{n}") for n in range(40)] + [Outgoing("x", id="a", delay=1)])
    now.later(2)
    assert queue.sample()
    assert len(queue.receive(20)) == 20
    assert why(queue).endswith("but waits behind others: 20 messages are due earlier")  # too early to tell
    now.later(25)
    assert len(queue.receive(1)) == 1
    estimate = "at the rate of the last minutes, 0.84 per second, it is handed out at about <in 23.8s>"
    assert why(queue) == (
        f"a has been due since <26s ago>, but waits behind others: 19 messages are due earlier; {estimate}"
    )
    queue.send("x", id="c", delay=600)
    assert why(queue, "c") == "c is not due until <in 10m>"
    queue.pause()
    assert "rate of the last minutes" not in why(queue)


def test_why_says_when_the_rate_allows_the_next_message(narrow: Queue, now: Now):
    narrow.configure(rate="2/10s")
    narrow.send_many([Outgoing("x", id=name, delay=n) for n, name in enumerate("bcad")])
    now.later(4)
    assert len(narrow.receive(4)) == 2
    rate = (
        "a has been due since <2s ago>, but is held back by the rate limit of 2/10s: the next is handed out at <in 10s>"
    )
    assert why(narrow) == rate
    assert why(narrow, "d").endswith("the next is handed out at <in 10s>, and 1 message is due earlier")


def test_why_says_how_many_messages_fill_the_concurrency(narrow: Queue):
    narrow.configure(concurrency=2)
    narrow.send_many([Outgoing("x", id=name) for name in ("b", "c", "d")])
    taken = narrow.receive(4)
    (waits,) = {"b", "c", "d"} - {message.id for message in taken}
    assert why(narrow, waits).endswith("but is held back by the concurrency limit: 2 of 2 allowed messages are running")
    taken[0].ack()
    assert "and is handed out as soon as a consumer has room" in why(narrow, waits)


def keyed(queue: Queue, now: Now) -> list[Message]:
    """Receive two messages of a key, which is its limit; "a", due for 3 s, waits for them."""
    queue.configure(concurrency_per_key=2)
    queue.send_many([Outgoing("x", id=name, headers={"tenant": "big"}, delay=n) for n, name in enumerate("bca")])
    now.later(5)
    return queue.receive(4, lease=10)


PER_KEY = "but is held back by the limit per key: 2 messages with its key may run at a time; a consumer looks again by"


def test_why_says_how_many_messages_of_a_key_may_run(narrow: Queue, now: Now):
    first, _ = keyed(narrow, now)
    assert why(narrow) == f"a has been due since <3s ago>, {PER_KEY} <in 1m>"
    first.ack()
    assert "and is handed out as soon as a consumer has room" in why(narrow)


def test_why_does_not_call_the_messages_of_a_lost_consumer_running(narrow: Queue, now: Now):
    keyed(narrow, now)
    now.later(20)
    assert why(narrow) == f"a has been due since <23s ago>, {PER_KEY} <in 40s>"
    now.later(50)
    assert why(narrow).startswith(
        "a has been due since <1m 13s ago>, but no consumer of queue jobs has been seen for 1m 10s"
    )


def test_why_says_until_when_a_running_message_is_leased(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take(lease=60)
    now.later(20)
    holder = "an unknown consumer"
    assert why(queue) == f"a is running: attempt 1 is held by {holder} until <in 40s>"
    queue.cancel("a")
    assert why(queue).endswith("until <in 40s>; it will not be retried because it was cancelled")


def test_why_of_a_message_with_a_lost_consumer(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take(lease=60)
    now.later(65)
    assert why(queue).startswith("a was lost: the lease of attempt 1 ended at <5s ago>, and no consumer of queue jobs")
    take("a").nack(delay=30, error="E")
    assert why(queue) == "a has failed 2 times, the last time with E, and its next attempt is not due until <in 30s>"


def test_why_shows_the_error_and_the_next_attempt_of_a_failed_message(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take().nack(delay=60, error="ValueError: boom")
    failed = "a has failed once, the last time with ValueError: boom, and its next attempt"
    assert why(queue) == f"{failed} is not due until <in 1m>"
    queue.pause()
    now.later(70)
    assert why(queue) == f"{failed} has been due since <10s ago>, but the queue has been paused since <1m 10s ago>"


def test_why_shows_the_reason_and_error_of_a_dead_letter(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take().reject("unwanted", error="ValueError: boom")
    now.later(60)
    assert why(queue) == "a has been dead since <1m ago>, with the reason: unwanted: ValueError: boom"


def test_why_names_the_schedule_of_an_occurrence(queue: Queue):
    queue.schedules.add("nightly", "every 1h")
    (info,) = queue.peek("pending")
    assert re.fullmatch(
        rf"{info.id}, an occurrence of schedule nightly, is not due until <in [^>]+>", why(queue, info.id)
    )


@pytest.fixture
def watched(queue: Queue) -> Queue:
    """A queue with a ledger."""
    queue.configure(events=True)
    return queue


def test_why_uses_the_ledger_for_finished_messages(watched: Queue, take: Take, now: Now):
    watched.send("x", id="a")
    take().nack(delay=0, error="E")
    now.later(2)
    take().ack()
    now.later(60)
    assert why(watched) == "a was acked at <1m ago> by attempt 2"
    watched.send("x", id="b", delay=5)
    watched.cancel("b")
    assert why(watched, "b") == "b was cancelled at <0ms ago>"
    watched.send("x", id="c", expires_in=1)
    now.later(5)
    assert watched.receive() == []
    now.later(3)
    assert why(watched, "c") == "c expired at <3s ago>"
    watched.send("x", id="d", delay=5)
    watched.purge()
    assert why(watched, "d") == "d was purged at <0ms ago>"
    assert why(watched, "e").endswith("it was never sent, or has been gone for longer than the ledger reaches back")


def test_why_uses_the_ledger_to_name_the_holder(watched: Queue, drain: Drain, kind: str, client: redis.Redis, now: Now):
    sentences: list[str] = []
    with Queue("jobs", redis=client, clock=now, shards=3 if "shards" in kind else 1) as other:
        watched.send("x", id="a")
        drain(watched, lambda _: sentences.append(why(other)), name="web-7")
        assert sentences == ["a is running: attempt 1 is held by consumer web-7 until <in 30s>"]
        watched.send("x", id="b")
        assert len(watched.receive()) == 1
        assert re.fullmatch(r"b is running: attempt 1 is held by consumer \S+-\d+-\w+ until <in 30s>", why(other, "b"))


def test_why_names_the_consumer_that_was_lost(watched: Queue, now: Now):
    watched.send("x", id="a")
    assert len(watched.receive(lease=10)) == 1
    now.later(12)
    lost = (
        r"a was lost by consumer \S+-\d+-\w+: the lease of attempt 1 ended at <2s ago>, and a consumer is about to .*"
    )
    assert re.fullmatch(lost, why(watched))


def test_why_reads_the_ledger_only_where_it_can_help(watched: Queue, monkeypatch: pytest.MonkeyPatch):
    watched.send_many([Outgoing("x", id="a"), Outgoing("x", id="b", delay=5)])
    watched.receive()
    trips: list[int] = []
    intercept(watched, monkeypatch, after=lambda calls: trips.append(len(calls)))
    watched.why("b")
    assert trips == [4]
    watched.why("a")
    assert trips == [4, 4, 1, len(watched._context.shards), 1]  # the last one reads the consumers' time limits


def test_why_takes_one_round_trip(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("x", id="a")
    trips: list[int] = []
    intercept(queue, monkeypatch, after=lambda calls: trips.append(len(calls)))
    queue.why("a")
    assert trips == [4]
    queue.why("b")  # a ledger would know it
    assert trips == [4, 4, 3]  # a result would, too


def test_why_reads_the_consumers_only_when_a_message_runs(queue: Queue, take: Take, monkeypatch: pytest.MonkeyPatch):
    queue.send("x", id="a")
    take()
    trips: list[int] = []
    intercept(queue, monkeypatch, after=lambda calls: trips.append(len(calls)))
    queue.why("a")
    assert trips == [4, len(queue._context.shards), 1]


def test_invalid_id_is_refused(queue: Queue, subtests: pytest.Subtests):
    for id in ["", "a\nb", "x" * 257]:
        with subtests.test(id=id), pytest.raises(InvalidName):
            queue.why(id)


def test_doctor_finds_no_fault_in_consumer_records(queue: Queue, drain: Drain):
    queue.send("x")
    drain(queue, lambda _: None)
    assert examine(queue).healthy
