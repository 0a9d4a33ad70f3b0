from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue, StaleReceipt, backoff
from delayq.model.units import from_ms
from tests.contract.conftest import Make, Now, Take


def test_receive_returns_no_more_than_it_asks_for(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(5)])
    assert [len(queue.receive(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_earliest_due_comes_first(make: Make, now: Now):
    queue = make("in-order", shards=1)
    queue.send_many([Outgoing(delay, delay=delay) for delay in (3, 1, 2)])
    now.later(5)
    assert [message.payload for message in queue.receive()] == [1, 2, 3]


def test_retries_and_new_messages_share_each_claim(make: Make, now: Now):
    queue = make("shared", shards=1, backoff=backoff.fixed(1))
    queue.send_many([Outgoing("again") for _ in range(6)])
    for message in queue.receive(6):
        message.nack()
    now.later(1)
    queue.send_many([Outgoing("new") for _ in range(6)])
    assert sorted(message.payload for message in queue.receive(6)) == ["again"] * 3 + ["new"] * 3


def test_unacked_message_is_not_handed_out_again(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    message = take()
    assert message.lease_until == from_ms(now.ms + 30_000)
    now.later(29.999)
    assert queue.receive() == []


def test_ack_leaves_nothing(queue: Queue, client: redis.Redis):
    queue.send("x")
    before = queue.stats()
    for message in queue.receive():
        message.ack()
        assert message.settled
    stats = queue.stats()
    assert (stats.acked, stats.inside, stats.missing, before.sent) == (1, 0, 0, 1)
    assert client.keys("*msg:*") == []


def test_ack_of_many_returns_which_were_still_held(queue: Queue):
    queue.send_many([Outgoing(n, id=str(n)) for n in range(5)])
    messages = queue.receive()
    messages[1].nack()
    messages[3].release()
    assert queue.ack(messages) == [True, False, True, False, True]
    assert [message.settled for message in messages] == [True, False, True, False, True]
    assert queue.ack(messages[0]) == [False]
    assert queue.ack([]) == []
    assert queue.stats().acked == 3


def test_nack_uses_the_backoff_of_the_queue(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    for attempt, wait in ((1, 1.0), (2, 10.0)):
        message = take()
        assert message.attempt == attempt
        message.nack(error=ValueError("boom"))
        info = queue.get("a")
        assert info is not None
        assert (info.state, info.attempts, info.error) == ("retry", attempt, "ValueError: boom")
        assert info.due_at == from_ms(now.ms + wait * 1000)
        now.later(wait - 0.001)
        assert queue.receive() == []
        now.later(0.001)
    last = take()
    assert last.is_last
    last.nack(error="for good")
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.attempts, info.error, info.reason) == ("dead", 3, "for good", "retries-exhausted")


@pytest.mark.parametrize("delay", [5, dt.timedelta(seconds=5)])
def test_nack_can_set_its_delay(queue: Queue, take: Take, now: Now, delay: Any):
    queue.send("x", id="a")
    take().nack(delay=delay)
    now.later(4.999)
    assert queue.receive() == []
    now.later(0.001)
    assert take().attempt == 2


def test_message_without_retries_is_dead_lettered_at_its_first_failure(queue: Queue, take: Take):
    queue.send("x", id="a", max_retries=0)
    take().nack()
    assert [letter.id for letter in queue.dead.list()] == ["a"]


def test_release_returns_a_message_at_once_and_uses_up_no_retry(queue: Queue, take: Take):
    queue.send("x", id="a", max_retries=0)
    receipts = set()
    for _ in range(3):
        message = take()
        assert (message.attempt, message.is_last) == (1, True)
        receipts.add(message.receipt)
        message.release()
    assert len(receipts) == 3


def test_released_message_keeps_its_place(make: Make, now: Now):
    queue = make("in-order", shards=1)
    queue.send("first", id="a")
    now.later(1)
    queue.send("second", id="b")
    (message,) = queue.receive(1)
    message.release()
    assert [message.id for message in queue.receive(1)] == ["a"]


def test_extend_moves_the_end_of_the_lease(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    message = take(lease=10)
    now.later(9)
    message.extend(60)
    assert message.lease_until == from_ms(now.ms + 60_000)
    now.later(59.9)
    assert queue.receive() == []
    message.ack()


def test_expired_lease_counts_as_an_attempt(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    lost = take(lease=5)
    now.later(5)
    found = take()
    assert (found.attempt, found.retries_used) == (2, 1)
    with pytest.raises(StaleReceipt):
        lost.ack()
    assert queue.stats().lease_lost == 1


def test_message_that_loses_every_consumer_is_dead_lettered(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a", max_retries=1)
    for _ in range(2):
        take(lease=1)
        now.later(1)
    assert queue.receive() == []
    (letter,) = queue.dead.list()
    assert (letter.reason, letter.attempts) == ("consumer-lost", 2)
    assert letter.error is not None
    assert letter.error.startswith("LeaseLost")


def test_late_consumer_can_settle_a_message_that_nobody_reclaimed(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    message = take(lease=1)
    now.later(100)
    message.ack()
    assert queue.stats().acked == 1


def test_reject_dead_letters_a_message_even_if_it_has_retries_left(queue: Queue, take: Take, now: Now):
    queue.send("x", id="a")
    take().reject("bad address", error=KeyError("to"))
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.reason, info.error, info.attempts) == ("dead", "bad address", "KeyError: 'to'", 1)
    assert info.died_at == from_ms(now.ms)


VERBS: dict[str, Any] = {
    "ack": lambda message: message.ack(),
    "nack": lambda message: message.nack(),
    "extend": lambda message: message.extend(5),
    "release": lambda message: message.release(),
    "reject": lambda message: message.reject(),
}


@pytest.mark.parametrize("first", [verb for verb in VERBS if verb != "extend"])
def test_settled_delivery_cannot_be_settled_again(queue: Queue, take: Take, first: str, subtests: pytest.Subtests):
    queue.send("x", id="a")
    message = take()
    VERBS[first](message)
    before = queue.get("a"), queue.stats()
    for then, settle in VERBS.items():
        with subtests.test(then=then):
            with pytest.raises(StaleReceipt, match=r"a.* was settled, or its lease ran out"):
                settle(message)
            assert (queue.get("a"), queue.stats()) == before


def test_delivery_of_a_resent_message_has_a_new_receipt(queue: Queue, take: Take, now: Now, subtests: pytest.Subtests):
    queue.send("old", id="a")
    old = take()
    old.ack()
    now.ms += 0.5
    queue.send("new", id="a")
    take()
    for verb, settle in VERBS.items():
        with subtests.test(verb):
            with pytest.raises(StaleReceipt):
                settle(old)
            assert queue.stats().unack == 1


def test_paused_queue_hands_out_nothing_but_running_messages_can_finish(queue: Queue, take: Take):
    queue.send("x", id="a")
    running = take()
    queue.pause()
    queue.send("y", id="b")
    assert queue.receive() == []
    running.ack()
    queue.resume()
    assert take("b").payload == "y"


def test_message_with_a_missing_payload_becomes_a_dead_letter(queue: Queue, client: redis.Redis):
    queue.send("x", id="a")
    queue.send("y", id="b")
    client.delete(queue._context.shard("a").keys.message("a"))
    assert [message.id for message in queue.receive()] == ["b"]
    (letter,) = queue.dead.list()
    assert (letter.id, letter.reason, letter.payload) == ("a", "payload-missing", None)


def test_message_with_an_unreadable_envelope_becomes_a_dead_letter(queue: Queue, client: redis.Redis):
    queue.send("x", id="a")
    client.set(queue._context.shard("a").keys.message("a"), b"\xc1")
    assert queue.receive() == []
    (letter,) = queue.dead.list()
    assert (letter.id, letter.reason) == ("a", "unreadable-envelope")


def test_id_of_a_dead_letter_without_payload_stays_taken_until_it_is_purged(
    queue: Queue, client: redis.Redis, take: Take
):
    queue.send("x", id="a")
    client.delete(queue._context.shard("a").keys.message("a"))
    queue.receive()
    assert queue.send("y", id="a").created is False
    queue.dead.purge()
    assert queue.send("z", id="a").created is True
    assert queue.collect_garbage() == 0
    assert take().payload == "z"
    assert queue.stats().missing == 0


def test_messages_due_at_the_same_time_are_first_in_first_out(make: Make, now: Now):
    queue = make("first-in", shards=1)
    for start in range(0, 40, 20):
        queue.send_many(Outgoing(n, delay=5) for n in range(start, start + 10))
        for n in range(start + 10, start + 20):
            queue.send(n, delay=5)
    now.later(5)
    assert [message.payload for message in queue.receive(100)] == list(range(40))
