"""The ledger notes every change of a message once, on every kind of client and in both APIs."""

from __future__ import annotations

import redis

from delayq import Ack, Message, Outgoing, Reject
from tests.contract.conftest import Drain, Make, Now
from tests.harness import bookkeeping


def test_ledger_has_as_many_entries_as_the_counters_say(make: Make, client: redis.Redis, now: Now):
    queue = make(events=True)
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(8)])
    queue.send("x", id="late", expires_in=1)
    queue.send("x", id="far", delay=60)
    now.later(2)
    queue._context.claims.budget.note(1, 100, 0.0)  # otherwise its first claim is small
    held = {message.id: message for message in queue.receive(20, lease=5)}
    queue.ack([held["m0"], held["m1"]])
    held["m2"].nack(delay=0)
    held["m3"].release()
    held["m4"].reject("unwanted")
    held["m5"].ack(then=[Outgoing("y")])
    queue.cancel("m6")
    queue.reschedule("far", delay=30)
    queue.send("y", id="far", delay=40, on_conflict="replace")
    queue.dead.edit("m4", "y", delay=50)
    queue.schedules.add("tick", "every 1d")
    queue.schedules.remove("tick")
    now.later(10)
    again = {message.id: message for message in queue.receive(20)}
    assert [again[name].attempt for name in ("m2", "m3", "m7")] == [2, 1, 2]
    assert len(again) == 4
    again["m2"].reject("unwanted")
    assert queue.dead.requeue() == 1
    assert queue.purge() == 3
    noted = bookkeeping.check(queue, client=client)
    assert (noted["lease_lost"], noted["expired"], noted["cancelled"], noted["purged"]) == (2, 1, 2, 3)
    assert (noted["requeued"], noted["died"], noted["released"], noted["replaced"]) == (2, 2, 1, 1)


def test_message_acked_twice_in_one_call_is_noted_once(make: Make, client: redis.Redis):
    queue = make(events=True)
    queue.send_many([Outgoing(1), Outgoing(2)])
    first, second = queue.receive(2)
    assert queue.ack([first, second, first]) == [True, True, True]
    assert bookkeeping.check(queue, client=client)["acked"] == 2


def test_work_of_a_consumer_is_noted(make: Make, client: redis.Redis, drain: Drain):
    queue = make(events=True)
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(4)])

    def handle(message: Message) -> Ack | None:
        if message.payload == 1:
            raise Reject("unwanted")
        return Ack(then=[Outgoing(0)]) if message.payload == 2 else None

    assert drain(queue, handle) == 5
    noted = bookkeeping.check(queue, client=client)
    assert (noted["sent"], noted["delivered"], noted["acked"], noted["died"]) == (5, 5, 4, 1)
    consumers = {each["consumer"] for each in bookkeeping.entries(queue, client) if each["event"] == "delivered"}
    assert len(consumers) == 1
    assert consumers != {""}


def test_ledger_records_messages_held_back_by_key_limits(make: Make, client: redis.Redis):
    queue = make(shards=1, events=True, concurrency_per_key=1, concurrency_key=lambda message: message.headers["k"])
    queue.send_many([Outgoing(n, headers={"k": "a"}) for n in range(3)])
    while messages := queue.receive():
        for message in messages:
            message.ack()
    noted = bookkeeping.check(queue, client=client)
    assert (noted["acked"], queue.stats().released) == (3, noted["held_back"] + noted["released"])
    assert noted["held_back"] > 0
