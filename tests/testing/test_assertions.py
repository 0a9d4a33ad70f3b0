"""Assertions hold if they are true, and otherwise show what there is instead."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import redis

from delayq import Message, Queue, Reject
from delayq.errors import InvalidInput
from delayq.testing import Clock, assert_dead, assert_empty, assert_not_sent, assert_sent, sent


@dataclass
class Welcome:
    to: str
    tags: tuple[str, ...] = ()


WHEN = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def one(emails: Queue, clock: Clock) -> Queue:
    """`emails`, with one message."""
    assert clock.handled == []
    emails.send({"to": "ann"}, delay=3600, id="a", headers={"tenant": "acme", "retry": None})
    return emails


RIGHT: dict[str, dict[str, Any]] = {
    "any": {},
    "payload": {"payload": {"to": "ann"}},
    "payload-with-any": {"payload": {"to": mock.ANY}},
    "id": {"id": "a"},
    "due-in": {"due_in": 3600},
    "due-in-timedelta": {"due_in": dt.timedelta(hours=1)},
    "due-in-about": {"due_in": 3590, "within": 10},
    "headers": {"headers": {"tenant": "acme"}},
    "header-none": {"headers": {"retry": None}},
    "all": {"payload": {"to": "ann"}, "id": "a", "due_in": 3600, "headers": {"tenant": "acme"}},
}
WRONG: dict[str, dict[str, Any]] = {
    "payload": {"payload": {"to": "bob"}},
    "payload-none": {"payload": None},
    "payload-that-cannot-be-sent": {"payload": object()},
    "id": {"id": "b"},
    "due-in": {"due_in": 3599.999},
    "due-in-zero": {"due_in": 0},
    "due-in-about": {"due_in": 3590, "within": 9.999},
    "due-at": {"due_at": WHEN},
    "headers": {"headers": {"tenant": "other"}},
    "header-missing": {"headers": {"user": None}},
    "one-of-all": {"payload": {"to": "ann"}, "id": "a", "due_in": 60},
}


@pytest.mark.parametrize("name", RIGHT)
def test_sent_message_is_found(one: Queue, name: str):
    assert assert_sent(one, **RIGHT[name]).id == "a"
    with pytest.raises(AssertionError, match="1 sent to emails with"):
        assert_not_sent(one, **RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_unsent_message_is_not_found(one: Queue, name: str):
    assert_not_sent(one, **WRONG[name])
    with pytest.raises(AssertionError, match="no message with"):
        assert_sent(one, **WRONG[name])


def test_failure_shows_what_was_expected_and_what_there_is(one: Queue):
    with pytest.raises(AssertionError) as caught:
        assert_sent(one, {"to": "bob"}, due_in=60)
    assert str(caught.value) == (
        "no message with payload={'to': 'bob'}, due_in=60 in what was sent to emails\n"
        "1 sent:\n"
        "  {'to': 'ann'}, due in 3600 s (a, pending, headers={'tenant': 'acme', 'retry': None})"
    )


def test_failure_shows_at_most_20_messages(emails: Queue, clock: Clock):
    for n in range(25):
        emails.send(n)
    with pytest.raises(AssertionError) as caught:
        assert_sent(emails, "x")
    lines = str(caught.value).splitlines()
    assert (lines[1], lines[-1], len(lines)) == ("25 sent:", "  … and 5 more", 23)
    assert clock.handled == []


def test_assert_not_sent_holds_for_a_queue_without_messages(emails: Queue, clock: Clock):
    assert_not_sent(emails)
    with pytest.raises(AssertionError, match=r"^no message with any payload in what was sent to emails\n0 sent$"):
        assert_sent(emails)
    assert clock.handled == []


@pytest.mark.parametrize("payload", [Welcome("ann", ("new",)), {"when": WHEN, "rows": (1, 2)}, b"raw", None, "text"])
def test_payload_is_compared_in_the_form_that_a_handler_gets(emails: Queue, clock: Clock, payload: Any):
    emails.send(payload)
    assert_sent(emails, payload)
    assert_sent(emails, emails.receive()[0].payload)
    assert clock.handled == []


def test_due_time_is_always_that_of_the_first_delivery(emails: Queue, clock: Clock):
    def fail(_: Message) -> None:
        raise TimeoutError

    emails.handler(fail)
    due_at = emails.send("x", delay=60).due_at
    for minutes in (0, 1, 2, 10):  # pending, retry, retry, dead
        clock.run_for(minutes=minutes, raise_errors=False)
        assert_sent(emails, "x", due_in=60, due_at=due_at)
    assert sent(emails)[0].state == "dead"


def test_number_of_messages_can_be_asserted(emails: Queue, clock: Clock):
    emails.send("x")
    emails.send("x")
    emails.send("y")
    assert_sent(emails, "x", count=2)
    with pytest.raises(AssertionError, match="2 messages, not 1 with payload='x'"):
        assert_sent(emails, "x", count=1)
    with pytest.raises(AssertionError, match="no message with payload='z'"):
        assert_sent(emails, "z", count=1)
    assert clock.handled == []


def test_handled_messages_count_as_sent_and_cancelled_ones_do_not(emails: Queue, clock: Clock):
    emails.handler(lambda _: None)
    for name in ("handled", "cancelled", "waiting"):
        emails.send(name, id=name, delay=0 if name == "handled" else 60)
    clock.run_due()
    emails.cancel("cancelled")
    assert [(each.payload, each.state) for each in sent(emails)] == [("handled", "gone"), ("waiting", "pending")]


def test_messages_are_listed_by_send_and_due_time(emails: Queue, clock: Clock):
    emails.send("third", delay=1)
    emails.send("first")
    emails.send("second", id="z")
    clock.advance(1)
    emails.send("fourth", id="a")
    assert [each.payload for each in sent(emails)] == ["first", "second", "third", "fourth"]


def test_message_sent_again_with_its_id_is_another_one(emails: Queue, clock: Clock):
    emails.handler(lambda _: None)
    for n in (1, 2):
        emails.send(n, id="a")
        clock.run_due()
        clock.advance(1)
    emails.send(3, id="a", delay=5)
    assert [(each.payload, each.state) for each in sent(emails)] == [(1, "gone"), (2, "gone"), (3, "pending")]


def test_rescheduled_message_has_its_new_due_time(emails: Queue, clock: Clock):
    emails.send("x", id="a", delay=60)
    emails.reschedule("a", delay=5)
    assert assert_sent(emails, due_in=5).due_at == clock.now() + dt.timedelta(seconds=5)


def test_dead_letter_is_found_by_its_properties(emails: Queue, clock: Clock):
    def refuse(message: Message) -> None:
        raise Reject("no address") if message.payload == "x" else ValueError("boom")

    emails.handler(refuse)
    emails.send("x", id="a")
    emails.send("y", id="b", max_retries=0)
    clock.run_due(raise_errors=False)
    assert assert_dead(emails).id == "a"
    assert assert_dead(emails, "x", id="a", reason="no address").attempts == 1
    assert assert_dead(emails, error="ValueError", reason="retries-exhausted").id == "b"
    for wrong in (
        {"payload": "z"},
        {"id": "c"},
        {"reason": "no addr"},
        {"error": "KeyError"},
        {"id": "a", "payload": "y"},
    ):
        with pytest.raises(AssertionError, match=r"no dead letter with .* in emails\n2 dead:\n  'x' \(a, reason='no a"):
            assert_dead(emails, **wrong)


def test_failure_shows_where_a_message_is_that_is_not_dead(one: Queue):
    with pytest.raises(AssertionError, match="0 dead; in other states: 1 pending"):
        assert_dead(one, id="a")


@pytest.mark.parametrize("place", ["pending", "ready", "unack", "retry", "dead"])
def test_queue_with_a_message_in_it_is_not_empty(emails: Queue, clock: Clock, place: str):
    assert_empty(emails)
    emails.send("x", id="a", delay=60 if place == "pending" else 0)
    if place != "pending":
        (message,) = emails.receive()
        {"ready": message.release, "retry": message.nack, "dead": message.reject}.get(place, lambda: None)()
    with pytest.raises(AssertionError, match=rf"emails is not empty\n1 there:\n  'x'.* \(a, {place}\)"):
        assert_empty(emails)
    emails.purge() if place != "unack" else message.ack()
    assert_empty(emails)
    assert clock.handled == []


def test_queue_with_an_unreadable_message_is_not_empty(emails: Queue, clock: Clock):
    emails.send("x", id="a")
    clock.client.delete(emails._context.shards[0].keys.message("a"))
    with pytest.raises(AssertionError, match=r"1 there:\n  a$"):
        assert_empty(emails)


def test_assertions_work_on_a_real_server(redis_client: redis.Redis):
    jobs = Queue("jobs", redis=redis_client)
    jobs.send("x", delay=60)
    assert_sent(jobs, "x", due_in=60, within=0.002)  # the server's time has fractions of a millisecond
    assert_not_sent(jobs, "y")


@pytest.mark.parametrize(
    "wrong",
    [{"due_in": -1}, {"due_in": "soon"}, {"due_at": WHEN.replace(tzinfo=None)}, {"within": -1}, {"count": 0}],
    ids=str,
)
def test_invalid_assertion_is_refused(emails: Queue, clock: Clock, wrong: dict[str, Any]):
    with pytest.raises(InvalidInput):
        assert_sent(emails, **wrong)
    assert clock.handled == []
