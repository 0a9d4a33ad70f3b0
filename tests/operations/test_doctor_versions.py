"""The doctor names the versions at work, and what an upgrade would change."""

from __future__ import annotations

import json
import time

import pytest
import redis

from delayq import Queue
from delayq.doctor import examine
from delayq.model import consumer_info
from delayq.operations.doctor.versions import NEEDS, since, versions
from tests.harness.wounds import kinds, of_queue

HERE = consumer_info.installed_version()


def report_as(client: redis.Redis, name: str, version: str) -> None:
    """Report a live consumer, as a delayq of this version does."""
    document = json.loads(consumer_info.describe(1, time.monotonic())) | {"version": version}
    client.zadd("delayq:{jobs}:consumers", {name: time.time() * 1000})
    client.hset("delayq:{jobs}:crew", name, json.dumps(document))


ALL = tuple(zip(NEEDS, since(), strict=True))


def test_consumers_are_listed_by_version_and_older_ones_work_until_a_feature_is_used(redis_client: redis.Redis):
    with Queue("jobs", redis=redis_client) as queue:
        queue.send("x", delay=60)
        for name, version in (("a", HERE), ("b", HERE), ("c", "0.0.9"), ("d", "")):
            report_as(redis_client, name, version)
        report = examine(queue)
        found = report.versions
        assert found is not None
        assert found.consumers == {HERE: ("a", "b"), "0.0.9": ("c",), "": ("d",)}
        assert (found.needs, found.unused, of_queue(report)) == (None, ALL, [])
        consumers, upgrade = found.lines()
        assert consumers == f"consumers: delayq {HERE} (2), delayq 0.0.9 (1), delayq of unknown version (1)"
        assert upgrade.startswith(f"upgrade: consumers that are older than {HERE} work beside it until the queue first")
        assert "groups of messages" in upgrade


def test_consumer_that_the_data_have_stopped_is_a_warning(redis_client: redis.Redis):
    with Queue("jobs", redis=redis_client) as queue:
        queue.configure(max_length=5)
        report_as(redis_client, "old", "0.0.9")
        report = examine(queue)
        assert report.versions is not None
        assert (report.versions.needs, report.versions.unused) == ("0.1.0", ALL[2:])
        assert "data: delayq 0.1.0 or newer reads them" in list(report.versions.lines())
        (finding,) = of_queue(report)
        assert (finding.kind, finding.severity) == ("client-version", "warning")
        assert finding.text == "consumer old has delayq 0.0.9, but the queue's data need 0.1.0"
        assert not any(line.startswith("upgrade") for line in report.versions.lines())


def test_pre_release_is_older_than_its_release(redis_client: redis.Redis):
    with Queue("jobs", redis=redis_client) as queue:
        queue.configure(max_length=5)
        for version in ("0.1.0.dev5", "0.1.0rc1", "0.1.0", "0.1.0.post1"):
            report_as(redis_client, version, version)
        assert [finding.text.split()[1] for finding in of_queue(examine(queue))] == ["0.1.0rc1", "0.1.0.dev5"]


def test_queue_that_needs_a_newer_delayq_says_so(redis_client: redis.Redis):
    with Queue("jobs", redis=redis_client) as queue:
        queue.send("x")
        redis_client.hset("delayq:{jobs}:meta", "needs", f"{len(NEEDS) + 1} 9.8.7")
    with Queue("jobs", redis=redis_client) as queue:
        (finding,) = of_queue(report := examine(queue))
        assert (report.versions, finding.remedy) == (None, "upgrade delayq")
        assert "use delayq 9.8.7 or newer" in finding.text


def test_list_of_consumers_that_cannot_be_read_stops_no_examination(redis_client: redis.Redis):
    with Queue("jobs", redis=redis_client) as queue:
        queue.send("x", delay=60)
        redis_client.set("delayq:{jobs}:consumers", "of another program")
        report = examine(queue)
        assert report.versions is not None
        assert (report.versions.consumers, kinds(report)) == ({}, {("type", None)})


@pytest.mark.parametrize("needs", [None, "", "broken", "1", "x 0.1.0", "-1 0.1.0"])
def test_a_note_of_needs_that_delayq_did_not_write_is_ignored(needs: str | None):
    assert versions(needs, []).unused == ALL
    assert versions(needs, []).needs is None
