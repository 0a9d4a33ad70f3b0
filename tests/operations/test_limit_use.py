"""How much of a queue's limits is in use, and what they hold back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.operations import limit_use as limits
from delayq.operations.limit_use import KeyUse, LimitUse, limit_use
from tests.harness.servers import RedisServer

NOW_MS = 1_800_000_000_000

Make = Callable[..., Queue]


@pytest.fixture
def make(redis_client: redis.Redis) -> Iterator[Make]:
    made: list[Queue] = []

    def open_queue(**options: Any) -> Queue:
        made.append(Queue("jobs", redis=redis_client, clock=lambda: str(NOW_MS), **options))
        return made[-1]

    yield open_queue
    for each in made:
        each.close()


def send(queue: Queue, *ids: str) -> None:
    queue.send_many([Outgoing("x", id=id) for id in ids])


def use_of(queue: Queue) -> LimitUse:
    found = queue.execute(limit_use)
    assert found is not None
    return found


def test_queue_without_limits_has_no_limit_use(make: Make):
    queue = make()
    send(queue, "a")
    assert queue.execute(limit_use) is None


def test_spent_rate_reports_when_the_next_message_may_go(make: Make):
    queue = make(rate="2/10s")
    send(queue, "a", "b", "c", "d")
    assert not use_of(queue).is_spent
    assert len(queue.receive(4)) == 2
    use = use_of(queue)
    assert (use.handed_out, use.most, use.period, use.is_spent, use.due) == (2, 2, 10.0, True, 2)
    assert use.opens_at is not None
    assert (use.opens_at - use.at).total_seconds() == 10


def test_length_counts_what_waits_or_runs(make: Make):
    queue = make()
    send(queue, "a", "b", "c")
    queue.receive(2)[0].reject("why")
    queue.configure(max_length=2)
    assert (use_of(queue).length, use_of(queue).limits.max_length) == (2, 2)


def test_concurrency_counts_running_and_replaced_deliveries(make: Make):
    queue = make(concurrency=2)
    send(queue, "a", "b", "c")
    first, second = queue.receive(3)
    assert (use_of(queue).running, use_of(queue).is_full, use_of(queue).due) == (2, True, 1)
    queue.send("y", id=first.id, on_conflict="replace")
    assert (use_of(queue).running, use_of(queue).is_full) == (2, True)
    second.ack()
    assert (use_of(queue).running, use_of(queue).is_full) == (1, False)


def test_keys_are_counted_exactly_and_the_busiest_come_first(make: Make):
    queue = make(concurrency_key=lambda message: message.id[0], concurrency_per_key=2)
    send(queue, "a1", *(f"b{n}" for n in range(6)), *(f"c{n}" for n in range(3)))
    queue.receive(10)
    use = use_of(queue)
    assert use.keys == (KeyUse("b", 2, 4), KeyUse("c", 2, 1), KeyUse("a", 1, 0))
    assert (use.waiting, use.has_more) == (5, False)


def test_only_the_first_keys_are_counted_and_more_are_indicated(make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "MOST_KEYS", 2)
    queue = make(concurrency_key=lambda message: message.id[0], concurrency_per_key=1)
    send(queue, *(f"{key}{n}" for key in "abc" for n in range(2)))
    queue.receive(10)
    use = use_of(queue)
    assert use.keys is not None
    assert ({each.key for each in use.keys}, use.has_more, use.waiting) == ({"a", "b"}, True, 3)


def test_number_of_commands_does_not_grow_with_the_queue(make: Make, redis_client: redis.Redis):
    queue = make(rate="100/s", concurrency=9, concurrency_per_key=1, concurrency_key=lambda message: message.id[0])
    calls = []
    for many in (10, 1000):
        send(queue, *(f"a{n}" for n in range(many)))
        queue.receive(9)
        redis_client.config_resetstat()
        use_of(queue)
        calls.append(sum(each["calls"] for each in redis_client.info("commandstats").values()))
    assert calls[0] == calls[1]


def test_paused_queue_is_reported_as_paused(make: Make):
    queue = make()
    queue.configure(rate="2/s")
    queue.pause()
    assert use_of(queue).is_paused


def test_keys_are_unknown_to_a_redis_user_without_permission_to_count_them(make: Make, redis_server: RedisServer):
    queue = make(concurrency_key=lambda message: message.id[0], concurrency_per_key=1)
    send(queue, "a1", "a2")
    queue.receive(2)
    with redis_server.client() as client, redis_server.client(username="looker", password="x") as looking:
        client.acl_setuser("looker", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-zlexcount"])
        with Queue("jobs", redis=looking, clock=lambda: str(NOW_MS)) as seen:
            assert (use_of(seen).keys, use_of(seen).waiting) == (None, 1)
        client.acl_deluser("looker")
