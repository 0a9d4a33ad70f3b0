"""What a client learns of a queue while it works, apart from the queue itself."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from delayq import Queue
from delayq.errors import ServerUnreachable
from delayq.operations.queue_state import ClaimState, SweepState, Wishes


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    return Queue("jobs", redis=redis_client)


def shards(queue: Queue, count: int) -> Any:
    return [queue._context._make(number) for number in range(count)]


def test_each_claim_begins_with_another_shard(queue: Queue):
    first, second, third = all_of_them = shards(queue, 3)
    claims = ClaimState()
    found = [claims.rotated(all_of_them)[0] for _ in range(4)]
    assert found == [second, third, first, second]


def test_error_of_a_lost_claim_is_taken_once():
    claims, error = ClaimState(), ServerUnreachable("lost")
    claims.lost.append(error)
    assert (claims.take_lost(), claims.take_lost()) == ([error], [])


def test_sweep_begins_again_after_the_last_page():
    sweeps = SweepState()
    sweeps.checked("waiting", ["a", "b"], is_full=True)
    assert sweeps.after("waiting") == "b"
    sweeps.checked("waiting", ["c"], is_full=False)
    assert sweeps.after("waiting") == ""


def test_sweep_in_haste_begins_with_the_first_key():
    sweeps = SweepState()
    sweeps.checked("waiting", ["a", "b"], is_full=True)
    sweeps.begin_in_haste("waiting")
    assert (sweeps.keys_in_haste, sweeps.after("waiting")) == (True, "")


def test_wishes_are_stored_once_in_every_shard_and_again_in_a_new_queue(queue: Queue):
    first, second = both = shards(queue, 2)
    wishes = Wishes({"rate": "5/s"})
    wishes.add({"rate": "1/s", "events": True})
    assert wishes.left == {"rate": "5/s", "events": True}
    wishes.stored(first.keys.meta)
    assert wishes.missing(both) == [second]
    wishes.done()
    assert not wishes.left
    wishes.begin_again()
    assert (wishes.left, wishes.missing(both)) == (wishes.all, both)
    wishes.drop(["rate"])
    assert wishes.left == {"events": True}


def test_context_does_not_point_to_its_queue(queue: Queue):
    queue.send("a")
    (message,) = queue.receive()
    assert message.queue == queue.name
    assert [name for name, value in vars(queue._context).items() if value is queue] == []
