"""Two processes take over what a dead consumer held."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from delayq import NewRecord, Topic
from tests.harness.servers import RedisServer

pytestmark = pytest.mark.full

STALE = 10_000
HOUR_MS = 3_600_000

RESCUER = """
import sys
from delayq import Topic

url, name = sys.argv[1:]
with Topic("orders", url=url) as topic:
    group = topic.group("billing")
    taken = group.fetch_not_acked(name, ack_timeout=60, count=50)
    print(len(taken), flush=True)
    sys.stdin.readline()
    while len(taken) <= 10_000 and (found := group.fetch_not_acked(name, ack_timeout=60, count=50)):
        taken += found
    for record in taken:
        print(record.id)
"""


@contextmanager
def rescuer(server: RedisServer, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has taken over its first records, and takes over the others when it is asked to."""
    command = [sys.executable, "-c", RESCUER, server.url, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "50\n"
            yield process
        finally:
            process.kill()


def grow_stale(topic: Topic) -> None:
    """Let all records look as if a consumer that is gone had polled them an hour ago."""
    group = topic.group("billing", start="0")
    while records := group.poll("dead", 500):
        ids: Any = [record.id for record in records]
        key = topic._context.shards[0].keys.stream
        topic._executor.client.xclaim(key, "billing", "dead", 0, ids, idle=HOUR_MS, justid=True)


def test_stale_record_is_claimed_by_exactly_one_of_two_rescuers(any_server: RedisServer):
    with Topic("orders", url=any_server.url) as topic, ExitStack() as stack:
        published = [each.id for each in topic.publish_many([NewRecord(number) for number in range(STALE)])]
        grow_stale(topic)
        racing = [stack.enter_context(rescuer(any_server, name)) for name in ("b", "c")]
        for process in racing:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        taken = [process.communicate(timeout=120)[0].split() for process in racing]
        assert len(taken[0]) + len(taken[1]) == STALE
        assert sorted(taken[0] + taken[1]) == sorted(published)
        place = {each: number for number, each in enumerate(published)}.__getitem__
        held = topic.group("billing").unacked(count=STALE + 1)
        assert [each.id for each in held] == published
        assert {each.deliveries for each in held} == {2}
        assert {name: [each.id for each in held if each.consumer == name] for name in ("b", "c")} == {
            "b": sorted(taken[0], key=place),
            "c": sorted(taken[1], key=place),
        }
