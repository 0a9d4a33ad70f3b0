from __future__ import annotations

import pytest

from delayq.model.placement import STATES
from tests.harness.lua.raw import NOW


@pytest.mark.parametrize("state", STATES)
def test_message_is_found_in_its_state(queue, state):
    queue.given(messages={"a": "{}", "b": "B"}, **{state: {"a": NOW + 7.25, "b": NOW}})
    before = queue.state()
    assert queue.get("a") == ({state: NOW + 7.25}, None, None, None, False, b"{}", None, None)
    assert queue.state() == before


def test_everything_known_about_a_message_is_returned(queue):
    queue.given(
        unack={"a": NOW},
        attempts={"a": "3.1.2.0"},
        errors={"a": "ValueError: ☃"},
        reasons={"a": "rejected"},
        cancelled={"a"},
        messages={"a": "{}"},
    )
    before = queue.state()
    assert queue.get("a") == ({"unack": NOW}, "3.1.2.0", "ValueError: ☃", "rejected", True, b"{}", None, None)
    assert queue.state() == before


def test_id_in_several_states_is_found_in_each(queue):
    queue.given(**{state: {"a": NOW + i} for i, state in enumerate(STATES)})
    assert queue.get("a").scores == {state: NOW + i for i, state in enumerate(STATES)}


def test_unknown_message_is_not_found(queue):
    queue.given(pending={"b": NOW}, attempts={"b": "1.0.0.0"}, cancelled={"b"}, messages={"b": "B"})
    before = queue.state()
    assert queue.get("a") == ({}, None, None, None, False, None, None, None)
    assert queue.state() == before


def test_only_the_running_delivery_shows_what_it_has_reported(queue):
    queue.given(unack={"a": NOW + 0.25}, messages={"a": "{}"})
    queue.progress("a", "0.0.0.0-250", b"[1]")
    assert queue.get("a").progress == b"[1]"
    queue.nack("a", "0.0.0.0-250", 0)
    assert queue.get("a").progress is None
