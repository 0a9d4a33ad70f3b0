from __future__ import annotations

from tests.harness.lua.raw import NOW

HOUR = 3_600_000


def test_consumer_is_recorded_with_the_time_and_its_details(queue):
    assert queue.heartbeat("me", "{}") == 0
    assert queue.state() == {"consumers": {"me": NOW}, "crew": {"me": "{}"}}


def test_second_heartbeat_updates_the_same_entry(queue):
    queue.given(consumers={"me": NOW - 10, "other": NOW - 20}, reports={"me": "old", "other": "others"})
    assert queue.heartbeat("me", "new") == 0
    assert queue.state() == {
        "consumers": {"me": NOW, "other": NOW - 20},
        "crew": {"me": "new", "other": "others"},
    }


def test_handler_times_are_added_to_the_counters(queue):
    queue.given(stats={"took:0": 2, "acked": 9})
    queue.heartbeat("me", "{}", {"took:0": 3, "took:11": 1})
    assert queue.state()["stats"] == {"took:0": 5, "took:11": 1, "acked": 9}


def test_consumers_not_seen_for_an_hour_are_removed(queue):
    queue.now = NOW + 2 * HOUR
    queue.given(
        consumers={"old": NOW, "older": NOW + HOUR, "young": NOW + HOUR + 1},
        reports={"old": "a", "older": "b", "young": "c"},
    )
    assert queue.heartbeat("me", "d") == 2
    assert queue.state() == {
        "consumers": {"young": NOW + HOUR + 1, "me": NOW + 2 * HOUR},
        "crew": {"young": "c", "me": "d"},
    }


def test_consumer_renews_its_own_old_entry(queue):
    queue.now = NOW + 2 * HOUR
    queue.given(consumers={"me": NOW})
    assert queue.heartbeat("me", "{}") == 0
    assert queue.state()["consumers"] == {"me": NOW + 2 * HOUR}


def test_consumers_seen_before_the_clock_was_set_back_are_removed(queue):
    queue.given(
        consumers={"dead": NOW + HOUR, "gone": NOW + 1, "beside": NOW, "young": NOW - 1},
        reports={"dead": "a", "gone": "b", "beside": "c", "young": "d"},
    )
    assert queue.heartbeat("me", "e") == 2
    state = queue.state()
    assert state["consumers"] == {"young": NOW - 1, "beside": NOW, "me": NOW}
    assert state["crew"] == {"young": "d", "beside": "c", "me": "e"}
    assert queue.last_seen() == ("me", NOW)


def test_consumers_that_report_are_all_kept_however_many_they_are(queue):
    queue.given(consumers={f"c{n}": NOW - 30_000 for n in range(1500)} | {"silent": NOW - 30_001})
    assert queue.heartbeat("me", "{}") == 1
    consumers = queue.state()["consumers"]
    assert len(consumers) == 1501
    assert "silent" not in consumers


def test_of_silent_consumers_at_most_the_last_thousand_are_kept(queue):
    names = [f"c{n}" for n in range(1000)]
    queue.given(consumers={name: NOW - 60_000 + n for n, name in enumerate(names)}, reports=dict.fromkeys(names, "{}"))
    assert queue.heartbeat("me", "{}") == 1
    state = queue.state()
    assert len(state["consumers"]) == len(state["crew"]) == 1000
    assert "c0" not in state["consumers"] | state["crew"]
    assert state["consumers"]["me"] == NOW
    assert queue.heartbeat("c5", "{}") == 0


def test_one_call_removes_at_most_a_thousand(queue):
    queue.now = NOW + 2 * HOUR
    queue.given(consumers={f"c{n}": NOW for n in range(2500)})
    assert [queue.heartbeat("me", "{}") for _ in range(3)] == [1000, 1000, 500]


def test_consumer_seen_last_is_returned(queue):
    assert queue.last_seen() is None
    queue.given(consumers={"a": NOW - 10, "b": NOW, "c": NOW - 5})
    assert queue.last_seen() == ("b", NOW)


def test_runs_of_a_new_task_are_counted_under_its_name(queue):
    queue.given(stats={"acked": 9})
    queue.heartbeat("me", "{}", {"task:failed:a:b": 2, "task:acked:welcome": 3})
    counts = {"tasks": 2, "task:acked:a:b": 0, "task:failed:a:b": 2, "task:acked:welcome": 3, "acked": 9}
    assert queue.state()["stats"] == counts


def test_runs_of_tasks_beyond_a_hundred_names_are_counted_together(queue):
    queue.heartbeat("me", "{}", {f"task:dead:{n}": 1 for n in range(99)})
    queue.deregister("me", {"task:acked:hundredth": 1, "task:acked:one more": 4, 'task:dead:two\n"more': 5})
    queue.heartbeat("me", "{}", {"task:dead:7": 1, "task:acked:other": 2, "task:failed:hundredth": 3})
    stats = queue.state()["stats"]
    assert stats["tasks"] == 100
    assert (stats["task:dead:7"], stats["task:acked:hundredth"], stats["task:failed:hundredth"]) == (2, 1, 3)
    assert {name: count for name, count in stats.items() if name.endswith("other")} == {
        "task:acked:other": 6,
        "task:dead:other": 5,
    }
    assert not [name for name in stats if "more" in name]
