from __future__ import annotations

import pytest

from delayq.model.queue_stats import QueueStats
from delayq.model.sample import parse
from tests.harness.lua.raw import LEASE

MINUTE, TEN = 60_000, 600_000
AT = 1_700_000_400_000  # a moment at which ten minutes begin
COUNTERS = QueueStats.COUNTERS


@pytest.fixture(autouse=True)
def clock(queue):
    queue.now = AT


def times(queue, name: str = "samples_minute") -> list[int]:
    """When the samples are of, in milliseconds since AT."""
    return [at - AT for at, _ in queue.samples(getattr(queue.keys, name))]


def test_sample_tells_what_stats_tell(queue):
    queue.send([(name, "+0", b"{}") for name in "abc"] + [("later", "+90000", b"{}")])
    queue.deliver("a")
    queue.given(stats={"took:3": 2, "took:11": 1, "confirmed": 1}, meta={"paused": AT - 5})
    assert queue.sample(COUNTERS) == 2
    for key in (queue.keys.samples_minute, queue.keys.samples_ten):
        ((at, text),) = queue.samples(key)
        assert at == AT
        read, told = parse(text), queue.stats()
        assert read is not None
        assert read._replace(counters={}) == told._replace(counters={})
        assert {name: count for name, count in read.counters.items() if count} == {
            "sent": 4, "promoted": 3, "delivered": 3, "late:0": 3, "took:3": 2, "took:11": 1,
        }  # fmt: skip


def test_sample_of_an_empty_queue_is_one_of_zeros(queue):
    queue.sample(COUNTERS)
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    read = parse(text)
    assert read is not None
    assert read.heads_ms == {}
    assert {*read.counts.values(), *read.counters.values()} == {0}


def test_minute_is_sampled_once_whoever_asks(queue):
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


def test_hour_of_minutes_is_kept_and_a_day_of_ten_minutes(queue):
    for minute in range(0, 25 * 60, 2):
        queue.now = AT + minute * MINUTE
        queue.sample(COUNTERS)
    assert times(queue) == [minute * MINUTE for minute in range(1378, 1500, 2)]
    assert times(queue, "samples_ten") == [minute * MINUTE for minute in range(50, 1500, 10)]


def test_minutes_in_which_nobody_asked_are_missing(queue):
    for ms in (0, 3 * MINUTE, 12 * MINUTE):
        queue.now = AT + ms
        queue.sample(COUNTERS)
    assert times(queue) == [0, 3 * MINUTE, 12 * MINUTE]
    assert times(queue, "samples_ten") == [0, TEN]


def test_samples_of_before_the_clock_was_set_back_are_struck_off_as_far_as_they_are_of_later(queue):
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


def test_after_the_clock_was_set_back_a_minute_that_has_no_sample_gets_one(queue):
    for minute in (0, 30):
        queue.now = AT + minute * MINUTE
        queue.sample(COUNTERS)
    queue.now = AT + 10 * MINUTE
    assert queue.sample(COUNTERS) == 2
    assert times(queue) == [0, TEN]
    assert times(queue, "samples_ten") == [0, TEN]


def test_counters_are_read_as_far_as_a_sample_has_them(queue):
    queue.given(stats={"sent": 7, "replaced": 2})
    queue.sample(COUNTERS[:1])
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    read = parse(text)
    assert read is not None
    assert read.counters == {"sent": 7}


def test_sample_holds_the_server_for_no_longer_however_much_there_is(queue):
    queue.given(pending={f"m{n}": AT + n for n in range(3000)}, unack={"u": AT + LEASE})
    queue.sample(COUNTERS)
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    assert len(text) < 200


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("left", "since"), [(1, AT - 5), (0, None)])
def test_pause_that_is_over_is_not_kept(queue, left, since):
    queue.given(meta={"paused": AT - 5, "paused_until": int(queue.now) + left})
    queue.sample(COUNTERS)
    ((_, text),) = queue.samples(queue.keys.samples_minute)
    read = parse(text)
    assert read is not None
    assert read.paused_ms == since
