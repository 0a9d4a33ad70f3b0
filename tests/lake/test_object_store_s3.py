"""A lake in an S3 object store: moto's stand-in, which keeps objects in memory."""

from __future__ import annotations

import datetime as dt
import http.client
from collections.abc import Iterator

import pytest

from delayq import Outgoing, Queue
from delayq.lake.doctor import examine
from delayq.lake.hydrate import HourLoaded, hydrate
from tests.harness.aws import running_aws
from tests.harness.lake.lakes import DAY, HORIZON, HOUR, Clock, counted, delivered
from tests.harness.servers import RedisServer

pytestmark = pytest.mark.full

LAKE = "s3://bucket/lake"


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    """A store with a bucket, where pyarrow looks for S3."""
    with running_aws() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        assert put(variables["AWS_ENDPOINT_URL"], "/bucket") == 200
        yield


def put(server: str, path: str) -> int:
    """Create something, and return the status."""
    connection = http.client.HTTPConnection(server.removeprefix("http://"), timeout=60)
    try:
        connection.request("PUT", path)
        return connection.getresponse().status
    finally:
        connection.close()


def load(queue: Queue, until: dt.datetime) -> list[HourLoaded]:
    return hydrate(queue, LAKE, HORIZON, until=until)


@pytest.mark.usefixtures("store")
def test_keys_in_the_path_are_not_shown(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    lake = LAKE.replace("://", "://key:s3cretZq9x@")
    with Queue("secrets", url=redis_server.url, horizon=HORIZON, lake=lake) as queue:
        queue.send("payload", delay=DAY, id="far")
        (info, why, report) = (queue.get("far"), queue.why("far"), examine(queue, lake))
    assert "s3://***@bucket/lake/queue=secrets" in why
    assert "s3cret" not in f"{info} {why} {report} {queue!r}"


@pytest.mark.usefixtures("store")
def test_lake_in_an_object_store_sends_each_message_once(redis_server: RedisServer):
    clock = Clock()
    with Queue("jobs", url=redis_server.url, horizon=HORIZON, lake=LAKE, clock=clock) as queue:
        queue.send_many([Outgoing(n, delay=DAY + n * 360, id=f"m{n}") for n in range(20)])
        assert (queue.cancel("m3"), queue.reschedule("m4", delay=DAY + HOUR)) == ("cancelled", "rescheduled")
        info = queue.get("m5")
        assert info is not None
        assert (info.state, info.payload, queue.get("m3")) == ("deferred", 5, None)
        clock.later(DAY)
        assert counted(load(queue, clock.now), "sent") == (8,)  # of ten messages, one is cancelled and one is due later
        assert counted(load(queue, clock.now), "sent") == (0,)
        clock.later(HOUR)
        load(queue, clock.now)
        assert examine(queue, LAKE).findings == []
        clock.later(HOUR)
        assert sorted(message.payload for message in delivered(queue)) == [n for n in range(20) if n != 3]
