from __future__ import annotations

import pytest

from delayq.model.configuration import Configuration
from tests.harness.lua.raw import RUNG


def test_limits_are_stored_beside_what_else_is_recorded(queue):
    queue.given(meta={"format": "1", "per_key": "9"})
    assert queue.configure({"rate": 100, "period_ms": 1000, "concurrency": 20}) == 1
    stored = {"rate": "100", "period_ms": "1000", "concurrency": "20"}
    assert queue.state() == {"meta": {"format": "1", "per_key": "9"} | stored, "bell": RUNG}


def test_limit_is_removed_and_others_stay(queue):
    queue.given(meta={"rate": "100", "period_ms": "1000", "concurrency": "20"})
    assert queue.configure({"rate": None, "period_ms": None}) == 1
    removed = {"removed:rate": "1", "removed:period_ms": "1"}
    assert queue.state() == {"meta": {"concurrency": "20"} | removed, "bell": RUNG}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("changes", [{}, {"concurrency": 20}])
def test_what_is_so_already_wakes_nobody(queue, changes):
    queue.given(meta={"concurrency": "20"})
    assert queue.configure(changes) == 0
    assert queue.state() == {"meta": {"concurrency": "20"}}


def test_removal_is_kept_also_of_what_there_was_not(queue):
    assert queue.configure({"per_key": None}) == 0
    assert queue.state() == {"meta": {"removed:per_key": "1"}}


def test_one_change_of_several_is_one(queue):
    queue.given(meta={"concurrency": "20", "per_key": "2"})
    assert queue.configure({"concurrency": None, "rate": None, "per_key": 2}) == 1
    removed = {"removed:concurrency": "1", "removed:rate": "1"}
    assert queue.state() == {"meta": {"per_key": "2"} | removed, "bell": RUNG}


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({"shards": "1"}, Configuration()),
        ({"rate": "100", "period_ms": "1000"}, Configuration(rate="100/s")),
        ({"rate": "5", "period_ms": "10000", "concurrency": "7"}, Configuration(rate="5/10s", concurrency=7)),
        ({"per_key": "2", "paused": "1"}, Configuration(concurrency_per_key=2)),
        ({"rate": "many", "period_ms": "-1", "concurrency": ""}, Configuration()),
    ],
)
def test_configuration_is_what_is_stored(queue, meta, found):
    queue.given(meta=meta)
    assert queue.configuration() == found


def test_what_a_client_was_made_with_is_stored_where_nothing_is(queue):
    queue.given(meta={"format": "1", "per_key": "9"})
    wishes = {"rate": 100, "period_ms": 1000, "per_key": 2, "events": "50?"}
    assert queue.configure(wishes, are_wishes=True) == 1
    stored = {"rate": "100", "period_ms": "1000", "events": "50"}
    assert queue.state() == {"meta": {"format": "1", "per_key": "9"} | stored, "bell": RUNG}


@pytest.mark.parametrize("wishes", [{}, {"concurrency": 5}, {"concurrency": None}, {"events": "50?"}, {"events": None}])
def test_what_is_stored_is_left_and_wakes_nobody(queue, wishes):
    meta = {"concurrency": "20", "events": "7"}
    queue.given(meta=meta)
    assert queue.configure(wishes, are_wishes=True) == 0
    assert queue.state() == {"meta": meta}


def test_what_was_removed_is_not_stored_again_until_it_is_configured(queue):
    queue.given(meta={"concurrency": "20"})
    queue.configure({"concurrency": None})
    assert queue.configure({"concurrency": 5}, are_wishes=True) == 0
    queue.configure({"concurrency": 6})
    assert queue.configure({"concurrency": 5}, are_wishes=True) == 0
    assert queue.state() == {"meta": {"concurrency": "6"}, "bell": RUNG}
