"""The heartbeat of a topic's consumer renews leases on the other shards when one shard is unreachable."""

from __future__ import annotations

import pytest

from delayq.errors import ServerUnreachable
from delayq.model.record import Record
from delayq.operations.topics import group_read
from delayq.operations.topics.topic_context import TopicContext
from delayq.topic import Topic
from tests.harness.servers import RedisServer


def test_unreachable_shard_does_not_stop_renewals_on_the_others(redis_server: RedisServer):
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        context: TopicContext = topic._context
        topic.execute(lambda context: context.opened(create=True))
        records = [Record("orders", f"{number}-0", (), 1, number % 2) for number in range(4)]
        renewing = group_read.renew(context, "billing", "me", records)
        assert len(next(renewing)) == 2
        with pytest.raises(StopIteration) as done:
            renewing.send([ServerUnreachable("away"), [1, 0]])
    held, lost, trouble = done.value.value
    assert ([record.id for record in held], [record.id for record in lost]) == (["1-0"], ["3-0"])
    assert isinstance(trouble, ServerUnreachable)
