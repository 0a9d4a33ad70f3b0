"""The rights that docs/acl.md gives to a consumer of a topic are sufficient."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import redis

from delayq import Record, Reject, Topic, TopicConsumer
from delayq.runtime.topic_engine import TopicEngine
from tests.harness.tree import ROOT
from tests.harness.waiting import eventually

(LINE,) = re.findall(r"^ACL SETUSER member (.*)$", (ROOT / "docs" / "acl.md").read_text(), re.MULTILINE)


@pytest.fixture
def server(any_client: redis.Redis) -> Iterator[redis.Redis]:
    yield any_client
    any_client.acl_deluser("member")


def life(root: redis.Redis, words: list[str]) -> bool:
    """Run a consumer with these rights through everything it does; return whether all went well."""
    root.flushall()
    root.script_flush()
    root.execute_command("ACL", "SETUSER", "member", *words)
    kwargs = root.connection_pool.connection_kwargs | {"username": "member", "password": "secret"}
    pool = redis.ConnectionPool(root.connection_pool.connection_class, **kwargs)
    seen: list[tuple[int, int]] = []

    def handle(record: Record) -> None:
        seen.append((record.payload, record.deliveries))
        if record.payload == 1:
            raise Reject("unwanted")
        if record.payload == 2 and record.deliveries == 1:
            raise ValueError("not yet")
        if record.payload == 5:
            raise ValueError("never")

    try:
        with Topic("orders", redis=root) as owner, redis.Redis(connection_pool=pool) as client:
            theirs = owner.group("billing", "0")
            owner.publish(3)
            (left,) = theirs.poll("dead")
            stream = owner._context.shards[0].keys.stream
            root.xclaim(stream, "billing", "dead", 0, [left.id], idle=60_000, justid=True)
            for number in (1, 2, 5):
                owner.publish(number)
            owner.publish(4, delay=0.2)
            topic = Topic("orders", redis=client)
            waits = lambda deliveries: 0.3 if deliveries == 1 else 3600  # noqa: E731
            consumer = TopicConsumer(topic.group("billing"), handle, backoff=waits, ack_timeout=30)
            consumer.start()
            done = eventually(lambda: len(set(seen)) == 7)
            consumer.stop()
            topic.close()
            letters = [letter.reason for letter in theirs.dead()]
            kept = [(each.consumer, each.deliveries) for each in theirs.unacked()]
            return (
                done and letters == ["unwanted"] and kept == [("delayq-requeued", 2)] and len(theirs.consumers()) == 1
            )
    finally:
        pool.disconnect()


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew leases often although they are long."""
    monkeypatch.setattr(TopicEngine, "heartbeat_seconds", 0.1)


def test_rights_of_a_consumer_are_sufficient(server: redis.Redis):
    assert life(server, LINE.split())
