"""Throttle (`unique_for`) and debounce (`on_conflict="replace"`)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from delayq import DuplicateMessage, InvalidInput, Outgoing, Queue
from delayq.model.units import from_ms
from tests.contract.conftest import Now, Take, at_once, examine


@pytest.mark.parametrize("unique_for", [60, 60.0, dt.timedelta(minutes=1)], ids=repr)
def test_id_stays_reserved_after_the_ack_until_unique_for_has_passed(
    queue: Queue, now: Now, take: Take, unique_for: Any
):
    assert queue.send(1, id="a", unique_for=unique_for).created
    now.later(10)
    take().ack()
    refused = queue.send(2, id="a", unique_for=unique_for, delay=3)
    assert (refused.created, refused.due_at) == (False, from_ms(now.ms + 3000))
    now.later(49.999)
    assert not queue.send(3, id="a", unique_for=unique_for).created
    now.later(0.001)
    assert queue.send(4, id="a", unique_for=unique_for).created
    assert take().payload == 4
    assert (queue.stats().sent, queue.stats().missing) == (2, 0)


def test_id_is_taken_while_its_message_exists_even_after_unique_for(queue: Queue, now: Now):
    first = queue.send(1, id="a", unique_for=1, delay=60)
    now.later(30)
    refused = queue.send(2, id="a", unique_for=1)
    assert (refused.created, refused.due_at) == (False, first.due_at)
    assert not queue.send(2, id="a").created


def test_refused_send_does_not_extend_the_reservation(queue: Queue, now: Now, take: Take):
    queue.send(1, id="a", unique_for=10)
    take().ack()
    now.later(9)
    assert not queue.send(2, id="a", unique_for=100).created
    now.later(1)
    assert queue.send(3, id="a", unique_for=100).created


def test_reserved_id_can_be_an_error(queue: Queue, take: Take):
    queue.send(1, id="a", unique_for=10, on_conflict="error")
    take().ack()
    with pytest.raises(DuplicateMessage):
        queue.send(2, id="a", unique_for=10, on_conflict="error")


def test_send_without_unique_for_ignores_a_reservation(queue: Queue, take: Take):
    queue.send(1, id="a", unique_for=60)
    take().ack()
    assert queue.send(2, id="a").created


@pytest.mark.parametrize("end", ["cancelled", "purged", "dead"])
def test_reservation_outlives_its_message(queue: Queue, now: Now, take: Take, end: str):
    queue.send(1, id="a", unique_for=60)
    if end == "cancelled":
        assert queue.cancel("a") == "cancelled"
    elif end == "purged":
        assert queue.purge() == 1
    else:
        take().reject()
        queue.purge("dead")
    assert not queue.send(2, id="a", unique_for=60).created
    queue.collect_garbage()
    assert not queue.send(2, id="a", unique_for=60).created
    now.later(60)
    assert queue.send(3, id="a", unique_for=60).created
    assert (queue.stats().sent, queue.stats().inside, queue.stats().missing) == (2, 1, 0)


def test_messages_sent_together_have_their_own_reservations(queue: Queue, now: Now):
    sents = queue.send_many(
        [
            Outgoing(1, id="a", unique_for=60),
            Outgoing(2, id="a", unique_for=60),
            Outgoing(3, id="b"),
            Outgoing(4),
            Outgoing(5, id="b", unique_for=60),
            Outgoing(6, id="c", unique_for=60, delay=1),
        ]
    )
    assert [sent.created for sent in sents] == [True, False, True, True, False, True]
    now.later(1)
    assert sorted(message.payload for message in queue.receive()) == [1, 3, 4, 6]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"unique_for": 60}, "needs an id"),
    ({"unique_for": 0, "id": "a"}, "unique_for 0 is not above 0 seconds"),
    ({"unique_for": -1, "id": "a"}, "unique_for -1"),
    ({"unique_for": "60", "id": "a"}, "unique_for '60'"),
    ({"unique_for": float("nan"), "id": "a"}, "unique_for nan"),
    ({"unique_for": 60, "id": ""}, "must not be empty"),
    ({"unique_for": 60, "id": "a", "on_conflict": "replace"}, "give one of them"),
]


def test_bad_reservation_is_refused_and_names_the_value(queue: Queue, subtests: pytest.Subtests):
    for options, why in BAD:
        with subtests.test(why):
            with pytest.raises(InvalidInput, match=why):
                queue.send("x", **options)
            with pytest.raises(InvalidInput, match=why):
                queue.send_many([Outgoing("y"), Outgoing("x", **options)])
            assert queue.stats().sent == 0


def test_reservation_of_a_follow_up_is_refused(queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    with pytest.raises(InvalidInput, match="unique_for=60 is not allowed in then="):
        message.ack(then=[Outgoing("y", id="a", unique_for=60)])
    message.ack()


def test_only_one_of_several_concurrent_senders_succeeds(queue: Queue, now: Now):
    def send(queue: Queue, number: int) -> Any:
        return queue.send(number, id="a", unique_for=60)

    created = [sent.created for sent in at_once(queue, send, range(40))]
    assert sum(created) == 1
    (message,) = queue.receive()
    assert created[message.payload]
    message.ack()
    assert sum(sent.created for sent in at_once(queue, send, range(40))) == 0
    now.later(60)
    assert sum(sent.created for sent in at_once(queue, send, range(40))) == 1


def test_debounced_message_is_delivered_once_with_the_last_payload_after_a_quiet_period(queue: Queue, now: Now):
    def send(queue: Queue, number: int) -> Any:
        return queue.send(number, id="a", delay=5, on_conflict="replace")

    for begin in range(0, 60, 20):
        at_once(queue, send, range(begin, begin + 20))
        now.later(4.999)
        assert queue.receive() == []
    queue.send("last", id="a", delay=5, on_conflict="replace")
    now.later(4.999)
    assert queue.receive() == []
    now.later(0.001)
    assert [message.payload for message in queue.receive()] == ["last"]
    stats = queue.stats()
    assert (stats.sent, stats.replaced, stats.inside, stats.missing) == (1, 60, 1, 0)


def test_doctor_finds_nothing_wrong_with_reservations(queue: Queue, take: Take):
    queue.send("x", id="a", unique_for=60)
    take().ack()
    queue.send("y", id="b", unique_for=60, delay=60)
    report = examine(queue)
    assert report.healthy
    assert [finding for finding in report.findings if finding.id or "unique" in finding.text] == []
