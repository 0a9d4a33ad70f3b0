from __future__ import annotations

from typing import Any

import pytest

from tests.harness.lua.raw import NOW, RUNG, RawQueue

MOST = 60_000  # ms, the longest sleep: Redis expires the timer by its own clock, and must not do so during a test


def rest(queue: RawQueue) -> dict[str, Any]:
    """The state without the note that a consumer has looked."""
    state = queue.state()
    assert state.pop("watch") == {"looked": f"{queue.now:.0f} 0 0"}
    return state


def test_watcher_of_a_queue_without_events_sets_the_timer(queue):
    assert queue.poll_idle("me", MOST).micros == MOST * 1000
    assert rest(queue) == {"timer": f"{NOW + MOST} me"}


def test_others_leave_all_work_to_the_watcher(queue):
    state = {"timer": f"{NOW + 1} first", "pending": {"a": NOW - 5}, "ready": {"b": NOW}, "garbage": {"c": NOW}}
    queue.given(**state)
    assert queue.poll_idle("second", MOST).micros == MOST * 1000
    assert rest(queue) == state


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("wakes", [NOW, NOW - 500])
def test_next_consumer_to_wake_replaces_a_lost_watcher(queue, wakes):
    queue.given(timer=f"{wakes} first")
    assert queue.poll_idle("second", MOST).micros == MOST * 1000
    assert rest(queue) == {"timer": f"{NOW + MOST} second"}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("wakes", "trusted"), [(NOW + MOST, True), (NOW + MOST + 1, False), (NOW + 3_600_000, False)])
def test_timer_from_before_the_clock_was_set_back_is_not_trusted(queue, wakes, trusted):
    queue.given(timer=f"{wakes} first", pending={"a": NOW})
    assert queue.poll_idle("second", MOST).micros == (MOST * 1000 if trusted else 0)


def test_watcher_keeps_watching(queue):
    queue.given(timer=f"{NOW + 1} me", pending={"a": NOW + 300})
    assert queue.poll_idle("me", MOST).micros == 300_000
    assert rest(queue)["timer"] == f"{NOW + 300} me"


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    "state",
    [
        {"pending": {"a": NOW}},
        {"retry": {"a": NOW - 1}},
        {"unack": {"a": NOW - 0.5}},
        {"ready": {"a": NOW - 1}},
        {"garbage": {"a": NOW}},
        {"garbage": {"a": NOW}, "meta": {"paused": str(NOW)}},
        {"pending": {"a": NOW}, "meta": {"paused": str(NOW)}},
        {"unack": {"a": NOW - 0.5}, "meta": {"paused": str(NOW)}},
    ],
)
def test_work_is_reported_and_no_timer_is_set(queue, state):
    queue.given(**state)
    assert queue.poll_idle("me", MOST).micros == 0
    assert rest(queue) == state


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("structure", ["ready", "retry"])
def test_messages_of_a_paused_queue_are_not_work(queue, structure):
    queue.given(**{structure: {"a": NOW - 1}}, meta={"paused": str(NOW)})
    assert queue.poll_idle("me", MOST).micros == MOST * 1000


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("structure", ["ready", "retry"])
def test_watcher_sleeps_until_a_timed_pause_ends(queue, structure):
    queue.given(**{structure: {"a": NOW - 1}}, meta={"paused": NOW - 9, "paused_until": NOW + 300})
    assert queue.poll_idle("me", MOST) == (300_000, "a")
    queue.now = NOW + 300
    assert queue.poll_idle("me", MOST).micros == 0


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("structure", ["pending", "retry", "unack"])
@pytest.mark.parametrize(("at", "sleep"), [(NOW + 300, 299_750), (NOW + MOST, MOST * 1000)])
def test_sleep_lasts_until_the_next_event(queue, structure, at, sleep):
    queue.now = NOW + 0.25
    queue.given(**{structure: {"a": at, "b": at + 1}})
    assert queue.poll_idle("me", MOST).micros == sleep
    assert rest(queue)["timer"] == f"{at} me"


def test_timer_key_expires_one_sleep_after_its_time(queue):
    queue.poll_idle("me", MOST)
    left = queue.redis.pttl(queue.keys.timer)
    assert MOST < left <= 2 * MOST


def test_bell_is_unchanged(queue):
    queue.given(bell=RUNG)
    queue.poll_idle("me", MOST)
    assert rest(queue)["bell"] == RUNG


def test_look_is_noted_by_watchers_and_others_alike(queue):
    queue.given(timer=f"{NOW + 900} you", unack={"a": NOW + 2000})
    queue.poll_idle("me", MOST)
    queue.now = NOW + 1000
    queue.poll_idle("you", MOST)
    assert queue.state()["watch"]["looked"] == f"{NOW + 1000} 0 0"


def test_lease_that_ended_in_a_gap_is_no_work_until_the_end_of_the_grace(queue):
    queue.given(unack={"a": NOW + 2000}, watch={"looked": f"{NOW} 0 0"})
    queue.now = NOW + 5000
    assert queue.poll_idle("me", MOST).micros == 6_000_000
    assert queue.state()["watch"]["looked"] == f"{NOW + 5000} {NOW} {NOW + 11_000}"
    queue.now = NOW + 7000
    assert queue.poll_idle("me", MOST).micros == 4_000_000
    queue.given(watch={"looked": f"{NOW + 10_000} {NOW} {NOW + 11_000}"})
    queue.now = NOW + 11_000
    assert queue.poll_idle("me", MOST).micros == 0
