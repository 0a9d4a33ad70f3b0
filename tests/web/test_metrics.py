"""The dashboard serves the exporter's metrics to Prometheus."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

import pytest

from delayq import NewRecord, Outgoing, Queue, Topic
from delayq.web import Token
from tests.harness.scrapes import OPENMETRICS, Scrape
from tests.harness.servers import RedisServer
from tests.web.conftest import Enter

TOKEN = "a token that is long enough"


def test_scrape_has_counts_of_each_queue(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, delay=60 * (n % 2)) for n in range(5)])
    queue.ack(queue.receive(2))
    answer = enter().get("/metrics", headers={"accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    scrape = Scrape(answer.text, is_openmetrics=True)
    stats = queue.stats()
    assert scrape.value("delayq_messages_sent_total", queue="emails") == stats.sent == 5
    assert scrape.value("delayq_messages_acked_total", queue="emails") == stats.acked == 2
    assert scrape.value("delayq_messages", queue="emails", state="pending") == stats.pending == 2
    assert (scrape.value("delayq_up", queue="emails"), scrape.value("delayq_server_up")) == (1, 1)


def test_scrape_has_the_groups_of_each_topic(enter: Enter, redis_server: RedisServer):
    with Topic("orders", url=redis_server.url) as topic:
        topic.group("billing")
        topic.publish("x")
    scrape = Scrape(enter().get("/metrics").text)
    assert scrape.value("delayq_topic_lag", topic="orders", group="billing") == 1
    assert scrape.value("delayq_topic_up", topic="orders") == 1
    assert scrape.value("delayq_topics_left_out") == 0


def test_scrape_counts_an_unknown_lag_in_one_call(enter: Enter, redis_server: RedisServer):
    with Topic("orders", url=redis_server.url) as topic:
        second = topic.publish_many([NewRecord(number) for number in range(1_202)])[1]
        topic.group("billing").set_position(second.id)
    scrape, group = Scrape(enter().get("/metrics").text), {"topic": "orders", "group": "billing"}
    assert scrape.value("delayq_topic_lag", **group) == 1000
    assert scrape.value("delayq_topic_lag_at_least", **group) == 1


def test_scrape_of_several_servers_names_each_and_reports_unreachable_ones(
    enter: Enter, queue: Queue, redis_server: RedisServer
):
    queue.send("one")
    client = enter(servers={"main": redis_server.url, "away": "redis://127.0.0.1:1"})
    scrape = Scrape(client.get("/metrics").text)
    assert scrape.value("delayq_messages_sent_total", server="main", queue="emails") == 1
    assert (scrape.value("delayq_server_up", server="main"), scrape.value("delayq_server_up", server="away")) == (1, 0)


def test_scrape_logs_in_with_the_token_in_its_header(enter: Enter, queue: Queue):
    queue.send("one")
    client = enter(login=Token(TOKEN))
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic YTpi"}):
        refused = client.get("/metrics", headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="delayq"')
    answer = client.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    assert Scrape(answer.text).value("delayq_messages_sent_total", queue="emails") == 1


def test_silent_server_does_not_keep_others_from_the_scrape(
    enter: Enter, queue: Queue, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    """Servers share the time of a scrape: here, the working one gets all of it, and the silent one none."""
    queue.send("one")
    seconds, asked = iter([None, 0.0]), list[float]()

    def timeout(most: float) -> asyncio.Timeout:
        asked.append(most)
        return asyncio.timeout(next(seconds))

    parts = {"timeout": timeout, "gather": asyncio.gather, "to_thread": asyncio.to_thread}
    monkeypatch.setattr("delayq.web.pages.metrics.asyncio", SimpleNamespace(**parts))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = enter(servers={"main": redis_server.url, "still": f"redis://127.0.0.1:{silent.getsockname()[1]}"})
        scrape = Scrape(client.get("/metrics").text)
    assert asked == [5, 5]
    assert scrape.value("delayq_messages_sent_total", server="main", queue="emails") == 1
    assert scrape.value("delayq_server_up", server="still") == 0
