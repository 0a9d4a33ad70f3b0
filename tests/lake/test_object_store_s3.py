"""A lake in a store of objects that speaks S3: moto's, a stand-in that keeps them in its memory."""

from __future__ import annotations

import datetime as dt
import http.client
import subprocess
import sys
from collections.abc import Iterator

import pytest

from delayq import Outgoing, Queue
from delayq.lake.doctor import examine
from delayq.lake.hydrate import HourLoaded, hydrate
from tests.harness.lake.lakes import DAY, HORIZON, HOUR, Clock, counted, delivered
from tests.harness.servers import RedisServer, free_port
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

LAKE = "s3://bucket/lake"


@pytest.fixture(scope="module")
def store() -> Iterator[None]:
    """A store with a bucket, which is where pyarrow looks for S3."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: put(port, "/bucket") == 200)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
            patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, "any")
            patch.setenv("AWS_REGION", "us-east-1")
            yield
    finally:
        process.kill()
        process.wait()


def put(port: int, path: str) -> int | None:
    """Make something; the status, or None while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("PUT", path)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def load(queue: Queue, until: dt.datetime) -> list[HourLoaded]:
    return hydrate(queue, LAKE, HORIZON, until=until)


@pytest.mark.usefixtures("store")
def test_lake_in_a_store_of_objects_brings_each_message_once(redis_server: RedisServer):
    clock = Clock()
    with Queue("jobs", url=redis_server.url, horizon=HORIZON, lake=LAKE, clock=clock) as queue:
        queue.send_many([Outgoing(n, delay=DAY + n * 360, id=f"m{n}") for n in range(20)])
        assert (queue.cancel("m3"), queue.reschedule("m4", delay=DAY + HOUR)) == ("cancelled", "rescheduled")
        info = queue.get("m5")
        assert info is not None
        assert (info.state, info.payload, queue.get("m3")) == ("deferred", 5, None)
        clock.later(DAY)
        assert counted(load(queue, clock.now), "sent") == (8,)  # of ten, one is cancelled and one falls due later
        assert counted(load(queue, clock.now), "sent") == (0,)
        clock.later(HOUR)
        load(queue, clock.now)
        assert examine(queue, LAKE).findings == []
        clock.later(HOUR)
        assert sorted(message.payload for message in delivered(queue)) == [n for n in range(20) if n != 3]
