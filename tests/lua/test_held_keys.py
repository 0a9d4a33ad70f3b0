from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW
from tests.lua.test_acquire_slot import place, slot

KEYS = ["a", "a\x01", "aa", "b", "ä"]


@pytest.fixture
def held(queue):
    queue.given(waiting={place(key, f"{key}{number}"): 0 for key in KEYS for number in range(3)})
    return queue


def test_keys_are_listed_once_and_in_order(held):
    assert held.held_keys(held.keys.waiting, "", 100) == KEYS


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_list_continues_after_a_key(held, number):
    assert held.held_keys(held.keys.waiting, KEYS[number], 100) == KEYS[number + 1 :]


def test_list_is_bounded(held):
    assert held.held_keys(held.keys.waiting, "a", 2) == KEYS[1:3]


def test_keys_that_are_not_utf_8_are_listed(queue):
    queue.redis.execute_command("ZADD", queue.keys.waiting, 0, b"\xff\x00" + b"%015d" % NOW + b"\0m")
    (key,) = queue.held_keys(queue.keys.waiting, "", 100)
    assert queue.held_keys(queue.keys.waiting, key, 100) == []


def test_nothing_is_listed_when_nothing_waits(queue):
    assert queue.held_keys(queue.keys.waiting, "", 100) == []


def test_keys_that_hold_slots_are_listed(queue):
    queue.given(slots={slot("a", "1"): 0, slot("a", "2"): 0, slot("b", "3", ""): 0})
    assert queue.held_keys(queue.keys.slots, "", 100) == ["a", "b"]
