from __future__ import annotations

import pytest

from delayq.model.configuration import Configuration
from tests.harness.lua.raw import RUNG


def test_limits_are_stored_beside_other_settings(queue):
    queue.given(meta={"format": "1", "per_key": "9"})
    assert queue.configure({"rate": 100, "period_ms": 1000, "concurrency": 20}) == 1
    stored = {"rate": "100", "period_ms": "1000", "concurrency": "20"}
    assert queue.state() == {"meta": {"format": "1", "per_key": "9"} | stored, "bell": RUNG}


def test_limit_on_the_length_is_noted_as_a_feature_that_clients_must_know(queue):
    queue.given(meta={"format": "1"})
    assert queue.configure({"max_length": 5}) == 1
    stored = {"max_length": "5", "needs": "2 0.1.0", "format": "2"}
    assert queue.state() == {"meta": stored, "bell": RUNG}
    assert queue.configure({"max_length": None}) == 1
    del stored["max_length"]
    assert queue.state() == {"meta": stored | {"removed:max_length": "1"}, "bell": RUNG}


def test_removing_one_limit_keeps_the_others(queue):
    queue.given(meta={"rate": "100", "period_ms": "1000", "concurrency": "20"})
    assert queue.configure({"rate": None, "period_ms": None}) == 1
    removed = {"removed:rate": "1", "removed:period_ms": "1"}
    assert queue.state() == {"meta": {"concurrency": "20"} | removed, "bell": RUNG}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("changes", [{}, {"concurrency": 20}])
def test_change_that_changes_nothing_wakes_nobody(queue, changes):
    queue.given(meta={"concurrency": "20"})
    assert queue.configure(changes) == 0
    assert queue.state() == {"meta": {"concurrency": "20"}}


def test_removal_is_recorded_even_if_nothing_was_set(queue):
    assert queue.configure({"per_key": None}) == 0
    assert queue.state() == {"meta": {"removed:per_key": "1"}}


def test_several_settings_in_one_call_count_as_one_change(queue):
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
def test_stored_configuration_is_read(queue, meta, found):
    queue.given(meta=meta)
    assert queue.configuration() == found


def test_client_defaults_are_stored_where_nothing_is_set(queue):
    queue.given(meta={"format": "1", "per_key": "9"})
    wishes = {"rate": 100, "period_ms": 1000, "per_key": 2, "events": "50?"}
    assert queue.configure(wishes, are_wishes=True) == 1
    stored = {"rate": "100", "period_ms": "1000", "events": "50", "format": "2", "needs": "3 0.1.0"}
    assert queue.state() == {"meta": {"per_key": "9"} | stored, "bell": RUNG}


@pytest.mark.parametrize("wishes", [{}, {"concurrency": 5}, {"concurrency": None}, {"events": "50?"}, {"events": None}])
def test_client_defaults_overwrite_nothing_and_wake_nobody(queue, wishes):
    meta = {"concurrency": "20", "events": "7"}
    queue.given(meta=meta)
    assert queue.configure(wishes, are_wishes=True) == 0
    assert queue.state() == {"meta": meta}


def test_client_defaults_do_not_restore_removed_settings(queue):
    queue.given(meta={"concurrency": "20"})
    queue.configure({"concurrency": None})
    assert queue.configure({"concurrency": 5}, are_wishes=True) == 0
    queue.configure({"concurrency": 6})
    assert queue.configure({"concurrency": 5}, are_wishes=True) == 0
    assert queue.state() == {"meta": {"concurrency": "6"}, "bell": RUNG}


def test_ledger_may_have_packed_entries_once_it_is_configured_again(queue):
    queue.given(meta={"events": "50"})
    assert queue.configure({"events": "50"}, are_wishes=True) == 0
    assert queue.state() == {"meta": {"events": "50"}}
    assert queue.configure({"events": "50"}) == 1
    assert queue.state()["meta"] == {"events": "50", "format": "2", "needs": "3 0.1.0"}
    assert queue.configure({"events": "50"}) == 0
