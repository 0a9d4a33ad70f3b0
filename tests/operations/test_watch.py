"""What a client knows of the server's time, by which it recognises calls that the server has run late."""

from __future__ import annotations

import itertools

import pytest

from delayq import Queue, Topic
from delayq.model.lease_clock import lease_now
from delayq.operations.topics import reclaim
from delayq.operations.watch import SLACK_MS, Watch
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

SERVER_MS = 1_700_000_000_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the client, s."""
    now = [1000.0]
    monkeypatch.setattr("delayq.operations.watch.lease_now", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("ahead_s", "is_known"),
    [
        pytest.param(0.0, True, id="slow reply"),
        pytest.param(3.9, True, id="frozen server"),
        pytest.param(60.0, False, id="clock set forward"),
    ],
)
def test_slow_reply_shows_whether_the_servers_clock_was_set_forward(now: list[float], ahead_s: float, is_known: bool):
    """A client whose round trips are all slow would otherwise take every call for a late one."""
    watch = Watch(1000, is_virtual=False)
    watch.heard("shard", now[0], SERVER_MS, 0)
    asked, now[0] = now[0], now[0] + 4
    watch.heard("shard", asked, SERVER_MS + int(ahead_s * 1000), 0)
    assert watch.claims_by("shard") == (SERVER_MS + 4000 + SLACK_MS if is_known else "")


def make_slow(watch: Watch, shard: str) -> None:
    """Let the server's clock be set forward by years, and all round trips be slow from now on."""
    watch.heard(shard, lease_now(), now_ms=1, grace_ms=0)
    watch._slack_ms = 0


def test_reclaim_works_with_slow_round_trips_after_the_servers_clock_was_set_forward(redis_server: RedisServer):
    with Topic("orders", url=redis_server.url) as topic:
        group, watch = topic.group("billing", start="0"), Watch(1000, is_virtual=False)
        topic.publish("x")
        group.poll("lost", 10)
        make_slow(watch, topic._context.shards[0].keys.stream)
        done = reclaim.Reclaimed()

        def has_some() -> bool:
            topic.execute(reclaim.reclaim_page, group.name, "me", 0.1, 10, None, {}, done, watch)
            return bool(done.records)

        assert eventually(has_some)


def test_receive_works_with_slow_round_trips_after_the_servers_clock_was_set_forward(redis_server: RedisServer):
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send("x")
        make_slow(queue._context.watch, queue._context.shards[0].keys.meta)
        found = itertools.chain.from_iterable(queue.receive(10) for _ in range(2))
        assert [message.payload for message in found] == ["x"]
