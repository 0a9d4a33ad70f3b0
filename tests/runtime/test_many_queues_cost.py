"""A consumer of many queues: how often it calls the server for a message, while all have a backlog."""

from __future__ import annotations

import threading
import time

from redis import Redis

from delayq import Consumer, Outgoing, Queue


def scripts_a_message(client: Redis, count: int) -> float:
    """Return the scripts that a consumer of `count` queues runs for a message, without its first and last ones."""
    queues = [Queue(f"many-{count}-{number}", redis=client) for number in range(count)]
    for queue in queues:
        queue.send_many([Outgoing(b"x")] * 30)
    first, last = 5 * count, 20 * count
    marks: list[int] = []
    handled, lock = 0, threading.Lock()

    def handle(_: object) -> None:
        nonlocal handled
        time.sleep(0.01)
        with lock:
            handled += 1
            if handled in (first, last):
                marks.append(int(client.info("commandstats")["cmdstat_evalsha"]["calls"]))
            if handled == last:
                consumer.stop()

    consumer = Consumer(queues, handle, concurrency=8)
    consumer.run()
    return (marks[1] - marks[0]) / (last - first)


def test_queues_without_a_permit_do_not_turn(redis_client: Redis):
    few, many = (scripts_a_message(redis_client, count) for count in (10, 20))
    assert few <= 3.2, few  # 4.3 when each wake-up made an exchange
    assert many <= 2.2 * few, (few, many)
