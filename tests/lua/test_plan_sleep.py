from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW, SERVER_TIME

MOST = 60_000  # ms, the longest sleep: Redis expires the timer by its own clock, and must not do so during a test


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("structure", ["pending", "retry", "unack"])
def test_sleep_lasts_until_the_next_event(queue, structure):
    queue.given(**{structure: {"a": NOW + 300, "b": NOW + 400}})
    assert queue.plan_sleep("me", MOST).micros == 300_000
    assert queue.state() == {structure: {"a": NOW + 300, "b": NOW + 400}, "timer": f"{NOW + 300} me"}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "wake"),
    [
        ({"pending": {"a": NOW + 10}, "retry": {"b": NOW + 20}, "unack": {"c": NOW + 30}}, 10),
        ({"pending": {"a": NOW + 30}, "retry": {"b": NOW + 10}, "unack": {"c": NOW + 20}}, 10),
        ({"pending": {"a": NOW + 20}, "retry": {"b": NOW + 30}, "unack": {"c": NOW + 10}}, 10),
        ({"unack": {"c": NOW + 9.001}}, 10),
    ],
)
def test_sleep_ends_with_the_earliest_event_of_all_structures(queue, state, wake):
    queue.given(**state)
    assert queue.plan_sleep("me", MOST).micros == wake * 1000
    assert queue.state()["timer"] == f"{NOW + wake} me"


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", [{}, {"pending": {"a": NOW + MOST}}, {"pending": {"a": NOW + MOST + 1}}])
def test_longest_sleep_sets_no_timer(queue, state):
    queue.given(**state)
    assert queue.plan_sleep("me", MOST).micros == MOST * 1000
    assert queue.state() == state


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "due", "sleep"),
    [
        (NOW + 0.25, NOW + 10, 9750),
        (NOW + 0.999, NOW + 1, 1),
        (NOW, NOW + 1, 1000),
        (NOW + 0.25, NOW + MOST - 1, MOST * 1000 - 1250),
    ],
)
def test_sleep_ends_at_the_exact_microsecond(queue, now, due, sleep):
    queue.now = now
    queue.given(pending={"a": due})
    assert queue.plan_sleep("me", MOST).micros == sleep


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("structure", ["pending", "retry"])
def test_due_messages_are_left_to_the_claim_that_follows(queue, structure):
    queue.now = NOW + 0.25
    queue.given(**{structure: {"a": NOW - 5, "b": NOW}})
    assert queue.plan_sleep("me", MOST) == (MOST * 1000, "")
    queue.given(**{structure: {"c": NOW + 1}})
    assert queue.plan_sleep("me", MOST) == (750, "c")


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("end", [NOW - 5.001, NOW])
def test_expired_lease_prevents_sleep(queue, end):
    state = {"unack": {"a": end}, "pending": {"b": NOW + 5}, "timer": f"{NOW + 1} other"}
    queue.given(**state)
    assert queue.plan_sleep("me", MOST) == (0, "")
    assert queue.state() == state


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"pending": {"a": NOW + 10, "b": NOW + 11}}, "a"),
        ({"retry": {"a": NOW + 10}, "pending": {"b": NOW + 11}}, "a"),
        ({"retry": {"a": NOW + 11}, "pending": {"b": NOW + 10}}, "b"),
        ({"pending": {"a": NOW + 10}, "unack": {"c": NOW + 20.5}}, "a"),
        (
            {"pending": {"a": NOW + 10}, "unack": {"c": NOW + 10}},
            "",
        ),  # a lease ends at the same time: the consumer has to look for that
        ({"pending": {"a": NOW + 10}, "unack": {"c": NOW + 9.5}}, ""),
        ({"pending": {"a": NOW + MOST}}, ""),
    ],
)
def test_message_due_at_the_end_of_the_sleep_is_named(queue, state, message):
    queue.given(**state)
    assert queue.plan_sleep("me", MOST).message_id == message
    assert queue.plan_sleep("another", MOST).message_id == ""


# -- the timer -------------------------------------------------------------------------------------------------------


def test_only_the_holder_of_the_timer_wakes_for_the_event(queue):
    queue.given(pending={"a": NOW + 300})
    queue.plan_sleep("first", MOST)
    assert queue.plan_sleep("second", MOST).micros == MOST * 1000
    assert queue.plan_sleep("third", MOST).micros == MOST * 1000
    assert queue.state()["timer"] == f"{NOW + 300} first"


def test_holder_gets_the_remaining_time_again(queue):
    queue.given(pending={"a": NOW + 300})
    queue.plan_sleep("me", MOST)
    queue.now = NOW + 100
    assert queue.plan_sleep("me", MOST).micros == 200_000
    assert queue.state()["timer"] == f"{NOW + 300} me"


def test_earlier_event_takes_the_timer_over(queue):
    queue.given(pending={"a": NOW + 300}, timer=f"{NOW + 300} other")
    queue.given(retry={"b": NOW + 299})
    assert queue.plan_sleep("me", MOST).micros == 299_000
    assert queue.state()["timer"] == f"{NOW + 299} me"


def test_holder_follows_a_later_event(queue):
    queue.given(pending={"a": NOW + 300}, timer=f"{NOW + 200} me")
    assert queue.plan_sleep("me", MOST).micros == 300_000
    assert queue.state()["timer"] == f"{NOW + 300} me"


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("wakes", [NOW - 1, NOW])
def test_expired_timer_is_taken_over(queue, wakes):
    queue.given(pending={"a": NOW + 300}, timer=f"{wakes} other")
    assert queue.plan_sleep("me", MOST).micros == 300_000
    assert queue.state()["timer"] == f"{NOW + 300} me"


def test_earlier_timer_of_another_consumer_covers_a_later_event(queue):
    queue.given(pending={"a": NOW + 300}, timer=f"{NOW + 1} other")
    assert queue.plan_sleep("me", MOST).micros == MOST * 1000
    assert queue.state()["timer"] == f"{NOW + 1} other"


def test_holder_without_an_event_clears_its_timer(queue):
    queue.given(pending={"a": NOW + 300})
    queue.plan_sleep("first", MOST)
    queue.cancel("a")
    assert queue.plan_sleep("first", MOST).micros == MOST * 1000  # it will no longer wake at NOW + 300
    assert "timer" not in queue.state()
    queue.given(pending={"b": NOW + 400})
    assert queue.plan_sleep("second", MOST).micros == 400_000


def test_timer_of_another_consumer_stays_when_no_event_is_near(queue):
    queue.given(timer=f"{NOW + 300} other")
    assert queue.plan_sleep("me", MOST).micros == MOST * 1000
    assert queue.state() == {"timer": f"{NOW + 300} other"}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("name", ["host-1-abc def", "1000500 nobody", "line\nbreak", "%d+"])
def test_holder_is_recognised_by_its_full_name(queue, name):
    queue.given(pending={"a": NOW + 300})
    queue.plan_sleep(name, MOST)
    assert queue.plan_sleep(name, MOST).micros == 300_000
    assert queue.plan_sleep(name[:-1], MOST).micros == MOST * 1000


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("timer", ["", "nonsense", "12", "me"])
def test_unreadable_timer_is_taken_over(queue, timer):
    queue.given(pending={"a": NOW + 300}, timer=timer)
    assert queue.plan_sleep("me", MOST).micros == 300_000
    assert queue.state()["timer"] == f"{NOW + 300} me"


def test_timer_key_expires_within_one_sleep_after_its_time(queue):
    queue.given(pending={"a": NOW + MOST - 1})
    queue.plan_sleep("me", MOST)
    assert MOST < queue.redis.pttl(queue.keys.timer) <= 2 * MOST - 1


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    queue.given(pending={"a": before + 30_000})
    sleep = queue.plan_sleep("me", 60_000).micros
    after = queue.server_ms()
    assert (before + 30_000 - after - 1) * 1000 <= sleep <= 30_000_000
    assert queue.state()["timer"] == f"{before + 30_000} me"


# -- timed pauses ------------------------------------------------------------------------------------------------------


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("ready", "message"), [({}, ""), ({"a": NOW - 5, "b": NOW - 4}, "a")])
def test_consumer_of_a_paused_queue_sleeps_until_the_pause_ends(queue, ready, message):
    queue.given(ready=ready, meta={"paused": NOW - 9, "paused_until": NOW + 300})
    assert queue.plan_sleep("me", MOST, held=True) == (300_000, message)
    assert queue.plan_sleep("other", MOST, held=True) == (MOST * 1000, "")


@pytest.mark.same_on_all_servers
def test_pause_without_an_end_wakes_nobody(queue):
    queue.given(ready={"a": NOW - 5}, meta={"paused": NOW - 9})
    assert queue.plan_sleep("me", MOST, held=True) == (MOST * 1000, "")


@pytest.mark.parametrize(("lease_end", "sleep"), [(NOW - 1, 4000), (NOW - 2000, 0), (NOW + 4500, 4500)])
def test_lease_that_ended_in_a_gap_counts_at_the_end_of_the_grace(queue, lease_end, sleep):
    queue.given(unack={"a": lease_end}, watch={"looked": f"{NOW} {NOW - 2000} {NOW + 4000}"})
    assert queue.plan_sleep("me", 60_000).micros == sleep * 1000
