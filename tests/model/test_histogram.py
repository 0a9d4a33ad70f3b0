"""How long handlers ran: a histogram per thread in powers of two, and a recent mean."""

from __future__ import annotations

import threading

import pytest

from delayq.model.histogram import BUCKETS, HandlerTimes, bucket


@pytest.mark.parametrize(
    ("seconds", "number"),
    [(0.0, 0), (0.0009, 0), (0.001, 1), (0.0019, 1), (0.002, 2), (0.5, 9), (1.024, 11), (1e9, BUCKETS - 1)],
)
def test_bucket_b_holds_up_to_2_to_the_b_milliseconds(seconds: float, number: int):
    assert bucket(seconds) == number
    times = HandlerTimes()
    times.note(seconds, times.own())
    assert times.counts()[number] == sum(times.counts()) == 1


def test_concurrent_threads_lose_no_counts():
    times = HandlerTimes()

    def work() -> None:
        own = times.own()
        for _ in range(5000):
            times.note(0.0, own)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert times.counts()[0] == 20_000


def test_mean_follows_recent_times():
    times = HandlerTimes()
    assert times.seconds is None
    own = times.own()
    times.note(1.0, own)
    assert times.seconds == 1.0
    times.note(9.0, own)
    assert times.seconds == 2.0


def test_new_handler_times_have_no_counts():
    assert HandlerTimes().counts() == []
