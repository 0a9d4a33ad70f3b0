from __future__ import annotations

import pytest

from delayq.model.configuration import Usage
from tests.harness.lua.raw import NOW

LATE_MS = 5000


def test_new_queue_uses_nothing(queue):
    assert queue.usage(LATE_MS) == Usage()
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
def test_running_and_replaced_running_deliveries_count_towards_the_concurrency(queue):
    queue.given(meta={"concurrency": 5}, unack={"u": NOW + 1, "v": NOW + 2})
    queue.given(replaced={"0.0.0.0-1\0w": NOW + 9, "0.0.0.0-1\0over": NOW})
    assert queue.usage(LATE_MS) == Usage(concurrency=5, running=3)


@pytest.mark.same_on_all_servers
def test_deliveries_of_the_last_period_count_towards_the_rate(queue):
    queue.given(meta={"rate": 9, "period_ms": 1000})
    queue.given(rate={"1": (NOW - 1000) * 1000, "2": (NOW - 999) * 1000, "3": NOW * 1000})
    assert queue.usage(LATE_MS) == Usage(rate=9, period_ms=1000, handed_out=2)


@pytest.mark.same_on_all_servers
def test_slots_of_all_keys_are_added_up(queue):
    queue.given(meta={"per_key": 2}, slots={"k\0r\0a": 0, "k\0r\0b": 0, "l\0r\0c": 0})
    queue.given(waiting={f"k\0{NOW:015}\0d": 0})
    assert queue.usage(LATE_MS) == Usage(per_key=2, key_slots=3, key_waiting=1)


@pytest.mark.same_on_all_servers
def test_schedules_with_a_past_slot_are_late(queue):
    queue.given(armed={"hourly": NOW - 9000, "nightly": NOW - 5001, "soon": NOW - 5000, "off": 0, "over": -1})
    assert queue.usage(LATE_MS) == Usage(late_schedules=2, latest_ms=9000)


def test_unreadable_limit_is_ignored(queue):
    queue.given(meta={"rate": "x", "period_ms": "y", "concurrency": "", "per_key": "z"})
    assert queue.usage(LATE_MS) == Usage()


@pytest.mark.same_on_all_servers
def test_messages_that_wait_or_run_count_towards_the_length(queue):
    queue.given(pending={"p": 1, "q": 2}, ready={"r": 1}, unack={"u": NOW + 1}, retry={"t": NOW + 1}, dead={"d": 1})
    assert queue.usage(LATE_MS) == Usage(running=1)
    queue.given(meta={"max_length": 7})
    assert queue.usage(LATE_MS) == Usage(running=1, length=5, max_length=7)
