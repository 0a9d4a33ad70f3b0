from __future__ import annotations

from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME


def test_pause_is_recorded_with_its_time(queue):
    queue.given(meta={"format": "1", "shards": "1"})
    assert queue.pause() == 1
    assert queue.state() == {"meta": {"format": "1", "shards": "1", "paused": str(NOW)}}


def test_time_of_the_first_pause_is_kept(queue):
    queue.pause()
    queue.now = NOW + 5
    assert queue.pause() == 0
    assert queue.state() == {"meta": {"paused": str(NOW)}}


def test_paused_queue_takes_messages_and_finishes_those_that_run(queue):
    queue.send([("a", "+0", b"{}")])
    receipt = queue.deliver("a")
    queue.pause()
    queue.send([("b", "+0", b"{}")])
    assert queue.ack([("a", receipt)]) == [1]
    assert queue.pending_to_ready() == 1
    assert queue.ready_to_unack(10, LEASE).ids == []
    assert queue.state()["ready"] == {"b": NOW}


def test_server_time_counts_by_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    queue.pause()
    assert before <= int(queue.state()["meta"]["paused"]) <= queue.server_ms()
