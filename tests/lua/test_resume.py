from __future__ import annotations

import pytest

from tests.harness.lua.raw import LEASE, NOW, RUNG


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("bell", [[], RUNG])
def test_resumed_queue_rings_once(queue, bell):
    queue.given(meta={"format": "1", "paused": NOW}, bell=bell)
    assert queue.resume() == 1
    assert queue.state() == {"meta": {"format": "1"}, "bell": RUNG}


@pytest.mark.same_on_all_servers
def test_resume_removes_the_end_of_the_pause(queue):
    queue.given(meta={"format": "1", "paused": NOW, "paused_until": NOW + 9})
    assert queue.resume() == 1
    assert queue.state() == {"meta": {"format": "1"}, "bell": RUNG}


def test_queue_that_was_not_paused_is_unchanged(queue):
    queue.given(meta={"format": "1"})
    assert queue.resume() == 0
    assert queue.state() == {"meta": {"format": "1"}}


def test_resumed_queue_hands_out_again(queue):
    queue.given(ready={"a": NOW})
    queue.pause()
    queue.resume()
    assert queue.ready_to_unack(10, LEASE).ids == ["a"]


def test_resume_of_a_known_pause_does_not_end_a_later_one(queue):
    queue.pause()
    assert queue.resume(NOW - 1) == 0
    assert queue.state()["meta"] == {"paused": str(NOW)}
    assert queue.resume(NOW) == 1
    assert queue.resume(NOW) == 0
