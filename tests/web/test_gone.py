"""A server that goes away while the dashboard reads it."""

from __future__ import annotations

import pytest
import redis

from delayq import Queue, Topic
from delayq.web import servers
from tests.harness.servers import RedisServer
from tests.web.conftest import Enter


@pytest.mark.full
@pytest.mark.parametrize("topics", [0, 1])
def test_list_of_topics_asks_the_server_even_if_names_are_known(enter: Enter, own_server: RedisServer, topics: int):
    for n in range(topics):
        with Topic(f"orders{n}", url=own_server.url) as topic:
            topic.publish("hello")
    client = enter(servers={"main": own_server.url})
    assert client.get("/main/topics").status_code == 200
    own_server.kill()
    assert client.get("/main/topics").status_code == 503


@pytest.mark.full
def test_server_that_goes_away_is_reported_during_a_search_for_names(
    enter: Enter, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(servers, "SEARCH_SECONDS", 0.0)
    with Queue("emails", url=own_server.url) as queue:
        queue.send("hello", delay=60)
    client = enter(servers={"main": own_server.url}, interval=0.0)
    assert client.get("/").status_code == 200
    own_server.kill()
    for path in ("/", "/main/queues/emails", "/main/topics", "/main/server"):
        answer = client.get(path)
        assert (path, answer.status_code) == (path, 503)


def test_unreadable_queue_does_not_hide_others(
    enter: Enter, redis_server: RedisServer, redis_client: redis.Redis, queue: Queue
):
    queue.send("hello", delay=60)
    redis_client.set("delayq:{emails}:stats", "many")
    with Queue("orders", url=redis_server.url) as other:
        other.send("hello", delay=60)
    answer = enter().get("/")
    assert answer.status_code == 200
    assert "/main/queues/orders" in answer.text
    assert "WRONGTYPE" in answer.text
