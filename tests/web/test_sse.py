"""Live streams: all browsers share one look, and none holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import redis
from starlette.responses import Response

from delayq import Queue
from delayq.web import Users, health_sweep, sse, user_line
from delayq.web.live_part import LivePart
from delayq.web.poller import ServerPoller
from delayq.web.queue_list import QueueListView
from delayq.web.servers import DashboardServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.harness.web.following import Follower, holds
from tests.web.conftest import Follow, Serve, token_on

ONE, TWO = 'data-label="Scheduled">1<', 'data-label="Scheduled">2<'


def test_sent_message_reaches_watching_browsers(serve: Serve, follow: Follow, queue: Queue):
    queue.send("first", delay=60)
    url = serve()
    overview, page = follow(f"{url}/main/live"), follow(f"{url}/main/queues/emails/live")
    assert overview.has_seen(ONE)
    assert page.has_seen('?state=pending">1<')
    queue.send("second", delay=60)
    assert overview.has_seen(TWO)
    assert page.has_seen('?state=pending">2<')


def test_table_is_sent_once_and_then_only_changed_rows(serve: Serve, follow: Follow, queue: Queue):
    queue.send("first", delay=60)
    overview = follow(f"{serve()}/live")
    assert overview.has_seen(ONE)
    queue.send("second", delay=60)
    assert overview.has_seen(TWO)
    assert overview.text.count("<thead") == 1
    assert overview.has_seen("event: seen\ndata: queues#main\n")


def test_all_browsers_share_one_look(serve: Serve, follow: Follow, queue: Queue, redis_client: redis.Redis):
    queue.send("first", delay=60)
    url = serve(interval=1000)
    redis_client.config_resetstat()
    followers = [follow(f"{url}/main/live") for _ in range(10)]
    assert all(follower.has_seen(ONE) for follower in followers)
    counts = redis_client.info("commandstats")
    assert counts["cmdstat_scan"]["calls"] == 1
    assert counts["cmdstat_evalsha"]["calls"] < 20  # one look takes about ten


def test_browser_that_stops_reading_holds_up_no_other(serve: Serve, follow: Follow, queue: Queue):
    queue.send("first", delay=60)
    url = serve()
    silent = Follower(f"{url}/main/live")  # its thread is not started
    other = follow(f"{url}/main/live")
    assert other.has_seen(ONE)
    queue.send("second", delay=60)
    assert other.has_seen(TWO)
    with silent:
        assert silent.has_seen(TWO)


def test_browser_that_accepts_no_data_is_disconnected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sse, "PATIENCE", 0.05)
    sent: list[Any] = []

    async def parts() -> AsyncGenerator[LivePart, None]:
        yield LivePart.of("now", "hello")

    async def send(message: Any) -> None:
        sent.append(message)
        if "body" in message:
            await asyncio.Event().wait()  # the browser's buffers are full

    async def receive() -> Any:
        await asyncio.Event().wait()

    streams: dict[sse.EventStream, str] = {}
    stream = sse.EventStream([parts()], streams, "user ann", lambda *_: Response())
    asyncio.run(asyncio.wait_for(stream({"type": "http"}, receive, send), 10))
    assert [message.get("more_body") for message in sent] == [None, True, False]
    assert not streams


def refused(followers: list[Follower]) -> list[Follower]:
    """Wait until each has an answer; return those that got no stream."""
    assert all(follower.has_seen("HTTP/1.1 ") for follower in followers)
    return [follower for follower in followers if "HTTP/1.1 200 " not in follower.text]


def test_user_who_takes_all_streams_is_refused_and_others_go_on(
    serve: Serve,
    follow: Follow,
    queue: Queue,
    cheap_passwords: None,  # noqa: ARG001
):
    queue.send("first", delay=60)
    url = serve(login=Users(user_line(name, "viewer", "long password") for name in ("ann", "bob")))
    cookies = {}
    for name in ("ann", "bob"):
        with httpx.Client(base_url=url) as client:
            token = token_on(client.get("/login").text)
            client.post(
                "/login", data={"csrf": token, "name": name, "secret": "long password"}, headers={"origin": url}
            )
            cookies[name] = "; ".join(f"{key}={value}" for key, value in client.cookies.items())
    followers = [follow(f"{url}/live", cookies["ann"]) for _ in range(sse.MOST_EACH + 10)]
    without = refused(followers)
    assert len(without) == 10
    for each in without:
        assert each.has_seen("HTTP/1.1 429 ")
        assert each.has_seen("retry-after: 30")
        assert each.has_seen("20 pages of yours are live already")
    assert follow(f"{url}/live", cookies["bob"]).has_seen(ONE)
    assert httpx.get(f"{url}/", headers={"cookie": cookies["ann"]}).status_code == 200
    next(each for each in followers if each not in without).leave()
    assert eventually(lambda: not refused([follow(f"{url}/live", cookies["ann"])]))


def test_address_that_takes_all_streams_is_refused_and_others_go_on(serve: Serve, follow: Follow, queue: Queue):
    queue.send("first", delay=60)
    url = serve()
    assert len(refused([follow(f"{url}/live") for _ in range(sse.MOST_EACH + 1)])) == 1
    assert follow(f"{url}/live", "", "127.0.0.2").has_seen(ONE)


def test_polling_stops_when_nobody_watches(redis_server: RedisServer, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("first", delay=60)
    monkeypatch.setattr(health_sweep, "LINGER", 0.05)
    monkeypatch.setattr(health_sweep, "ROUND_SECONDS", 0.01)

    async def follow_twice() -> None:
        server = DashboardServer("main", redis_server.url, "delayq")
        watch = ServerPoller(server, 0.01)
        following = watch.following(QueueListView())
        counts = [(await anext(following)).queues[0].stats.pending for _ in range(2)]
        assert counts == [1, 1]
        assert len(asyncio.all_tasks()) > 1
        await following.aclose()
        await holds(lambda: len(asyncio.all_tasks()) == 1)
        await server.close()

    asyncio.run(follow_twice())


def test_too_many_browsers_are_refused(serve: Serve, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("first", delay=60)
    monkeypatch.setattr(sse, "MOST", 1)
    url = serve()
    with Follower(f"{url}/main/live") as first:
        assert first.has_seen(ONE)
        refused = httpx.get(f"{url}/main/live", timeout=120)
        assert (refused.status_code, "1 browsers are watching" in refused.text) == (503, True)
    monkeypatch.setattr(sse, "SECONDS", 0.1)
    assert eventually(lambda: httpx.get(f"{url}/main/live", timeout=120).status_code == 200)


def test_stream_ends_so_that_logged_out_users_see_no_more(serve: Serve, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("first", delay=60)
    monkeypatch.setattr(sse, "SECONDS", 0.5)
    url = serve()
    assert eventually(lambda: ONE in httpx.get(f"{url}/main/live", timeout=120).text)  # each has an end


def test_head_request_opens_no_stream(serve: Serve, queue: Queue):
    queue.send("first", delay=60)
    assert httpx.head(f"{serve()}/main/live", timeout=120).headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.full
def test_server_that_returns_is_shown_again(serve: Serve, follow: Follow, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        queue.send("first", delay=60)
    url = serve(servers={"main": own_server.url})
    follower = follow(f"{url}/main/live")
    assert follower.has_seen(ONE)
    own_server.kill()
    assert follower.has_seen("check that the server is running")
    before = follower.text.count(ONE)
    own_server.start()
    assert eventually(lambda: follower.text.count(ONE) > before)
