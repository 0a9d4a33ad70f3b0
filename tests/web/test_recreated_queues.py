"""A queue that was deleted and recreated with other shards is shown as it is now."""

from __future__ import annotations

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.operations import queue_context
from tests.harness.servers import RedisServer
from tests.web.conftest import Enter


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (3, 5)])
def test_recreated_queue_with_other_shards_is_counted_whole(
    enter: Enter, redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch,
    before: int, after: int,
):  # fmt: skip
    monkeypatch.setattr(queue_context, "LOOK_SECONDS", 0.0)
    with Queue("emails", url=redis_server.url, shards=before) as queue:
        queue.send_many([Outgoing(n, delay=60, id=f"old-{n}") for n in range(40)])
    client = enter(interval=0)
    assert 'data-label="Scheduled">40<' in client.get("/").text
    redis_client.flushall()
    with Queue("emails", url=redis_server.url, shards=after) as queue:
        queue.send_many([Outgoing(n, delay=60, id=f"new-{n}") for n in range(30)])
    assert 'data-label="Scheduled">30<' in client.get("/").text
