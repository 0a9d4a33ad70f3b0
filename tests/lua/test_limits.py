"""How ready_to_unack, plan_sleep, poll_idle and release apply a queue's limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.harness.lua.raw import LEASE, NOW, RUNG

MOST = 60_000  # ms, the longest sleep: Redis expires the timer by its own clock, and must not do so during a test


def rate(most: int, period_ms: int, **more: int) -> dict[str, str]:
    return {name: str(value) for name, value in {"rate": most, "period_ms": period_ms, **more}.items()}


def spent(*moments: float) -> dict[str, int]:
    """Deliveries at these moments, ms."""
    return {f"earlier-{number}": round(ms * 1000) for number, ms in enumerate(moments, 1)}


def waiting(count: int, due: int = NOW - 1) -> dict[str, int]:
    return {f"m{number:04}": due for number in range(count)}


def claimed(queue: Any, limit: int = 500) -> int:
    return len(queue.ready_to_unack(limit, LEASE).ids)


# -- how many are handed out -----------------------------------------------------------------------------------------


def test_rate_hands_out_no_more_than_its_limit_and_says_so(queue):
    queue.given(ready=waiting(5), meta=rate(3, 1000))
    found = queue.ready_to_unack(10, LEASE)
    assert (found.ids, found.held) == (["m0000", "m0001", "m0002"], True)
    assert queue.state()["rate"] == {"1": NOW * 1000, "2": NOW * 1000, "3": NOW * 1000}
    assert queue.ready_to_unack(10, LEASE) == (NOW, 0, [], [], [], True, False, False)
    assert "bell" not in queue.state()


@pytest.mark.same_on_all_servers
def test_messages_handed_out_within_the_period_count(queue, subtests):
    for moments, free in [
        ((), 3),
        ((NOW,), 2),
        ((NOW, NOW, NOW), 0),
        ((NOW - 100, NOW - 100, NOW - 100), 3),  # one at t and one exactly a period later: both are allowed
        ((NOW - 99.999, NOW - 100, NOW - 100), 2),
        ((NOW - 99.999, NOW - 50, NOW), 0),
        ((NOW - 1, NOW - 1, NOW - 1, NOW - 1), 0),  # the limit was lowered
        ((NOW + 99.999, NOW + 1, NOW - 1), 0),  # the server's clock was set back: these shared a period with now
        ((NOW + 100, NOW + 5000, NOW - 1), 2),
    ]:
        queue.clear()
        with subtests.test(moments=moments, free=free):
            queue.given(ready=waiting(9), meta=rate(3, 100), rate=spent(*moments))
            assert claimed(queue) == free


def test_retries_count(queue):
    queue.given(retry=waiting(2), ready={"new": NOW}, meta=rate(2, 1000))
    assert claimed(queue) == 2
    assert claimed(queue) == 0


def test_message_handed_out_twice_in_the_same_moment_counts_twice(queue):
    queue.given(ready={"a": NOW}, meta=rate(2, 1000))
    for expected in (1, 1, 0):
        found = queue.ready_to_unack(1, LEASE)
        assert len(found.ids) == expected
        if found.ids:
            queue.nack("a", f"{found.deliveries[0] or '0.0.0.0'}-0", 0)


@pytest.mark.parametrize(("running", "free"), [(0, 3), (2, 1), (3, 0), (4, 0)])
def test_concurrency_counts_running_messages(queue, running, free):
    queue.given(ready=waiting(9), unack={f"u{n}": NOW + LEASE for n in range(running)}, meta={"concurrency": "3"})
    found = queue.ready_to_unack(9, LEASE)
    assert (len(found.ids), found.held) == (free, True)
    assert not {"rate", "bell"} & set(queue.state())


def test_freed_place_is_used_again(queue):
    queue.given(ready=waiting(9), meta={"concurrency": "2"})
    assert claimed(queue) == 2
    queue.ack([("m0000", "0.0.0.0-0")])
    assert claimed(queue) == 1


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("most", "places", "free"), [(2, 5, 2), (5, 2, 2), (3, 3, 3)])
def test_the_stricter_limit_holds(queue, most, places, free):
    queue.given(ready=waiting(9), meta=rate(most, 1000, concurrency=places))
    assert claimed(queue) == free


def test_unlimited_queue_reports_no_limit(queue):
    queue.given(ready=waiting(3), meta={"format": "1", "per_key": "1"})
    assert queue.ready_to_unack(1, LEASE).held is None


def test_paused_queue_reports_no_limit(queue):
    queue.given(ready=waiting(3), meta=rate(1, 1000, paused=NOW))
    assert queue.ready_to_unack(9, LEASE) == (NOW, 0, [], [], [], None, False, False)


# -- the bell --------------------------------------------------------------------------------------------------------


@pytest.mark.same_on_all_servers
def test_bell_rings_only_if_others_may_take_more(queue, subtests):
    for ready, limit, held, bell in [
        (9, 2, False, RUNG),  # the claim had no room: others may take more
        (9, 3, True, None),
        (9, 4, True, None),
        (3, 4, False, None),
        (2, 4, False, None),
        (9, 0, False, RUNG),
        (0, 0, False, None),
    ]:
        queue.clear()
        with subtests.test(ready=ready, limit=limit, held=held, bell=bell):
            queue.given(ready=waiting(ready), meta=rate(3, 1000))
            assert queue.ready_to_unack(limit, LEASE).held is held
            assert queue.state().get("bell") == bell


def test_claim_without_room_wakes_nobody_when_the_limit_is_reached(queue):
    queue.given(ready=waiting(9), meta=rate(1, 1000), rate=spent(NOW))
    assert queue.ready_to_unack(0, LEASE).held is True
    assert "bell" not in queue.state()


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_old_deliveries_are_forgotten(queue):
    queue.given(ready=waiting(9), meta=rate(5, 100), rate=spent(NOW - 300, NOW - 200, NOW - 100, NOW - 99))
    assert claimed(queue, 2) == 2
    assert sorted(queue.state()["rate"].values()) == [(NOW - 99) * 1000, NOW * 1000, NOW * 1000]


@pytest.mark.same_on_all_servers
def test_rate_key_stays_small(queue):
    queue.given(ready=waiting(3000), meta=rate(10, 10))
    for _ in range(100):
        assert claimed(queue) == 10
        queue.now += 10
        assert len(queue.state()["rate"]) <= 30


def test_rate_key_expires_a_minute_after_the_period(queue):
    queue.given(ready=waiting(1), meta=rate(1, 3_600_000))
    claimed(queue)
    assert 3_600_000 < queue.redis.pttl(queue.keys.rate) <= 3_660_000


def test_release_gives_back_its_place_in_the_rate(queue):
    queue.now = NOW + 0.25
    queue.given(ready=waiting(3), meta=rate(2, 1000))
    assert claimed(queue) == 2
    queue.release("m0000", "0.0.0.0-250", NOW - 1, NOW * 1000 + 250)
    assert len(queue.state()["rate"]) == 1
    assert (claimed(queue), claimed(queue)) == (1, 0)


def test_release_gives_back_only_its_own_place_in_the_rate(queue):
    queue.given(unack={"a": NOW + LEASE}, meta=rate(2, 1000), rate=spent(NOW - 1, NOW + 1))
    queue.release("a", "0.0.0.0-0", NOW, NOW * 1000)
    assert len(queue.state()["rate"]) == 2


def test_overwritten_rate_key_loses_no_message(queue):
    queue.given(ready=waiting(3), meta=rate(2, 1000))
    queue.redis.set(queue.keys.rate, "no sorted set")
    with pytest.raises(Exception, match="WRONGTYPE"):
        claimed(queue)
    assert queue.state()["ready"] == waiting(3)


# -- sleeping --------------------------------------------------------------------------------------------------------


@pytest.mark.same_on_all_servers
def test_sleep_lasts_until_the_rate_allows_the_next_message(queue, subtests):
    for script in ["plan_sleep", "poll_idle"]:
        for moments, sleep in [
            ((NOW - 70, NOW - 50, NOW - 20), 30_000),
            ((NOW - 99.999, NOW, NOW), 1),
            ((NOW - 69.75, NOW, NOW), 30_250),
            ((NOW - 70, NOW - 50, NOW - 20, NOW - 10), 50_000),  # the limit was lowered
            ((NOW - 500, NOW - 70, NOW - 50, NOW - 20), 30_000),
        ]:
            queue.clear()
            with subtests.test(moments=moments, sleep=sleep, script=script):
                queue.given(ready=waiting(5), meta=rate(3, 100), rate=spent(*moments))
                rested = queue.plan_sleep("me", MOST, True) if script == "plan_sleep" else queue.poll_idle("me", MOST)
                assert rested == (sleep, "m0000")
                assert queue.state()["timer"] == f"{NOW + -(-sleep // 1000)} me"


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("moments", "sleep", "message"),
    [
        ((NOW - 70,), 30_000, "m0002"),
        ((), 100_000, "m0003"),
        ((NOW - 500,), 100_000, "m0003"),
        ((NOW - 70, NOW - 60), 30_000, "m0001"),
    ],
)
def test_sleep_allows_for_the_claim_that_follows(queue, moments, sleep, message):
    queue.given(ready=waiting(5), meta=rate(3, 100), rate=spent(*moments))
    assert queue.plan_sleep("me", MOST, True) == (sleep, message)
    claimed(queue)
    assert queue.plan_sleep("me", MOST, True).micros == sleep


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("held", [False, True])
def test_sleep_of_an_unlimited_queue_does_not_depend_on_held(queue, held):
    queue.given(ready=waiting(5), pending={"p": NOW + 10})
    assert queue.plan_sleep("me", MOST, held) == (10_000, "p")


def test_one_consumer_of_a_fleet_waits_for_the_rate(queue):
    queue.given(ready=waiting(5), meta=rate(1, 100), rate=spent(NOW - 70.5))
    assert queue.plan_sleep("first", MOST, True).micros == 29_500
    for name in ("second", "third"):
        assert queue.plan_sleep(name, MOST, True).micros == MOST * 1000
        assert queue.poll_idle(name, MOST).micros == MOST * 1000
    assert queue.plan_sleep("first", MOST, True).micros == 29_500


@pytest.mark.same_on_all_servers
def test_watcher_sleeps_until_there_is_a_message_that_the_rate_allows(queue, subtests):
    for state, sleep in [
        ({"ready": {"a": NOW - 1}}, 30_000),
        ({"retry": {"a": NOW - 1}}, 30_000),
        ({"pending": {"a": NOW - 1}}, 30_000),
        ({"retry": {"a": NOW + 40}}, 40_000),
        ({"pending": {"a": NOW + 20}}, 30_000),
        ({"ready": {"a": NOW - 1}, "unack": {"u": NOW + 10}}, 10_000),
        ({}, MOST * 1000),
    ]:
        queue.clear()
        with subtests.test(state=state, sleep=sleep):
            queue.given(meta=rate(1, 100), rate=spent(NOW - 70), **state)
            assert queue.poll_idle("me", MOST).micros == sleep


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("structure", ["ready", "retry"])
def test_queue_at_its_concurrency_limit_has_no_work_until_a_place_is_free(queue, structure):
    queue.given(unack={"u": NOW + 2 * MOST}, meta=rate(5, 100, concurrency=1), **{structure: waiting(3)})
    assert queue.poll_idle("me", MOST).micros == MOST * 1000
    assert queue.plan_sleep("me", MOST, True).micros == MOST * 1000
    queue.ack([("u", "0.0.0.0-0")])
    assert queue.poll_idle("me", MOST).micros == 0


# -- any window ------------------------------------------------------------------------------------------------------


@pytest.mark.same_on_all_servers
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    most=st.integers(1, 6),
    period_ms=st.sampled_from([1, 7, 100]),
    turns=st.lists(st.tuples(st.floats(0, 1.2), st.integers(0, 4), st.booleans()), max_size=30),
)
def test_rate_is_never_exceeded_in_any_window_of_a_period(queue, most, period_ms, turns):
    queue.clear()
    queue.given(ready=waiting(200), meta=rate(most, period_ms))
    moments: list[float] = []
    for wait, limit, gives_back in turns:
        queue.now = round(queue.now + wait * period_ms, 3)
        found = queue.ready_to_unack(limit, LEASE)
        moments += [found.now_ms * 1000 + found.micros] * len(found.ids)
        assert busiest(moments, period_ms * 1000) <= most
        if gives_back and found.ids:
            queue.release(found.ids[0], f"{found.deliveries[0] or '0.0.0.0'}-{found.micros}", NOW, moments.pop())


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("most", "period_ms", "step"), [(1, 10, 1), (5, 10, 0.25), (100, 1000, 10), (7, 100, 3)])
def test_backlog_is_handed_out_at_exactly_the_rate(queue, most, period_ms, step):
    queue.given(ready=waiting(1000), meta=rate(most, period_ms))
    periods, moments = 5, []
    while queue.now < NOW + periods * period_ms:
        moments += [queue.now * 1000] * claimed(queue, 3)
        sleep = queue.plan_sleep("me", MOST, True).micros / 1000
        queue.now = round(min(queue.now + step, queue.now + sleep), 3)
    assert len(moments) == periods * most
    assert busiest(moments, period_ms * 1000) == most


def busiest(moments: Iterable[float], period: float) -> int:
    """The largest number of them in any window of a period."""
    times = sorted(moments)
    return max((sum(begin <= each < begin + period for each in times) for begin in times), default=0)
