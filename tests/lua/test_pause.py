from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import delayq
from delayq.errors import ClientTooOld
from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME
from tests.harness.tree import LUA

NEEDS = {"needs": "1 0.1.0"}
(LINE,) = re.findall(r"^local NEEDS = \{(.*)\}$", (LUA / "prelude.lua").read_text(), re.MULTILINE)
VERSIONS = re.findall(r"'([^']*)'", LINE)


def test_pause_is_recorded_with_its_time(queue):
    queue.given(meta={"format": "1", "shards": "1"})
    assert queue.pause() == 1
    assert queue.state() == {"meta": {"format": "1", "shards": "1", "paused": str(NOW)}}


def test_time_of_the_first_pause_is_kept(queue):
    queue.pause()
    queue.now = NOW + 5
    assert queue.pause() == 0
    assert queue.state() == {"meta": {"paused": str(NOW)}, "bell": RUNG}


def test_paused_queue_takes_messages_and_finishes_those_that_run(queue):
    queue.send([("a", "+0", b"{}")])
    receipt = queue.deliver("a")
    queue.pause()
    queue.send([("b", "+0", b"{}")])
    assert queue.ack([("a", receipt)]) == [1]
    assert queue.pending_to_ready() == 1
    assert queue.ready_to_unack(10, LEASE).ids == []
    assert queue.state()["ready"] == {"b": NOW}


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    queue.pause()
    assert before <= int(queue.state()["meta"]["paused"]) <= queue.server_ms()


@pytest.mark.same_on_all_servers
def test_timed_pause_is_recorded_with_its_end(queue):
    assert queue.pause(2500) == 1
    assert queue.state() == {"meta": {"paused": str(NOW), "paused_until": str(NOW + 2500), **NEEDS}}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("before", [None, 100, 9000])
@pytest.mark.parametrize("after", [None, 100, 9000])
def test_pausing_again_replaces_the_end_and_keeps_the_start(queue, before, after):
    queue.pause(before)
    queue.now = NOW + 50
    assert queue.pause(after) == 0
    end = {} if after is None else {"paused_until": str(NOW + 50 + after)}
    needs = NEEDS if before or after else {}
    assert queue.state() == {"meta": {"paused": str(NOW), **end, **needs}, "bell": RUNG}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("after", [None, 100])
def test_pause_after_an_expired_one_is_new(queue, after):
    queue.pause(100)
    queue.now = NOW + 100
    assert queue.pause(after) == 1
    end = {} if after is None else {"paused_until": str(NOW + 100 + after)}
    assert queue.state() == {"meta": {"paused": str(NOW + 100), **end, **NEEDS}}


@pytest.mark.same_on_all_servers
def test_timed_pause_ends_at_the_exact_millisecond(queue):
    queue.given(ready={"a": NOW})
    queue.pause(100)
    queue.now = NOW + 99.999
    assert queue.ready_to_unack(10, LEASE).ids == []
    queue.now = NOW + 100
    assert queue.ready_to_unack(10, LEASE).ids == ["a"]


@pytest.mark.same_on_all_servers
def test_overwritten_end_of_a_pause_is_ignored(queue):
    queue.given(ready={"a": NOW}, meta={"paused": NOW, "paused_until": "soon"})
    assert queue.ready_to_unack(10, LEASE).ids == []


def test_pause_if_running_does_not_change_an_existing_pause(queue):
    assert queue.pause(if_running=True) == 1
    queue.pause(5000)
    before = queue.state()
    assert queue.pause(if_running=True) == 0
    assert queue.state() == before


# -- what the data need ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [len(VERSIONS) + 1, 99])
def test_queue_that_needs_a_newer_client_hands_out_nothing_and_lets_deliveries_be_settled(queue, number):
    receipts = {}
    for each in "abc":
        queue.send([(each, "+0", b"{}")])
        receipts[each] = queue.deliver(each)
    queue.given(meta={"needs": f"{number} 9.8.7"})
    refused: list[Callable[[], object]] = [
        lambda: queue.ready_to_unack(1, LEASE),
        lambda: queue.poll_idle("me", 1000),
        lambda: queue.send([("d", "+0", b"{}")]),
        lambda: queue.send_unique([("d", "+0", b"{}", 1000)]),
        lambda: queue.open_queue(None, create=False),
        lambda: queue.replace("d", "+0", b"{}"),
        lambda: queue.pause(1000),
        lambda: queue.configure({"max_length": 5}),
    ]
    before = queue.state()
    for call in refused:
        with pytest.raises(ClientTooOld, match=r"delayq 9\.8\.7 or newer$"):
            call()
    assert {name: held for name, held in queue.state().items() if name != "watch"} == before  # an idle one has looked
    assert queue.ack([("a", receipts["a"])]) == [1]
    assert queue.nack("b", receipts["b"], 1000) == NOW + 1000
    assert queue.release("c", receipts["c"], NOW) > 0


@pytest.mark.parametrize("needs", ["", "1 0.1.0", "broken", "1"])
def test_queue_that_needs_what_this_client_knows_is_served(queue, needs):
    queue.given(meta={"needs": needs})
    queue.send([("a", "+0", b"{}")])
    assert queue.pending_to_ready() == 1
    assert queue.ready_to_unack(10, LEASE).ids == ["a"]


def test_versions_that_features_need_are_no_newer_than_this_one():
    named = [tuple(map(int, version.split("."))) for version in VERSIONS]
    assert named == sorted(named)
    assert named[-1] <= tuple(map(int, re.findall(r"\d+", delayq.__version__)[:3]))
