"""Retries and backoff stored by `configure`, and which clients apply them."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue, backoff
from delayq.errors import InvalidInput
from delayq.operations import queue_context
from delayq.types import Configuration
from tests.contract.conftest import Calls, Drain, Make, Now, intercept

THRICE = "exponential:base=10s,factor=3,maximum=3600s,jitter=0"


@pytest.fixture
def operator(make: Make) -> Queue:
    """The client that configures the queue."""
    return make()


def retries(queue: Queue, **options: Any) -> int | None:
    """Return the number of retries of a message sent now."""
    info = queue.get(queue.send("x", **options).id)
    assert info is not None
    return info.max_retries


def wait_of(queue: Queue, now: Now) -> float:
    """Let a message of this queue fail; return after how many seconds it is retried."""
    queue.purge()
    queue.send("x", max_retries=9)
    (message,) = queue.receive()
    message.nack()
    (info,) = queue.peek("retry")
    assert info.due_at is not None
    return info.due_at.timestamp() - now() / 1000


def test_client_without_max_retries_sends_with_the_configured_retries(make: Make, operator: Queue):
    assert retries(make()) == 5
    operator.configure(max_retries=0)
    client = make()
    assert [retries(client), retries(client)] == [0, 0]
    (sent,) = make().send_many([Outgoing("x")])
    found = operator.get(sent.id)
    assert found is not None
    assert found.max_retries == 0


def test_send_option_overrides_configured_retries_which_override_the_constructor(
    make: Make, operator: Queue, subtests: pytest.Subtests
):
    for stored, own, option, expected in [
        (None, None, None, 5),
        (None, 7, None, 7),
        (3, 7, None, 3),
        (0, 7, None, 0),
        (3, None, None, 3),
        (3, 7, 2, 2),
        (None, 7, 0, 0),
    ]:
        with subtests.test(stored=stored, own=own, option=option):
            operator.configure(max_retries=stored)
            assert retries(make(max_retries=own), max_retries=option) == expected


def test_failed_message_waits_as_configured_in_every_client(make: Make, operator: Queue, now: Now):
    own = make(backoff=backoff.fixed(7))
    assert wait_of(own, now) == 7
    operator.configure(backoff=backoff.fixed(60))
    assert wait_of(make(backoff=backoff.fixed(7)), now) == 60
    assert wait_of(make(), now) == 60
    operator.configure(backoff=None)
    assert wait_of(make(backoff=backoff.fixed(7)), now) == 7


def test_consumer_uses_the_configured_retries_and_backoff(make: Make, operator: Queue, drain: Drain, now: Now):
    operator.configure(max_retries=1, backoff="sequence:3s,5s")
    client = make()
    client.send("x")
    assert drain(client, lambda _: False) == 1
    (info,) = client.peek("retry")
    assert info.due_at is not None
    assert info.due_at.timestamp() - now() / 1000 == 3
    now.later(3)
    assert drain(client, lambda _: False) == 1
    assert client.stats().dead == 1


def test_running_clients_notice_a_changed_configuration(
    make: Make, operator: Queue, now: Now, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_context, "LOOK_SECONDS", -1.0)  # the minute is over each time
    producer, consumer = make(), make(backoff=backoff.fixed(7))
    assert retries(producer) == 5
    assert wait_of(consumer, now) == 7
    operator.configure(max_retries=2, backoff="fixed:60s")
    assert retries(producer) == 2
    assert wait_of(consumer, now) == 60


def test_client_that_configures_applies_it_at_once(operator: Queue, now: Now):
    operator.configure(max_retries=2, backoff="fixed:60s")
    assert retries(operator) == 2
    assert wait_of(operator, now) == 60
    operator.configure(max_retries=None)
    assert retries(operator) == 5


def test_configured_retries_cost_a_send_no_round_trip(make: Make, operator: Queue, monkeypatch: pytest.MonkeyPatch):
    operator.configure(max_retries=2)
    client = make()
    trips: list[list[str]] = []

    def note(calls: Calls) -> None:
        if names := [call.script.name for call in calls if call.script]:  # not the copies of a new record
            trips.append(names)

    intercept(client, monkeypatch, after=note)
    client.send("x")
    client.send("x")
    assert trips == [["open_queue"], ["send"], ["send_one"]]


def test_stored_setting_that_overrides_the_constructor_is_logged_once(
    make: Make, operator: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(queue_context, "_logged", set())
    operator.configure(max_retries=0, backoff=THRICE)
    for _ in range(2):
        make(max_retries=7, backoff=backoff.fixed(1)).send("x")
    make(max_retries=0, backoff=backoff.exponential(base=10, factor=3, jitter=0)).send("x")
    lines = [line for line in caplog.messages if "stored setting overrides" in line]
    assert len(lines) == 2
    for said in ("constructor=7", "queue=jobs", "setting=max_retries", "stored=0"):
        assert said in lines[0]
    for said in ("constructor=fixed:1s", "setting=backoff", f"stored='{THRICE}'"):
        assert said in lines[1]


def test_configuration_returns_retries_and_backoff(make: Make, operator: Queue):
    operator.configure(max_retries=3, backoff=backoff.exponential(base=10, factor=3, jitter=0))
    found = make().configuration()
    assert found == Configuration(max_retries=3, backoff=THRICE)
    operator.configure(backoff=found.backoff)
    assert operator.configuration() == found
    operator.configure(max_retries=None, backoff=None)
    assert operator.configuration() == Configuration()


def test_setting_that_cannot_be_stored_is_refused_and_changes_nothing(operator: Queue, subtests: pytest.Subtests):
    operator.configure(max_retries=3)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"max_retries": -1}, "max_retries -1 is not a whole number from 0 to 1,000,000"),
        ({"max_retries": 1.5}, "max_retries 1.5 is not"),
        ({"max_retries": True}, "max_retries True is not"),
        ({"backoff": lambda attempt: attempt}, r"cannot be stored: use one from delayq.backoff .* Queue\(backoff=…\)"),
        ({"backoff": 5}, "backoff 5 cannot be stored"),
        ({"backoff": "soon"}, "unknown backoff 'soon'; write it as \"fixed:10s\""),
        ({"backoff": backoff.sequence([1] * 1000)}, "longer than 1,000 characters: give fewer waits"),
    ]
    for given, why in wrong:
        with subtests.test(given=given):
            with pytest.raises(InvalidInput, match=why):
                operator.configure(**given)
            assert operator.configuration() == Configuration(max_retries=3)


def test_invalid_stored_settings_are_ignored(make: Make, client: redis.Redis, now: Now):
    queue = make(max_retries=7, backoff=backoff.fixed(7))
    queue.configure(max_retries=1, backoff="fixed:1s")
    client.hset(client.keys("*meta")[0], mapping={"max_retries": "many", "backoff": "soon"})
    for key in client.keys("*meta"):
        client.hset(key, mapping={"max_retries": "many", "backoff": b"\xff"})
    other = make(max_retries=7, backoff=backoff.fixed(7))
    assert retries(other) == 7
    assert wait_of(other, now) == 7
    assert other.configuration() == Configuration()


def test_schedule_without_max_retries_has_the_configured_retries(make: Make, operator: Queue):
    operator.configure(max_retries=1)
    assert make().schedules.add("nightly", "0 3 * * *").max_retries == 1
    assert make().schedules.add("hourly", "0 * * * *", max_retries=4).max_retries == 4


def test_refused_message_leaves_no_trace_of_a_new_queue(make: Make, client: redis.Redis):
    with pytest.raises(InvalidInput):
        make("new").send("x", max_retries=-1)
    assert client.keys("*new*") == []
