"""A program that does not use a part of a queue does not pay for it."""

from __future__ import annotations

import threading
import time

from delayq import Queue
from delayq.runtime.made_once import made_once


class Whole:
    @made_once
    def part(self) -> object:
        """A part that takes its time."""
        time.sleep(0.05)
        return object()


def test_threads_that_ask_at_once_get_the_same_part():
    whole, found = Whole(), list[object]()
    threads = [threading.Thread(target=lambda: found.append(whole.part)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_queue_makes_a_part_when_it_is_used():
    parts = [name for name, value in vars(Queue).items() if isinstance(value, made_once)]
    assert {"dead", "events", "schedules"} <= set(parts)
    with Queue("jobs", url="redis://127.0.0.1:1") as queue:
        queue.close()
        assert not set(parts) & set(vars(queue))
        for name in parts:
            assert getattr(queue, name) is getattr(queue, name)
