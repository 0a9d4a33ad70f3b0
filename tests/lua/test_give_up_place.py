from __future__ import annotations

from tests.harness.lua.raw import NOW, RUNG

PLACES = {"1.0.0.0-0\0a": NOW, "2.0.0.0-0\0a": NOW, "1.0.0.0-0\0b": NOW}


def test_place_is_freed_and_the_bell_rings(queue):
    queue.given(replaced=PLACES)
    assert queue.give_up_place("a", "1.0.0.0-0") == 1
    assert queue.state() == {"replaced": {"2.0.0.0-0\0a": NOW, "1.0.0.0-0\0b": NOW}, "bell": RUNG}


def test_delivery_without_a_place_rings_no_bell(queue):
    queue.given(replaced=PLACES)
    before = queue.state()
    assert queue.give_up_place("a", "3.0.0.0-0") == 0
    assert queue.state() == before
