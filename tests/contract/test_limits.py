"""Limits of a queue, which all its clients share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput, StaleReceipt
from delayq.operations import queue_context
from delayq.types import Configuration, Usage
from tests.contract.conftest import Drain, Make, Now


@pytest.fixture
def queue(make: Make) -> Queue:
    """A queue with one shard, because only such a queue can have limits."""
    return make(shards=1, max_retries=2)


def received(queue: Queue, count: int = 100) -> int:
    return len(queue.receive(count))


def test_queue_has_no_limits_by_default(queue: Queue):
    assert queue.configuration() == Configuration(rate=None, concurrency=None, concurrency_per_key=None)


def test_limits_apply_to_every_client_of_a_queue(make: Make, queue: Queue):
    queue.configure(rate="2/s")
    make(shards=1).configure(concurrency=7, concurrency_per_key=3)
    assert queue.configuration() == Configuration(rate="2/s", concurrency=7, concurrency_per_key=3)
    queue.configure(rate=None, concurrency=8)
    assert make(shards=1).configuration() == Configuration(concurrency=8, concurrency_per_key=3)


def test_no_more_messages_are_handed_out_than_the_rate_allows(queue: Queue, now: Now):
    queue.configure(rate="3/s")
    queue.send_many(Outgoing(n) for n in range(10))
    for expected in (3, 0):
        assert received(queue) == expected
    now.later(0.999)
    assert received(queue) == 0
    now.later(0.001)
    assert received(queue) == 3
    assert queue.stats().ready == 4  # they wait in the queue, not in a worker


def test_two_clients_share_a_rate(make: Make, queue: Queue):
    other = make(shards=1)
    queue.configure(rate="3/s")
    queue.send_many(Outgoing(n) for n in range(10))
    assert (received(queue, 2), received(other, 2), received(queue, 2)) == (2, 1, 0)


def test_message_returned_unstarted_does_not_count_against_the_rate(queue: Queue):
    queue.configure(rate="2/s")
    queue.send_many(Outgoing(n) for n in range(5))
    first, _ = queue.receive(5)
    first.release()
    assert [message.id for message in queue.receive(5)] == [first.id]
    assert received(queue) == 0


def test_failed_message_counts_against_the_rate_again(queue: Queue):
    queue.configure(rate="2/s")
    queue.send_many(Outgoing(n) for n in range(2))
    queue.receive(1)[0].nack(delay=0)
    assert (received(queue), received(queue)) == (1, 0)


def test_no_more_messages_run_than_the_concurrency_allows(queue: Queue):
    queue.configure(concurrency=2)
    queue.send_many(Outgoing(n) for n in range(5))
    first, second = queue.receive(5)
    assert received(queue) == 0
    first.ack()
    assert len(queue.receive(5)) == 1
    second.nack(delay=0)
    assert received(queue) == 1


def test_removed_limit_holds_nothing_back(queue: Queue):
    queue.configure(rate="1/d", concurrency=1)
    queue.send_many(Outgoing(n) for n in range(5))
    assert received(queue) == 1
    queue.configure(rate=None, concurrency=None)
    assert received(queue) == 4


def test_held_back_messages_can_be_cancelled_and_purged(queue: Queue):
    queue.configure(rate="1/d")
    queue.send_many(Outgoing(n, id=str(n)) for n in range(5))
    assert received(queue) == 1
    assert queue.cancel("4") == "cancelled"
    assert queue.purge("ready") == 3
    assert queue.stats().missing == 0


def test_pause_overrides_the_limits(queue: Queue, now: Now):
    queue.configure(rate="2/s")
    queue.send_many(Outgoing(n) for n in range(5))
    queue.pause()
    assert received(queue) == 0
    queue.resume()
    assert received(queue) == 2
    assert now.ms


# -- limits given to the constructor -----------------------------------------------------------------------------------


def test_limits_of_a_client_are_stored_when_it_first_sends(make: Make, queue: Queue):
    client = make(shards=1, rate="2/s", concurrency_per_key=4)
    assert client.stats().pending == 0
    assert queue.configuration() == Configuration()
    client.send("x")
    assert queue.configuration() == Configuration(rate="2/s", concurrency_per_key=4)


def test_limits_of_a_client_are_stored_when_it_first_receives(make: Make, queue: Queue):
    client = make(shards=1, rate="2/s", concurrency_per_key=4)
    queue.send("x")
    assert received(client) == 1
    assert queue.configuration() == Configuration(rate="2/s", concurrency_per_key=4)


def test_limits_of_a_client_are_stored_when_it_consumes(make: Make, queue: Queue, drain: Drain):
    queue.configure(concurrency=9)
    client = make(shards=1, rate="20/s")
    client.send("x")
    assert drain(client, lambda _: None) == 1
    assert queue.configuration() == Configuration(rate="20/s", concurrency=9)


def test_configure_before_the_first_receive_overrides_the_constructor(make: Make, queue: Queue):
    client = make(shards=1, rate="5/s", concurrency=7)
    client.send_many(Outgoing(n) for n in range(9))
    client.configure(rate="1/s")
    assert queue.configuration() == Configuration(rate="1/s", concurrency=7)
    assert received(client, 9) == 1
    assert queue.configuration() == Configuration(rate="1/s", concurrency=7)


def test_later_configuration_is_not_undone_by_the_constructor(make: Make, queue: Queue, drain: Drain):
    client = make(shards=1, rate="2/s")
    assert received(client) == 0
    queue.configure(rate="5/s")
    assert received(client) == 0
    drain(client, lambda _: None)
    assert queue.configuration() == Configuration(rate="5/s")


def test_constructor_does_not_undo_an_earlier_configuration(make: Make, queue: Queue, drain: Drain):
    queue.configure(rate="1/s", concurrency_per_key=None, events=False)
    client = make(shards=1, rate="5/s", concurrency=7, concurrency_per_key=2, events=True)
    client.send("x")
    assert queue.configuration() == Configuration(rate="1/s", concurrency=7)
    drain(make(shards=1, rate="9/s", events=9), lambda _: None)
    assert queue.configuration() == Configuration(rate="1/s", concurrency=7)
    make(shards=1, rate="5/s", concurrency_per_key=3).configure(concurrency_per_key=4)
    assert queue.configuration() == Configuration(rate="1/s", concurrency=7, concurrency_per_key=4)


def test_stored_setting_that_overrides_the_constructor_is_logged_once(
    make: Make, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(queue_context, "_logged", set())
    queue.configure(rate="1/s", events=7)
    for _ in range(2):
        make(shards=1, rate="5/s", concurrency=3, events=True).send("x")
    (line,) = [line for line in caplog.messages if "stored setting overrides" in line]
    for said in ("constructor=5/s", "queue=jobs", "setting=rate", "stored=1/s"):
        assert said in line


# -- shards ------------------------------------------------------------------------------------------------------------


def test_queue_with_shards_refuses_limits(make: Make, client: redis.Redis, subtests: pytest.Subtests):
    spread = make("spread", shards=3)
    spread.send("x")
    before = {key: client.hgetall(key) for key in client.keys("*meta")}
    refusal = "shards=3 takes no rate, concurrency or length limit, as each shard would count separately: use shards=1"
    given: list[dict[str, Any]] = [{"rate": "5/s"}, {"concurrency": 5}, {"concurrency_per_key": 5}]
    for limits in given:
        with subtests.test(limits=limits):
            with pytest.raises(InvalidInput, match=refusal):
                spread.configure(**limits)
            with pytest.raises(InvalidInput, match=f"queue spread with {refusal}"):
                make("spread", shards=3, **limits)
            with pytest.raises(InvalidInput, match=refusal):
                make("spread", shards=None, **limits).receive()
            assert {key: client.hgetall(key) for key in client.keys("*meta")} == before


def test_consumer_of_a_queue_with_shards_refuses_limits(make: Make, drain: Drain):
    make("spread", shards=3).send("x")
    with pytest.raises(InvalidInput, match="use shards=1"):
        drain(make("spread", shards=None, rate="5/s"), lambda _: None)


def test_drain_waits_for_the_rate(make: Make, drain: Drain):
    queue = make("real-time", shards=1, clock=str, rate="5/50ms")
    queue.send_many(Outgoing(n) for n in range(12))
    assert drain(queue, lambda _: None) == 12
    assert queue.stats().inside == 0


def test_receive_waits_for_the_rate(make: Make):
    queue = make("real-time", shards=1, clock=str, rate="1/50ms")
    queue.send_many(Outgoing(n) for n in range(3))
    handed = [message.handed_ms for _ in range(3) for message in queue.receive(5, wait=120)]
    assert len(handed) == 3
    assert min(after - before for before, after in pairwise(handed)) >= 50


def test_message_waiting_for_its_key_does_not_count_against_the_rate(make: Make):
    options = {"rate": "3/h", "concurrency_per_key": 1, "concurrency_key": lambda message: message.headers["tenant"]}
    queue = make(shards=1, **options)
    for tenant, payload in zip("aaabc", range(5), strict=True):
        queue.send(payload, id=f"m{payload}", headers={"tenant": tenant})
    assert [message.payload for message in queue.receive(3)] == [0]
    assert [message.payload for message in queue.receive(3)] == [3, 4]
    assert queue.receive(3) == []


def test_message_released_while_the_queue_is_paused_does_not_count_against_the_rate(queue: Queue):
    queue.configure(rate="3/h")
    queue.send_many([Outgoing(number) for number in range(6)])
    messages = queue.receive(3)
    queue.pause()
    assert queue.receive() == []
    for message in messages:
        message.release()
    queue.resume()
    assert received(queue) == 3


def test_client_that_sets_a_key_limit_applies_it_at_once(make: Make):
    queue = make(shards=1, concurrency_key=lambda message: message.headers["tenant"])
    queue.send_many([Outgoing(number, headers={"tenant": "a"}) for number in range(4)])
    assert received(queue, 1) == 1  # without a limit; the client looks for one again a second later
    queue.configure(concurrency_per_key=1)
    assert received(queue) == 1


def test_ledger_starts_with_the_first_send_of_a_client_that_wants_one(make: Make, queue: Queue):
    client = make(shards=1, events=True)
    client.send("x")
    assert queue.configuration() == Configuration(events=100_000)


def test_existing_ledger_keeps_its_length(make: Make, queue: Queue):
    queue.configure(events=7)
    make(shards=1, events=True).send("x")
    make(shards=1, events=9).send("x")
    assert queue.configuration() == Configuration(events=7)


@pytest.mark.parametrize("events", [None, False])
def test_ledger_can_be_turned_off(queue: Queue, events: bool | None):
    queue.configure(events=True, concurrency=5)
    queue.configure(events=events)
    assert queue.configuration() == Configuration(concurrency=5)


def test_invalid_ledger_length_is_refused_and_changes_nothing(queue: Queue, subtests: pytest.Subtests):
    queue.configure(events=5)
    events: Any
    for events in [0, -1, 10_000_001, 1.5, "many"]:
        with subtests.test(events=events):
            with pytest.raises(InvalidInput, match=r"events .* is not True, False or a whole number from 1 to"):
                queue.configure(events=events)
            assert queue.configuration() == Configuration(events=5)


@pytest.mark.parametrize("again", ["send", "receive"])
def test_client_stores_its_settings_again_after_the_server_lost_its_data(
    make: Make, client: redis.Redis, again: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.operations.queue_context.LOOK_SECONDS", -1.0)  # it looks each time
    wishful = make(shards=1, rate="5/s", events=9)
    wishful.send("x")
    wishful.configure(concurrency=3)
    client.flushall()
    for _ in range(2):  # the first receive finds that the queue is not recorded
        wishful.send("x") if again == "send" else wishful.receive()
    assert wishful.configuration() == Configuration(rate="5/s", events=9)


def test_usage_says_how_much_of_its_length_a_queue_uses(queue: Queue):
    queue.send_many([Outgoing("x", id=id_) for id_ in "abcd"])
    queue.send("later", delay=60)
    assert queue.usage().length == 0
    queue.configure(max_length=9)
    messages = {message.id: message for message in queue.receive(3)}
    messages["a"].reject("why")
    messages["b"].nack(delay=60)
    assert queue.usage() == Usage(running=1, length=4, max_length=9)


def test_usage_says_how_much_of_its_limits_a_queue_uses(queue: Queue):
    assert queue.usage() == Usage()
    queue.configure(rate="5/s", concurrency=3)
    queue.send_many([Outgoing(n) for n in range(9)])
    assert received(queue) == 3
    assert queue.usage() == Usage(concurrency=3, running=3, rate=5, period_ms=1000, handed_out=3)


def test_replaced_running_message_keeps_its_slot_until_it_is_settled(queue: Queue):
    queue.configure(concurrency=1)
    queue.send("old", id="x")
    (old,) = queue.receive()
    for n in range(3):
        queue.send(n, id="x", on_conflict="replace")
        assert received(queue) == 0
    with pytest.raises(StaleReceipt):
        old.nack()
    assert [each.payload for each in queue.receive(10)] == [2]


def test_replaced_delivery_frees_its_slot_when_its_lease_ends(queue: Queue, now: Now):
    queue.configure(concurrency=1)
    queue.send("old", id="x")
    (old,) = queue.receive(lease=10)
    queue.send("new", id="x", on_conflict="replace")
    now.later(9)
    with pytest.raises(StaleReceipt, match="replaced while it was running"):
        old.extend(10)
    now.later(9.999)
    assert received(queue) == 0
    now.later(0.001)
    assert received(queue) == 1
