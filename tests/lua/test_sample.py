from __future__ import annotations

import pytest

from delayq.model.queue_stats import QueueStats
from delayq.model.sample import parse
from tests.harness.lua.raw import LEASE

MINUTE, TEN = 60_000, 600_000
AT = 1_700_000_400_000  # a moment at which a ten-minute period begins
COUNTERS = QueueStats.COUNTERS


@pytest.fixture(autouse=True)
def clock(queue):
    queue.now = AT


def times(queue, name: str = "samples_minute") -> list[int]:
    """The times of the samples, in milliseconds since AT."""
    return [at - AT for at, _ in queue.samples(getattr(queue.keys, name))]


def test_sample_has_the_same_figures_as_stats(queue):
    queue.send([(name, "+0", b"{}") for name in "abc"] + [("later", "+90000", b"{}")])
    queue.deliver("a")
    queue.given(stats={"took:3": 2, "took:11": 1, "confirmed": 1}, meta={"paused": AT - 5})
    assert queue.sample(COUNTERS) == 2
    for key in (queue.keys.samples_minute, queue.keys.samples_ten):
        ((at, text),) = queue.samples(key)
        assert at == AT
        read, counted = parse(text), queue.stats()
        assert read is not None
        assert read._replace(counters={}) == counted._replace(counters={})
        assert {name: count for name, count in read.counters.items() if count} == {
            "sent": 4, "promoted": 3, "delivered": 3, "late:0": 3, "took:3": 2, "took:11": 1,
        }  # fmt: skip


def test_sample_of_an_empty_queue_is_all_zeros(queue):
    queue.sample(COUNTERS)
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    read = parse(text)
    assert read is not None
    assert read.heads_ms == {}
    assert {*read.counts.values(), *read.counters.values()} == {0}


def test_each_minute_is_sampled_once(queue):
    queue.now = AT + 7
    assert queue.sample(COUNTERS) == 2
    queue.now = AT + MINUTE - 1
    queue.send([("a", "+0", b"{}")])
    before = queue.state()
    assert queue.sample(COUNTERS) == 0
    assert queue.state() == before
    queue.now = AT + MINUTE
    assert queue.sample(COUNTERS) == 1
    assert times(queue) == [0, MINUTE]
    assert times(queue, "samples_ten") == [0]


def test_minutes_are_kept_for_an_hour_and_ten_minutes_for_a_day(queue):
    for minute in range(0, 25 * 60, 2):
        queue.now = AT + minute * MINUTE
        queue.sample(COUNTERS)
    assert times(queue) == [minute * MINUTE for minute in range(1378, 1500, 2)]
    assert times(queue, "samples_ten") == [minute * MINUTE for minute in range(50, 1500, 10)]


def test_minutes_without_a_call_have_no_sample(queue):
    for ms in (0, 3 * MINUTE, 12 * MINUTE):
        queue.now = AT + ms
        queue.sample(COUNTERS)
    assert times(queue) == [0, 3 * MINUTE, 12 * MINUTE]
    assert times(queue, "samples_ten") == [0, TEN]


def test_samples_later_than_a_clock_that_was_set_back_are_removed(queue):
    for minute in (0, 1, 2, 30, 31):
        queue.now = AT + minute * MINUTE
        queue.sample(COUNTERS)
    kept = queue.samples(queue.keys.samples_minute)[:2]
    queue.now = AT + 90_000
    assert queue.sample(COUNTERS) == 0
    assert queue.samples(queue.keys.samples_minute) == kept
    assert times(queue, "samples_ten") == [0]
    queue.now = AT + 2 * MINUTE
    assert queue.sample(COUNTERS) == 1
    assert times(queue) == [0, MINUTE, 2 * MINUTE]


def test_minute_without_a_sample_gets_one_after_the_clock_was_set_back(queue):
    for minute in (0, 30):
        queue.now = AT + minute * MINUTE
        queue.sample(COUNTERS)
    queue.now = AT + 10 * MINUTE
    assert queue.sample(COUNTERS) == 2
    assert times(queue) == [0, TEN]
    assert times(queue, "samples_ten") == [0, TEN]


def test_only_the_counters_in_a_sample_are_read(queue):
    queue.given(stats={"sent": 7, "replaced": 2})
    queue.sample(COUNTERS[:1])
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    read = parse(text)
    assert read is not None
    assert read.counters == {"sent": 7}


def test_size_of_a_sample_does_not_grow_with_the_queue(queue):
    queue.given(pending={f"m{n}": AT + n for n in range(3000)}, unack={"u": AT + LEASE})
    queue.sample(COUNTERS)
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    assert len(text) < 200


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("left", "since"), [(1, AT - 5), (0, None)])
def test_expired_pause_is_not_in_the_sample(queue, left, since):
    queue.given(meta={"paused": AT - 5, "paused_until": int(queue.now) + left})
    queue.sample(COUNTERS)
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    read = parse(text)
    assert read is not None
    assert read.paused_ms == since
