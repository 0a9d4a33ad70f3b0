"""Every script runs on a Redis Cluster. Here, one node serves all slots and holds each script to one of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from delayq.errors import DelayqError
from tests.conftest import binary
from tests.harness.lua.every import CALLS, READ_ONLY, each_script, state_for
from tests.harness.lua.raw import RawQueue, rewritten
from tests.harness.servers import RedisServer, free_port

pytestmark = pytest.mark.full

STRICT = "#!lua\n"  # this first line makes Redis 7 hold a script to one slot
HASH_SLOTS = 16_384
UP_SECONDS = 60.0  # a lone node waits 2 s before it reports its cluster as complete


@pytest.fixture(scope="module")
def cluster(default_version: str) -> Iterator[RedisServer]:
    if default_version == "6.2":
        pytest.skip("Redis can hold a script to one slot since 7.0")
    config = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    server = RedisServer(binary(default_version), port=True, config=config)
    try:
        with server.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, HASH_SLOTS - 1)
            deadline = time.monotonic() + UP_SECONDS
            while client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                assert time.monotonic() < deadline, "the cluster did not come up"
                time.sleep(0.02)
        yield server
    finally:
        server.close()


@pytest.fixture
def queue(cluster: RedisServer) -> Iterator[RawQueue]:
    cluster.flush()
    queue = RawQueue(cluster)
    yield queue
    queue.close()


@each_script
def test_script_works_within_one_slot(queue, script):
    queue.given(**state_for(script))
    before = queue.state()
    call = CALLS[script](queue.scripts)
    queue.run(rewritten(call, lambda text: STRICT + text))
    assert (queue.state() == before) is (script in READ_ONLY)


def test_key_of_another_slot_would_be_refused(queue):
    call = rewritten(queue.scripts.resume(), lambda _: STRICT + "return redis.call('GET', 'elsewhere')")
    with pytest.raises(DelayqError, match="same slot"):
        queue.run(call, anywhere=True)
