from __future__ import annotations

from tests.lua.raw import NOW

HOUR = 3_600_000


def test_consumer_is_noted_with_the_time(queue):
    assert queue.appear("me") == 0
    assert queue.state() == {"consumers": {"me": NOW}}


def test_consumer_that_appears_again_is_noted_once(queue):
    queue.given(consumers={"me": NOW - 10, "other": NOW - 20})
    assert queue.appear("me") == 0
    assert queue.state() == {"consumers": {"me": NOW, "other": NOW - 20}}


def test_those_that_were_not_seen_for_an_hour_are_struck_off(queue):
    queue.now = NOW + 2 * HOUR
    queue.given(consumers={"old": NOW, "older": NOW + HOUR, "young": NOW + HOUR + 1})
    assert queue.appear("me") == 2
    assert queue.state() == {"consumers": {"young": NOW + HOUR + 1, "me": NOW + 2 * HOUR}}


def test_own_entry_of_long_ago_is_renewed(queue):
    queue.now = NOW + 2 * HOUR
    queue.given(consumers={"me": NOW})
    assert queue.appear("me") == 0
    assert queue.state() == {"consumers": {"me": NOW + 2 * HOUR}}


def test_those_that_were_seen_before_the_clock_was_set_back_are_struck_off(queue):
    queue.given(consumers={"dead": NOW + HOUR, "gone": NOW + 1, "beside": NOW, "young": NOW - 1})
    assert queue.appear("me") == 2
    assert queue.state() == {"consumers": {"young": NOW - 1, "beside": NOW, "me": NOW}}
    assert queue.last_seen() == ("me", NOW)


def test_thousand_are_kept_at_the_most_and_those_seen_last(queue):
    queue.given(consumers={f"c{n}": NOW - 1000 + n for n in range(1000)})
    assert queue.appear("me") == 1
    kept = queue.state()["consumers"]
    assert len(kept) == 1000
    assert "c0" not in kept
    assert kept["me"] == NOW
    assert queue.appear("c5") == 0


def test_who_appeared_last_is_told(queue):
    assert queue.last_seen() is None
    queue.given(consumers={"a": NOW - 10, "b": NOW, "c": NOW - 5})
    assert queue.last_seen() == ("b", NOW)
