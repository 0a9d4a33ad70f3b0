from __future__ import annotations

import pytest

from delayq.errors import FormatTooNew, ShardsMismatch
from delayq.model.configuration import Configuration
from delayq.model.envelope import FORMAT, QUEUE_FORMAT

RECORDED = {"format": str(FORMAT), "shards": "4"}


@pytest.mark.parametrize(("shards", "recorded"), [(None, "1"), (1, "1"), (4, "4"), (1024, "1024")])
def test_new_queue_is_recorded_when_it_is_created(queue, shards, recorded):
    queue.now = 5000.7
    assert queue.open_queue(shards, create=True) == (int(recorded), 2, b"5000", Configuration())
    assert queue.state() == {"meta": {"format": str(FORMAT), "shards": recorded, "since": "5000"}}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("shards", "count"), [(None, 1), (4, 4)])
def test_opening_a_new_queue_without_create_leaves_no_trace(queue, shards, count):
    assert queue.open_queue(shards, create=False) == (count, 0, b"", Configuration())
    assert queue.state() == {}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("shards", [None, 4])
def test_recorded_number_of_shards_is_used(queue, shards, create):
    queue.given(meta=RECORDED)
    assert queue.open_queue(shards, create) == (4, 1, b"", Configuration())
    assert queue.state() == {"meta": RECORDED}


def test_record_has_the_time_of_its_creation(queue):
    queue.given(meta=RECORDED | {"since": "5000"})
    assert queue.open_queue(4, create=False) == (4, 1, b"5000", Configuration())


@pytest.mark.parametrize("create", [True, False])
def test_opening_returns_the_configuration(queue, create):
    wanted = {"max_retries": 0, "backoff": "fixed:10s", "rate": 5, "period_ms": 1000}
    queue.configure(wanted)
    configured = Configuration(max_retries=0, backoff="fixed:10s", rate="5/s")
    assert queue.open_queue(None, create).configuration == configured  # also for a queue that is new
    assert queue.open_queue(None, create).configuration == configured


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("shards", [1, 3, 40])
def test_different_number_of_shards_is_refused(queue, shards, create):
    queue.given(meta=RECORDED)
    with pytest.raises(ShardsMismatch):
        queue.open_queue(shards, create)
    assert queue.state() == {"meta": RECORDED}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("shards", [None, 4, 3])
def test_newer_format_is_refused(queue, shards, create):
    newer = {"format": str(QUEUE_FORMAT + 1), "shards": "4"}
    queue.given(meta=newer)
    with pytest.raises(FormatTooNew):
        queue.open_queue(shards, create)
    assert queue.state() == {"meta": newer}


def test_older_format_is_read_and_unchanged(queue):
    older = {"format": str(FORMAT - 1), "shards": "4"}
    queue.given(meta=older)
    assert queue.open_queue(None, create=True) == (4, 1, b"", Configuration())
    assert queue.state() == {"meta": older}


def test_queue_paused_before_it_was_recorded_stays_paused(queue):
    queue.pause()
    assert queue.open_queue(2, create=True)[:2] == (2, 2)
    meta = queue.state()["meta"]
    assert meta.pop("since")
    assert meta.pop("paused")
    assert meta == {"format": str(FORMAT), "shards": "2"}
