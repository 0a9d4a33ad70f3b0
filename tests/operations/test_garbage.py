"""What the search for dead letters that are too old or too many costs; consumers and receivers run it once a minute."""

from __future__ import annotations

import pytest

from delayq import Queue
from delayq.operations import garbage
from tests.harness.servers import RedisServer


@pytest.mark.parametrize("dead_retention", [60, None])
def test_search_for_old_dead_letters_takes_one_call_per_shard(redis_server: RedisServer, dead_retention: int | None):
    with Queue("jobs", url=redis_server.url, shards=2, dead_retention=dead_retention) as queue:
        queue.configure(max_dead=1000)
        operation = garbage.purge_old(queue._context)
        calls = next(operation)
        assert [call.script.name for call in calls if call.script] == ["purge", "purge"]
        with pytest.raises(StopIteration) as done:
            operation.send(queue._executor.run(calls))
        assert done.value.value is False
